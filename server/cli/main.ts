#!/usr/bin/env node
import { commandLines, isDeveloperCommand, runDeveloperCommand } from '../../sdk/cli/commands.ts';
import { ConfigError } from '../config/config.ts';
import { AppError } from '../errors.ts';
import { restartWithSmallMemory } from './memory.ts';

/** The executable `trellis`: the operator's commands. */
const usage = `Usage: trellis <command>

  start [--role api|worker|all]
                               run the service: its interface, what is due in the
                               background, or both
  doctor [--json]              look for what is wrong, and say how to mend it
  nodes [--json]               show the nodes that run, and those that were killed
  key create [--environment dev] [--name NAME] [--scopes a,b]
             [--proxy-allow 'GET,POST /path/**']... [--proxy-deny '/path/*']...
             [--expires-at 2030-01-31T12:00:00Z] [--rate-limit CALLS_A_MINUTE]
             [--replaces KEY_ID]
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
  backup --to DIRECTORY [--keep COUNT] [--keys FILE]
                               copy the embedded database while the service runs, and
                               write the wrapped data keys beside it
  restore --from BACKUP [--keys FILE] [--dry-run] [--drop-newer] [--back]
                               bring a backup back into a DATA_DIR without a database
  restored [--again]           raise all positions of a database that went back in time
  upgrade-database --old-binaries DIRECTORY
                               bring the embedded database to the PostgreSQL that this
                               version brings
  import nango --from URL --environment NAME [--records] [--dry-run]
                               move in from a running Nango; --help tells more
  import FILE [--dry-run]      take in what another installation has exported
  export --to FILE --environment NAME|--all [--records]
                               write what an environment holds, encrypted
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
  if (command === 'start') {
    restartWithSmallMemory();
    return (await import('./start.ts')).start(rest);
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
  if (command === 'doctor') return (await import('./doctor.ts')).doctorCommand(rest);
  if (command === 'nodes') return (await import('./nodes.ts')).nodesCommand(rest);
  if (command === 'user') return (await import('./user.ts')).userCommand(rest);
  if (command === 'audit') return (await import('./audit.ts')).auditCommand(rest);
  if (command === 'backup') return (await import('./backup.ts')).backupCommand(rest);
  if (command === 'restore') return (await import('./restore.ts')).restoreCommand(rest);
  if (command === 'restored') return (await import('./restored.ts')).restoredCommand(rest);
  if (command === 'upgrade-database')
    return (await import('./upgrade-database.ts')).upgradeDatabaseCommand(rest);
  if (command === 'import') return (await import('./import.ts')).importCommand(rest);
  if (command === 'export') return (await import('./export.ts')).exportCommand(rest);
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
