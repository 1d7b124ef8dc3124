/**
 * Loads a compiled function in this process with the globals and modules of the service: `process`, `fetch` and similar globals
 * are undefined, and the same modules can be required. Maps stack traces to the author's files.
 */
import { createRequire, SourceMap } from 'node:module';
import vm from 'node:vm';
import type { Definition } from '../functions/definitions.ts';
import { serviceError } from './outcome.ts';

const bundleName = 'function.js';

const modules = new Set(['buffer', 'crypto', 'events', 'stream', 'url', 'util']);
/** The globals of functions in the service other than those of the language. */
const platformGlobals = new Set([
  'AbortController',
  'AbortSignal',
  'Blob',
  'Buffer',
  'DOMException',
  'Event',
  'EventTarget',
  'TextDecoder',
  'TextEncoder',
  'URL',
  'URLSearchParams',
  'atob',
  'btoa',
  'queueMicrotask',
  'global',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'clearTimeout',
  'clearInterval',
  'clearImmediate',
]);
/** The globals of the language that the service removes. */
const removedGlobals = ['Atomics', 'FinalizationRegistry', 'SharedArrayBuffer', 'WeakRef', 'WebAssembly'];
const languageGlobals = new Set(
  vm.runInNewContext('Object.getOwnPropertyNames(globalThis)') as string[],
).difference(new Set(removedGlobals));

export type Log = (level: string, text: unknown) => void;

/**
 * Returns the definition that the code exports. `overrides` replace globals. When `ended` aborts, the timers of the function
 * stop. Throws the error that the code throws while it is loaded.
 */
export function loadFunction(
  code: string,
  {
    log,
    overrides = {},
    ended,
  }: { log: Log; overrides?: Readonly<Record<string, unknown>>; ended: AbortSignal },
): Definition {
  const hidden = Object.getOwnPropertyNames(globalThis).filter(
    (name) => !languageGlobals.has(name) && !platformGlobals.has(name) && name !== 'console',
  );
  const globals: Record<string, unknown> = {
    ...Object.fromEntries(hidden.map((name) => [name, undefined])),
    ...stoppingTimers(ended, overrides),
    console: consoleOf(log),
  };
  // `globalThis` has the same values.
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

function requireAllowed(module: unknown): unknown {
  const name = String(module).replace(/^node:/, '');
  if (name === 'zod' || modules.has(name)) return require(name);
  throw serviceError('module_not_allowed', `A function cannot require "${String(module).slice(0, 100)}".`);
}

type SetTimer = (fire: (...args: unknown[]) => void, ...more: unknown[]) => NodeJS.Timeout;

/** The timer functions, from `overrides` or Node. Their timers are cleared when `ended` aborts, so the process can exit. */
function stoppingTimers(
  ended: AbortSignal,
  overrides: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const start = { setTimeout, setInterval, setImmediate, ...overrides } as Readonly<Record<string, unknown>>;
  const stop = { setTimeout: clearTimeout, setInterval: clearInterval, setImmediate: clearImmediate };
  const timers = Object.entries(stop).map(([name, clear]) => {
    const running = new Set<NodeJS.Timeout>();
    ended.addEventListener('abort', () => {
      for (const timer of running) clear(timer as never);
    });
    const startTimer: SetTimer = (fire, ...more) => {
      const once = (...args: unknown[]) => {
        if (name !== 'setInterval') running.delete(timer);
        fire(...args);
      };
      const timer = (start[name] as SetTimer)(once, ...more);
      running.add(timer);
      return timer;
    };
    return [name, startTimer];
  });
  return { ...overrides, ...Object.fromEntries(timers) };
}

function consoleOf(log: Log) {
  const logAt =
    (level: string) =>
    (...parts: unknown[]) =>
      log(level, parts.map(formatValue).join(' '));
  const info = logAt('info');
  const [debug, warn, error] = [logAt('debug'), logAt('warn'), logAt('error')];
  return { debug, trace: debug, log: info, info, warn, error };
}

/** Formats any value as text, as the service does. Never throws. */
export function formatValue(value: unknown): string {
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

const marker = '//# sourceMappingURL=data:application/json;base64,';
const location = new RegExp(`${bundleName.replace('.', '\\.')}:(\\d+):(\\d+)`);

/** The locations of a stack in the author's files, innermost first: `google-sheet/syncs/rows.ts:12:7`. */
export function locationsOf(stack: string | undefined, code: string): string[] {
  const map = mapOf(code);
  const locations = (stack ?? '').split('\n').flatMap((line) => {
    const [, row, column] = location.exec(line) ?? [];
    if (row === undefined) return [];
    const entry = map?.findEntry(Number(row) - 1, Number(column) - 1);
    if (entry === undefined || !('originalSource' in entry)) return [];
    return [`${entry.originalSource}:${entry.originalLine + 1}:${entry.originalColumn + 1}`];
  });
  return [...new Set(locations)];
}

function mapOf(code: string): SourceMap | undefined {
  const start = code.lastIndexOf(marker);
  if (start < 0) return undefined;
  return new SourceMap(
    JSON.parse(Buffer.from(code.slice(start + marker.length).trimEnd(), 'base64').toString()),
  );
}
