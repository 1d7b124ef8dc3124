/**
 * The operator's command that wraps master keys, such as a call of a key management service (TRELLIS_KMS_COMMAND).
 *
 * `COMMAND wrap` gets the base64 of a key on standard input and prints its wrapped form, a text without spaces and commas;
 * `COMMAND unwrap` gets that text and prints the base64. No error contains a key or the text that wraps it.
 */
import { spawn } from 'node:child_process';
import { createSecretKey } from 'node:crypto';
import { childEnvironment } from '../sdk/child-environment.ts';
import { ConfigError, type KmsConfig, type MasterKey, type WrappedKey } from './config/config.ts';

type Limits = { limitMs: number };
const limits: Limits = { limitMs: 30_000 };
const maxOutputBytes = 64 * 1024;

/** Throws ConfigError. */
export async function wrapMasterKey(
  kms: KmsConfig,
  { id, key }: MasterKey,
  { limitMs } = limits,
): Promise<WrappedKey> {
  const input = key.export().toString('base64');
  const printed = await run(kms, { operation: 'wrap', id, input, limitMs });
  const wrapped = printed.replace(/\s+/g, '');
  if (!/^[^\s,]{1,8192}$/.test(wrapped))
    throw fault({ operation: 'wrap', id }, 'its output is empty, too long, or contains a comma');
  return { id, wrapped };
}

/** One after the other, in their order. Throws ConfigError. */
export async function unwrapMasterKeys(kms: KmsConfig, wrapped: readonly WrappedKey[]): Promise<MasterKey[]> {
  const keys: MasterKey[] = [];
  for (const { id, wrapped: input } of wrapped) {
    const bytes = Buffer.from(await run(kms, { operation: 'unwrap', id, input, ...limits }), 'base64');
    if (bytes.length !== 32)
      throw fault({ operation: 'unwrap', id }, 'its output is not the base64 of 32 bytes');
    keys.push({ id, key: createSecretKey(bytes) });
  }
  return keys;
}

type Call = { operation: 'wrap' | 'unwrap'; id: string };

/** What the command printed on standard output. */
function run(
  { command, env }: KmsConfig,
  { limitMs, input, ...call }: Call & Limits & { input: string },
): Promise<string> {
  const [program = '', ...args] = command;
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  // Its own process group, so that the programs of a script end with it.
  const child = spawn(program, [...args, call.operation], {
    env: childEnvironment(env),
    detached: true,
  });
  let [printed, said] = ['', ''];
  const end = (why: string) => {
    reject(fault(call, why));
    killGroup(child.pid);
  };
  const timer = setTimeout(() => end(`it did not end within ${limitMs / 1000} s`), limitMs);
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
    if (printed.length > maxOutputBytes) end('its output is too long');
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-4_096);
  });
  child.on('error', (error: NodeJS.ErrnoException) => end(`it cannot be run (${error.code})`));
  child.on('close', (code, signal) => {
    clearTimeout(timer);
    if (code === 0) resolve(printed.trim());
    else reject(fault(call, `it ended with ${signal ?? code}${quoted(said)}`));
  });
  // A command may end without reading.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  return promise;
}

function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

/** The end of what the command wrote to standard error, without anything that can be a key. */
function quoted(said: string): string {
  const text = said
    .replace(/[A-Za-z0-9+/=_:.-]{24,}/g, '...')
    .replace(/\s+/g, ' ')
    .trim();
  return text === '' ? '' : `: ${text.slice(-500)}`;
}

function fault({ operation, id }: Call, why: string): ConfigError {
  return new ConfigError([`TRELLIS_KMS_COMMAND, ${operation} of the master key "${id}": ${why}`]);
}
