/** The developer's commands by name. Each loads what it needs when it is called. */
import { UsageError } from './arguments.ts';
import { own, type Surroundings } from './surroundings.ts';

type Command = (args: string[], surroundings: Surroundings) => Promise<number>;

const commands: Record<string, { summary: string; load: () => Promise<Command> }> = {
  init: {
    summary: 'make a folder of functions to begin with',
    load: async () => (await import('./init.ts')).initCommand,
  },
  dev: {
    summary: 'deploy at each save, and run one function',
    load: async () => (await import('./dev.ts')).devCommand,
  },
  dryrun: {
    summary: 'run a function here for a connection, writing nothing',
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

/** A line for each, as it stands in a usage. */
export const commandLines = Object.entries(commands)
  .map(([name, { summary }]) => `  ${name.padEnd(28)} ${summary}`)
  .join('\n');

export function isDeveloperCommand(name: string | undefined): boolean {
  return name !== undefined && Object.hasOwn(commands, name);
}

/** The exit code: 0, 1 where it failed, 2 where it was called wrongly. Never throws; what went wrong is told in a sentence. */
export async function runDeveloperCommand(
  name: string,
  args: string[],
  surroundings: Surroundings = own,
): Promise<number> {
  const { complain } = surroundings;
  try {
    const command = await commands[name]!.load();
    return await command(args, surroundings);
  } catch (error) {
    complain(error instanceof Error ? error.message : String(error));
    if (!(error instanceof UsageError)) return 1;
    complain(`See trellis ${name} --help`);
    return 2;
  }
}
