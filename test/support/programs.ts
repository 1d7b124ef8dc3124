// Programs that tests start beside the service: they end with this process, whichever way it ends.

import { chownSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Account } from '../../server/db/embedded/account.ts';
import { type Guarded, spawnGuarded } from '../../server/db/embedded/server.ts';

export type Program = { guarded: Guarded; output: () => string };

export function startProgram(
  command: string[],
  { account, libraryPath = '' }: { account: Account; libraryPath?: string },
): Program {
  let output = '';
  const guarded = spawnGuarded({
    command,
    libraryPath,
    account,
    onOutput: (text) => {
      output = (output + text).slice(-4000);
    },
  });
  return { guarded, output: () => output };
}

/** Throws what the program said where it ends before. */
export async function untilReady(
  program: Program,
  { isReady, signal }: { isReady: () => Promise<boolean>; signal?: AbortSignal | undefined },
): Promise<void> {
  let isEnded = false;
  program.guarded.exited
    .finally(() => {
      isEnded = true;
    })
    .catch(() => {});
  while (!(await isReady())) {
    signal?.throwIfAborted();
    if (isEnded) throw new Error(`did not start: ${program.output()}`);
    await sleep(20);
  }
}

/** Asks it to end, and after 3 s makes it. */
export async function endProgram({ guarded }: Program): Promise<void> {
  guarded.order('INT');
  const harder = setTimeout(() => guarded.order('KILL'), 3000);
  await guarded.exited.catch(() => {});
  clearTimeout(harder);
}

/** For the account alone. */
export function writeReadable(file: string, text: string, account: Account): void {
  writeFileSync(file, text, { mode: 0o600 });
  if (account.identity.uid !== undefined) chownSync(file, account.uid, account.gid);
}

export function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('error', () => resolve(false)).once('connect', () => socket.end());
    socket.once('close', (hadError) => resolve(!hadError));
  });
}
