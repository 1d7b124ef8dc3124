import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { childEnvironment } from '../../../sdk/child-environment.ts';
import type { Confinement } from './confinement.ts';

/**
 * No right but to run: no file, no network, no process, no thread, no native code. `node:sqlite` writes files in spite of
 * `--permission`. With code from strings off, a function constructor that leaks from Node's own realm makes nothing.
 */
const permissionFlags = [
  '--permission',
  '--no-experimental-sqlite',
  '--no-addons',
  '--disallow-code-generation-from-strings',
  '--disable-sigusr1',
  '--disable-proto=delete',
  // Memory that is not cleared holds what earlier runs had.
  '--zero-fill-buffers',
];

/**
 * What Node maps as writable before it runs anything, above all 512 MB for compiled code: the limit of the operating
 * system counts it, though it is never used (Node 26 on Linux, x64: 560 MB).
 */
const nodeOwnMb = 700;

/**
 * A limit on files of 0 lets nothing be written whatever is open to the code; the one on data holds what is outside of
 * the heap, such as buffers. macOS ignores the latter. Where memory runs out, of the machine or of a control group, the
 * kernel takes these processes before the service and its database (proc_pid_oom_score_adj(5)); macOS has no such order.
 */
const limited =
  '{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; ' +
  'ulimit -c 0; ulimit -f 0; ulimit -n 64; ulimit -d "$1" 2>/dev/null; shift; exec "$@"';

export type Launch = {
  environmentId: number;
  memoryMb: number;
  confinement: Confinement;
  /** Of Node, before those of memory. Always `permissionFlags`, but where a layer is tested alone. */
  flags?: readonly string[];
  /** Given to Node on its standard input. */
  script: string;
};

/** A Node with no variable of the service's environment and a pipe as file descriptor 3, `channel`. What it prints is on `stderr`. */
export function launch(order: Launch): { child: ChildProcess; channel: Socket } {
  const { environmentId, memoryMb, confinement, flags = permissionFlags, script } = order;
  const dataKb = String((nodeOwnMb + 2 * memoryMb) * 1024);
  const [command, ...rest] = [
    ...confinement.prefix(environmentId),
    ...['/bin/sh', '-c', limited, 'trellis-function', dataKb],
    ...[process.execPath, ...flags, `--max-old-space-size=${memoryMb}`, '--no-warnings', '-'],
  ];
  const child = spawn(command!, rest, {
    env: childEnvironment(),
    cwd: '/',
    stdio: ['pipe', 'ignore', 'pipe', 'pipe'],
  });
  // A process that fails to start does not read its program either; its exit reports the failure.
  child.stdin!.on('error', () => {});
  child.stdin!.end(script);
  return { child, channel: child.stdio[3] as Socket };
}
