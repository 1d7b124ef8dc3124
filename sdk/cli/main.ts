#!/usr/bin/env node
/** The executable `trellis` of the developer's package; that of the service has the same commands, and the operator's. */
import { commandLines, isDeveloperCommand, runDeveloperCommand } from './commands.ts';

const usage = `Usage: trellis <command>

${commandLines}

trellis <command> --help says more.`;

const [command, ...args] = process.argv.slice(2);
if (command !== undefined && isDeveloperCommand(command)) {
  process.exitCode = await runDeveloperCommand(command, args);
} else {
  const isHelp = command === undefined || ['help', '--help', '-h'].includes(command);
  console[isHelp ? 'log' : 'error'](isHelp ? usage : `Unknown command: ${command}\n\n${usage}`);
  process.exitCode = isHelp ? 0 : 2;
}
