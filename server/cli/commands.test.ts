// Slow: it starts a process for the help and the version of each command.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { cliReference } from '../../scripts/cli-reference.ts';
import { processContext } from '../../sdk/cli/arguments.ts';
import { runCommand, surroundings } from '../../test/support/command.ts';
import { forEachLimited } from '../concurrency.ts';
import { version } from '../version.ts';
import { commandsOf, createProgram, pathOf } from './commands.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const main = join(root, 'server/cli/main.ts');
const program = createProgram({ context: processContext, end: () => {} });
const commands = commandsOf(program);
const wordsOf = (path: string) => path.split(' ').slice(1);

test('each command prints its help and its version, and exits with 0', async () => {
  assert.ok(commands.length > 30);
  await forEachLimited(commands, 4, async (command) => {
    const path = pathOf(command);
    const help = await runCommand([...wordsOf(path), '--help'], {});
    assert.deepEqual([help.code, help.stderr], [0, ''], path);
    assert.ok(help.stdout.startsWith(`Usage: ${path} `), help.stdout);
    for (const option of command.options) assert.ok(help.stdout.includes(option.flags), option.flags);
    const printed = await runCommand([...wordsOf(path), '--version'], {});
    assert.deepEqual(printed, { code: 0, stdout: `${version}\n`, stderr: '' }, path);
  });
});

test('help loads no module of the service', async () => {
  const hook = `import { registerHooks } from 'node:module';
registerHooks({ load(url, context, next) { process._rawDebug(url); return next(url, context); } });`;
  for (const words of [[], ['start'], ['key', 'create'], ['dev']]) {
    const { stderr } = await run(process.execPath, [
      '--import',
      `data:text/javascript,${encodeURIComponent(hook)}`,
      main,
      ...words,
      '--help',
    ]);
    const loaded = stderr.split('\n').flatMap((line) => line.split(`${root}/`)[1] ?? []);
    assert.deepEqual(
      loaded.filter((file) => !file.startsWith('node_modules/commander/')).sort(),
      [
        'sdk/cli/arguments.ts',
        'server/cli/commands.ts',
        'server/cli/main.ts',
        'server/cli/run.ts',
        'server/cli/small-memory.ts',
        'server/version.ts',
      ],
      words.join(' '),
    );
  }
});

test('a mistyped command or option is refused with 2 and a suggestion', async () => {
  for (const [args, ...said] of [
    [['docter'], /unknown command 'docter'/, /Did you mean doctor\?/, /See trellis --help/],
    [['key', 'lst'], /unknown command 'lst'/, /Did you mean list\?/, /See trellis key --help/],
    [
      ['key', 'create', '--scope', 'x'],
      /'--scope'/,
      /Did you mean --scopes\?/,
      /See trellis key create --help/,
    ],
    [['dev', '--conection', 'x'], /'--conection'/, /Did you mean --connection\?/, /See trellis dev --help/],
    [['start', '--role', 'boss'], /Allowed choices are api, worker, all/, /See trellis start --help/],
    [['completion', 'tcsh'], /Allowed choices are bash, zsh, fish/],
    [['nodes', 'x'], /too many arguments/],
    [['run', 'rows', '--connection', 'ada'], /is not the name of a function/, /See trellis run --help/],
    [['key'], /Usage: trellis key /],
  ] as [string[], ...RegExp[]][]) {
    const { code, stdout, stderr } = await runCommand(args, {});
    assert.deepEqual([code, stdout], [2, ''], args.join(' '));
    for (const text of said) assert.match(stderr, text);
  }
});

test('a command line cannot print control characters', async () => {
  const { stderr } = await runCommand(['\u001b[2Jdoctor'], {});
  assert.match(stderr, /unknown command '\\x1b\[2Jdoctor'/);
});

test('only a terminal gets colours, and none with NO_COLOR', async () => {
  const env = { DATA_DIR: join(root, 'none'), PORT: '0' };
  const color = '\u001b[';
  assert.ok(!(await runCommand(['doctor'], env)).stdout.includes(color));
  assert.ok((await runCommand(['doctor'], { ...env, FORCE_COLOR: '1' })).stdout.includes(color));
  // `script` gives the command a terminal.
  const onTerminal = async (more: Record<string, string>) => {
    const { stdout } = await run(
      'script',
      ['-qec', `'${process.execPath}' '${main}' doctor || true`, '/dev/null'],
      {
        env: { ...surroundings, ...env, TERM: 'xterm-256color', ...more },
      },
    );
    return stdout.includes(color);
  };
  assert.deepEqual([await onTerminal({}), await onTerminal({ NO_COLOR: '1' })], [true, false]);
});

test('docs/reference/cli.md has each command with its options', () => {
  const page = readFileSync(join(root, 'docs/reference/cli.md'), 'utf8');
  assert.equal(page, cliReference(page), 'run node scripts/cli-reference.ts');
});
