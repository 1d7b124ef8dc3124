/** One run in one process: its calls, streams and log, its limits, and its outcome. */
import { AppError } from '../../errors.ts';
import { maxOpenCalls, maxPayloadBytes } from './channel.ts';
import { locateOnThread, type Place } from './code-queue.ts';
import { type CustomerProcess, type End, logFlood } from './customer-process.ts';
import { Inflow, Outflow } from './flow.ts';
import { LogBudget } from './log-budget.ts';
import type { Message, Refusal } from './messages.ts';
import { LargeJson, type Read, readLarge, readSmall } from './payload.ts';
import type { Answer, RunLimits, RunOrder, RunOutcome, ThrownError } from './run-order.ts';
import { slice } from './time-slice.ts';

const tooMuch = 'It takes too much memory to read.';
const cancelled: End = { cause: 'cancelled', message: 'The run was cancelled.' };

type OpenCall = { gaveUp: AbortController; inflow: Inflow | undefined; outflow: Outflow | undefined };

export class Run {
  readonly #process: CustomerProcess;
  readonly #order: RunOrder & { limits: RunLimits };
  readonly #calls = new Map<number, OpenCall>();
  /** The number of calls that are not answered, or whose answer is still streamed. */
  #open = 0;
  #lastCall = 0;
  readonly #budget = new LogBudget(performance.now());
  readonly #outcome = Promise.withResolvers<RunOutcome>();
  readonly #timers: NodeJS.Timeout[] = [];
  /** The last ping of earlier runs: its answer may still come. */
  readonly #pingsBefore: number;
  #pongs: number;
  /** Resolves when all calls so far are parsed: calls are served in their order. */
  #reading: Promise<unknown> | undefined;
  #isOver = false;

  constructor(process: CustomerProcess, order: RunOrder & { limits: RunLimits }) {
    this.#process = process;
    this.#order = order;
    this.#pingsBefore = process.pings;
    this.#pongs = process.pings;
  }

  /** Starts the run. Call it once. */
  async outcome(): Promise<RunOutcome> {
    const { bundle, exportName, kind, input, about, limits, signal } = this.#order;
    const cancel = () => this.#cancel();
    try {
      this.#process.attach({
        message: (message, payload) => this.#receive(message, payload),
        bytes: (stream, bytes) => {
          const call = this.#calls.get(stream);
          // Bytes that were under way when their call was answered.
          if (call === undefined && stream <= this.#lastCall) return;
          if (!call?.inflow?.take(bytes)) this.#broke('bytes that no stream accepts');
        },
        ended: (end) => {
          // The result or the error of the code may still be parsed.
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
      for (const { gaveUp, inflow, outflow } of this.#calls.values()) {
        gaveUp.abort();
        inflow?.end(new Error('the run is over'));
        outflow?.drop();
      }
      this.#calls.clear();
    }
  }

  #receive(message: Message, payload: Buffer<ArrayBuffer>) {
    switch (message.t) {
      case 'call':
        return this.#call(message, payload);
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
        if (this.#calls.get(message.id)?.outflow?.grant(message.bytes) === false)
          this.#broke('credit for more than was sent');
        return;
      case 'end':
        return this.#calls.get(message.id)?.inflow?.end();
      case 'cut':
        return this.#calls.get(message.id)?.inflow?.end(new Error(message.message));
      case 'drop':
        return this.#calls.get(message.id)?.outflow?.drop();
      default:
        this.#broke(`"${message.t}" during a run`);
    }
  }

  #call({ id, name, body }: Extract<Message, { t: 'call' }>, payload: Buffer<ArrayBuffer>) {
    // Numbers only increase, so no number names a call of another run, or the same call twice.
    if (id <= this.#lastCall) return this.#broke('the number of a call twice');
    // Twice the child's own limit: the child counts a dropped stream as closed before the parent receives the message.
    if (this.#open >= 2 * maxOpenCalls) return this.#broke(`more than ${2 * maxOpenCalls} open calls`);
    this.#lastCall = id;
    this.#open += 1;
    const inflow = body
      ? new Inflow({
          grant: (bytes) => this.#process.send({ t: 'more', id, bytes }),
          drop: () => this.#process.send({ t: 'drop', id }),
        })
      : undefined;
    const call: OpenCall = { gaveUp: new AbortController(), inflow, outflow: undefined };
    this.#calls.set(id, call);
    void this.#serve({ id, name, payload, call });
  }

  async #serve({
    id,
    name,
    payload,
    call,
  }: {
    id: number;
    name: string;
    payload: Buffer<ArrayBuffer>;
    call: OpenCall;
  }): Promise<void> {
    let large: LargeJson | undefined;
    try {
      const read = await this.#read(payload);
      if ('value' in read && read.value instanceof LargeJson) large = read.value;
      if (!this.#calls.has(id)) return;
      if ('fault' in read)
        throw new AppError('invalid_body', `The arguments of ${name} are not valid. ${read.fault}`);
      const { signal } = call.gaveUp;
      const drained = () => this.#process.drained();
      const { value, values } = read;
      const answer = await this.#order.serve(name, value, { values, signal, body: call.inflow, drained });
      await drained();
      await slice.turn();
      if (this.#calls.has(id)) await this.#answer(id, { call, answer });
    } catch (error) {
      if (this.#calls.has(id)) this.#process.send({ t: 'refuse', id }, JSON.stringify(refusalOf(error)));
    } finally {
      large?.free();
      this.#open -= 1;
      call.inflow?.drop();
      this.#calls.delete(id);
    }
  }

  /** Parses payloads one after the other, also on a thread, and when the time slice of the event loop is spent. */
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

  async #answer(id: number, { call, answer }: { call: OpenCall; answer: Answer }): Promise<void> {
    const { value, body } = answer;
    if (body !== undefined) call.outflow = new Outflow((bytes) => this.#process.sendBytes(id, bytes));
    const json = Buffer.isBuffer(value) ? value : JSON.stringify(value ?? null);
    if (Buffer.byteLength(json) > maxPayloadBytes)
      throw new AppError('body_too_large', 'The response is larger than 16 MB, the limit for a call.');
    this.#process.send({ t: 'answer', id, body: body !== undefined }, json);
    if (body !== undefined) await this.#stream(id, { call, body });
  }

  async #stream(
    id: number,
    { call, body }: { call: OpenCall; body: AsyncIterable<Uint8Array> },
  ): Promise<void> {
    try {
      for await (const bytes of body) if (!(await call.outflow!.write(bytes))) return;
      this.#process.send({ t: 'end', id });
    } catch (error) {
      this.#process.send({ t: 'cut', id, message: refusalOf(error).message });
    }
  }

  #log({ level, text }: Extract<Message, { t: 'log' }>) {
    if (this.#budget.take(text.length, performance.now())) return this.#order.log({ level, text });
    this.#process.stop(logFlood);
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
      // A payload that is larger than the harness sends is left out.
      const read = payload.length === 0 ? undefined : readSmall(payload);
      const known = read !== undefined && 'value' in read ? { payload: read.value } : {};
      return { failure: { cause, message, error: { ...thrown, ...known } } };
    });
  }

  /** The code has ended. Nothing that follows from it counts. */
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
    const end = () => this.#process.stop(cancelled);
    this.#timers.push(setTimeout(end, cancelGraceMs));
  }

