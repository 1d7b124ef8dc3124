/**
 * The commands of the executable `trellis`, of operators and of developers: arguments, options and texts. Help, errors,
 * shell completion and docs/reference/cli.md follow from this table.
 *
 * The module of a command is loaded when the command runs, because the service is large: this file imports nothing of it.
 */
import type * as Typed from '@commander-js/extra-typings';
import * as commander from 'commander';
import type { CommandContext } from '../../sdk/cli/arguments.ts';
import { version } from '../version.ts';
import { restartWithSmallMemory } from './small-memory.ts';

/** Commander, with options typed after their flags. */
const { Argument, Command, Option } = commander as unknown as typeof Typed;

export type AnyCommand = Typed.CommandUnknownOpts;

type Table = { program: Typed.Command; context: CommandContext; end: (exitCode: number) => void };

/** The auth modes of `trellis provider new`. */
export const newProviderModes = [
  ...(['OAUTH2', 'OAUTH2_CC', 'OAUTH1', 'API_KEY', 'BASIC'] as const),
  ...(['TWO_STEP', 'JWT', 'AWS_SIGV4', 'AWS_ROLE', 'NONE'] as const),
] as const;

const exitCodes = 'Exit codes: 0 for success, 1 for a failure, 2 for wrong usage.';
const keyNote = 'TRELLIS_SECRET_KEY is a secret key of the environment to use. There is no option for it.\n';

const environment = new Option('--environment <name>', 'the environment').default('dev');
const json = new Option('--json', 'print JSON, see docs/reference/cli.md');
const dryRun = new Option('--dry-run', 'show the result without changing anything');
const back = new Option('--back', 'wrap the data keys with an older master key');
const dropNewer = new Option('--drop-newer', 'delete connections whose data key is in no file');
const keyFile = new Option(
  '--keys <file>',
  'the file of keys; default data.keys in the directory of backups',
);
const passphraseFile = new Option(
  '--passphrase-file <file>',
  'the passphrase of the file; default TRELLIS_EXPORT_PASSPHRASE, then typed',
);
const overwrite = new Option('--overwrite', 'replace the content of existing connections');
const report = new Option('--report <file>', 'write the result as JSON');

const url = new Option(
  '--url <url>',
  'the address of the service; default TRELLIS_URL, then http://localhost:3003',
);
const envFile = new Option(
  '--env-file <file>',
  'read TRELLIS_URL and TRELLIS_SECRET_KEY from this file first',
);
const connection = new Option('--connection <id>', 'the connection of the run');
const input = new Option('--input <json>', 'the input of an action');
const variant = new Option('--variant <name>', 'the variant of a sync').default('base');
const folder = new Option('--folder <dir>', 'the folder of the functions').default('./functions');
const checkpoint = new Option('--checkpoint <json>', 'the checkpoint to continue from; default none');
const metadata = new Option('--metadata <json>', "metadata to use instead of the connection's");
const allowWrites = new Option(
  '--allow-writes',
  'also make calls to the provider other than GET, HEAD and OPTIONS',
);

/** For an option that can be repeated. */
const append = (value: string, before: string[] = []) => [...before, value];

/** A new program. `end` is called with the exit code of the command that ran. */
export function createProgram({ context, end }: Pick<Table, 'context' | 'end'>): Typed.Command {
  const program = new Command('trellis')
    .description('Settings are environment variables; docs/reference/settings.md lists them.')
    .enablePositionalOptions()
    .exitOverride()
    .configureHelp({
      subcommandTerm: (command) => `${command.name()} ${argumentsOf(command)}`.trimEnd(),
      subcommandDescription: (command) => {
        const text = command.summary() || command.description();
        const names = command.commands.map((one) => one.name()).join(', ');
        return isGroup(command) ? `${text}: ${names}` : text;
      },
    })
    .configureOutput({
      writeOut: (text) => context.print(text.trimEnd()),
      writeErr: (text) => context.printError(text.trimEnd()),
    })
    .addHelpText('afterAll', `\n${exitCodes}`);
  const table = { program, context, end };
  program.commandsGroup('For operators:');
  addServiceCommands(table);
  addKeyCommands(table);
  addBackupCommands(table);
  addMigrationCommands(table);
  addUserCommands(table);
  program.commandsGroup('For developers:');
  addFunctionCommands(table);
  program.commandsGroup('Other commands:').helpCommand('help [command]', 'print the help of a command');
  program
    .command('completion')
    .description('print a completion script for a shell')
    .addArgument(new Argument('<shell>', 'the shell').choices(['bash', 'zsh', 'fish']))
    .addHelpText('after', '\nFor bash, add this line to ~/.bashrc:  source <(trellis completion bash)')
    .action(async (shell) => {
      context.print((await import('./completion.ts')).completionScript(program, shell));
    });
  for (const command of commandsOf(program)) {
    command.version(version, '-V, --version', 'print the version');
    if (command !== program) command.helpCommand(false);
    command.showHelpAfterError(`See ${pathOf(command)} --help`);
  }
  return program;
}

