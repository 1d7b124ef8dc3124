/**
 * The side of a run in its process: calls, streams, timers and log lines. Their numbers are assigned here, not by the
 * customer's code. Nothing passes after the end of the run.
 */
import { isUint8Array } from 'node:util/types';
import type { Context, Script } from 'node:vm';
import { type Channel, maxOpenBytes, maxOpenCalls } from './channel.ts';
import { Inflow, Outflow } from './flow.ts';
import type { Host, Inside, Thrown } from './inside.ts';
import { LogBudget, type LogLevel, maxLineBytes } from './log-budget.ts';
import type { Message, Order, ThrownMessage } from './messages.ts';
import { createRealm } from './realm.ts';

type Parts = {
  channel: Channel;
  scriptOf: (name: string) => Script | undefined;
  bundleScript: () => Script;
  resultBytes: number;
  /** Called after the outcome is sent. `isClean` is false if the realm may not have ended in order. */
  over: (isClean: boolean) => void;
  /** The log's budget is spent. Does not return. */
  flooded: () => never;
};

type Answered = Parameters<Host['call']>[2];
type OpenCall = {
  message: string;
  /** Not a string: calls that wait to be sent would fill the heap of the code. */
  args: Buffer;
  size: number;
  answered: Answered;
  inflow?: Inflow;
  outflow?: Outflow;
};

const empty = Buffer.alloc(0);
const levels: readonly string[] = ['debug', 'info', 'warn', 'error'] satisfies LogLevel[];

/** Numbers of calls are unique in a process, so a late answer cannot reach a call of another run. */
let lastCall = 0;

export class Bridge {
  readonly #parts: Parts;
  readonly #calls = new Map<number, OpenCall>();
  readonly #waiting: number[] = [];
  #open = 0;
  #openBytes = 0;
  readonly #timers = new Map<number, NodeJS.Timeout>();
  #lastTimer = 0;
  readonly #budget = new LogBudget(performance.now());
  readonly #cancel = new AbortController();
  #inside: Inside | undefined;
  #isOver = false;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** `order` describes the run, `given` has its input and the facts for the harness, both as JSON. */
  start(order: string, given: string) {
    try {
      this.#inside = createRealm((context) => this.#host(context), this.#cancel.signal);
      this.#inside.start(order, given);
    } catch (error) {
      this.fail(error);
    }
  }

  obey(order: Order, payload: Buffer) {
    if (order.t === 'cancel') return this.#cancel.abort();
    if (!('id' in order) || typeof order.id !== 'number') return;
    const call = this.#calls.get(order.id);
    if (call === undefined) return;
    switch (order.t) {
      case 'answer':
        this.#answered(call);
        if (order.body) call.inflow = this.#inflow(order.id);
        call.answered(order.body ? 'body' : 'answer', payload.toString('utf8'));
        if (!order.body) this.#closed(order.id);
        return;
      case 'refuse':
        this.#answered(call);
        call.answered('refusal', payload.toString('utf8'));
        call.outflow?.drop();
        return this.#closed(order.id);
      case 'end':
        call.inflow?.end();
        return this.#finished(order.id);
      case 'cut':
        call.inflow?.end(new Error(order.message));
        return this.#finished(order.id);
      case 'more':
        return void call.outflow?.grant(order.bytes);
      case 'drop':
        return call.outflow?.drop();
    }
  }

  bytes(stream: number, bytes: Uint8Array): void {
    this.#calls.get(stream)?.inflow?.take(bytes);
  }

  /** Ends the run with an error that the code did not catch. */
  fail(thrown: unknown): void {
    const plain = () => errorOf({ name: 'Error', message: String(thrown) });
    this.#failed('threw', this.#inside?.describe(thrown) ?? plain(), false);
  }

  /** Whether no call and no timer is pending. */
  get isIdle(): boolean {
    return !this.#isOver && this.#calls.size === 0 && this.#timers.size === 0;
  }

  stall(): void {
    const error: ThrownMessage = {
      name: 'Error',
      message: 'The function waits for a promise that no call and no timer can settle.',
    };
    this.#failed('stalled', errorOf(error), false);
  }