  #ping() {
    if (this.#pongs < this.#process.pings)
      return this.#timedOut(`${this.#order.limits.blockedMs} ms without letting anything else happen`);
    this.#process.pings += 1;
    this.#process.send({ t: 'ping', id: this.#process.pings });
  }

  #timedOut(how: string): void {
    this.#process.stop({ cause: 'timeout', message: `The run was stopped: it went on ${how}.` });
  }

  #broke(what: string): void {
    this.#process.stop({
      cause: 'protocol',
      message: `The run violated the protocol of its channel: ${what}.`,
    });
  }
}

/** The part of an error that the code gets: an AppError is public, any other error may hold internal data. */
function refusalOf(error: unknown): Refusal {
  if (!(error instanceof AppError))
    return { code: 'internal', message: 'Something went wrong in the service.' };
  const { code, status, payload, errors } = error;
  return {
    code,
    message: naming(error),
    status,
    ...(payload !== undefined && { payload }),
    ...(errors !== undefined && { errors }),
  };
}

/** The message with the first invalid field: of an uncaught error, only the message is stored. */
function naming({ message, errors: [fault] = [] }: AppError): string {
  if (fault === undefined || message.includes(fault.message)) return message;
  return `${message} ${fault.path.join('.') || 'the whole'}: ${fault.message}`;
}

const marker = '//# sourceMappingURL=data:application/json;base64,';
/** The text of the wrapper in front of the first line of a bundle. */
const lead = '(function (module, exports, require) {'.length;
/** The limits of a stack. */
const maxLines = 100;
const maxLineLength = 1_000;
const place = /function\.js:(\d{1,9}):(\d{1,9})/;

/**
 * The error with its stack in the authored files if the bundle has a source map, else in the bundle. A thread parses the map,
 * and caches those of the bundles that failed last.
 */
export async function mapped(error: ThrownError, bundle: RunOrder['bundle']): Promise<ThrownError> {
  if (error.stack === undefined) return error;
  const lines = error.stack
    .split('\n', maxLines)
    .map((line) => line.slice(0, maxLineLength))
    .filter((line) => !/^\s+at .*(trellis:|node:|\[stdin\])/.test(line));
  const places = lines.map(placeIn);
  const located = places.filter((one) => one !== undefined);
  const at = located.length > 0 ? bundle.code.lastIndexOf(marker) : -1;
  if (at < 0) return { ...error, stack: lines.join('\n') };
  const mapOf = () => bundle.code.slice(at + marker.length).trimEnd();
  // Without a usable map the error keeps its stack in the bundle.
  const found = await locateOnThread(bundle.id, { places: located, mapOf }).catch(() => []);
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
