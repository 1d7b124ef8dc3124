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

/** Settings of the whole process, ways to run native code, and what would keep things past the end of a run. */
const withheld: [object, string[]][] = [
  [crypto, ['setEngine', 'setFips']],
  [util, ['setTraceSigInt']],
  [AbortSignal, ['timeout']],
  [URL, ['createObjectURL', 'revokeObjectURL']],
  [buffer, ['resolveObjectURL']],
];

/**
 * Makes what realms share unchangeable. Once, before the first realm, in a process that does nothing else. It leads to
 * nothing that a realm may not reach, as a test says.
 */
export function hardenShared(): Hardened {
  refuseCodeFromStrings();
  // Slices of a pool would show what the run before had in it.
  Buffer.poolSize = 0;
  for (const [target, names] of withheld)
    for (const name of names) Object.defineProperty(target, name, { value: undefined });
  return harden([...Object.values(modules), ...Object.values(globals)], { process, globalThis });
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

const enter = new vm.Script(`(${inside.toString()})`, { filename: 'trellis:inside' });

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
