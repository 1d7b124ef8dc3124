/** The options, the settings and the output of commands. The commands are declared in `server/cli/commands.ts`. */
import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';

/** The environment and the output of a command: those of the process, or of a test. */
export type CommandContext = {
  env: Readonly<Record<string, string | undefined>>;
  print: (line: string) => void;
  printError: (line: string) => void;
};

/** The options of every command that calls the service. */
export type ServiceOptions = { url?: string | undefined; envFile?: string | undefined };

/** The arguments of a command are invalid; the command exits with 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

/** The environment variables of a command: `--url` overrides `--env-file`, which overrides the process's environment. */
export function environmentFor(
  { url, envFile: file }: ServiceOptions,
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
