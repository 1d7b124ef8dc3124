import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { runCommandLine } from '../../server/cli/run.ts';
import { openSecretWatch, type SecretKind } from './secret-watch.ts';

const root = join(import.meta.dirname, '../..');
const main = join(root, 'server/cli/main.ts');
/** What a process of the product has of the test run's environment: nothing that is a setting. */
export const surroundings = {
  PATH: process.env.PATH,
  HOME: process.env.HOME,
  // What was compiled once is not compiled by each of them again.
  NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
};

/** What an operator's command came to. */
export type CommandEnd = { code: number; stdout: string; stderr: string };

/** Runs `trellis ...args` to its end, with these settings alone. Rejects where it prints a secret out of them. */
export function runCommand(args: string[], env: Record<string, string>): Promise<CommandEnd> {
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [main, ...args],
      { cwd: root, env: { ...surroundings, ...env } },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        const watch = openSecretWatch();
        for (const [kind, secret] of secretsOf(env)) watch.made(kind, secret);
        watch.log.write(stdout + stderr);
        const leaks = watch.leaks();
        if (leaks.length > 0) reject(new Error(leaks.join('\n')));
        else if (typeof code === 'number') resolve({ code, stdout, stderr });
        else reject(error as Error);
      },
    );
  });
}

/** Like `runCommand`, but in this process, which saves the start of one. For developer commands, and for wrong usage. */
export async function callCommand(args: string[], env: Record<string, string> = {}): Promise<CommandEnd> {
  const [stdout, stderr]: [string[], string[]] = [[], []];
  const code = await runCommandLine(args, {
    env,
    print: (line) => void stdout.push(`${line}\n`),
    printError: (line) => void stderr.push(`${line}\n`),
  });
  return { code, stdout: stdout.join(''), stderr: stderr.join('') };
}

/** The secrets among a command's settings; none of them is for it to print. */
function* secretsOf(env: Record<string, string>): Iterable<[SecretKind, string | Buffer]> {
  for (const entry of env.TRELLIS_ENCRYPTION_KEYS?.split(',') ?? []) {
    const [, base64 = ''] = entry.split(':');
    yield ['master_key', base64];
    yield ['master_key', Buffer.from(base64, 'base64')];
  }
  yield ['key', env.TRELLIS_SECRET_KEY ?? ''];
  yield ['password', URL.parse(env.DATABASE_URL ?? '')?.password ?? ''];
}

/** Starts `trellis ...args` and kills it, as `kill -9` does, when `isTime` resolves. */
export async function killCommand(
  args: string[],
  { env, isTime }: { env: Record<string, string>; isTime: () => Promise<void> },
): Promise<void> {
  const child = spawn(process.execPath, [main, ...args], {
    cwd: root,
    env: { ...surroundings, ...env },
    stdio: 'ignore',
  });
  const exited = once(child, 'exit');
  await isTime();
  child.kill('SIGKILL');
  const [, signal] = await exited;
  if (signal !== 'SIGKILL') throw new Error('the command had ended before it was killed');
}
