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
const language = new Set(vm.runInNewContext('Object.getOwnPropertyNames(globalThis)') as string[]);

export type Log = (level: string, text: unknown) => void;

/** `instead` are globals that it gets in place of the usual. Throws what the code throws while it is loaded. */
export function loadFunction(
  code: string,
  { log, instead = {} }: { log: Log; instead?: Readonly<Record<string, unknown>> },
): Definition {
  const withheld = Object.getOwnPropertyNames(globalThis).filter(
    (name) => !language.has(name) && !given.has(name) && name !== 'console',
  );
  const globals: Record<string, unknown> = {
    ...Object.fromEntries(withheld.map((name) => [name, undefined])),
    ...instead,
    console: consoleOf(log),
  };
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
    return '(cannot be shown)';
  }
}
