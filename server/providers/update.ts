/**
 * Updates of the definitions without a new version of the service: a signed file, applied to the operator's folder.
 *
 * The first line of the file is `trellis-providers 1 SIGNATURE`, an Ed25519 signature (RFC 8032) in base64 of all bytes
 * after that line. These are JSON: the time at which it was made, and the texts of definitions by name. Applied, it is the
 * folder `updates` of TRELLIS_PROVIDERS_DIR; the one before is `updates.previous`.
 *
 * Does not own: reading definitions (`source.ts`), telling the nodes (`cli/providers.ts`).
 */
import { type KeyObject, sign, verify } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';

/** The update is not valid, or cannot be applied. The message is a sentence for the operator. */
export class ProviderUpdateError extends Error {
  override readonly name = 'ProviderUpdateError';
}

const magic = 'trellis-providers 1 ';
const maxBytes = 16 * 1024 * 1024;
const payloadSchema = z.strictObject({
  made_at: z.iso.datetime(),
  definitions: z.record(z.string().regex(/^[a-z0-9][a-z0-9-]{0,99}$/), z.string().max(1024 * 1024)),
});
export type ProviderUpdate = { madeAt: Date; definitions: Readonly<Record<string, string>> };

type Check = (updates: string) => Promise<void>;

/** The folder of the applied update, below the operator's. */
export function updatesIn(providersDir: string): string {
  return join(providersDir, 'updates');
}
const previousIn = (providersDir: string) => join(providersDir, 'updates.previous');
/** The time of an applied update, beside its definitions. */
const madeAtFile = 'made_at';

/** The content of a file whose signature is valid. Throws ProviderUpdateError. */
export function readUpdate(file: Buffer, key: KeyObject): ProviderUpdate {
  if (file.length > maxBytes) throw new ProviderUpdateError('The file is too large.');
  const end = file.indexOf('\n');
  const head = file.toString('latin1', 0, Math.max(end, 0));
  if (!head.startsWith(magic)) throw new ProviderUpdateError('The file is not an update of definitions.');
  const payload = file.subarray(end + 1);
  const signature = Buffer.from(head.slice(magic.length), 'base64');
  if (!verify(null, payload, key, signature))
    throw new ProviderUpdateError('The signature is not valid for the key in TRELLIS_PROVIDERS_SIGNED_BY.');
  const read = payloadSchema.safeParse(parsed(payload.toString()));
  if (!read.success)
    throw new ProviderUpdateError(`The content is not valid. ${z.prettifyError(read.error)}`);
  return { madeAt: new Date(read.data.made_at), definitions: read.data.definitions };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The file with the definitions of a folder, signed by an Ed25519 private key. */
export async function signUpdate(
  directory: string,
  { key, madeAt }: { key: KeyObject; madeAt: Date },
): Promise<Buffer> {
  const files = (await readdir(directory)).filter((name) => name.endsWith('.yaml')).sort();
  const texts = await Promise.all(
    files.map(async (name) => [basename(name, '.yaml'), await readFile(join(directory, name), 'utf8')]),
  );
  const content = { made_at: madeAt.toISOString(), definitions: Object.fromEntries(texts) };
  const payload = Buffer.from(`${JSON.stringify(payloadSchema.parse(content), undefined, 1)}\n`);
  const signature = sign(null, payload, key).toString('base64');
  return Buffer.concat([Buffer.from(`${magic}${signature}\n`), payload]);
}

/** When the applied update was made; undefined if there is none. */
export async function appliedUpdate(providersDir: string): Promise<Date | undefined> {
  const file = join(updatesIn(providersDir), madeAtFile);
  return existsSync(file) ? new Date((await readFile(file, 'utf8')).trim()) : undefined;
}

/**
 * Puts an update in the place of the applied one, which is kept. `check` gets a folder with the new definitions before they
 * are in use, and rejects if they cannot be used. Throws ProviderUpdateError for an update that is not newer.
 */
export async function applyUpdate(
  providersDir: string,
  { update, check }: { update: ProviderUpdate; check: Check },
): Promise<void> {
  const applied = await appliedUpdate(providersDir);
  if (applied !== undefined && update.madeAt <= applied)
    throw new ProviderUpdateError(
      `The update of ${update.madeAt.toISOString()} is not newer than the applied one of ${applied.toISOString()}.`,
    );
  const next = await mkdtemp(join(providersDir, '.updates-'));
  try {
    for (const [name, text] of Object.entries(update.definitions))
      await writeFile(join(next, `${name}.yaml`), text);
    await writeFile(join(next, madeAtFile), `${update.madeAt.toISOString()}\n`);
    await check(next);
    const current = updatesIn(providersDir);
    await rm(previousIn(providersDir), { recursive: true, force: true });
    if (existsSync(current)) await rename(current, previousIn(providersDir));
    // Without a folder to go back to, a rollback leaves the definitions that ship.
    else await mkdir(previousIn(providersDir));
    await rename(next, current);
  } finally {
    await rm(next, { recursive: true, force: true });
  }
}

/**
 * Removes the applied update, and puts the one before in its place if there is one. `check` gets the folder of the latter,
 * which may be missing or empty, and rejects if its definitions cannot be used. Throws ProviderUpdateError.
 */
export async function rollBackUpdate(providersDir: string, { check }: { check: Check }): Promise<void> {
  const current = updatesIn(providersDir);
  if (!existsSync(current)) throw new ProviderUpdateError('No update is applied.');
  await check(previousIn(providersDir));
  const dropped = await mkdtemp(join(providersDir, '.updates-'));
  await rename(current, join(dropped, 'updates'));
  const previous = previousIn(providersDir);
  if (existsSync(join(previous, madeAtFile))) await rename(previous, current);
  else await rm(previous, { recursive: true, force: true });
  await rm(dropped, { recursive: true });
}
