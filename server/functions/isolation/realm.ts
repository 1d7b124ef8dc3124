/**
 * A new realm for each run: its own intrinsics, no `process`, no `import()`, no code from strings, and only hardened modules of
 * Node. The state that the code leaves ends with its realm.
 */
import buffer from 'node:buffer';
import crypto from 'node:crypto';
import events from 'node:events';
import stream from 'node:stream';
import url from 'node:url';
import util from 'node:util';
import vm from 'node:vm';
import { type Hardened, harden } from './harden.ts';
import { hiddenInstances } from './hidden.ts';
import { type Host, type Inside, inside } from './inside.ts';

/** Without a prototype, so that `require('constructor')` finds nothing. */
const modules = { __proto__: null, buffer, crypto, events, stream, url, util };

const globals = {
  AbortController,
  AbortSignal,
  Blob,
  Buffer,
  DOMException,
  Event,
  EventTarget,
  TextDecoder,
  TextEncoder,
  URL,
  URLSearchParams,
  atob,
  btoa,
};

/** Settings of the whole process, ways to run native code, and APIs that keep objects after the end of a run. */
const removedNames: [object, string[]][] = [
  [crypto, ['setEngine', 'setFips']],
  [stream, ['setDefaultHighWaterMark']],
  [
    util,
    ['debounce', 'setTraceSigInt', 'throttle', 'transferableAbortController', 'transferableAbortSignal'],
  ],
  [AbortSignal, ['timeout']],
  [URL, ['createObjectURL', 'revokeObjectURL']],
  [buffer, ['resolveObjectURL']],
  // Entry points to families of classes that are not hardened.
  [events, ['EventEmitterAsyncResource']],
  [url, ['URLPattern']],
  [crypto, ['X509Certificate', 'parsePKCS12']],
  [Blob.prototype, ['stream', 'textStream']],
  ...[stream.Readable, stream.Writable, stream.Duplex].map((of): [object, string[]] => [
    of,
    ['fromWeb', 'toWeb'],
  ]),
];

/**
 * Makes the objects that realms share immutable. Call it once, before the first realm, in a process that does nothing else. A
 * test proves that they lead to nothing else. `endRun` discards the pending callbacks and promises of a run.
 */
export function hardenShared(): Hardened & { endRun(): void } {
  refuseCodeFromStrings();
  // Slices of a pool would expose data of earlier runs.
  Buffer.poolSize = 0;
  for (const [target, names] of removedNames)
    for (const name of names) if (name in target) Object.defineProperty(target, name, { value: undefined });
  Object.defineProperty(AbortSignal, 'any', { value: anySignal });
  const endRun = fenceLateAnswers();
  const hardened = harden({
    roots: [...Object.values(modules), ...Object.values(globals)],
    instances: hiddenInstances(),
    kept: { process, globalThis },
  });
  return { ...hardened, endRun };
}

/** Node's own version keeps such signals until the process ends, and calls their methods at garbage collection. */
function anySignal(signals: Iterable<AbortSignal>): AbortSignal {
  const all = [...signals];
  const controller = new AbortController();
  const aborted = all.find((signal) => signal.aborted);
  if (aborted) controller.abort(aborted.reason);
  else
    for (const signal of all)
      signal.addEventListener('abort', () => controller.abort(signal.reason), { once: true });
  return controller.signal;
}

/** Every function leads to its constructor, which in Node's realm would create code with the rights of that realm. */
function refuseCodeFromStrings(): void {
  const kinds = [() => {}, async () => {}, function* () {}, async function* () {}];
  for (const kind of kinds)
    Object.defineProperty(Object.getPrototypeOf(kind), 'constructor', {
      value: function refused() {
        throw new EvalError('Code generation from strings disallowed for this context');
      },
    });
}

// Strict, as this module is: the code could reach a sloppy function as its `caller`.
const enter = new vm.Script(`'use strict';(${inside.toString()})`, { filename: 'trellis:inside' });

/** Compiled once for each text. The resulting function belongs to the realm in which the script runs. */
export function compile(code: string, filename: string): vm.Script {
  return new vm.Script(`(function (module, exports, require) {${code}\n})`, { filename });
}

export function createRealm(makeHost: (context: vm.Context) => Host, signal: AbortSignal): Inside {
  const context = vm.createContext(vm.constants.DONT_CONTEXTIFY as never, {
    codeGeneration: { strings: false, wasm: false },
  });
  const begin = enter.runInContext(context) as typeof inside;
  return begin(makeHost(context), { modules, globals, signal });
}

/** The number of the current run. */
let run = 0;

/**
 * Lets Node's modules call a callback, or settle a promise, only during the run that passed it: otherwise code of a run that
 * is over would continue in the next one. Timers belong to the realm. Call it once, before anything is frozen. The returned
 * function ends the current run.
 */
function fenceLateAnswers(): () => void {
  fenceCallbacks(crypto);
  fencePromises(Object.getPrototypeOf(crypto.subtle));
  fencePromises(Blob.prototype);
  return () => {
    run += 1;
  };
}

/** Wraps callbacks: Node calls some of them with a native job as `this`, whose prototype all runs share. */
function fenceCallbacks(target: object): void {
  for (const [name, { configurable }] of Object.entries(Object.getOwnPropertyDescriptors(target))) {
    const value: unknown = Reflect.get(target, name);
    if (!configurable || typeof value !== 'function' || /^[A-Z]/.test(name)) continue;
    const call = (...args: unknown[]) =>
      value(...args.map((arg) => (typeof arg === 'function' ? fenced(arg as never) : arg)));
    Object.defineProperties(call, Object.getOwnPropertyDescriptors(value));
    Object.defineProperty(target, name, { value: call, enumerable: true });
  }
}

function fencePromises(target: object): void {
  for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(target))) {
    if (typeof value !== 'function' || name === 'constructor') continue;
    const method = {
      call(...args: unknown[]): unknown {
        const answer: unknown = Reflect.apply(value, this, args);
        if (!(answer instanceof Promise)) return answer;
        return new Promise((resolve, reject) => {
          answer.then(fenced(resolve), fenced(reject));
        });
      },
    };
    Object.defineProperties(method.call, Object.getOwnPropertyDescriptors(value));
    Object.defineProperty(target, name, { value: method.call });
  }
}

function fenced<T extends unknown[]>(answered: (...results: T) => void): (...results: T) => void {
  const asking = run;
  return (...results) => {
    if (run === asking) answered(...results);
  };
}
