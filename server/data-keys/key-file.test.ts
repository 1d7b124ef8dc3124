import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { openKeyBench } from './data-keys.fixture.ts';
import { readKeyFile, replaceDataKeys, writeKeyFile } from './key-file.ts';
import { destroyDataKey } from './store.ts';

let bench: Awaited<ReturnType<typeof openKeyBench>>;
let dir: string;
before(async () => {
  bench = await openKeyBench();
  dir = await mkdtemp(join(tmpdir(), 'trellis-key-file-'));
});
after(async () => {
  await bench.drop();
  await rm(dir, { recursive: true });
});

test('a file holds the keys of its moment, for its owner alone, and takes the place of the one before', async () => {
  const path = join(dir, 'replaced');
  const made = await bench.make(3);
  assert.equal(await writeKeyFile(bench.db, path), 3);
  await destroyDataKey(bench.db, made[0]!.id);
  assert.equal(await writeKeyFile(bench.db, path), 2);
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(dir), ['replaced']);
  const { entries } = await readKeyFile(path);
  assert.deepEqual(entries.map(({ id }) => id).sort(), [made[1]!.id, made[2]!.id].sort());
  for (const { id, wrapped } of entries) assert.deepEqual(wrapped, await bench.wrappedOf(id));
});

test('keys come back as they were, wrapped by the first master key, in the place of all others', async () => {
  const path = join(dir, 'back');
  const { db, both, young } = bench;
  await db.query('delete from data_key');
  const [kept] = await bench.make(1);
  await writeKeyFile(db, path);
  await bench.make(2);
  await db.query('insert into master_key (id, proof) values ($1, $2) on conflict do nothing', [
    'young',
    Buffer.alloc(32),
  ]);
  const { entries } = await readKeyFile(path);
  await db.transaction((tx) => replaceDataKeys(tx, { entries, vault: both }));
  assert.deepEqual(await bench.counts(), { [young.id]: 1 });
  const key = both.unwrap((await bench.wrappedOf(kept!.id))!);
  assert.equal(key.open(kept!.sealed, 'test').toString(), 'text 0');
});

test('a file that is not whole, or is none, is refused', async () => {
  const path = join(dir, 'damaged');
  await bench.make(2);
  await writeKeyFile(bench.db, path);
  const text = await readFile(path, 'utf8');
  const lines = text.trimEnd().split('\n');
  const damaged = {
    'is no file of data keys': ['', 'hello\n', text.replace('version 1', 'version 2')],
    'is not whole': [
      lines.slice(0, -1).join('\n'),
      lines.toSpliced(1, 1).join('\n'),
      `${lines[0]}\n`,
      text.replace(/ [A-Za-z0-9+/]/, (found) => (found === ' A' ? ' B' : ' A')),
    ],
    'holds a line that is no key': [text.replace('sha256 ', 'sha ')],
    ENOENT: [undefined],
  };
  for (const [word, texts] of Object.entries(damaged)) {
    for (const [n, given] of texts.entries()) {
      const place = join(dir, `${word} ${n}`);
      if (given !== undefined) await writeFile(place, given);
      await assert.rejects(readKeyFile(place), new RegExp(word), `${word} ${n}`);
    }
  }
});
