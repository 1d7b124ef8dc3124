/** What stands behind a developer command: options of its own, and those that say which service is meant. */
import { readFileSync } from 'node:fs';
import { type ParseArgsConfig, parseArgs, parseEnv } from 'node:util';
import type { Surroundings } from './surroundings.ts';

/** The command cannot begin with what it was given; it ends with 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

type Options = NonNullable<ParseArgsConfig['options']>;
type Parsed<O extends Options> = ReturnType<
  typeof parseArgs<{ args: string[]; options: O; allowPositionals: true }>
>;

/** Of every command that calls a service. */
export const serviceOptions = { url: { type: 'string' }, 'env-file': { type: 'string' } } as const;
export const serviceUsage = `  --url URL          the service; else TRELLIS_URL, else http://localhost:3003
  --env-file FILE    read TRELLIS_URL and TRELLIS_SECRET_KEY from there, before the environment
  The key is TRELLIS_SECRET_KEY, of the environment that is meant; no option takes it.`;

/** How every usage ends. */
export const exitCodes =
  'Ends with 0 where all is well, 1 where something failed, 2 where it was called wrongly.';

/** Undefined where `--help` was asked for, and printed. Throws a UsageError for what it does not know. */
export function readArguments<const O extends Options>(
  args: string[],
  {
    usage,
    options,
    maxPositionals,
    print,
  }: { usage: string; options: O; maxPositionals: number; print: (line: string) => void },
): Parsed<O> | undefined {
  if (args.includes('--help') || args.includes('-h')) {
    print(usage);
    return undefined;
  }
  let parsed: Parsed<O>;
  try {
    parsed = parseArgs({ args, options, allowPositionals: true }) as Parsed<O>;
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
  const extra = parsed.positionals[maxPositionals];
  if (extra !== undefined) throw new UsageError(`What is "${extra}"? There is one argument too many.`);
  return parsed;
}

/** The environment that a command works in: `--env-file` and `--url` come before what is set. */
export function settingsOf(
  { url, 'env-file': file }: { url?: string | undefined; 'env-file'?: string | undefined },
  env: Surroundings['env'],
): Surroundings['env'] {
  return {
    ...env,
    ...(file !== undefined && readEnvFile(file)),
    ...(url !== undefined && { TRELLIS_URL: url }),
  };
}

function readEnvFile(file: string): Record<string, string | undefined> {
  try {
    return parseEnv(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new UsageError(`--env-file ${file} cannot be read: ${(error as NodeJS.ErrnoException).code}.`);
  }
}

/** The value of an option that takes JSON; undefined where it is not given. */
export function readJson(option: string, given: string | undefined): unknown {
  if (given === undefined) return undefined;
  try {
    return JSON.parse(given);
  } catch (error) {
    throw new UsageError(`${option} is no JSON: ${(error as Error).message}`);
  }
}

/** As `readJson`, of an object alone. */
export function readJsonObject(
  option: string,
  given: string | undefined,
): Record<string, unknown> | undefined {
  const value = readJson(option, given);
  if (value === undefined) return undefined;
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new UsageError(`${option} is to be an object, such as '{"name": "value"}'.`);
}

export function required<T>(option: string, value: T | undefined): T {
  if (value === undefined) throw new UsageError(`${option} is missing.`);
  return value;
}
