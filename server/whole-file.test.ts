import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { writeWhole } from './whole-file.ts';

/** A user without rights, as numbers go on Linux and most others. */
const nobody = 65_534;
let dir: string;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'trellis-whole-file-'));
});
after(() => rm(dir, { recursive: true }));

test('a file is replaced as a whole, for its owner alone, also by twenty at once', async () => {
  const path = join(dir, 'twenty');
  const texts = Array.from({ length: 20 }, (_, n) => `${n}`.repeat(10_000));
  await Promise.all(
    texts.map((text) => writeWhole(path, (file) => file.writeFile(text)).then(() => readFile(path, 'utf8'))),
  ).then((read) => {
    for (const text of read) assert.ok(texts.includes(text));
  });
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(dir), ['twenty']);
  await rm(path);
});

test('what fails half-way leaves the file from before, and no draft', async () => {
  const path = join(dir, 'kept');
  await writeWhole(path, (file) => file.writeFile('before'));
  const failing = writeWhole(path, async (file) => {
    await file.writeFile('half');
    throw new Error('no more');
  });
  await assert.rejects(failing, /no more/);
  assert.equal(await readFile(path, 'utf8'), 'before');
  assert.deepEqual(await readdir(dir), ['kept']);
  await rm(path);
});

test('drafts that were left behind go; one that is being written, and other files, stay', async () => {
  const path = join(dir, 'data.keys');
  const long = new Date(Date.now() - 3_600_000);
  const names = [
    'data.keys.0123456789ab.draft',
    'data.keys.ffffffffffff.draft',
    'data.keys.old',
    'x.0123456789ab.draft',
  ];
  for (const name of names) {
    await writeFile(join(dir, name), 'keys');
    if (!name.includes('ffff')) await utimes(join(dir, name), long, long);
  }
  await writeWhole(path, (file) => file.writeFile('new'));
  assert.deepEqual((await readdir(dir)).sort(), ['data.keys', ...names.slice(1)]);
});

test('a link stays a link: what it leads to is replaced, and one that leads nowhere is refused', async () => {
  const volume = join(dir, 'volume');
  await mkdir(volume);
  const [target, link] = [join(volume, 'there'), join(dir, 'link')];
  await symlink(join('volume', 'there'), link);
  await assert.rejects(
    writeWhole(link, (file) => file.writeFile('lost')),
    /link is a symbolic link to a file that does not exist/,
  );
  assert.deepEqual(await readdir(volume), []);
  await writeFile(target, 'before');
  await writeWhole(link, (file) => file.writeFile('after'));
  assert.equal((await lstat(link)).isSymbolicLink(), true);
  assert.equal(await readFile(target, 'utf8'), 'after');
  assert.deepEqual(await readdir(volume), ['there']);
});

test('a folder that may be written to and not read will do', { skip: process.getuid?.() !== 0 }, async () => {
  const folder = join(dir, 'closed');
  await mkdir(folder);
  await chmod(dir, 0o711);
  await chown(folder, nobody, nobody);
  await chmod(folder, 0o300);
  const writing = `const { writeWhole } = await import(${JSON.stringify(import.meta.resolve('./whole-file.ts'))});
    process.setgid(${nobody});
    process.setuid(${nobody});
    await writeWhole(process.argv[1], (file) => file.writeFile('keys'));`;
  const path = join(folder, 'data.keys');
  await promisify(execFile)(process.execPath, ['--input-type=module', '-e', writing, path]);
  assert.equal(await readFile(path, 'utf8'), 'keys');
});
