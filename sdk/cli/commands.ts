/** The developer commands by name. The module of a command is loaded when the command runs. */
import { type CommandContext, processContext, UsageError } from './arguments.ts';

type Command = (args: string[], context: CommandContext) => Promise<number>;

const commands: Record<string, { summary: string; load: () => Promise<Command> }> = {
  init: {
    summary: 'create a folder with example functions',
    load: async () => (await import('./init.ts')).initCommand,
  },
  dev: {
    summary: 'deploy after each save, and run one function',
    load: async () => (await import('./dev.ts')).devCommand,
  },
  dryrun: {
    summary: 'run a local function for a connection without writing',
    load: async () => (await import('./dryrun.ts')).dryrunCommand,
  },
  test: {
    summary: 'run functions against recorded calls',
    load: async () => (await import('./test-command.ts')).testCommand,
  },
  deploy: {
    summary: 'check, bundle and deploy a folder',
    load: async () => (await import('./deploy.ts')).deployCommand,
  },
  run: {
    summary: 'run a deployed function in the service',
    load: async () => (await import('./run.ts')).runCommand,
  },
};

/** The lines of the commands in a usage text. */
export const commandLines = Object.entries(commands)
  .map(([name, { summary }]) => `  ${name.padEnd(28)} ${summary}`)
  .join('\n');

export function isDeveloperCommand(name: string | undefined): boolean {
  return name !== undefined && Object.hasOwn(commands, name);
}

/** Returns the exit code: 0 for success, 1 for a failure, 2 for wrong usage. Prints errors and never throws. */
export async function runDeveloperCommand(
  name: string,
  args: string[],
  context: CommandContext = processContext,
): Promise<number> {
  const { printError } = context;
  try {
    const command = await commands[name]!.load();
    return await command(args, context);
  } catch (error) {
    printError(error instanceof Error ? error.message : String(error));
    if (!(error instanceof UsageError)) return 1;
    printError(`See trellis ${name} --help`);
    return 2;
  }
}
