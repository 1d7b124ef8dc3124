import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  hkdfSync,
  randomBytes,
  scrypt as scryptCallback,
  timingSafeEqual,
} from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { promisify } from 'node:util';
import { z } from 'zod';

/**
 * A file that is sealed with a passphrase: its format. docs/moving.md describes it for others.
 *
 * Two lines that anybody may read say what it is, a third proves that they are as they were written and that the passphrase
 * is the one. Behind them come chunks of 64 KB, each AES-256-GCM with the number of the chunk as nonce and a mark on the
 * last: so a chunk that was changed, moved, taken out or added is noticed, and so is an end that is missing (the STREAM
 * construction; Hoang, Reyhanitabar, Rogaway, Vizár, "Online Authenticated-Encryption", 2015). Keys come of the passphrase
 * by scrypt (RFC 7914) with a salt of the file's own, so no nonce is used twice with one key.
 */
const kind = 'trellis export, version 1';
const chunkBytes = 64 * 1024;
const tagBytes = 16;
const maxHeadBytes = 64 * 1024;
type Cost = { n: number; r: number; p: number };
/** 128 MB and some tenths of a second for each guess. */
const usualCost: Cost = { n: 2 ** 17, r: 8, p: 1 };
/** The creator of a file chooses the cost of opening it, up to this memory. */
const maxMemory = 512 * 1024 * 1024;

const scrypt = promisify<string, Buffer, number, object, Buffer>(scryptCallback);

const contents = z.strictObject({
  environments: z.array(z.string()),
  records: z.boolean(),
  api_keys: z.boolean(),
});
const head = z.strictObject({
  id: z.uuid(),
  made_at: z.iso.datetime(),
  contents,
  scrypt: z.strictObject({
    n: z.int().min(2 ** 10),
    r: z.int().min(8),
    p: z.int().min(1).max(4),
    salt: z.base64().min(20).max(100),
  }),
});
type WholeHead = z.output<typeof head>;
/** What anybody may read. */
type Head = Omit<WholeHead, 'scrypt'>;

/** The bytes of a file that holds what `plain` yields. */
export async function* seal(
  plain: AsyncIterable<Buffer>,
  { given, passphrase, cost = usualCost }: { given: Head; passphrase: string; cost?: Cost },
): AsyncGenerator<Buffer> {
  const whole: WholeHead = { ...given, scrypt: { ...cost, salt: randomBytes(16).toString('base64') } };
  const lines = `${kind}\n${JSON.stringify(whole)}\n`;
  const keys = await keysOf(passphrase, { lines, scrypt: whole.scrypt });
  yield Buffer.from(`${lines}${keys.proof.toString('base64')}\n`);
  let number = 0;
  // One is held back: only behind it is seen whether it is the last.
  for await (const { chunk, isLast } of chunksOf(plain)) {
    const cipher = createCipheriv('aes-256-gcm', keys.body, nonceOf(number, isLast));
    yield Buffer.concat([cipher.update(chunk), cipher.final(), cipher.getAuthTag()]);
    number += 1;
  }
}

/** Pieces of `chunkBytes` each but for the last, which may be shorter, and empty where there is nothing at all. */
async function* chunksOf(plain: AsyncIterable<Buffer>): AsyncGenerator<{ chunk: Buffer; isLast: boolean }> {
  let held: Buffer[] = [];
  let size = 0;
  for await (const piece of plain) {
    held.push(piece);
    size += piece.length;
    if (size <= chunkBytes) continue;
    const all = Buffer.concat(held);
    let at = 0;
    for (; all.length - at > chunkBytes; at += chunkBytes)
      yield { chunk: all.subarray(at, at + chunkBytes), isLast: false };
    held = [all.subarray(at)];
    size = all.length - at;
  }
  yield { chunk: Buffer.concat(held), isLast: true };
}

export type Opened = {
  head: Head;
  sizeBytes: number;
  /** What was sealed, from its beginning; throws at the first chunk that is not as it was written. */
  read(): AsyncGenerator<Buffer>;
};