/** A command and all commands below it. */
export function commandsOf(command: AnyCommand): AnyCommand[] {
  return [command, ...command.commands.flatMap(commandsOf)];
}

/** The full name of a command, such as `trellis key create`. */
export function pathOf(command: AnyCommand): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/** The arguments of a command, as `<file>`. */
export function argumentsOf(command: AnyCommand): string {
  return command
    .usage()
    .split(' ')
    .filter((part) => part !== '[options]' && part !== '[command]')
    .join(' ');
}

/** A command that only has subcommands, such as `trellis key`. */
export function isGroup({ commands, registeredArguments }: AnyCommand): boolean {
  return commands.length > 0 && registeredArguments.length === 0;
}

function addServiceCommands({ program, end }: Table): void {
  program
    .command('start')
    .description('run the service: the HTTP API, the background work, or both')
    .addOption(
      new Option('--role <role>', 'the work of this node; default TRELLIS_ROLE, then all').choices([
        'api',
        'worker',
        'all',
      ]),
    )
    .addOption(
      new Option(
        '--processes <count>',
        'the number of processes that serve, or auto: one for each core; default TRELLIS_PROCESSES, then 1',
      ),
    )
    .action(async (options) => {
      restartWithSmallMemory();
      end(await (await import('./start.ts')).startCommand(options));
    });
  program
    .command('doctor')
    .description('find problems and print how to fix them')
    .addOption(json)
    .action(async (options) => end(await (await import('./doctor.ts')).doctorCommand(options)));
  program
    .command('nodes')
    .description('list running nodes, and nodes that were killed')
    .addOption(json)
    .action(async (options) => end(await (await import('./nodes.ts')).nodesCommand(options)));
  const cluster = program.command('cluster').description('keep the records on a Citus cluster');
  cluster
    .command('distribute')
    .description('distribute the records over the workers; calls about records wait meanwhile')
    .action(async () => end(await (await import('./cluster.ts')).distributeCommand()));
  cluster
    .command('status')
    .description('show the workers: shards, sizes, transactions in doubt')
    .addOption(json)
    .action(async (options) => end(await (await import('./cluster.ts')).clusterStatusCommand(options)));
  const providers = program
    .command('providers')

    .description('manage the provider definitions of your own');
  providers
    .command('reload')
    .description('let all running nodes read the definitions of TRELLIS_PROVIDERS_DIR again')
    .action(async () => end(await (await import('./providers.ts')).reloadProvidersCommand()));
  providers
    .command('update')
    .description(
      'apply a signed file of definitions to TRELLIS_PROVIDERS_DIR, and let all running nodes read it',
    )
    .argument('<file>', 'the signed file')
    .action(async (file) => end(await (await import('./providers.ts')).updateProvidersCommand(file)));
  providers
    .command('rollback')
    .description('return to the definitions before the last update')
    .action(async () => end(await (await import('./providers.ts')).rollBackProvidersCommand()));
  providers
    .command('sign')
    .description('write a signed file of the definitions of a folder')
    .argument('<directory>', 'the folder with the YAML files')
    .requiredOption('--key-file <file>', 'an Ed25519 private key in PEM')
    .requiredOption('--out <file>', 'the file to write')
    .action(async (directory, options) =>
      end(await (await import('./providers.ts')).signProvidersCommand(directory, options)),
    );
  const provider = program.command('provider').description('add a provider to Trellis');
  provider
    .command('new')
    .description('write a definition from a few answers, test its OAuth flow, and name what is missing')
    .argument('<name>', 'the name of the provider, which is that of the file')
    .addOption(
      new Option('--mode <mode>', 'how a connection authenticates; default: typed').choices(newProviderModes),
    )
    .option('--title <text>', 'its name as people see it; default: typed')
    .option('--docs <url>', 'its documentation; default: typed')
    .option('--api <url>', 'the base address of its API; default: typed')
    .option('--authorization <url>', 'its authorization page; default: typed')
    .option('--token <url>', 'its token endpoint, the address of the sign-in, or that of STS; default: typed')
    .option('--request <url>', 'its endpoint for temporary credentials of OAuth 1.0a; default: typed')
    .option('--service <name>', 'the service that AWS signatures are for; default: typed')
    .option('--region <name>', 'the region that AWS signatures are for; default: typed')
    .option('--header <name>', 'the header with an API key; default Authorization')
    .option('--out <directory>', 'where the file is written; default: here')
    .action(async (name, options) =>
      end(await (await import('./provider-new.ts')).newProviderCommand(name, options)),
    );
  const audit = program.command('audit').description('check the audit log');
  audit
    .command('verify')
    .description('check that the audit log was not changed')
    .option('--head <position:hash>', 'the head that an earlier check printed')
    .action(async (options) => end(await (await import('./audit.ts')).verifyAuditCommand(options)));
}

