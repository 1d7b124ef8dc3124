#!/usr/bin/env node
import { commandLines, isDeveloperCommand, runDeveloperCommand } from '../../sdk/cli/commands.ts';
import { ConfigError } from '../config.ts';
import { AppError } from '../errors.ts';
import { restartWithSmallMemory } from './memory.ts';

/** The executable `trellis`: the operator's commands. */
const usage = `Usage: trellis <command>

  start                        run the service
  key create [--environment dev] [--name NAME] [--scopes a,b]
             [--proxy-allow 'GET,POST /path/**']... [--proxy-deny '/path/*']...
             [--expires-at 2030-01-31T12:00:00Z]
                               make a secret key and print it once
  key list [--environment dev] show the keys, without their secrets
  key revoke <id> [--environment dev]
                               end a key and its tickets
  keys list                    master keys: what each wraps, which one seals
  keys rotate [--dry-run] [--back]
                               wrap all data keys with the first master key, also while
                               the service runs; --back: with one from before
  keys export FILE             write the wrapped data keys, to be kept beside backups
  keys restore FILE [--dry-run] [--drop-newer] [--back]
                               take the data keys of a restored database from there, and
                               end API keys that were revoked since
  user list                    show the people who sign in to the dashboard
  user invite --role owner|developer|viewer [--environment dev]... [--email ADDRESS]
                               print a link that makes one user
  user reset-link ADDRESS      print a link that sets a new password once
  user remove-second-factor ADDRESS
                               for who lost the device and the backup codes
  audit verify [--head POSITION:HASH]
                               prove that the audit log is as it was written

For developers of functions, each with --help:

${commandLines}

Settings are environment variables; docs/operations.md lists them.`;

async function main(args: string[]): Promise<number> {
  const [command, ...rest] = args;
  // Each loads what it needs: the service is large.
  if (command === 'start' && rest.length === 0) {
    restartWithSmallMemory();
    return (await import('./start.ts')).start();
  }
  if (command === 'key' && rest[0] === 'create') {
    return (await import('./key.ts')).createKeyCommand(rest.slice(1));
  }
  if (command === 'key' && rest[0] === 'list') {
    return (await import('./key.ts')).listKeysCommand(rest.slice(1));
  }
  if (command === 'key' && rest[0] === 'revoke') {
    return (await import('./key.ts')).revokeKeyCommand(rest.slice(1));
  }
  if (command !== undefined && isDeveloperCommand(command)) return runDeveloperCommand(command, rest);
  if (command === 'user') return (await import('./user.ts')).userCommand(rest);
  if (command === 'audit') return (await import('./audit.ts')).auditCommand(rest);
  if (command === 'keys') return (await import('./keys.ts')).keysCommand(rest);
  const isHelp = command === undefined || ['help', '--help', '-h'].includes(command);
  console[isHelp ? 'log' : 'error'](isHelp ? usage : `Unknown command: ${args.join(' ')}\n\n${usage}`);
  return isHelp ? 0 : 2;
}

/** What the operator can mend is told in sentences; anything else with its stack. */
function told(error: unknown): unknown {
  if (!(error instanceof ConfigError || error instanceof AppError)) {
    return error instanceof Error && error.cause === undefined ? error.message : error;
  }
  const cause = error.cause instanceof Error ? ` (${error.cause.message})` : '';
  return `${error.message}${cause}`;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(told(error));
  process.exitCode = 1;
}
