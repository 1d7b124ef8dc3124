/**
 * The part of the child that runs in the realm of the customer's code. Its text is evaluated there first, so that every object
 * that the code can reach, except for the hardened ones of Node, belongs to that realm. The functions of `host` belong to
 * Node's realm: they stay in closures here, exchange only strings, numbers, bytes and functions, and never throw.
 *
 * `inside` must use nothing outside of its own body: neither this module nor a value import.
 */

/** What the child does for the realm. A callback is called later and once, except for that of a repeated timer. */
export type Host = {
  /** `text` is the JSON of the answer or of the refusal. */
  call(
    name: string,
    call: { args: string; hasBody: boolean },
    answered: (kind: 'answer' | 'body' | 'refusal', text: string) => void,
  ): number;
  read(call: number, next: (bytes: Uint8Array | undefined, broken: string | undefined) => void): void;
  drop(call: number): void;
  /** False if the value is not bytes. */
  write(call: number, bytes: unknown, written: (isWanted: boolean) => void): boolean;
  finish(call: number): void;
  cut(call: number, message: string): void;
  log(level: string, text: string): void;
  startTimer(ms: number, repeats: boolean, fire: () => void): number;
  stopTimer(timer: number): void;
  /** The module function of a text other than the bundle; undefined if there is none. */
  moduleOf(name: string): ModuleFunction | undefined;
  bundle(): ModuleFunction;
  done(result: string): void;
  failed(error: Thrown): void;
};

/** A thrown value as JSON: the error, and its payload or an empty text. */
export type Thrown = { error: string; payload: string };

type ModuleFunction = (
  module: { exports: unknown },
  exports: unknown,
  require: (name: string) => unknown,
) => void;

/** The service for a harness: also declared in `sdk/functions/harness/service.ts`, which imports nothing from here. */
type Service = {
  call(
    name: string,
    args: unknown,
    body?: Iterable<unknown> | AsyncIterable<unknown>,
  ): Promise<{ value: unknown; body?: AsyncIterable<Uint8Array> }>;
  log(level: string, text: unknown): void;
  signal: AbortSignal;
};

type RealmParts = {
  /** Hardened modules of Node, by the names that a bundle may require, and hardened globals. */
  modules: Record<string, unknown>;
  globals: Record<string, unknown>;
  signal: AbortSignal;
};

/** The functions of the realm that the child calls. */
export type Inside = {
  start(order: string, given: string): void;
  describe(thrown: unknown): Thrown;
};