function addKeyCommands({ program, end }: Table): void {
  const key = program.command('key').description('manage the secret keys of an environment');
  key
    .command('create')
    .description('create a secret key and print it once')
    .addOption(environment)
    .option('--name <name>', 'the name of the key', 'command line')
    .option('--scopes <names>', 'the scopes, separated by commas', '*')
    .option('--proxy-allow <rule>', "allow proxy calls such as 'GET,POST /path/**'; repeatable", append)
    .option('--proxy-deny <rule>', "deny proxy calls such as '/path/*'; repeatable", append)
    .option('--expires-at <time>', 'the time when the key expires, such as 2030-01-31T12:00:00Z')
    .option('--rate-limit <count>', 'the number of calls that the key may make in a minute')
    .option('--replaces <id>', 'the key whose consumers the new key also owns')
    .action(async (options) => end(await (await import('./key.ts')).createKeyCommand(options)));
  key
    .command('list')
    .description('list the keys, without their secrets')
    .addOption(environment)
    .addOption(json)
    .action(async (options) => end(await (await import('./key.ts')).listKeysCommand(options)));
  key
    .command('revoke')
    .description('revoke a key and its tickets')
    .argument('<id>', 'the ID of the key')
    .addOption(environment)
    .action(async (id, options) => end(await (await import('./key.ts')).revokeKeyCommand(id, options)));

  const keys = program.command('keys').description('manage the master keys and the data keys');
  keys
    .command('list')
    .description('list the master keys: the number of data keys of each, and the key that wraps new ones')
    .addOption(json)
    .action(async (options) => end(await (await import('./keys.ts')).listMasterKeysCommand(options)));
  keys
    .command('rotate')
    .description('wrap all data keys with the first master key, also while the service runs')
    .addOption(dryRun)
    .addOption(back)
    .action(async (options) => end(await (await import('./keys.ts')).rotateCommand(options)));
  keys
    .command('wrap')
    .description('print a new master key, or those of standard input, as TRELLIS_KMS_COMMAND wraps them')
    .option('--new <id>', 'make a key with this ID')
    .action(async (options) => end(await (await import('./keys.ts')).wrapKeysCommand(options)));
  keys
    .command('export')
    .description('write the wrapped data keys to a file for backups')
    .argument('<file>', 'the file to write')
    .action(async (file) => end(await (await import('./keys.ts')).exportKeysCommand(file)));
  keys
    .command('restore')
    .description(
      'restore the data keys of a restored database, and revoke API keys that were revoked after the backup',
    )
    .argument('<file>', 'the file of keys')
    .addOption(dryRun)
    .addOption(dropNewer)
    .addOption(back)
    .action(async (file, options) =>
      end(await (await import('./keys.ts')).restoreKeysCommand(file, options)),
    );
}

function addBackupCommands({ program, end }: Table): void {
  program
    .command('backup')
    .description(
      'copy the embedded database while the service runs, and write the wrapped data keys beside it',
    )
    .requiredOption('--to <directory>', 'the directory of backups, created if it is missing')
    .option('--keep <count>', 'keep this number of backups, and remove the oldest others')
    .addOption(keyFile)
    .action(async (options) => end(await (await import('./backup.ts')).backupCommand(options)));
  program
    .command('restore')
    .description('restore a backup into a DATA_DIR without a database')
    .requiredOption('--from <backup>', 'the folder of the backup')
    .addOption(keyFile)
    .addOption(dryRun)
    .addOption(dropNewer)
    .addOption(back)
    .action(async (options) => end(await (await import('./backup.ts')).restoreCommand(options)));
  program
    .command('restored')
    .description('raise all positions after a database was restored by other tools or lost commits')
    .option('--again', 'raise them also if no position was assigned since the last time')
    .action(async (options) => end(await (await import('./backup.ts')).restoredCommand(options)));
  program
    .command('upgrade-database')
    .description('upgrade the embedded database to the PostgreSQL of this version')
    .requiredOption('--old-binaries <directory>', 'the programs of the old PostgreSQL')
    .action(async (options) => end(await (await import('./backup.ts')).upgradeDatabaseCommand(options)));
}

