/** Runs command lines: exit codes, and the errors of commands as text. */
import { inspect } from 'node:util';
import { CommanderError } from 'commander';
import { type CommandContext, processContext, UsageError } from '../../sdk/cli/arguments.ts';
import { type AnyCommand, createProgram, pathOf } from './commands.ts';

/**
 * Runs a command line. Returns the exit code: 0 for success, 1 for a failure, 2 for wrong usage. Prints errors and never
 * throws.
 */
export async function runCommandLine(
  args: readonly string[],
  context: CommandContext = processContext,
): Promise<number> {
  let exitCode = 0;
  let command: AnyCommand | undefined;
  const program = createProgram({
    context,
    end: (code) => {
      exitCode = code;
    },
  });
  program.hook('preAction', (_, actionCommand) => {
    command = actionCommand;
  });
  try {
    await program.parseAsync(args.length === 0 ? ['--help'] : args, { from: 'user' });
    return exitCode;
  } catch (error) {
    // Commander has printed its message.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    context.printError(await describeError(error));
    if (!(error instanceof UsageError) || command === undefined) return 1;
    context.printError(`See ${pathOf(command)} --help`);
    return 2;
  }
}

/** Errors that the user can fix as sentences; all others with their cause and stack. */
async function describeError(error: unknown): Promise<string> {
  if (!(error instanceof Error)) return inspect(error);
  if (error.cause === undefined) return error.message;
  const { ConfigError } = await import('../config/config.ts');
  const { AppError } = await import('../errors.ts');
  if (!(error instanceof ConfigError || error instanceof AppError)) return inspect(error);
  return error.cause instanceof Error ? `${error.message} (${error.cause.message})` : error.message;
}
