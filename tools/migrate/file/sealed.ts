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
 * The format of a file that is sealed with a passphrase. docs/guides/export-and-import.md documents it.
 *
 * Two plain lines describe the file; a third authenticates them with the passphrase. Chunks of 64 KB follow, each
 * AES-256-GCM with the number of the chunk as nonce and a mark on the last: so a chunk that was changed, moved, removed or
 * added is detected, and so is a truncated file (the STREAM construction; Hoang, Reyhanitabar, Rogaway, Vizár, "Online
 * Authenticated-Encryption", 2015). Keys are derived from the passphrase by scrypt (RFC 7914) with a salt of the file, so
 * no nonce is used twice with one key.
 */
const kind = 'trellis export, version 1';
const chunkBytes = 64 * 1024;
const tagBytes = 16;
const maxHeadBytes = 64 * 1024;
type Cost = { n: number; r: number; p: number };
/** 128 MB and some tenths of a second for each guess. */
const usualCost: Cost = { n: 2 ** 17, r: 8, p: 1 };
/** The head of the file sets the cost of opening it, up to this memory. */
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
/** The plain part. */
type Head = Omit<WholeHead, 'scrypt'>;

/** The bytes of a file with the content that `plain` yields. */
export async function* seal(
  plain: AsyncIterable<Buffer>,
  { given, passphrase, cost = usualCost }: { given: Head; passphrase: string; cost?: Cost },
): AsyncGenerator<Buffer> {
  const whole: WholeHead = { ...given, scrypt: { ...cost, salt: randomBytes(16).toString('base64') } };
  const lines = `${kind}\n${JSON.stringify(whole)}\n`;
  const keys = await keysOf(passphrase, { lines, scrypt: whole.scrypt });
  yield Buffer.from(`${lines}${keys.proof.toString('base64')}\n`);
  let number = 0;
  // The last chunk is marked, so each chunk waits for the next one.
  for await (const { chunk, isLast } of chunksOf(plain)) {
    const cipher = createCipheriv('aes-256-gcm', keys.body, nonceOf(number, isLast));
    yield Buffer.concat([cipher.update(chunk), cipher.final(), cipher.getAuthTag()]);
    number += 1;
  }
}

/** Pieces of `chunkBytes`, except the last, which may be shorter, and empty if there is no content. */
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

export type OpenedFile = {
  head: Head;
  sizeBytes: number;
  /** The content from its beginning; throws at the first chunk that was changed. */
  read(): AsyncGenerator<Buffer>;
};

/** Throws if it is not an export, or has another passphrase. Does not read the body. */
export async function openSealed(file: FileHandle, passphrase: string): Promise<OpenedFile> {
  const { size: sizeBytes } = await file.stat();
  const start = Buffer.alloc(Math.min(maxHeadBytes, sizeBytes));
  await file.read(start, 0, start.length, 0);
  const [first = '', second = '', third = '', rest] = start.toString('latin1').split('\n', 4);
  if (!/^trellis export, version \d+$/.test(first))
    throw new Error('The file was not written by "trellis export".');
  if (first !== kind) throw new Error(`The file is a "${first}"; this service supports only version 1.`);
  const lines = start.subarray(0, first.length + second.length + 2).toString('utf8');
  const parsed = head.safeParse(parse(lines.split('\n')[1] ?? ''));
  if (rest === undefined || !parsed.success) throw new Error('The head of the file is damaged.');
  const { scrypt: asked, ...given } = parsed.data;
  if (128 * asked.n * asked.r > maxMemory)
    throw new Error('Opening the file needs more memory than allowed.');
  const keys = await keysOf(passphrase, { lines, scrypt: asked });
  const proof = Buffer.from(third, 'base64');
  if (proof.length !== keys.proof.length || !timingSafeEqual(proof, keys.proof))
    throw new Error('The passphrase is wrong, or the head of the file was changed.');
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
          ? 'The file is truncated: its end is missing.'
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
