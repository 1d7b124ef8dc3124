/** One run in one process: what is asked, streamed and logged, its limits, and how it ends. */
import { AppError } from '../../errors.ts';
import { maxOpenAsks, maxPayloadBytes } from './channel.ts';
import { locateOnThread, type Place } from './code-queue.ts';
import type { CustomerProcess, End } from './customer-process.ts';
import { Inflow, Outflow } from './flow.ts';
import { LogBudget } from './log-budget.ts';
import type { Message, Refusal } from './messages.ts';
import { type Read, readLarge, readSmall } from './payload.ts';
import type { Answer, RunLimits, RunOrder, RunOutcome, ThrownError } from './runtime.ts';
import { slice } from './time-slice.ts';

const tooMuch = 'It takes too much memory to read.';
const cancelled: End = { cause: 'cancelled', message: 'The run was cancelled.' };

type Ask = { gaveUp: AbortController; inflow: Inflow | undefined; outflow: Outflow | undefined };

export class Run {
  readonly #process: CustomerProcess;
  readonly #order: RunOrder & { limits: RunLimits };
  readonly #asks = new Map<number, Ask>();
  /** Asks that are not answered, or whose answer is still streamed. */
  #open = 0;
  #lastAsk = 0;
  readonly #budget = new LogBudget(performance.now());
  readonly #outcome = Promise.withResolvers<RunOutcome>();
  readonly #timers: NodeJS.Timeout[] = [];
  /** The last ping of the runs before: its answer may still come. */
  readonly #pingsBefore: number;
  #pongs: number;
  /** The end of the reading of all asks so far: they are served in the order in which they came. */
  #reading: Promise<unknown> | undefined;
  #isOver = false;

  constructor(process: CustomerProcess, order: RunOrder & { limits: RunLimits }) {
    this.#process = process;
    this.#order = order;
    this.#pingsBefore = process.pings;
    this.#pongs = process.pings;
  }