function addMigrationCommands({ program, end }: Table): void {
  program
    .command('export')
    .description('write the contents of environments to a file, encrypted')
    .requiredOption('--to <file>', 'the file to write')
    .option('--environment <name>', 'the environment to export')
    .option('--all', 'export all environments')
    .option('--records', 'include the records')
    .option('--api-keys', 'include the hashes of the API keys')
    .addOption(passphraseFile)
    .action(async (options) => end(await (await import('./export.ts')).exportCommand(options)));
  const importing = program
    .command('import')
    .description('import the export file of another installation, or from a running Nango')
    .argument('<file>', 'the export file')
    .option('--environment <name>', 'the environment to import into; default the name in the file')
    .addOption(passphraseFile)
    .addOption(overwrite)
    .addOption(dryRun)
    .addOption(report)
    .action(async (file, options) =>
      end(await (await import('./import.ts')).importFileCommand(file, options)),
    );
  importing
    .command('nango')
    .description('import from a running Nango')
    .requiredOption('--from <url>', 'the address of the API of Nango')
    .requiredOption('--environment <name>', 'the environment to import into')
    .option('--key-file <file>', 'the secret key of Nango; default TRELLIS_PEER_KEY, then typed')
    .option(
      '--integrations <ids>',
      'import only these integrations and their connections, separated by commas',
    )
    .option('--provider <theirs=ours>', 'a provider that has another name here; repeatable', append)
    .option('--records', 'import records, too')
    .option('--models <names>', 'import only the records of these models, separated by commas')
    .option('--positions <file>', 'the last cursor that your application has read of each model')
    .option('--consumer <name>', 'the consumer that continues at these cursors; default imported')
    .addOption(overwrite)
    .option('--parallel <count>', 'the number of connections to read at once, 1 to 64', '8')
    .addOption(dryRun)
    .addOption(report)
    .action(async (options) => end(await (await import('./import.ts')).importPeerCommand(options)));
}

function addUserCommands({ program, end }: Table): void {
  const user = program.command('user').description('manage the users of the dashboard');
  user
    .command('list')
    .description('list the users')
    .addOption(json)
    .action(async (options) => end(await (await import('./user.ts')).listUsersCommand(options)));
  user
    .command('invite')
    .description('print an invitation link for one user')
    .addOption(
      new Option('--role <role>', 'the role of the user')
        .choices(['owner', 'developer', 'viewer'])
        .makeOptionMandatory(),
    )
    .option('--environment <name>', 'an environment of a developer or viewer; repeatable', append)
    .option('--email <address>', 'the only address for which the link is valid')
    .action(async (options) => end(await (await import('./user.ts')).inviteCommand(options)));
  user
    .command('reset-link')
    .description('print a link that sets a new password once')
    .argument('<address>', 'the e-mail address of the user')
    .action(async (address) => end(await (await import('./user.ts')).resetLinkCommand(address)));
  user
    .command('remove-second-factor')
    .description('let a user sign in with only the password, if the device and the backup codes are lost')
    .argument('<address>', 'the e-mail address of the user')
    .action(async (address) => end(await (await import('./user.ts')).removeSecondFactorCommand(address)));
}

