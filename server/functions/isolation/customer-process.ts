/** One process of customer code: its start, its channel and its end. */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { childEnvironment } from '../../../sdk/child-environment.ts';
import { Channel, floodedExitCode, maxOpenBytes, maxPayloadBytes, type Receiver } from './channel.ts';
import type { Confinement } from './confinement.ts';
import { type Message, type Order, readMessage } from './messages.ts';
import type { FailureCause } from './run-order.ts';
import { slice } from './time-slice.ts';

/** From the start of a process until it is ready. Two busy cores may take seconds. */
const startTimeoutMs = 30_000;
/** From the end of a run until the process reports that nothing of it continues. */
const settleTimeoutMs = 5_000;
const keptStderrBytes = 4_096;
/** The maximum size of the bundles that a process caches. */
const maxBundleBytes = 64 * 1024 * 1024;

export type End = { cause: FailureCause; message: string };
export const logFlood: End = {
  cause: 'log_flood',
  message: 'The run exceeded the limit of its log. Log less, or less often.',
};

/** The present user of the process. */
type Listener = {
  message(message: Message, payload: Buffer<ArrayBuffer>): void;
  bytes(stream: number, bytes: Uint8Array): void;
  ended(end: End): void;
};

/** The texts that the process gets before its first run. */
type Boot = { modules: Record<string, string>; harness: string };

export class CustomerProcess {
  /** The number of pings of all runs. A late answer is thereby distinguished from an answer to the next run. */
  pings = 0;
  readonly environmentId: number;
  /** Of the started command: the process itself, or the program that confines it. */
  readonly pid: number | undefined;
  /** The number of runs that it got. */
  runs = 0;
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  readonly #socket: Socket;
  readonly #channel: Channel;
  readonly #bundles = new Set<string>();
  #bundleBytes = 0;
  /** Sizes of calls that are not answered. */
  readonly #openCalls = new Map<number, number>();
  #openBytes = 0;
  #listener: Listener | undefined;
  #stderr = '';
  #end: End | undefined;
  #hasExited = false;
  #drain: Promise<void> | undefined;
  #settling: NodeJS.Timeout | undefined;
  #isRunOver = false;
  #readySaid: boolean | undefined;
  #settled: ((isUsable: boolean) => void) | undefined;

