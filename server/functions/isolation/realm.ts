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
import { fenceLateAnswers } from './late-answers.ts';

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
