#!/usr/bin/env node
/** The executable `trellis` of the developer package. The executable of the service also has the commands of operators. */
import { commandLines, isDeveloperCommand, runDeveloperCommand } from './commands.ts';

const usage = `Usage: trellis <command>

${commandLines}

Run trellis <command> --help for its options.`;

const [command, ...args] = process.argv.slice(2);
if (command !== undefined && isDeveloperCommand(command)) {
  process.exitCode = await runDeveloperCommand(command, args);
} else {
  const isHelp = command === undefined || ['help', '--help', '-h'].includes(command);
  console[isHelp ? 'log' : 'error'](isHelp ? usage : `Unknown command: ${command}\n\n${usage}`);
  process.exitCode = isHelp ? 0 : 2;
}