export function inside(host: Host, given: RealmParts): Inside {
  // Taken before the customer's code can replace them.
  const { parse, stringify } = JSON;
  const { defineProperty, freeze, assign, keys } = Object;
  const functionCall = Function.prototype.call;
  const slice: (text: string, from: number, to: number) => string = functionCall.bind(
    String.prototype.slice,
  ) as never;
  const RealmError = Error;
  const RealmTypeError = TypeError;
  const RealmPromise = Promise;
  const text = String;
  const asyncIterator: typeof Symbol.asyncIterator = Symbol.asyncIterator;
  const iterator: typeof Symbol.iterator = Symbol.iterator;

  // They block the thread without a check, or run code after the end of the run.
  for (const name of ['Atomics', 'FinalizationRegistry', 'SharedArrayBuffer', 'WeakRef', 'WebAssembly'])
    delete (globalThis as Record<string, unknown>)[name];
  const share = (name: string, value: unknown) =>
    defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
  for (const name of keys(given.globals)) share(name, given.globals[name]);

  class Timer {
    #id: number;
    constructor(id: number) {
      this.#id = id;
    }
    static stop(timer: unknown) {
      if (typeof timer === 'object' && timer !== null && #id in timer) host.stopTimer(timer.#id);
      else if (typeof timer === 'number' || typeof timer === 'string') host.stopTimer(+timer);
    }
    ref() {
      return this;
    }
    unref() {
      return this;
    }
    hasRef() {
      return true;
    }
    [Symbol.toPrimitive]() {
      return this.#id;
    }
  }
  const timerOf = (fn: unknown, ms: unknown, repeats: boolean, args: unknown[]) => {
    if (typeof fn !== 'function') throw new RealmTypeError('A timer needs a function.');
    return new Timer(host.startTimer(+(ms as number) || 0, repeats, () => fn(...args)));
  };
  const setTimeout = (fn: unknown, ms?: unknown, ...args: unknown[]) => timerOf(fn, ms, false, args);
  defineProperty(setTimeout, Symbol.for('nodejs.util.promisify.custom'), {
    value: (ms: unknown, value: unknown) =>
      new RealmPromise((resolve) => timerOf(resolve, ms, false, [value])),
  });
  share('setTimeout', setTimeout);
  share('setInterval', (fn: unknown, ms?: unknown, ...args: unknown[]) => timerOf(fn, ms, true, args));
  share('setImmediate', (fn: unknown, ...args: unknown[]) => timerOf(fn, 0, false, args));
  share('queueMicrotask', (fn: () => void) => void RealmPromise.resolve().then(fn));
  for (const name of ['clearTimeout', 'clearInterval', 'clearImmediate']) share(name, Timer.stop);
  share('global', globalThis);

  const write = (level: string, parts: unknown[]) => {
    let line = '';
    for (let at = 0; at < parts.length; at++) line += (at === 0 ? '' : ' ') + shown(parts[at]);
    host.log(level, line);
  };
  const shown = (value: unknown): string => {
    if (typeof value === 'string') return value;
    try {
      return (value instanceof RealmError ? undefined : stringify(value)) ?? text(value);
    } catch {
      try {
        return text(value);
      } catch {
        return '(cannot be shown)';
      }
    }
  };
  const lines: Record<string, unknown> = {};
  for (const [name, level] of [
    ['debug', 'debug'],
    ['trace', 'debug'],
    ['log', 'info'],
    ['info', 'info'],
    ['warn', 'warn'],
    ['error', 'error'],
  ] as const)
    lines[name] = (...parts: unknown[]) => write(level, parts);
  share('console', lines);

  const cache = { __proto__: null } as unknown as Record<string, { exports: unknown }>;
  const load = (name: string, load: ModuleFunction) => {
    const module = { exports: {} as unknown };
    cache[name] = module;
    load(module, module.exports, require);
    return module.exports;
  };
  const require = (id: unknown): unknown => {
    const full = text(id);
    const name = slice(full, 0, 5) === 'node:' ? slice(full, 5, full.length) : full;
    if (given.modules[name] !== undefined) return given.modules[name];
    if (cache[full] !== undefined) return cache[full].exports;
    const found = host.moduleOf(full);
    if (found !== undefined) return load(full, found);
    throw assign(new RealmError(`A function cannot require "${slice(full, 0, 100)}".`), {
      code: 'module_not_allowed',
    });
  };

  const refusalOf = (json: string) => {
    const { message, ...rest } = parse(json);
    return assign(new RealmError(message), rest);
  };
  const bodyOf = (id: number): AsyncIterable<Uint8Array> => {
    const next = () =>
      new RealmPromise<IteratorResult<Uint8Array, undefined>>((resolve, reject) => {
        host.read(id, (bytes, broken) => {
          if (broken !== undefined) reject(new RealmError(broken));
          else
            resolve(bytes === undefined ? { done: true, value: undefined } : { done: false, value: bytes });
        });
      });
    const leave = () => {
      host.drop(id);
      return RealmPromise.resolve({ done: true as const, value: undefined });
    };
    return { [asyncIterator]: () => ({ next, return: leave }) };
  };
  const send = async (id: number, body: AsyncIterable<unknown>) => {
    try {
      for await (const bytes of body) {
        const isWanted = await new RealmPromise<boolean>((resolve, reject) => {
          if (!host.write(id, bytes, resolve))
            reject(new RealmTypeError('A body consists of Uint8Array or strings.'));
        });
        if (!isWanted) return;
      }
      host.finish(id);
    } catch (error) {
      host.cut(id, (parse(describe(error).error) as { message: string }).message);
    }
  };
  const call: Service['call'] = (name, args, body) =>
    new RealmPromise((resolve, reject) => {
      const json = stringify(args) ?? 'null';
      const hasBody =
        body !== undefined &&
        body !== null &&
        (typeof (body as AsyncIterable<unknown>)[asyncIterator] === 'function' ||
          typeof (body as Iterable<unknown>)[iterator] === 'function');
      if (body !== undefined && !hasBody) throw new RealmTypeError('A body is an iterable of bytes.');
      const id = host.call(text(name), { args: json, hasBody }, (kind, answer) => {
        if (kind === 'refusal') return reject(refusalOf(answer));
        const value: unknown = parse(answer);
        resolve(kind === 'body' ? { value, body: bodyOf(id) } : { value });
      });
      if (hasBody) void send(id, body as AsyncIterable<unknown>);
    });
  const service: Service = freeze({
    call,
    log: (level: string, line: unknown) => write(text(level), [line]),
    signal: given.signal,
  });

  /** The fields of a thrown value. A field that throws when it is read counts as absent. */
  const factsOf = (thrown: unknown) => {
    const of = (key: string) => {
      try {
        return (thrown as Record<string, unknown>)[key];
      } catch {
        return undefined;
      }
    };
    const read = (key: string, max: number) => {
      const value = of(key);
      return typeof value === 'string' ? slice(value, 0, max) : undefined;
    };
    const name = read('name', 200) ?? 'Error';
    const message = read('message', 4096) ?? slice(shown(thrown), 0, 4096);
    return { of, read, name, message, code: read('code', 200) };
  };
  /** One line. Line breaks are escaped as in JSON, in which secrets are found too. */
  const causeLineOf = (cause: unknown) => {
    const { name, message, code } = factsOf(cause);
    const whole = `caused by ${name}: ${slice(message, 0, 500)}${code === undefined ? '' : ` (${code})`}`;
    let line = '';
    for (let at = 0; at < whole.length; at++) line += whole[at] === '\n' ? '\\n' : whole[at];
    return slice(line, 0, 1000);
  };
  const describe = (thrown: unknown): Thrown => {
    const { of, read, ...facts } = factsOf(thrown);
    let payload = '';
    try {
      const json = stringify(of('payload'));
      if (json !== undefined && json.length <= 65536) payload = json;
    } catch {}
    let stack = read('stack', 16384);
    const cause = stack === undefined ? undefined : of('cause');
    if (cause !== undefined && cause !== null) stack = `${slice(stack!, 0, 15000)}\n${causeLineOf(cause)}`;
    return { error: stringify({ ...facts, stack }), payload };
  };

  const run = async (
    order: { exportName: string; kind: string },
    { input, about }: { input: unknown; about: unknown },
  ) => {
    const bundle = load('', host.bundle()) as Record<string, unknown>;
    const exported = bundle?.[order.exportName];
    if (exported === undefined)
      throw new RealmTypeError(`The bundle has no export "${slice(order.exportName, 0, 100)}".`);
    const harness = load('\u0000harness', host.moduleOf('\u0000harness')!) as {
      start(call: object): unknown;
    };
    const { kind } = order;
    return harness.start({ exported, kind, input, about, service });
  };
  const start = (order: string, given: string) => {
    run(parse(order), parse(given))
      .then((result) => {
        const json: unknown = stringify(result);
        host.done(typeof json === 'string' ? json : 'null');
      })
      .catch((error) => host.failed(describe(error)));
  };
  return freeze({ start, describe });
}
