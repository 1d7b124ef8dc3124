/** One process of customer code, from its start to its end, seen from the service. */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { childEnvironment } from '../../../sdk/child-environment.ts';
import { Channel, maxOpenBytes, maxPayloadBytes, type Receiver } from './channel.ts';
import type { Confinement } from './confinement.ts';
import { floodedExitCode } from './exit-codes.ts';
import { type Message, type Order, readMessage } from './messages.ts';
import type { FailureCause } from './runtime.ts';
import { slice } from './time-slice.ts';

/** Until a started process says that it is there. Two busy cores may take seconds for it. */
const startTimeoutMs = 30_000;
/** Between the end of a run and the word that nothing of it goes on. */
const settleTimeoutMs = 5_000;
const keptStderrBytes = 4_096;
/** Texts of bundles that one process keeps. */
const maxBundleBytes = 64 * 1024 * 1024;

export type End = { cause: FailureCause; message: string };

/** Who has the process at the moment. */
type Listener = {
  message(message: Message, payload: Buffer<ArrayBuffer>): void;
  bytes(stream: number, bytes: Uint8Array): void;
  ended(end: End): void;
};

/** What the process is given before its first run. */
type Boot = { modules: Record<string, string>; harness: string };

export class CustomerProcess {
  /** Sent in all: numbers go up over the runs of a process, so that a late answer is told from one of the next run. */
  pings = 0;
  readonly environmentId: number;
  /** Of the command that was started: the process itself, or what confines it. */
  readonly pid: number | undefined;
  /** Runs that it was given. */
  runs = 0;
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  readonly #socket: Socket;
  readonly #channel: Channel;
  readonly #bundles = new Set<string>();
  #bundleBytes = 0;
  /** Sizes of asks that are not answered. */
  readonly #asked = new Map<number, number>();
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

  /** Resolves when it is ready for a run. Rejects where it does not come up. */
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
    // `close` comes after all output was read, `error` alone where nothing was started.
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

  /** What is heard from now on is for this listener, which is told at once of an end that came before. */
  attach(listener: Listener): void {
    this.#listener = listener;
    if (this.#hasExited) listener.ended(this.#end!);
  }

  detach(): void {
    this.#listener = undefined;
  }

  /** Throws RangeError where the payload is longer than a frame. */
  send(order: Order, payload?: string | Uint8Array): void {
    if (order.t === 'answer' || order.t === 'refuse') this.#answered(order.id);
    if (this.isAlive) this.#channel.send(JSON.stringify(order), payload);
  }

  sendBytes(stream: number, bytes: Uint8Array): void {
    if (this.isAlive) this.#channel.sendBytes(stream, bytes);
  }

  /** Resolves when what was sent is out of our hands. */
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

  /** Makes sure that it has the bundle's text. */
  give(bundle: { id: string; code: string }): void {
    if (this.#bundles.has(bundle.id)) return;
    this.#bundles.add(bundle.id);
    this.#bundleBytes += bundle.code.length;
    this.send({ t: 'bundle', id: bundle.id }, bundle.code);
  }

  /** Starts a run; `settled` is to be asked before the next. Throws RangeError where the order is longer than a frame. */
  begin(order: Extract<Order, { t: 'run' }>, payload: string): void {
    this.#isRunOver = false;
    this.#readySaid = undefined;
    this.#asked.clear();
    this.#openBytes = 0;
    this.send(order, payload);
  }

  /** Ends it at once. The first cause stands. */
  stop(end: End): void {
    this.#end ??= end;
    this.#child.kill('SIGKILL');
  }

  /**
   * Whether it may have another run: once it says that nothing of the last one goes on. A process that was ended in the
   * meantime, does not say so in time, or has too many bundles may not.
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
    // The rest of a process that was ended is of no use.
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
    if (message.t === 'ask') {
      this.#answered(message.id);
      this.#asked.set(message.id, payload.length);
      this.#openBytes += payload.length;
      if (this.#openBytes > maxOpenBytes + maxPayloadBytes)
        return this.#broke('more open asks than it may hold');
    }
    this.#listener.message(message, payload);
  }

  #answered(id: number): void {
    this.#openBytes -= this.#asked.get(id) ?? 0;
    this.#asked.delete(id);
  }

  /** Stops the process: its side of the channel violated the protocol. */
  #broke(what: string): void {
    this.stop({ cause: 'protocol', message: `The run broke the rules of its channel: ${what}.` });
  }

  #endOf(code: number | null, signal: string | null): End {
    if (code === floodedExitCode)
      return {
        cause: 'log_flood',
        message: 'The run wrote more to its log than it may. Log less, or less often.',
      };
    if (/out of memory|heap limit|Allocation failed/i.test(this.#stderr))
      return { cause: 'out_of_memory', message: 'The run needed more memory than it may have.' };
    const how = signal === null ? `with code ${code}` : `by ${signal}`;
    return { cause: 'exited', message: `The process of the run ended ${how}.` };
  }
}

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

type Launch = {
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
