/**
 * A compiled function in this process, with what functions may use in the service: `process`, `fetch` and the like are
 * undefined for it, and it may require no more than there.
 */
import { createRequire } from 'node:module';
import vm from 'node:vm';
import type { Definition } from '../functions/definitions.ts';
import { refusal } from './outcome.ts';

export const bundleName = 'function.js';

const modules = new Set(['buffer', 'crypto', 'events', 'stream', 'url', 'util']);
/** What the service gives functions beside the language itself. */
const given = new Set([
  ...['AbortController', 'AbortSignal', 'Blob', 'Buffer', 'DOMException', 'Event', 'EventTarget'],
  ...['TextDecoder', 'TextEncoder', 'URL', 'URLSearchParams', 'atob', 'btoa', 'queueMicrotask', 'global'],
  ...['setTimeout', 'setInterval', 'setImmediate', 'clearTimeout', 'clearInterval', 'clearImmediate'],
]);
/** What of the language the service takes from functions. */
const taken = ['Atomics', 'FinalizationRegistry', 'SharedArrayBuffer', 'WeakRef', 'WebAssembly'];
const language = new Set(vm.runInNewContext('Object.getOwnPropertyNames(globalThis)') as string[]).difference(
  new Set(taken),
);

export type Log = (level: string, text: unknown) => void;

/**
 * `instead` are globals that it gets in place of the usual; its timers stop when `ended` aborts. Throws what the code throws
 * while it is loaded.
 */
export function loadFunction(
  code: string,
  { log, instead = {}, ended }: { log: Log; instead?: Readonly<Record<string, unknown>>; ended: AbortSignal },
): Definition {
  const hidden = Object.getOwnPropertyNames(globalThis).filter(
    (name) => !language.has(name) && !given.has(name) && name !== 'console',
  );
  const globals: Record<string, unknown> = {
    ...Object.fromEntries(hidden.map((name) => [name, undefined])),
    ...timersUntil(ended, instead),
    console: consoleOf(log),
  };
  // By this name it finds the same.
  globals.globalThis = new Proxy(globalThis, {
    get: (target, name) =>
      Object.hasOwn(globals, name) ? globals[name as string] : Reflect.get(target, name),
  });
  globals.global = globals.globalThis;
  const names = Object.keys(globals);
  const run = vm.compileFunction(code, ['module', 'exports', 'require', ...names], { filename: bundleName });
  const module = { exports: {} as { default?: unknown } };
  run(module, module.exports, requireAllowed, ...names.map((name) => globals[name]));
  return module.exports.default as Definition;
}

const require = createRequire(import.meta.url);

function requireAllowed(asked: unknown): unknown {
  const name = String(asked).replace(/^node:/, '');
  if (name === 'zod' || modules.has(name)) return require(name);
  throw refusal('module_not_allowed', `A function cannot require "${String(asked).slice(0, 100)}".`);
}

type SetTimer = (fire: (...args: unknown[]) => void, ...more: unknown[]) => NodeJS.Timeout;

/** Those in `instead`, else the usual: none of them keeps this process alive when the run is over. */
function timersUntil(
  ended: AbortSignal,
  instead: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const set = { setTimeout, setInterval, setImmediate, ...instead } as Readonly<Record<string, unknown>>;
  const stop = { setTimeout: clearTimeout, setInterval: clearInterval, setImmediate: clearImmediate };
  const timers = Object.entries(stop).map(([name, clear]) => {
    const running = new Set<NodeJS.Timeout>();
    ended.addEventListener('abort', () => {
      for (const timer of running) clear(timer as never);
    });
    const start: SetTimer = (fire, ...more) => {
      const once = (...args: unknown[]) => {
        if (name !== 'setInterval') running.delete(timer);
        fire(...args);
      };
      const timer = (set[name] as SetTimer)(once, ...more);
      running.add(timer);
      return timer;
    };
    return [name, start];
  });
  return { ...instead, ...Object.fromEntries(timers) };
}

/** What was thrown and is no Error, as text. */
export function shownThrown(thrown: unknown): string {
  return shown(thrown);
}

function consoleOf(log: Log) {
  const at =
    (level: string) =>
    (...parts: unknown[]) =>
      log(level, parts.map(shown).join(' '));
  const info = at('info');
  return { debug: at('debug'), trace: at('debug'), log: info, info, warn: at('warn'), error: at('error') };
}

function shown(value: unknown): string {
  if (typeof value === 'string') return value;
  try {
    return (value instanceof Error ? undefined : JSON.stringify(value)) ?? String(value);
  } catch {
    try {
      return String(value);
    } catch {
      return '(cannot be shown)';
    }
  }
}