  /** Starts it. To be called once. */
  async outcome(): Promise<RunOutcome> {
    const { bundle, exportName, kind, input, about, limits, signal } = this.#order;
    const cancel = () => this.#cancel();
    try {
      this.#process.attach({
        message: (message, payload) => this.#hear(message, payload),
        bytes: (stream, bytes) => {
          const ask = this.#asks.get(stream);
          // What was under way when its ask was answered.
          if (ask === undefined && stream <= this.#lastAsk) return;
          if (!ask?.inflow?.take(bytes)) this.#broke('bytes that no stream accepts');
        },
        ended: (end) => {
          // What the code returned or threw may still be read.
          if (!this.#isOver) this.#outcome.resolve({ failure: end });
        },
      });
      this.#process.give(bundle);
      const { resultBytes } = limits;
      const given = JSON.stringify({ input, about });
      this.#process.begin({ t: 'run', bundle: bundle.id, exportName, kind, resultBytes }, given);
      this.#timers.push(
        setTimeout(() => this.#timedOut(`longer than ${limits.timeoutMs} ms`), limits.timeoutMs),
        setInterval(() => this.#ping(), limits.blockedMs),
      );
      this.#ping();
      signal?.addEventListener('abort', cancel, { once: true });
      if (signal?.aborted) cancel();
      return await this.#outcome.promise;
    } catch (error) {
      // An input that is larger than a frame.
      return { failure: { cause: 'protocol', message: (error as Error).message } };
    } finally {
      this.#stopTimers();
      signal?.removeEventListener('abort', cancel);
      for (const { gaveUp, inflow, outflow } of this.#asks.values()) {
        gaveUp.abort();
        inflow?.end(new Error('the run is over'));
        outflow?.drop();
      }
      this.#asks.clear();
    }
  }

  #hear(message: Message, payload: Buffer<ArrayBuffer>) {
    switch (message.t) {
      case 'ask':
        return this.#ask(message, payload);
      case 'log':
        return this.#log(message);
      case 'done':
        return this.#done(payload);
      case 'failed':
        return this.#failed(message, payload);
      case 'pong':
        if (message.id <= this.#pingsBefore) return;
        if (message.id !== this.#pongs + 1 || message.id > this.#process.pings)
          return this.#broke('an answer to no ping');
        this.#pongs = message.id;
        return;
      case 'more':
        if (this.#asks.get(message.id)?.outflow?.grant(message.bytes) === false)
          this.#broke('credit for more than was sent');
        return;
      case 'end':
        return this.#asks.get(message.id)?.inflow?.end();
      case 'cut':
        return this.#asks.get(message.id)?.inflow?.end(new Error(message.message));
      case 'drop':
        return this.#asks.get(message.id)?.outflow?.drop();
      default:
        this.#broke(`"${message.t}" during a run`);
    }
  }

  #ask({ id, name, body }: Extract<Message, { t: 'ask' }>, payload: Buffer<ArrayBuffer>) {
    // Numbers only go up, so none can name an ask of another run, or the same one twice.
    if (id <= this.#lastAsk) return this.#broke('the number of an ask twice');
    // Twice the child's own limit: the child counts a dropped stream as closed before the parent receives the message.
    if (this.#open >= 2 * maxOpenAsks) return this.#broke(`more than ${2 * maxOpenAsks} open asks`);
    this.#lastAsk = id;
    this.#open += 1;
    const inflow = body
      ? new Inflow({
          grant: (bytes) => this.#process.send({ t: 'more', id, bytes }),
          drop: () => this.#process.send({ t: 'drop', id }),
        })
      : undefined;
    const ask: Ask = { gaveUp: new AbortController(), inflow, outflow: undefined };
    this.#asks.set(id, ask);
    void this.#serve({ id, name, payload, ask });
  }

  async #serve({
    id,
    name,
    payload,
    ask,
  }: {
    id: number;
    name: string;
    payload: Buffer<ArrayBuffer>;
    ask: Ask;
  }): Promise<void> {
    try {
      const read = await this.#read(payload);
      if (!this.#asks.has(id)) return;
      if ('fault' in read)
        throw new AppError('invalid_body', `What was given to ${name} is refused. ${read.fault}`);
      const { signal } = ask.gaveUp;
      const drained = () => this.#process.drained();
      const { value, values } = read;
      const answer = await this.#order.serve(name, value, { values, signal, body: ask.inflow, drained });
      await drained();
      await slice.turn();
      if (this.#asks.has(id)) await this.#answer(id, { ask, answer });
    } catch (error) {
      if (this.#asks.has(id)) this.#process.send({ t: 'refuse', id }, JSON.stringify(refusalOf(error)));
    } finally {
      this.#open -= 1;
      ask.inflow?.drop();
      this.#asks.delete(id);
    }
  }

  /** One after the other, also where a thread examines them, or the turn of the event loop has no time left. */
  #read(payload: Buffer<ArrayBuffer>): Promise<Read> | Read {
    if (this.#reading === undefined && !slice.isSpent()) {
      const small = readSmall(payload);
      if (small !== undefined) return small;
    }
    const reading = (this.#reading ?? Promise.resolve()).then(async () => {
      await slice.turn();
      return readSmall(payload) ?? readLarge(payload);
    });
    const read = reading.catch((): Read => ({ fault: tooMuch }));
    const end = read.then(() => {
      if (this.#reading === end) this.#reading = undefined;
    });
    this.#reading = end;
    return read;
  }

  async #answer(id: number, { ask, answer }: { ask: Ask; answer: Answer }): Promise<void> {
    const { value, body } = answer;
    if (body !== undefined) ask.outflow = new Outflow((bytes) => this.#process.sendBytes(id, bytes));
    const json = Buffer.isBuffer(value) ? value : JSON.stringify(value ?? null);
    if (Buffer.byteLength(json) > maxPayloadBytes)
      throw new AppError('body_too_large', 'The answer is larger than the 16 MB that a call can return.');
    this.#process.send({ t: 'answer', id, body: body !== undefined }, json);
    if (body !== undefined) await this.#stream(id, { ask, body });
  }

  async #stream(id: number, { ask, body }: { ask: Ask; body: AsyncIterable<Uint8Array> }): Promise<void> {
    try {
      for await (const bytes of body) if (!(await ask.outflow!.write(bytes))) return;
      this.#process.send({ t: 'end', id });
    } catch (error) {
      this.#process.send({ t: 'cut', id, message: refusalOf(error).message });
    }
  }

  #log({ level, text }: Extract<Message, { t: 'log' }>) {
    if (this.#budget.take(text.length, performance.now())) return this.#order.log({ level, text });
    this.#stop({
      cause: 'log_flood',
      message: 'The run wrote more to its log than it may. Log less, or less often.',
    });
  }

  #done(payload: Buffer<ArrayBuffer>) {
    if (payload.length > this.#order.limits.resultBytes) return this.#broke('a result that is too large');
    this.#end(async () => {
      const read = readSmall(payload) ?? (await readLarge(payload, { isParsed: true }));
      if ('value' in read) return { result: read.value };
      const error = { name: 'Error', message: `The result is refused. ${read.fault}` };
      return { failure: { cause: 'threw', message: error.message, error } };
    });
  }

  #failed({ cause, error }: Extract<Message, { t: 'failed' }>, payload: Buffer<ArrayBuffer>) {
    const { message } = error;
    this.#end(async () => {
      if (this.#order.signal?.aborted) return { failure: cancelled };
      if (cause !== 'threw') return { failure: { cause, message } };
      const thrown = await mapped(error, this.#order.bundle);
      // More than our side sends is left out.
      const read = payload.length === 0 ? undefined : readSmall(payload);
      const known = read !== undefined && 'value' in read ? { payload: read.value } : {};
      return { failure: { cause, message, error: { ...thrown, ...known } } };
    });
  }

  /** The code has come to its end; nothing that it does counts any more. */
  #end(outcome: () => Promise<RunOutcome>): void {
    this.#isOver = true;
    this.#stopTimers();
    outcome().then(this.#outcome.resolve, () =>
      this.#outcome.resolve({
        failure: { cause: 'threw', message: tooMuch, error: { name: 'Error', message: tooMuch } },
      }),
    );
  }

  #stopTimers(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }

  #cancel(): void {
    this.#process.send({ t: 'cancel' });
    const { cancelGraceMs } = this.#order.limits;
    const end = () => this.#stop(cancelled);
    this.#timers.push(setTimeout(end, cancelGraceMs));
  }

  #ping() {
    if (this.#pongs < this.#process.pings)
      return this.#timedOut(`${this.#order.limits.blockedMs} ms without letting anything else happen`);
    this.#process.pings += 1;
    this.#process.send({ t: 'ping', id: this.#process.pings });
  }

  #timedOut(how: string): void {
    this.#stop({ cause: 'timeout', message: `The run was stopped: it went on ${how}.` });
  }

  #broke(what: string): void {
    this.#stop({ cause: 'protocol', message: `The run broke the rules of its channel: ${what}.` });
  }

  #stop(end: End): void {
    this.#process.stop(end);
  }
}