function addFunctionCommands({ program, context, end }: Table): void {
  const oneFunction = () => new Argument('<function>', 'the function, as <integration>/<function>');
  program
    .command('quickstart')
    .description('do the steps of docs/quickstart.md, and print each call with its response')
    .addOption(url)
    .addOption(envFile)
    .option(
      '--sandbox <url>',
      'the address of the sandbox; default localhost, at the port of the service + 1',
    )
    .addHelpText('after', `\n${keyNote}Without it the key in DATA_DIR/dev.key is used.`)
    .action(async (options) =>
      end(await (await import('../../sdk/cli/quickstart.ts')).quickstartCommand(options, context)),
    );
  program
    .command('init')
    .summary('create a folder with example functions')
    .description(
      'Creates a folder with a sync, an action and an event function for the integration google-sheet, and a tsconfig.json ' +
        'for your editor. Overwrites nothing: if one of its files exists, none is written.',
    )
    .argument('[folder]', 'the folder', './functions')
    .action(async (name) => end(await (await import('../../sdk/cli/init.ts')).initCommand(name, context)));
  program
    .command('dev')
    .summary('deploy after each save, and run one function')
    .description(
      'Watches a folder of functions. After each save it checks types and deploys changes to the environment of the key. ' +
        'Use an environment for development, because deployed syncs run. Removes nothing. Ctrl-C ends it.',
    )
    .argument('[folder]', 'the folder', './functions')
    .option(
      '--run <function>',
      'run this sync or action after each save, and show its log and the changed records',
    )
    .addOption(connection)
    .addOption(input)
    .addOption(variant)
    .addOption(url)
    .addOption(envFile)
    .addHelpText('after', `\n${keyNote}`)
    .action(async (name, options) =>
      end(await (await import('../../sdk/cli/dev.ts')).devCommand(name, options, context)),
    );
  program
    .command('dryrun')
    .summary('run a local function for a connection without writing')
    .description(
      'Runs a function of your folder on this machine for a real connection. Shows the records, checkpoints, metadata and ' +
        'locks that it would write, and writes nothing. It reads through the service. The function need not be deployed. ' +
        'A record that does not match its model is a failure.',
    )
    .addArgument(oneFunction())
    .requiredOption('--connection <id>', connection.description)
    .addOption(input)
    .addOption(checkpoint)
    .addOption(metadata)
    .addOption(variant)
    .addOption(allowWrites)
    .addOption(folder)
    .addOption(url)
    .addOption(envFile)
    .addHelpText('after', `\n${keyNote}`)
    .action(async (name, options) =>
      end(await (await import('../../sdk/cli/dryrun.ts')).dryrunCommand(name, options, context)),
    );
  program
    .command('test')
    .summary('run functions against recorded calls')
    .description(
      'Runs functions against their recordings, without a service or a network, and compares the saved records and outputs ' +
        'with the recorded ones. Recordings are beside the functions as <function>.test.json, or ' +
        '<function>.<case>.test.json for further cases. A call that was not recorded, or that was recorded and not made, ' +
        'is a failure.\n\n' +
        'With --record it runs the function once for a real connection, on an empty cache, and stores each call with its ' +
        'response. Credentials and the key are replaced by placeholders, and authorization headers are left out. All other ' +
        'data of the provider is stored unchanged: use an account whose data may be stored beside your code.',
    )
    .argument('[functions...]', 'the functions, as <integration>/<function>; default all')
    .option('--record', 'create or replace the recording of one function')
    .option(
      '--case <name>',
      'the name of the recording; without --record, run only recordings with this name',
    )
    .addOption(connection)
    .addOption(input)
    .addOption(checkpoint)
    .addOption(metadata)
    .addOption(variant)
    .addOption(allowWrites)
    .addOption(folder)
    .addOption(url)
    .addOption(envFile)
    .addHelpText('after', `\nFor --record: ${keyNote}`)
    .action(async (names, options) =>
      end(await (await import('../../sdk/cli/test-command.ts')).testCommand(names, options, context)),
    );
  program
    .command('deploy')
    .summary('check, bundle and deploy a folder')
    .description(
      'Checks, bundles and deploys the functions of a folder. Deploys all of them or none. With --partial it deploys the ' +
        'functions without faults, names all others, which keep their deployed versions, and exits with 3 if there are any.',
    )
    .argument('[folder]', 'the folder', './functions')
    .option('--dry-run', 'show the changes without deploying')
    .option('--partial', 'deploy the functions without faults')
    .addOption(
      new Option(
        '--remove',
        'remove deployed functions that the folder does not have, for its integrations',
      ).conflicts('partial'),
    )
    .addOption(url)
    .addOption(envFile)
    .addHelpText('after', `\n${keyNote}`)
    .action(async (name, options) =>
      end(await (await import('../../sdk/cli/deploy.ts')).deployCommand(name, options, context)),
    );
  program
    .command('run')
    .summary('run a deployed function in the service')
    .description('Runs a deployed sync or action in the service, and prints its log until it ends.')
    .addArgument(oneFunction())
    .requiredOption('--connection <id>', connection.description)
    .addOption(input)
    .addOption(variant)
    .option(
      '--allow-mass-delete <model=count>',
      'for a sync with a held deletion: delete at most COUNT records of the model, once; repeatable',
      append,
    )
    .addOption(url)
    .addOption(envFile)
    .addHelpText('after', `\n${keyNote}`)
    .action(async (name, options) =>
      end(await (await import('../../sdk/cli/run.ts')).runCommand(name, options, context)),
    );
}