/** Throws where it is no such file, or is of another passphrase. Nothing of the body is read yet. */
export async function openSealed(file: FileHandle, passphrase: string): Promise<Opened> {
  const { size: sizeBytes } = await file.stat();
  const start = Buffer.alloc(Math.min(maxHeadBytes, sizeBytes));
  await file.read(start, 0, start.length, 0);
  const [first = '', second = '', third = '', rest] = start.toString('latin1').split('\n', 4);
  if (!/^trellis export, version \d+$/.test(first))
    throw new Error('This is no file that "trellis export" has written.');
  if (first !== kind) throw new Error(`This is a ${first}, and this service reads version 1.`);
  const lines = start.subarray(0, first.length + second.length + 2).toString('utf8');
  const parsed = head.safeParse(parse(lines.split('\n')[1] ?? ''));
  if (rest === undefined || !parsed.success) throw new Error('The head of the file is damaged.');
  const { scrypt: asked, ...given } = parsed.data;
  if (128 * asked.n * asked.r > maxMemory)
    throw new Error('The file asks for more memory than is given to it.');
  const keys = await keysOf(passphrase, { lines, scrypt: asked });
  const proof = Buffer.from(third, 'base64');
  if (proof.length !== keys.proof.length || !timingSafeEqual(proof, keys.proof))
    throw new Error('The passphrase is not the one of this file, or the head of the file was changed.');
  const bodyAt = first.length + second.length + third.length + 3;
  return { head: given, sizeBytes, read: () => readChunks(file, { key: keys.body, at: bodyAt, sizeBytes }) };
}

async function* readChunks(
  file: FileHandle,
  { key, at: start, sizeBytes }: { key: Buffer; at: number; sizeBytes: number },
): AsyncGenerator<Buffer> {
  const sealed = Buffer.alloc(chunkBytes + tagBytes);
  let number = 0;
  for (let at = start; ; at += sealed.length) {
    const isLast = at + sealed.length >= sizeBytes;
    const { bytesRead } = await file.read(sealed, 0, Math.min(sealed.length, sizeBytes - at), at);
    const bytes = sealed.subarray(0, bytesRead);
    const plain = open(bytes, { key, number, isLast });
    if (plain === undefined) {
      const isCut = isLast && open(bytes, { key, number, isLast: false }) !== undefined;
      throw new Error(
        isCut || bytesRead === 0
          ? 'The file ends before its end: the rest of it is missing.'
          : `The file is damaged, or was changed, near byte ${at}.`,
      );
    }
    yield plain;
    if (isLast) return;
    number += 1;
  }
}

function open(
  bytes: Buffer,
  { key, number, isLast }: { key: Buffer; number: number; isLast: boolean },
): Buffer | undefined {
  if (bytes.length < tagBytes) return undefined;
  const decipher = createDecipheriv('aes-256-gcm', key, nonceOf(number, isLast), { authTagLength: tagBytes });
  decipher.setAuthTag(bytes.subarray(bytes.length - tagBytes));
  const plain = decipher.update(bytes.subarray(0, bytes.length - tagBytes));
  try {
    decipher.final();
    return plain;
  } catch {
    return undefined;
  }
}

function nonceOf(number: number, isLast: boolean): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeUIntBE(number, 5, 6);
  nonce.writeUInt8(isLast ? 1 : 0, 11);
  return nonce;
}

async function keysOf(
  passphrase: string,
  { lines, scrypt: { n, r, p, salt } }: { lines: string; scrypt: WholeHead['scrypt'] },
): Promise<{ body: Buffer; proof: Buffer }> {
  const options = { N: n, r, p, maxmem: 128 * n * r + 1024 * 1024 };
  const root = await scrypt(passphrase.normalize('NFC'), Buffer.from(salt, 'base64'), 32, options);
  const digest = createHash('sha256').update(lines).digest();
  const derive = (purpose: string) =>
    Buffer.from(hkdfSync('sha256', root, digest, `trellis export ${purpose}`, 32));
  return { body: derive('body'), proof: createHmac('sha256', derive('head')).update(lines).digest() };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