/** What the code may know of an error: ours tell it, everything else may hold what is not for its eyes. */
function refusalOf(error: unknown): Refusal {
  if (!(error instanceof AppError))
    return { code: 'internal', message: 'Something went wrong in the service.' };
  const { code, status, payload, errors } = error;
  return {
    ...{ code, message: naming(error), status },
    ...(payload !== undefined && { payload }),
    ...(errors !== undefined && { errors }),
  };
}

/** With the first field that does not fit: of an error that nobody catches its message is all that is kept. */
function naming({ message, errors: [fault] = [] }: AppError): string {
  if (fault === undefined || message.includes(fault.message)) return message;
  return `${message} ${fault.path.join('.') || 'the whole'}: ${fault.message}`;
}

const marker = '//# sourceMappingURL=data:application/json;base64,';
/** The bundle stands in a function of one line, whose text comes before the bundle's first. */
const lead = '(function (module, exports, require) {'.length;
/** More is of no use to a reader. */
const maxLines = 100;
const maxLineLength = 1_000;
const place = /function\.js:(\d{1,9}):(\d{1,9})/;

/**
 * The error with its stack in the files that were written, where the bundle carries a map; else in the bundle. The map
 * is read on a thread, once for as long as the bundle is among those that failed last.
 */
export async function mapped(error: ThrownError, bundle: RunOrder['bundle']): Promise<ThrownError> {
  if (error.stack === undefined) return error;
  const lines = error.stack
    .split('\n', maxLines)
    .map((line) => line.slice(0, maxLineLength))
    .filter((line) => !/^\s+at .*(trellis:|node:|\[stdin\])/.test(line));
  const places = lines.map(placeIn);
  const asked = places.filter((one) => one !== undefined);
  const at = asked.length > 0 ? bundle.code.lastIndexOf(marker) : -1;
  if (at < 0) return { ...error, stack: lines.join('\n') };
  const mapOf = () => bundle.code.slice(at + marker.length).trimEnd();
  // A map is a convenience: a run does not fail in another way because its map cannot be used.
  const found = await locateOnThread(bundle.id, { places: asked, mapOf }).catch(() => []);
  const left = found.values();
  const written = places.map((one) => (one === undefined ? undefined : left.next().value));
  const stack = lines.map((line, n) =>
    written[n] === undefined ? line : line.replace(place, () => written[n]!),
  );
  return { ...error, stack: stack.join('\n') };
}

function placeIn(line: string): Place | undefined {
  const [, row, column] = place.exec(line) ?? [];
  if (row === undefined) return undefined;
  const at = Number(row) === 1 ? Number(column) - lead : Number(column);
  return { row: Number(row) - 1, column: Math.max(0, at - 1) };
}
