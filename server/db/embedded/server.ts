// Processes of PostgreSQL programs: they are started by a guard that outlives this process, identified, and stopped.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readlinkSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { childEnvironment } from '../../../sdk/child-environment.ts';
import type { Account } from './account.ts';

type Order = 'INT' | 'QUIT' | 'KILL';

export interface Guarded {
  /** The program's exit code, above 128 if a signal ended it. Rejects if it could not be started. */
  exited: Promise<number>;
  /** Sends the program a signal. */
  order(signal: Order): void;
  /** The program keeps this process alive until `unref`. */
  unref(): void;
  ref(): void;
}

/**
 * Runs "$@" until it ends, or until the other end of standard input is closed: the kernel closes it when the service dies.
 * Lines of input are signals for the program.
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
 * Starts a program as `account`, in its own session, so Ctrl-C in a terminal reaches only the service. `onOutput` receives its
 * output. Its environment has no variable of the service.
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
  // A guard that has ended accepts no signal (EPIPE); `exited` reports its end.
  child.stdin.on('error', () => {});
  const exited = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', async (code) => {
      // If the guard was killed, its subshell ends the program now.
      child.stdin.end();
      // Waits briefly for the last output. A program that outlives its guard would delay it for ever.
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
  /** The whole text, which is unique for each server: it has the pid and the time of the start. */
  text: string;
  pid: number;
  port: number;
  socketDir: string;
  isReady: boolean;
}

/**
 * The `postmaster.pid` of the server of `clusterDir`, which may be dead.
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

/** The pid of the running server of `clusterDir`; undefined if another program has that pid now. */
export function findServer(clusterDir: string): number | undefined {
  const pid = readServerFile(clusterDir)?.pid;
  if (!pid) return undefined;
  try {
    if (process.platform === 'linux') {
      // The working directory of the server and of all its processes is the cluster.
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
 * Ends a server that still runs on `clusterDir` without its service. Only for the holder of the lock.
 *
 * The guard ends it too, if the guard still runs. A `postmaster.pid` with the pid of another program (usual in a restarted
 * container) is removed, since PostgreSQL would take that program for a server. Throws if the server does not end.
 */
export async function endOrphan(clusterDir: string, log: (message: string) => void): Promise<void> {
  const orphan = findServer(clusterDir);
  if (orphan !== undefined) {
    log(`stopping PostgreSQL (pid ${orphan}) of a service that was killed`);
    for (const signal of ['SIGINT', 'SIGQUIT', 'SIGKILL'] as const) {
      signalServer(clusterDir, signal);
      if (await isGoneWithin(clusterDir, 3000)) break;
    }
    if (findServer(clusterDir) !== undefined) {
      throw new Error(
        `PostgreSQL (pid ${orphan}) still uses ${clusterDir} and cannot be stopped; stop it manually`,
      );
    }
  }
  const left = readServerFile(clusterDir);
  // With a dead pid the file stays: PostgreSQL also checks with it that no backend of the old server is left.
  if (left && canSignal(left.pid)) rmSync(path.join(clusterDir, 'postmaster.pid'), { force: true });
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

/** As PostgreSQL checks its pid file: a process that it may not signal is not its own. */
function canSignal(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
