// Programs of PostgreSQL as processes: started under a guard that outlives this one, recognised and stopped.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readlinkSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { childEnvironment } from '../../sdk/child-environment.ts';
import type { Account } from './embedded-account.ts';

type Order = 'INT' | 'QUIT' | 'KILL';

export interface Guarded {
  /** The program's exit code, above 128 where a signal ended it. Rejects where it could not be started. */
  exited: Promise<number>;
  /** Sends the program a signal. */
  order(signal: Order): void;
  /** Whether this process stays alive for the program's sake; it does until told otherwise. */
  unref(): void;
  ref(): void;
}

/**
 * Runs "$@" until it ends or until the other end of standard input is closed, which the kernel does for a
 * service that dies, whichever way. Lines of input are signals for the program.
 */
const guardScript = `
libraries=$1; shift
exec 3<&0 </dev/null
LD_LIBRARY_PATH="$libraries" "$@" 3<&- &
program=$!
(
  while read -r signal; do kill -s "$signal" "$program"; done
  kill -s INT "$program"
  for signal in QUIT KILL; do
    ticks=50
    while [ "$ticks" -gt 0 ]; do kill -s 0 "$program" || exit; sleep 0.1; ticks=$((ticks - 1)); done
    kill -s "$signal" "$program"
  done
) <&3 3<&- >/dev/null 2>&1 &
watch=$!
exec 3<&-
wait "$program"; code=$?
kill "$watch" 2>/dev/null; wait "$watch"
exit "$code"
`;

/**
 * Starts a program as `account`, in a session of its own, so that Ctrl-C in a terminal reaches the service
 * alone. All it prints goes to `onOutput`. Its environment holds nothing of ours.
 */
export function spawnGuarded(start: {
  command: string[];
  libraryPath: string;
  account: Account;
  onOutput: (text: string) => void;
}): Guarded {
  const child = spawn('/bin/sh', ['-c', guardScript, 'postgres-guard', start.libraryPath, ...start.command], {
    ...start.account.identity,
    cwd: '/',
    env: childEnvironment({ PATH: '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }),
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8');
    stream.on('data', start.onOutput);
  }
  // A guard that is gone cannot take an order (EPIPE); `exited` tells of it.
  child.stdin.on('error', () => {});
  const exited = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', async (code) => {
      // A guard that was killed leaves a watch that ends the program now.
      child.stdin.end();
      // The last words are worth a moment; a program that outlives its guard would hold them back.
      await Promise.race([once(child, 'close'), sleep(100)]);
      resolve(code ?? 255);
    });
  });
  exited.catch(() => {});
  const handles = [child, child.stdin, child.stdout, child.stderr] as unknown as {
    ref(): void;
    unref(): void;
  }[];
  return {
    exited,
    order: (signal) => child.stdin.write(`${signal}\n`),
    unref: () => {
      for (const handle of handles) handle.unref();
    },
    ref: () => {
      for (const handle of handles) handle.ref();
    },
  };
}

interface ServerFile {
  /** The whole text: one server's file never equals another's, since it holds pid and start time. */
  text: string;
  pid: number;
  port: number;
  socketDir: string;
  isReady: boolean;
}

/**
 * What the server of `clusterDir` says of itself in its `postmaster.pid`, whether it still lives or not.
 * Format: https://www.postgresql.org/docs/18/storage-file-layout.html, miscadmin.h "LOCK_FILE_LINE_*".
 */
export function readServerFile(clusterDir: string): ServerFile | undefined {
  let text: string;
  try {
    text = readFileSync(path.join(clusterDir, 'postmaster.pid'), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  const [pid, , , port, socketDir, , , status] = text.split('\n');
  return {
    text,
    pid: Number(pid),
    port: Number(port),
    socketDir: socketDir ?? '',
    isReady: status?.trim() === 'ready',
  };
}

/** The pid of the live server of `clusterDir`. A pid that another program has by now does not count. */
export function findServer(clusterDir: string): number | undefined {
  const pid = readServerFile(clusterDir)?.pid;
  if (!pid) return undefined;
  try {
    if (process.platform === 'linux') {
      // The server and all its processes work in the cluster's directory.
      return readlinkSync(`/proc/${pid}/cwd`) === clusterDir ? pid : undefined;
    }
    const command = execFileSync('/bin/ps', ['-o', 'args=', '-p', String(pid)], {
      env: childEnvironment(),
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    return command.includes(clusterDir) ? pid : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Leaves no server on `clusterDir`. For the holder of the lock: a server that still runs has lost its service.
 *
 * Its guard is ending it; told twice it ends no faster, and told here it ends where the guard was killed too.
 * A `postmaster.pid` whose pid
 * another program has by now (the usual case in a restarted container) is removed, since PostgreSQL would
 * take that program for a server. Throws when the server does not end.
 */
export async function endOrphan(clusterDir: string, log: (message: string) => void): Promise<void> {
  const orphan = findServer(clusterDir);
  if (orphan !== undefined) {
    log(`ending the PostgreSQL (pid ${orphan}) of a service that was killed`);
    for (const signal of ['SIGINT', 'SIGQUIT', 'SIGKILL'] as const) {
      signalServer(clusterDir, signal);
      if (await isGoneWithin(clusterDir, 3000)) break;
    }
    if (findServer(clusterDir) !== undefined) {
      throw new Error(
        `PostgreSQL (pid ${orphan}) still runs on ${clusterDir} and does not end; stop it first`,
      );
    }
  }
  const left = readServerFile(clusterDir);
  // With a dead pid the file stays: PostgreSQL also checks with it that no backend of the old server is left.
  if (left && isAlive(left.pid)) rmSync(path.join(clusterDir, 'postmaster.pid'), { force: true });
}

function signalServer(clusterDir: string, signal: NodeJS.Signals): void {
  const pid = findServer(clusterDir);
  try {
    if (pid !== undefined) process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

async function isGoneWithin(clusterDir: string, limitMs: number): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  while (findServer(clusterDir) !== undefined) {
    if (performance.now() > deadline) return false;
    await sleep(20);
  }
  return true;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
