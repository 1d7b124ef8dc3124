import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { writeWhole } from '../../whole-file.ts';
import { beginKeyFile, findMadeAt, type KeyFile, readKeyFile } from './key-file.ts';

let dir: string;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'trellis-key-file-'));
});
after(() => rm(dir, { recursive: true }));

const given: KeyFile = {
  madeAt: new Date('2030-01-31T12:00:00.123Z'),
  dataKeys: [1, 2, 3].map(() => ({ id: crypto.randomUUID(), wrapped: randomBytes(64) })),
  apiKeys: [
    {
      hash: randomBytes(32).toString('base64'),
      environment: 'dev',
      name: 'with\na line break, \r, \u0085, \u2028 and \u2029',
      scopes: ['proxy:read'],
      proxy_rules: [{ effect: 'deny', path: '/a' }],
      expires_at: '2031-01-31T12:00:00.000Z',
    },
  ],
  unread: 0,
};

async function write(name: string): Promise<{ path: string; text: string }> {
  const path = join(dir, name);
  await writeWhole(path, async (file) => {
    const draft = await beginKeyFile(file, given.madeAt);
    for (const key of given.dataKeys) await draft.addDataKeys([key]);
    await draft.addApiKeys(given.apiKeys);
    await draft.end();
  });
  return { path, text: await readFile(path, 'utf8') };
}

test('a written file is read back, and each line is a key', async () => {
  const { path, text } = await write('whole');
  assert.deepEqual(await readKeyFile(path), given);
  assert.deepEqual(await findMadeAt(path), given.madeAt);
  assert.equal(text.split('\n').length, 1 + 3 + 1 + 1 + 1);
});

test('an incomplete or invalid file is refused with its fault', async () => {
  const { text } = await write('damaged');
  const lines = text.trimEnd().split('\n');
  const [, dataKey = '', , , apiKey = '', sum = ''] = lines;
  const flipped = (line: string, at: number, [one = '', two = ''] = 'AB') => {
    const other = line[at] === one ? two : one;
    return text.replace(line, line.slice(0, at) + other + line.slice(at + 1));
  };
  const faults: [what: string, fault: string, text: string][] = [
    ['nothing', 'is not a file of keys', ''],
    ['another text', 'is not a file of keys', 'hello\n'],
    ['another version', 'is not a file of keys', text.replace('version 1', 'version 2')],
    ['another moment', 'is incomplete or damaged', text.replace('2030', '2031')],
    ['no moment', 'is not a file of keys', text.replace('2030-01-31', 'yesterday')],
    ['no end', 'is incomplete or damaged', lines.slice(0, -1).join('\n')],
    ['half a line', 'is incomplete or damaged', text.slice(0, -10)],
    ['a key less', 'is incomplete or damaged', lines.toSpliced(1, 1).join('\n')],
    ['a key twice', 'is incomplete or damaged', lines.toSpliced(1, 0, dataKey).join('\n')],
    ['the head alone', 'is incomplete or damaged', `${lines[0]}\n`],
    ['another letter of a key', 'is incomplete or damaged', flipped(dataKey, dataKey.length - 20)],
    ['another letter of its id', 'is incomplete or damaged', flipped(dataKey, 5, '01')],
    ['another scope', 'is incomplete or damaged', text.replace('proxy:read', 'proxy:rear')],
    ['a data key that is none', 'holds a line that is not a key', text.replace(dataKey, 'data 1')],
    ['an API key that is none', 'is incomplete or damaged', text.replace('"dev"', '7')],
    ['an API key that is cut off', 'is incomplete or damaged', text.replace(apiKey, apiKey.slice(0, -1))],
    ['a line of another kind', 'holds a line that is not a key', text.replace('sha256 ', 'sha ')],
    ['a line behind the end', 'continues after its end', `${text}${dataKey}\n`],
    ['two ends', 'continues after its end', `${text}${sum}\n`],
    ['an end in between', 'continues after its end', lines.toSpliced(2, 0, sum).join('\n')],
  ];
  for (const [what, fault, damaged] of faults) {
    const path = join(dir, 'some');
    await writeFile(path, damaged);
    await assert.rejects(readKeyFile(path), { message: `${path} ${fault}` }, what);
  }
});

test('an API key that cannot be read costs no other key: it is counted', async () => {
  const path = join(dir, 'odd');
  await writeWhole(path, async (file) => {
    const draft = await beginKeyFile(file, given.madeAt);
    await draft.addDataKeys(given.dataKeys);
    for (const odd of [{ expires_at: '+010000-01-01T00:59:59.000Z' }, { scopes: undefined as never }])
      await draft.addApiKeys([{ ...given.apiKeys[0]!, ...odd }]);
    await draft.addApiKeys(given.apiKeys);
    await draft.end();
  });
  assert.deepEqual(await readKeyFile(path), { ...given, unread: 2 });
});

test('the time of a damaged file can be read; another file is not accepted as a key file', async () => {
  const { path, text } = await write('half');
  await writeFile(path, text.slice(0, 100));
  assert.deepEqual(await findMadeAt(path), given.madeAt);
  await writeFile(path, '');
  assert.equal(await findMadeAt(path), undefined);
  assert.equal(await findMadeAt(join(dir, 'missing')), undefined);
  await writeFile(path, '# Notes\n');
  await assert.rejects(findMadeAt(path), /is not a file of keys$/);
  await assert.rejects(readKeyFile(join(dir, 'missing')), /ENOENT/);
});
