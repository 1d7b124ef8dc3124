import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');
const main = join(root, 'server/cli/main.ts');
const own = { PATH: process.env.PATH, HOME: process.env.HOME };

/** What an operator's command came to. */
export type CommandEnd = { code: number; stdout: string; stderr: string };

/** Runs `trellis ...args` to its end, with these settings alone. */
export function runCommand(args: string[], env: Record<string, string>): Promise<CommandEnd> {
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [main, ...args],
      { cwd: root, env: { ...own, ...env } },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        if (typeof code === 'number') resolve({ code, stdout, stderr });
        else reject(error as Error);
      },
    );
  });
}

/** Starts `trellis ...args` and kills it, as `kill -9` does, when `isTime` resolves. */
export async function killCommand(
  args: string[],
  { env, isTime }: { env: Record<string, string>; isTime: () => Promise<void> },
): Promise<void> {
  const child = spawn(process.execPath, [main, ...args], {
    cwd: root,
    env: { ...own, ...env },
    stdio: 'ignore',
  });
  const exited = once(child, 'exit');
  await isTime();
  child.kill('SIGKILL');
  const [, signal] = await exited;
  if (signal !== 'SIGKILL') throw new Error('the command had ended before it was killed');
}