  #host(context: Context): Host {
    const run = (script: Script | undefined) => script?.runInContext(context);
    const host: Host = {
      call: (name, { args, hasBody }, answered) => this.#call(name, { args, hasBody, answered }),
      read: (id, next) => {
        const inflow = this.#calls.get(id)?.inflow;
        if (inflow === undefined) return next(undefined, undefined);
        inflow.read().then(
          (bytes) => {
            if (bytes === undefined) this.#calls.delete(id);
            next(bytes === undefined ? undefined : Buffer.from(bytes), undefined);
          },
          (error: Error) => {
            this.#calls.delete(id);
            next(undefined, error.message);
          },
        );
      },
      drop: (id) => this.#calls.get(id)?.inflow?.drop(),
      write: (id, bytes, written) => this.#write(id, bytes, written),
      finish: (id) => this.#send({ t: 'end', id }),
      cut: (id, message) => this.#send({ t: 'cut', id, message: message.slice(0, 1000) }),
      log: (level, text) => this.#log(levels.includes(level) ? (level as LogLevel) : 'info', text),
      startTimer: (ms, repeats, fire) => this.#startTimer(ms, repeats, fire),
      stopTimer: (timer) => this.#stopTimer(timer),
      moduleOf: (name) => run(this.#parts.scriptOf(name)),
      bundle: () => run(this.#parts.bundleScript()),
      done: (result) => this.#done(result),
      failed: (error) => this.#failed('threw', error, true),
    };
    // The code must not get an error object of this realm.
    for (const [name, act] of Object.entries(host) as [keyof Host, (...args: never[]) => unknown][]) {
      if (name === 'bundle' || name === 'moduleOf') continue;
      host[name] = ((...args: never[]) => {
        if (this.#isOver) return undefined;
        try {
          return act(...args);
        } catch (error) {
          this.fail(error);
          return undefined;
        }
      }) as never;
    }
    return host;
  }

  #call(name: string, call: { args: string; hasBody: boolean; answered: Answered }): number {
    const id = ++lastCall;
    const message = `{"t":"call","id":${id},"name":${JSON.stringify(name.slice(0, 200))},"body":${call.hasBody}}`;
    const args = Buffer.from(call.args);
    const entry: OpenCall = { message, args, size: args.length, answered: call.answered };
    if (call.hasBody) entry.outflow = new Outflow((bytes) => this.#parts.channel.sendBytes(id, bytes));
    this.#calls.set(id, entry);
    this.#waiting.push(id);
    this.#sendWaiting();
    return id;
  }

  #sendWaiting(): void {
    while (this.#open < maxOpenCalls && this.#waiting.length > 0) {
      const id = this.#waiting[0]!;
      const call = this.#calls.get(id)!;
      if (this.#open > 0 && this.#openBytes + call.size > maxOpenBytes) return;
      this.#waiting.shift();
      this.#open += 1;
      this.#openBytes += call.size;
      try {
        this.#parts.channel.send(call.message, call.args);
      } catch (error) {
        call.answered(
          'refusal',
          JSON.stringify({ code: 'message_too_large', message: (error as RangeError).message }),
        );
        this.#answered(call);
        this.#closed(id);
      }
      call.message = '';
      call.args = empty;
    }
  }

  #answered(call: OpenCall): void {
    this.#openBytes -= call.size;
    call.size = 0;
  }

  #closed(id: number): void {
    this.#open -= 1;
    this.#calls.delete(id);
    this.#sendWaiting();
  }

  /** The answer's stream has arrived whole. Its unread bytes remain readable. */
  #finished(id: number): void {
    if (this.#calls.get(id)?.inflow === undefined) return;
    this.#open -= 1;
    this.#sendWaiting();
  }

  #inflow(id: number): Inflow {
    return new Inflow({
      grant: (bytes) => this.#send({ t: 'more', id, bytes }),
      drop: () => {
        this.#send({ t: 'drop', id });
        this.#closed(id);
      },
    });
  }

  #write(id: number, bytes: unknown, written: (isWanted: boolean) => void): boolean {
    const outflow = this.#calls.get(id)?.outflow;
    if (typeof bytes !== 'string' && !isUint8Array(bytes)) return false;
    if (outflow === undefined) {
      written(false);
      return true;
    }
    outflow.write(typeof bytes === 'string' ? Buffer.from(bytes) : new Uint8Array(bytes)).then(written);
    return true;
  }

  #log(level: LogLevel, text: string): void {
    const line = text.length > maxLineBytes ? `${text.slice(0, maxLineBytes - 1)}…` : text;
    if (!this.#budget.take(line.length, performance.now())) this.#parts.flooded();
    this.#send({ t: 'log', level, text: line });
  }

  #startTimer(ms: number, repeats: boolean, fire: () => void): number {
    const id = ++this.#lastTimer;
    const act = () => {
      if (!repeats) this.#timers.delete(id);
      fire();
    };
    this.#timers.set(id, repeats ? setInterval(act, ms) : setTimeout(act, ms));
    return id;
  }

  #stopTimer(id: number): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }

  #done(result: string) {
    const size = Buffer.byteLength(result);
    if (size > this.#parts.resultBytes) {
      const message = `The result has ${size} bytes as JSON; the most is ${this.#parts.resultBytes}.`;
      const error: ThrownMessage = { name: 'Error', message, code: 'result_too_large' };
      return this.#failed('threw', errorOf(error), true);
    }
    this.#end('{"t":"done"}', { payload: result, isClean: true });
  }

  #failed(cause: 'threw' | 'stalled', error: Thrown, isClean: boolean): void {
    const message = `{"t":"failed","cause":"${cause}","error":${error.error}}`;
    this.#end(message, { payload: error.payload, isClean });
  }

  #end(message: string, { payload, isClean }: { payload: string; isClean: boolean }): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
    for (const { inflow, outflow } of this.#calls.values()) {
      inflow?.end();
      outflow?.drop();
    }
    this.#calls.clear();
    this.#parts.channel.send(message, payload);
    this.#parts.over(isClean);
  }

  #send(message: Message): void {
    if (!this.#isOver) this.#parts.channel.send(JSON.stringify(message));
  }
}

function errorOf(error: ThrownMessage): Thrown {
  return { error: JSON.stringify(error), payload: '' };
}
