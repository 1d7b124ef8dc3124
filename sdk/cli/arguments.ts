/** The arguments, the settings and the output of developer commands. */
import { readFileSync } from 'node:fs';
import { type ParseArgsConfig, parseArgs, parseEnv } from 'node:util';

/** The environment and the output of a command: those of the process, or of a test. */
export type CommandContext = {
  env: Readonly<Record<string, string | undefined>>;
  print: (line: string) => void;
  printError: (line: string) => void;
};

/** The arguments of a command are invalid; the command exits with 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

type Options = NonNullable<ParseArgsConfig['options']>;
/** The parsed values of options. */
export type Values<O extends Options> = Parsed<O>['values'];
type Parsed<O extends Options> = ReturnType<
  typeof parseArgs<{ args: string[]; options: O; allowPositionals: true }>
>;

/** The options of every command that calls the service. */
export const serviceOptions = { url: { type: 'string' }, 'env-file': { type: 'string' } } as const;
export const serviceUsage = `  --url URL          the address of the service; default TRELLIS_URL, then http://localhost:3003
  --env-file FILE    read TRELLIS_URL and TRELLIS_SECRET_KEY from this file first
  TRELLIS_SECRET_KEY is a secret key of the environment to use. There is no option for it.`;

/** The last line of every usage text. */
export const exitCodes = 'Exit codes: 0 for success, 1 for a failure, 2 for wrong usage.';

/** Parses arguments. Returns undefined after printing the usage for `--help`. Throws a UsageError for unknown arguments. */
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
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`);
  return parsed;
}

/** The environment variables of a command: `--url` overrides `--env-file`, which overrides the process's environment. */
export function environmentFor(
  { url, 'env-file': file }: { url?: string | undefined; 'env-file'?: string | undefined },
  env: CommandContext['env'],
): CommandContext['env'] {
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

/** The value of a JSON option, or undefined if the option is missing. Throws a UsageError for invalid JSON. */
export function readJson(option: string, text: string | undefined): unknown {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UsageError(`${option} is not JSON: ${(error as Error).message}`);
  }
}

/** Like `readJson`, for an option that must be a JSON object. */
export function readJsonObject(
  option: string,
  text: string | undefined,
): Record<string, unknown> | undefined {
  const value = readJson(option, text);
  if (value === undefined) return undefined;
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new UsageError(`${option} must be a JSON object, such as '{"name": "value"}'.`);
}

export function required<T>(option: string, value: T | undefined): T {
  if (value === undefined) throw new UsageError(`${option} is missing.`);
  return value;
}

export const processContext: CommandContext = {
  env: process.env,
  print: (line) => console.log(escapeControls(line)),
  printError: (line) => console.error(escapeControls(line)),
};

/** Escapes control characters, because texts of providers and functions must not control the terminal. */
export function escapeControls(text: string): string {
  return text.replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches them
    /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`,
  );
}
