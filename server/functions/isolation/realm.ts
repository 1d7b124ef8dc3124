/**
 * A fresh realm for one run: its own intrinsics, no `process`, no `import()`, no code from strings, and of Node only what
 * is hardened. What the code leaves behind is gone with it.
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

/** Without a prototype: `require('constructor')` names no module. */
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

/** Settings of the whole process, ways to run native code, and APIs that keep objects past the end of a run. */
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
  // Entry points to whole families of classes, whose other members no realm has.
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
 * Makes what realms share unchangeable. Once, before the first realm, in a process that does nothing else. It leads to
 * nothing that a realm may not reach, as a test says. `endRun` keeps what a run still waits for from it.
 */
export function hardenShared(): Hardened & { endRun(): void } {
  refuseCodeFromStrings();
  // Slices of a pool would show what the run before had in it.
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

/** Node's own keeps such signals for as long as the process lasts, and calls their methods when memory is cleared. */
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

/** The classes of functions are within reach of every function; in Node's realm they would make code with its rights. */
function refuseCodeFromStrings(): void {
  const kinds = [() => {}, async () => {}, function* () {}, async function* () {}];
  for (const kind of kinds)
    Object.defineProperty(Object.getPrototypeOf(kind), 'constructor', {
      value: function refused() {
        throw new EvalError('Code generation from strings disallowed for this context');
      },
    });
}

// Strict, as this module is: a sloppy function would be in reach as the `caller` of the code that it calls.
const enter = new vm.Script(`'use strict';(${inside.toString()})`, { filename: 'trellis:inside' });

/** Compiled once for each text; the code that it makes belongs to the realm it is run in. */
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

/**
 * What Node's modules answer later, by a callback or a promise, they answer only to the run that asked: code of a run that
 * is over would go on in the next one. Timers are the realm's own.
 */

/** Counts up: the one that is under way. */
let run = 0;

/** Once, before anything is frozen. To call what is returned ends the run for all that it waits for. */
function fenceLateAnswers(): () => void {
  fenceCallbacks(crypto);
  fencePromises(Object.getPrototypeOf(crypto.subtle));
  fencePromises(Blob.prototype);
  return () => {
    run += 1;
  };
}

/** Node calls some on the native job that has the result, and what all jobs of a kind inherit from is shared by all runs. */
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
