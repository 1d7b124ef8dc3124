/** One run in one process: what is asked, streamed and logged, its limits, and how it ends. */
import { AppError } from '../../errors.ts';
import { maxOpenAsks } from './channel.ts';
import type { CustomerProcess, End } from './customer-process.ts';
import { Inflow, Outflow } from './flow.ts';
import { LogBudget } from './log-budget.ts';
import { faultOfJson, type Message, type Refusal } from './messages.ts';
import type { RunLimits, RunOrder, RunOutcome } from './runtime.ts';
import { mapped } from './stack.ts';

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
        message: (message) => this.#hear(message),
        bytes: (stream, bytes) => {
          if (!this.#asks.get(stream)?.inflow?.take(bytes)) this.#broke('bytes that no stream has room for');
        },
        ended: (end) => this.#outcome.resolve({ failure: end }),
      });
      this.#process.give(bundle);
      const { resultBytes } = limits;
      this.#process.begin({ t: 'run', bundle: bundle.id, exportName, kind, input, about, resultBytes });
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
      for (const timer of this.#timers) clearTimeout(timer);
      signal?.removeEventListener('abort', cancel);
      for (const { gaveUp, inflow, outflow } of this.#asks.values()) {
        gaveUp.abort();
        inflow?.end(new Error('the run is over'));
        outflow?.drop();
      }
      this.#asks.clear();
    }
  }

  #hear(message: Message) {
    switch (message.t) {
      case 'ask':
        return this.#ask(message);
      case 'log':
        return this.#log(message);
      case 'done':
        return this.#done(message.result);
      case 'failed':
        return this.#failed(message);
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

  #ask({ id, name, args, body }: Extract<Message, { t: 'ask' }>) {
    // Numbers only go up, so none can name an ask of another run, or the same one twice.
    if (id <= this.#lastAsk) return this.#broke('the number of an ask twice');
    // Twice as many as ours opens: it counts a stream that it has let go of as closed before we hear of it.
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
    void this.#serve({ id, name, args, ask });
  }

  async #serve({
    id,
    name,
    args,
    ask,
  }: {
    id: number;
    name: string;
    args: unknown;
    ask: Ask;
  }): Promise<void> {
    try {
      const fault = faultOfJson(args);
      if (fault !== undefined)
        throw new AppError('invalid_body', `What was given to ${name} is refused. ${fault}`);
      const { signal } = ask.gaveUp;
      const { value, body } = await this.#order.serve(name, args, { signal, body: ask.inflow });
      await this.#process.drained();
      if (!this.#asks.has(id)) return;
      if (body !== undefined) ask.outflow = new Outflow((bytes) => this.#process.sendBytes(id, bytes));
      this.#process.send({ t: 'answer', id, value: value ?? null, body: body !== undefined });
      if (body !== undefined) await this.#stream(id, { ask, body });
    } catch (error) {
      if (this.#asks.has(id)) this.#process.send({ t: 'refuse', id, error: refusalOf(error) });
    } finally {
      this.#open -= 1;
      ask.inflow?.drop();
      this.#asks.delete(id);
    }
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

  #done(result: unknown) {
    const fault = faultOfJson(result);
    if (fault === undefined) return this.#outcome.resolve({ result });
    const error = { name: 'Error', message: `The result is refused. ${fault}` };
    this.#outcome.resolve({ failure: { cause: 'threw', message: error.message, error } });
  }

  #failed({ cause, error }: Extract<Message, { t: 'failed' }>) {
    if (this.#order.signal?.aborted) return this.#outcome.resolve({ failure: cancelled });
    const fault = faultOfJson(error.payload);
    const { payload, ...rest } = error;
    const thrown = mapped(fault === undefined ? error : rest, this.#order.bundle.code);
    const failure = { cause, message: error.message, ...(cause === 'threw' && { error: thrown }) };
    this.#outcome.resolve({ failure });
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
