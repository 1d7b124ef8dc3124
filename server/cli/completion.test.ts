// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { processContext } from '../../sdk/cli/arguments.ts';
import { commandsOf, createProgram } from './commands.ts';
import { completionScript } from './completion.ts';

const run = promisify(execFile);
const program = createProgram({ context: processContext, end: () => {} });
const commands = commandsOf(program);
const skipUnless = (shell: string) =>
  spawnSync(shell, ['-c', ':']).status === 0 ? false : `${shell} is not installed`;

/** A folder with each script, and a file that commands take. */
const folder = mkdtempSync(join(tmpdir(), 'trellis-completion-'));
after(() => rmSync(folder, { recursive: true }));
for (const shell of ['bash', 'zsh', 'fish'] as const)
  writeFileSync(join(folder, shell), `${completionScript(program, shell)}\n`);
writeFileSync(join(folder, 'moved.jsonl'), '');

/** Lines that one word completes, with the words behind `trellis`, the last one whole. */
const completed = {
  'trellis do': 'doctor',
  'trellis key c': 'key create',
  'trellis key create --ra': 'key create --rate-limit',
  'trellis key create --name key --ex': 'key create --name key --expires-at',
  'trellis start --role w': 'start --role worker',
  'trellis completion z': 'completion zsh',
  'trellis import nango --par': 'import nango --parallel',
  'trellis import mo': 'import moved.jsonl',
  'trellis export --to mo': 'export --to moved.jsonl',
};

test('bash completes commands, options and values', async () => {
  const complete = async (line: string) => {
    const words = line.split(' ');
    const call = `COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _trellis; echo "\${COMPREPLY[*]}"`;
    const { stdout } = await run('bash', ['-c', `. ./bash\n${call}`], { cwd: folder });
    return stdout.trim();
  };
  for (const [line, words] of Object.entries(completed)) {
    // Without a candidate, the shell completes files.
    const expected = words.endsWith('.jsonl') ? '' : words.split(' ').at(-1);
    assert.equal(await complete(line), expected, line);
  }
  assert.equal(await complete('trellis key '), 'create list revoke --version --help');
  assert.equal(await complete('trellis key create --r'), '--rate-limit --replaces');
  assert.equal(await complete('trellis completion '), 'bash zsh fish --version --help');
});

// A terminal, with a function `trellis` that prints its arguments. Tab completes each line before Enter runs it.
const zshTerminal = `
zmodload zsh/zpty
zpty shell 'TERM=dumb zsh -f -i'
zpty -w shell 'autoload -U compinit; compinit -u -D; source ./zsh; trellis() print -r -- "<""$*"">"; echo re""ady'
zpty -r shell output '*ready*'
for line in "$@"; do
  zpty -w -n shell "$line"$'\\t\\n'
  zpty -r shell output $'*<*>*'
  print -r -- \${\${output##*<}%%>*}
done
zpty -d shell
`;

test('zsh completes commands, options and values', { skip: skipUnless('zsh') }, async () => {
  const { stdout } = await run('zsh', ['-f', '-c', zshTerminal, 'zsh', ...Object.keys(completed)], {
    cwd: folder,
  });
  const got = stdout
    .trim()
    .split('\n')
    .map((line) => line.trim());
  assert.deepEqual(got, Object.values(completed));
});

test('fish completes commands, options and values', { skip: skipUnless('fish') }, async () => {
  const complete = async (line: string) => {
    const call = 'source ./fish; complete -C $argv[1]';
    const { stdout } = await run('fish', ['--no-config', '-c', call, line], { cwd: folder });
    return stdout.split('\n').flatMap((candidate) => candidate.split('\t', 1)[0] || []);
  };
  for (const [line, words] of Object.entries(completed))
    assert.deepEqual(await complete(line), words.split(' ').slice(-1), line);
  assert.deepEqual(await complete('trellis key '), ['create', 'list', 'revoke']);
  assert.deepEqual(await complete('trellis completion '), ['bash', 'fish', 'zsh']);
});

test('the script of each shell has all commands and options', () => {
  for (const shell of ['bash', 'zsh', 'fish'] as const) {
    const script = completionScript(program, shell);
    for (const { name, options } of commands.map((one) => ({ name: one.name(), options: one.options }))) {
      assert.ok(script.includes(name), `${shell}: ${name}`);
      for (const { long } of options)
        if (long)
          assert.ok(script.includes(shell === 'fish' ? `-l ${long.slice(2)}` : long), `${shell}: ${long}`);
    }
  }
});
