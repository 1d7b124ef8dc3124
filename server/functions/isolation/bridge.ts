/**
 * What one run may do in its process: asks, streams, timers and log lines, each given its number here and not by the
 * customer's code. Nothing passes once the run is over.
 */
import { isUint8Array } from 'node:util/types';
import type { Context, Script } from 'node:vm';
import { type Channel, maxOpenAsks, maxOpenBytes } from './channel.ts';
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
  /** Once the outcome is on its way. `isClean` is false where the realm may not have come to an end in order. */
  over: (isClean: boolean) => void;
  /** The log's budget is spent. Does not return. */
  flooded: () => never;
};

type Answered = Parameters<Host['ask']>[2];
type Ask = {
  message: string;
  args: string;
  size: number;
  answered: Answered;
  inflow?: Inflow;
  outflow?: Outflow;
};

const levels: readonly string[] = ['debug', 'info', 'warn', 'error'] satisfies LogLevel[];

/** Numbers of asks are never given twice in a process: an answer that comes late cannot meet another run's ask. */
let lastAsk = 0;

export class Bridge {
  readonly #parts: Parts;
  readonly #asks = new Map<number, Ask>();
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

  /** `order` is what is said of the run, `given` its input and what the harness needs, both JSON. */
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
    const ask = this.#asks.get(order.id);
    if (ask === undefined) return;
    switch (order.t) {
      case 'answer':
        this.#answered(ask);
        if (order.body) ask.inflow = this.#inflow(order.id);
        ask.answered(order.body ? 'body' : 'answer', payload.toString('utf8'));
        if (!order.body) this.#closed(order.id);
        return;
      case 'refuse':
        this.#answered(ask);
        ask.answered('refusal', payload.toString('utf8'));
        ask.outflow?.drop();
        return this.#closed(order.id);
      case 'end':
        ask.inflow?.end();
        return this.#finished(order.id);
      case 'cut':
        ask.inflow?.end(new Error(order.message));
        return this.#finished(order.id);
      case 'more':
        return void ask.outflow?.grant(order.bytes);
      case 'drop':
        return ask.outflow?.drop();
    }
  }

  bytes(stream: number, bytes: Uint8Array): void {
    this.#asks.get(stream)?.inflow?.take(bytes);
  }

  /** Ends the run by what was thrown past the code's own handlers. */
  fail(thrown: unknown): void {
    const plain = () => errorOf({ name: 'Error', message: String(thrown) });
    this.#failed('threw', this.#inside?.describe(thrown) ?? plain(), false);
  }

  /** Whether the code waits for nothing that could still come, as far as this side knows. */
  get isIdle(): boolean {
    return !this.#isOver && this.#asks.size === 0 && this.#timers.size === 0;
  }

  stall(): void {
    const error: ThrownMessage = {
      name: 'Error',
      message: 'The function waits for a promise that nothing is left to settle.',
    };
    this.#failed('stalled', errorOf(error), false);
  }

  #host(context: Context): Host {
    const run = (script: Script | undefined) => script?.runInContext(context);
    const host: Host = {
      ask: (name, { args, hasBody }, answered) => this.#ask(name, { args, hasBody, answered }),
      read: (id, next) => {
        const inflow = this.#asks.get(id)?.inflow;
        if (inflow === undefined) return next(undefined, undefined);
        inflow.read().then(
          (bytes) => {
            if (bytes === undefined) this.#asks.delete(id);
            next(bytes === undefined ? undefined : Buffer.from(bytes), undefined);
          },
          (error: Error) => {
            this.#asks.delete(id);
            next(undefined, error.message);
          },
        );
      },
      drop: (id) => this.#asks.get(id)?.inflow?.drop(),
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
    // A fault of ours must not become an object of this realm in the code's hands.
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

  #ask(name: string, ask: { args: string; hasBody: boolean; answered: Answered }): number {
    const id = ++lastAsk;
    const message = `{"t":"ask","id":${id},"name":${JSON.stringify(name.slice(0, 200))},"body":${ask.hasBody}}`;
    const { args, answered } = ask;
    const entry: Ask = { message, args, size: Buffer.byteLength(args), answered };
    if (ask.hasBody) entry.outflow = new Outflow((bytes) => this.#parts.channel.sendBytes(id, bytes));
    this.#asks.set(id, entry);
    this.#waiting.push(id);
    this.#sendWaiting();
    return id;
  }

  #sendWaiting(): void {
    while (this.#open < maxOpenAsks && this.#waiting.length > 0) {
      const id = this.#waiting[0]!;
      const ask = this.#asks.get(id)!;
      if (this.#open > 0 && this.#openBytes + ask.size > maxOpenBytes) return;
      this.#waiting.shift();
      this.#open += 1;
      this.#openBytes += ask.size;
      try {
        this.#parts.channel.send(ask.message, ask.args);
      } catch (error) {
        ask.answered(
          'refusal',
          JSON.stringify({ code: 'message_too_large', message: (error as RangeError).message }),
        );
        this.#answered(ask);
        this.#closed(id);
      }
      ask.message = '';
      ask.args = '';
    }
  }

  #answered(ask: Ask): void {
    this.#openBytes -= ask.size;
    ask.size = 0;
  }

  #closed(id: number): void {
    this.#open -= 1;
    this.#asks.delete(id);
    this.#sendWaiting();
  }

  /** All of the answer's stream is here; what of it was not read yet stays to be read. */
  #finished(id: number): void {
    if (this.#asks.get(id)?.inflow === undefined) return;
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
    const outflow = this.#asks.get(id)?.outflow;
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
    for (const { inflow, outflow } of this.#asks.values()) {
      inflow?.end();
      outflow?.drop();
    }
    this.#asks.clear();
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
