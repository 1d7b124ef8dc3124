import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { openSealed, seal } from './sealed.ts';

const passphrase = 'correct horse battery';
const given = {
  id: '00000000-0000-4000-8000-000000000001',
  made_at: '2026-01-31T00:00:00.000Z',
  contents: { environments: ['prod'], records: true, api_keys: false },
};
const chunk = 64 * 1024;
/** A guess need not be dear here. */
const cost = { n: 2 ** 10, r: 8, p: 1 };

let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trellis-sealed-'));
});
after(() => rm(folder, { recursive: true }));

async function* pieces(plain: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < plain.length; at += 10_007) yield plain.subarray(at, at + 10_007);
}

async function sealed(plain: Buffer): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(seal(pieces(plain), { given, passphrase, cost })));
}

/** What comes out of these bytes. */
async function opened(bytes: Buffer, by = passphrase): Promise<Buffer> {
  const path = join(folder, 'file');
  await writeFile(path, bytes);
  const file = await open(path);
  try {
    return Buffer.concat(await Array.fromAsync((await openSealed(file, by)).read()));
  } finally {
    await file.close();
  }
}

for (const size of [0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk, 200_000])
  test(`${size} bytes are decrypted unchanged, and the file does not contain them in plain text`, async () => {
    const plain = randomBytes(size);
    const bytes = await sealed(plain);
    assert.ok((await opened(bytes)).equals(plain));
    if (size > 100) assert.equal(bytes.indexOf(plain.subarray(0, 16)), -1);
  });

test('the head describes the file, and is readable without a passphrase', async () => {
  const path = join(folder, 'head');
  await writeFile(path, await sealed(Buffer.from('x')));
  const [first, second] = (await readFile(path, 'latin1')).split('\n');
  assert.equal(first, 'trellis export, version 1');
  assert.deepEqual(JSON.parse(second!).contents, given.contents);
  const file = await open(path);
  assert.deepEqual((await openSealed(file, passphrase)).head, given);
  await file.close();
});

test('a wrong passphrase and a changed head are reported', async () => {
  const bytes = await sealed(Buffer.from('x'));
  await assert.rejects(opened(bytes, 'correct horse batterY'), /passphrase is wrong/);
  const changed = Buffer.from(bytes.toString('latin1').replace('"prod"', '"test"'), 'latin1');
  await assert.rejects(opened(changed), /passphrase is wrong, or the head/);
  await assert.rejects(opened(Buffer.from('hello\n')), /not written by "trellis export"/);
  await assert.rejects(opened(Buffer.alloc(0)), /not written by "trellis export"/);
  const newer = Buffer.from(bytes.toString('latin1').replace('version 1', 'version 2'), 'latin1');
  await assert.rejects(opened(newer), /supports only version 1/);
  const costly = Buffer.from(bytes.toString('latin1').replace('"n":1024', '"n":1073741824'), 'latin1');
  await assert.rejects(opened(costly), /more memory than allowed/);
});

test('each attempt at the passphrase needs 128 MB by default', async () => {
  const [first] = await Array.fromAsync(seal(pieces(Buffer.from('x')), { given, passphrase }));
  const { scrypt } = JSON.parse(first!.toString().split('\n')[1]!) as { scrypt: { n: number; r: number } };
  assert.equal(128 * scrypt.n * scrypt.r, 128 * 1024 ** 2);
});

test('the passphrase can be entered in another Unicode normalization', async () => {
  const bytes = Buffer.concat(
    await Array.fromAsync(
      seal(pieces(Buffer.from('x')), { given, passphrase: 'Zürich Zürich'.normalize('NFD'), cost }),
    ),
  );
  assert.equal((await opened(bytes, 'Zürich Zürich'.normalize('NFC'))).toString(), 'x');
});

test('a truncated file is detected at every length', async () => {
  const bytes = await sealed(randomBytes(3 * chunk + 100));
  const head = bytes.indexOf(10, bytes.indexOf(10, bytes.indexOf(10) + 1) + 1) + 1;
  const sealedChunk = chunk + 16;
  for (const length of [
    head,
    head + 10,
    head + sealedChunk,
    head + 2 * sealedChunk,
    head + 2 * sealedChunk + 5,
  ])
    await assert.rejects(opened(bytes.subarray(0, length)), /truncated|damaged/, String(length));
  await assert.rejects(opened(bytes.subarray(0, head + sealedChunk)), /its end is missing/);
  await assert.rejects(opened(Buffer.concat([bytes, Buffer.alloc(1)])), /damaged/);
  await assert.rejects(opened(Buffer.concat([bytes, bytes.subarray(head)])), /damaged/);
});

test('a changed, moved, removed or duplicated chunk is detected', async () => {
  const bytes = await sealed(randomBytes(3 * chunk + 100));
  const head = bytes.indexOf(10, bytes.indexOf(10, bytes.indexOf(10) + 1) + 1) + 1;
  const at = (n: number) => bytes.subarray(head + n * (chunk + 16), head + (n + 1) * (chunk + 16));
  const start = bytes.subarray(0, head);
  for (const offset of [head, head + 70_000, bytes.length - 1]) {
    const changed = Buffer.from(bytes);
    changed[offset]! ^= 1;
    await assert.rejects(opened(changed), /damaged, or was changed, near byte/);
  }
  for (const order of [[1, 0, 2, 3], [0, 2, 1, 3], [0, 2, 3], [0, 1, 1, 2, 3], [3]])
    await assert.rejects(opened(Buffer.concat([start, ...order.map(at)])), /damaged/, order.join());
});

test('chunks of another file with the same passphrase are refused', async () => {
  const [one, other] = [await sealed(randomBytes(2 * chunk)), await sealed(randomBytes(2 * chunk))];
  const head = one.length - 2 * (chunk + 16);
  const mixed = Buffer.concat([one.subarray(0, head + chunk + 16), other.subarray(head + chunk + 16)]);
  await assert.rejects(opened(mixed), /damaged/);
});