  /** Resolves when the process is ready for a run. Rejects if it does not start. */
  static async start(order: Launch & { boot: Boot }): Promise<CustomerProcess> {
    const started = new CustomerProcess(order);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      started.stop({ cause: 'unavailable', message: 'it did not come up in time' });
    }, startTimeoutMs);
    started.attach({
      message: ({ t }) => (t === 'up' ? resolve() : started.#broke(`"${t}" before it was up`)),
      bytes: () => started.#broke('bytes before it was up'),
      ended: ({ message }) => reject(new Error(message)),
    });
    started.send({ t: 'boot' }, JSON.stringify(order.boot));
    try {
      await promise;
    } finally {
      clearTimeout(timer);
    }
    started.detach();
    return started;
  }

  private constructor(order: Launch) {
    const { child, channel } = launch(order);
    this.environmentId = order.environmentId;
    this.pid = child.pid;
    this.#child = child;
    this.#socket = channel;
    const receiver: Receiver = {
      message: (text, payload) => this.#receive(text, payload),
      bytes: (stream, bytes) => {
        if (!this.isAlive) return;
        if (this.#listener) this.#listener.bytes(stream, bytes);
        else this.#broke('bytes without a run');
      },
      broken: (reason) => this.#broke(reason),
    };
    this.#channel = new Channel(channel, receiver, slice);
    child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-keptStderrBytes);
    });
    const { promise, resolve } = Promise.withResolvers<void>();
    this.exited = promise;
    // `close` follows the last output; only `error` is emitted if the start failed.
    const ended = (end: () => End) => {
      if (this.#hasExited) return;
      this.#hasExited = true;
      this.#socket.destroy();
      this.#settle(false);
      this.#end ??= end();
      this.#listener?.ended(this.#end);
      resolve();
    };
    child.once('close', (code, signal) => ended(() => this.#endOf(code, signal)));
    child.once('error', (error) => ended(() => ({ cause: 'exited', message: error.message })));
  }

  get isAlive(): boolean {
    return this.#end === undefined && !this.#hasExited;
  }

  get hasExited(): boolean {
    return this.#hasExited;
  }

  /** Directs all further messages to this listener. Calls `ended` immediately if the process has exited. */
  attach(listener: Listener): void {
    this.#listener = listener;
    if (this.#hasExited) listener.ended(this.#end!);
  }

  detach(): void {
    this.#listener = undefined;
  }

  /** Throws RangeError if the payload is longer than a frame. */
  send(order: Order, payload?: string | Uint8Array): void {
    if (order.t === 'answer' || order.t === 'refuse') this.#answered(order.id);
    if (this.isAlive) this.#channel.send(JSON.stringify(order), payload);
  }

  sendBytes(stream: number, bytes: Uint8Array): void {
    if (this.isAlive) this.#channel.sendBytes(stream, bytes);
  }

  /** Resolves when the operating system has all sent bytes. */
  async drained(): Promise<void> {
    if (!this.#socket.writableNeedDrain) return;
    this.#drain ??= new Promise<void>((resolve) => {
      const settle = () => {
        this.#drain = undefined;
        this.#socket.off('drain', settle).off('close', settle);
        resolve();
      };
      this.#socket.on('drain', settle).on('close', settle);
    });
    await this.#drain;
  }

  /** Sends the bundle's text unless the process has it. */
  give(bundle: { id: string; code: string }): void {
    if (this.#bundles.has(bundle.id)) return;
    this.#bundles.add(bundle.id);
    this.#bundleBytes += bundle.code.length;
    this.send({ t: 'bundle', id: bundle.id }, bundle.code);
  }

  /** Starts a run. Call `settled` before the next one. Throws RangeError if the order is longer than a frame. */
  begin(order: Extract<Order, { t: 'run' }>, payload: string): void {
    this.#isRunOver = false;
    this.#readySaid = undefined;
    this.#openCalls.clear();
    this.#openBytes = 0;
    this.send(order, payload);
  }

  /** Kills the process. The first cause counts. */
  stop(end: End): void {
    this.#end ??= end;
    this.#child.kill('SIGKILL');
  }

  /**
   * Whether the process may have another run, once it reports that nothing of the last run continues. False if it was
   * stopped, does not report in time, or has too many bundles.
   */
  async settled(): Promise<boolean> {
    this.detach();
    if (!this.isAlive) return false;
    const isUsable = await new Promise<boolean>((resolve) => {
      this.#settled = resolve;
      this.#settling = setTimeout(() => this.#settle(false), settleTimeoutMs);
      if (this.#readySaid !== undefined) this.#settle(this.#readySaid);
    });
    return isUsable && this.isAlive && this.#bundleBytes <= maxBundleBytes;
  }

  #settle(isUsable: boolean): void {
    clearTimeout(this.#settling);
    this.#settled?.(isUsable);
    this.#settled = undefined;
  }

  #receive(text: string, payload: Buffer<ArrayBuffer>) {
    if (!this.isAlive) return;
    const message = readMessage(text);
    if (message === undefined) return this.#broke(`a message of no known form (${text.length} characters)`);
    const { t } = message;
    if (this.#isRunOver) {
      if (t === 'pong') return;
      if (t !== 'ready') return this.#broke(`"${t}" after its end`);
      this.#readySaid = message.clean;
      return this.#settle(message.clean);
    }
    if (t === 'done' || t === 'failed') this.#isRunOver = true;
    if (this.#listener === undefined) return this.#broke(`"${message.t}" without a run`);
    if (message.t === 'call') {
      this.#answered(message.id);
      this.#openCalls.set(message.id, payload.length);
      this.#openBytes += payload.length;
      if (this.#openBytes > maxOpenBytes + maxPayloadBytes)
        return this.#broke('more open calls than it may hold');
    }
    this.#listener.message(message, payload);
  }

  #answered(id: number): void {
    this.#openBytes -= this.#openCalls.get(id) ?? 0;
    this.#openCalls.delete(id);
  }

  /** Stops the process: its side of the channel violated the protocol. */
  #broke(what: string): void {
    this.stop({ cause: 'protocol', message: `The run violated the protocol of its channel: ${what}.` });
  }

  #endOf(code: number | null, signal: string | null): End {
    if (code === floodedExitCode) return logFlood;
    if (/out of memory|heap limit|Allocation failed/i.test(this.#stderr))
      return { cause: 'out_of_memory', message: 'The run exceeded its memory limit.' };
    const how = signal === null ? `with code ${code}` : `by ${signal}`;
    return { cause: 'exited', message: `The process of the run ended ${how}.` };
  }
}

/**
 * No access to files, network, processes, threads and native code. `node:sqlite` writes files in spite of `--permission`.
 * Without code from strings, a function constructor that leaks from Node's own realm is useless.
 */
const permissionFlags = [
  '--permission',
  '--no-experimental-sqlite',
  '--no-addons',
  '--disallow-code-generation-from-strings',
  '--disable-sigusr1',
  '--disable-proto=delete',
  // Memory that is not cleared holds data of earlier runs.
  '--zero-fill-buffers',
];

/**
 * The memory that Node maps as writable at its start, mostly 512 MB for compiled code. The limit of the operating system
 * counts it although it is not used (Node 26 on Linux, x64: 560 MB).
 */
const nodeOwnMb = 700;

/**
 * The limit of 0 on files prevents every write to one. The limit on data holds for memory outside of the heap, such as buffers;
 * macOS ignores it. If the machine or its control group runs out of memory, the kernel kills these processes before the
 * service and its database (proc_pid_oom_score_adj(5)); macOS has no such order.
 */
const limited =
  '{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; ' +
  'ulimit -c 0; ulimit -f 0; ulimit -n 64; ulimit -d "$1" 2>/dev/null; shift; exec "$@"';

type Launch = {
  environmentId: number;
  memoryMb: number;
  confinement: Confinement;
  /** Node flags before the memory flag: `permissionFlags`, except in tests of a single layer. */
  flags?: readonly string[];
  /** The program, on Node's standard input. */
  script: string;
};

/** Starts a Node without the environment of the service, and with a pipe as file descriptor 3, `channel`. */
export function launch(order: Launch): { child: ChildProcess; channel: Socket } {
  const { environmentId, memoryMb, confinement, flags = permissionFlags, script } = order;
  const dataKb = String((nodeOwnMb + 2 * memoryMb) * 1024);
  const [command, ...rest] = [
    ...confinement.prefix(environmentId),
    '/bin/sh',
    '-c',
    limited,
    'trellis-function',
    dataKb,
    process.execPath,
    ...flags,
    `--max-old-space-size=${memoryMb}`,
    '--no-warnings',
    '-',
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
