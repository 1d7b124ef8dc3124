#!/usr/bin/env node
import { commandLines, isDeveloperCommand, runDeveloperCommand } from '../../sdk/cli/commands.ts';
import { ConfigError } from '../config/config.ts';
import { AppError } from '../errors.ts';

/** The executable `trellis`: the operator's commands. */
const usage = `Usage: trellis <command>

  start [--role api|worker|all]
                               run the service: the HTTP API, the background work, or
                               both
  doctor [--json]              find problems and print how to fix them
  nodes [--json]               list running nodes, and nodes that were killed
  key create [--environment dev] [--name NAME] [--scopes a,b]
             [--proxy-allow 'GET,POST /path/**']... [--proxy-deny '/path/*']...
             [--expires-at 2030-01-31T12:00:00Z] [--rate-limit CALLS_A_MINUTE]
             [--replaces KEY_ID]
                               create a secret key and print it once
  key list [--environment dev] list the keys, without their secrets
  key revoke <id> [--environment dev]
                               revoke a key and its tickets
  keys list                    list the master keys: the number of data keys of each,
                               and the key that wraps new ones
  keys rotate [--dry-run] [--back]
                               wrap all data keys with the first master key, also while
                               the service runs; --back: with an older master key
  keys export FILE             write the wrapped data keys to a file for backups
  keys restore FILE [--dry-run] [--drop-newer] [--back]
                               restore the data keys of a restored database from FILE,
                               and revoke API keys that were revoked after the backup
  backup --to DIRECTORY [--keep COUNT] [--keys FILE]
                               copy the embedded database while the service runs, and
                               write the wrapped data keys beside it
  restore --from BACKUP [--keys FILE] [--dry-run] [--drop-newer] [--back]
                               restore a backup into a DATA_DIR without a database
  restored [--again]           raise all positions after a database was restored by
                               other tools or lost commits
  upgrade-database --old-binaries DIRECTORY
                               upgrade the embedded database to the PostgreSQL of this
                               version
  import nango --from URL --environment NAME [--records] [--dry-run]
                               import from a running Nango; --help lists the options
  import FILE [--dry-run]      import the export file of another installation
  export --to FILE --environment NAME|--all [--records]
                               write the contents of an environment, encrypted
  user list                    list the users of the dashboard
  user invite --role owner|developer|viewer [--environment dev]... [--email ADDRESS]
                               print an invitation link for one user
  user reset-link ADDRESS      print a link that sets a new password once
  user remove-second-factor ADDRESS
                               let a user sign in with only the password, if the device
                               and the backup codes are lost
  audit verify [--head POSITION:HASH]
                               check that the audit log was not changed

For developers of functions, each with --help:

${commandLines}

Settings are environment variables; docs/reference/settings.md lists them.`;

/**
 * Flags that keep the memory of the process small. Node reads them at its start; docs/decisions/0009 has their gains and
 * costs.
 *
 * - V8's young generation grows to 24 MB instead of 48, and with it the buffers that wait to be collected. Its own thread
 *   collects it: on few cores, parallel collection costs more than it saves.
 * - The old generation is collected when it has doubled, not when it has grown fourfold. Empty pages are returned at
 *   once, not after 8 s.
 * - The proxy calls `gc` when V8 would wait (docs/decisions/0014).
 * - glibc keeps freed memory in an arena for each thread: two instead of eight a core. Blocks from 1 MB on are returned to
 *   the system when they are freed, and so is free memory above 4 MB at the end of an arena; without fixed values, glibc
 *   raises both by the largest block that was freed. Other C libraries ignore these settings.
 */
const flags = [
  '--max-semi-space-size=8',
  '--no-parallel-scavenge',
  '--heap-growing-percent=100',
  '--memory-pool-timeout=0',
  '--expose-gc',
];
const settings = {
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: String(2 ** 20),
  MALLOC_TRIM_THRESHOLD_: String(4 * 2 ** 20),
};

/**
 * Restarts this command with these flags, in the same process and with the same arguments. Returns if it was restarted
 * before, if the operator has set MALLOC_ARENA_MAX, if a parent process would lose its channel to this process, and on
 * systems without `execve`. Call it before anything is open.
 */
function restartWithSmallMemory(): void {
  const { env, execPath, execArgv, argv } = process;
  if (env.MALLOC_ARENA_MAX !== undefined || process.send !== undefined) return;
  process.execve?.(execPath, [execPath, ...flags, ...execArgv, ...argv.slice(1)], { ...env, ...settings });
}

async function main(args: string[]): Promise<number> {
  const [command, ...rest] = args;
  // Each command loads its own modules: the service is large.
  if (command === 'start') {
    restartWithSmallMemory();
    return (await import('./start.ts')).start(rest);
  }
  if (command === 'key') {
    const keyCommand = (await import('./key.ts')).keyCommands.get(rest[0] ?? '');
    if (keyCommand !== undefined) return keyCommand(rest.slice(1));
  }
  if (command !== undefined && isDeveloperCommand(command)) return runDeveloperCommand(command, rest);
  if (command === 'doctor') return (await import('./doctor.ts')).doctorCommand(rest);
  if (command === 'nodes') return (await import('./nodes.ts')).nodesCommand(rest);
  if (command === 'user') return (await import('./user.ts')).userCommand(rest);
  if (command === 'audit') return (await import('./audit.ts')).auditCommand(rest);
  if (command === 'backup') return (await import('./backup.ts')).backupCommand(rest);
  if (command === 'restore') return (await import('./backup.ts')).restoreCommand(rest);
  if (command === 'restored') return (await import('./backup.ts')).restoredCommand(rest);
  if (command === 'upgrade-database') return (await import('./backup.ts')).upgradeDatabaseCommand(rest);
  if (command === 'import') return (await import('./import.ts')).importCommand(rest);
  if (command === 'export') return (await import('./export.ts')).exportCommand(rest);
  if (command === 'keys') return (await import('./keys.ts')).keysCommand(rest);
  const isHelp = command === undefined || ['help', '--help', '-h'].includes(command);
  console[isHelp ? 'log' : 'error'](isHelp ? usage : `Unknown command: ${args.join(' ')}\n\n${usage}`);
  return isHelp ? 0 : 2;
}

/** Errors that the operator can fix as sentences; all others with their stack. */
function printable(error: unknown): unknown {
  if (!(error instanceof ConfigError || error instanceof AppError)) {
    return error instanceof Error && error.cause === undefined ? error.message : error;
  }
  const cause = error.cause instanceof Error ? ` (${error.cause.message})` : '';
  return `${error.message}${cause}`;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(printable(error));
  process.exitCode = 1;
}
