// Slow: it compiles and deploys folders.

import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { deployCommand } from './deploy.ts';

let trellis: TestTrellis;
let folder: string;
before(async () => {
  trellis = await openTrellis();
  folder = await mkdtemp(join(tmpdir(), 'trellis-deploy-'));
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'google-sheet' },
  });
});
after(async () => {
  await trellis.close();
  await rm(folder, { recursive: true });
});

async function run(
  name: string,
  { env, ...options }: { env?: Record<string, string>; dryRun?: true; remove?: true; partial?: true } = {},
) {
  const lines: string[] = [];
  const note = (line: string) => void lines.push(line);
  const given = { TRELLIS_URL: trellis.baseUrl, TRELLIS_SECRET_KEY: trellis.keys.dev, ...env };
  const code = await deployCommand(name, options, { env: given, print: note, printError: note });
  return { code, lines };
}
const write = async (file: string, text: string) => {
  await mkdir(dirname(join(folder, file)), { recursive: true });
  await writeFile(join(folder, file), text);
};
const action = (answer: string, before = '') => `${before}
import { createAction } from 'trellis';
import { z } from 'zod';
export default createAction({
  description: 'Answers.',
  input: z.object({ n: z.number() }),
  output: z.object({ n: z.number() }),
  exec: async (trellis, { n }) => (${answer}),
});
`;
const onEvent = `
import { createOnEvent } from 'trellis';
export default createOnEvent({
  description: 'Says hello.',
  event: 'post-connection-creation',
  exec: async (trellis) => trellis.log('hello'),
});
`;

test('a folder is deployed with one command, which shows the changes', async () => {
  await write('google-sheet/actions/one.ts', action('{ n: n + 1 }'));
  await write('google-sheet/actions/two.ts', action('{ n: n + 2 }'));
  await write('google-sheet/on-events/hello.ts', onEvent);
  const added = [
    '+ google-sheet/actions/one',
    '+ google-sheet/actions/two',
    '+ google-sheet/on-events/hello',
  ];
  const dry = await run(folder, { dryRun: true });
  assert.deepEqual(dry, { code: 0, lines: [...added, 'Nothing was deployed: --dry-run.'] });
  assert.deepEqual(await run(folder), { code: 0, lines: [...added, `Deployed to ${trellis.baseUrl}.`] });
  assert.deepEqual(await run(folder), { code: 0, lines: ['No changes.'] });

  await write('google-sheet/actions/one.ts', action('{ n: n + 3 }'));
  await rm(join(folder, 'google-sheet/actions/two.ts'));
  const changed = await run(folder);
  assert.deepEqual(changed.lines, [
    '~ google-sheet/actions/one',
    '  google-sheet/actions/two is kept: --remove removes it',
    `Deployed to ${trellis.baseUrl}.`,
  ]);
  const removed = await run(folder, { remove: true });
  assert.deepEqual(removed.lines, ['- google-sheet/actions/two', `Deployed to ${trellis.baseUrl}.`]);
  const { body } = await trellis.call('GET', '/integrations/google-sheet/functions');
  assert.deepEqual(
    (body.data as { name: string; version: number }[]).map(({ name, version }) => [name, version]),
    [
      ['one', 2],
      ['hello', 1],
    ],
  );
});

test('a type error, a forbidden module and an error of the service are reported, and the command exits with 1', async () => {
  await write('google-sheet/actions/one.ts', action("{ n: 'text' }"));
  const types = await run(folder);
  assert.equal(types.code, 1);
  assert.match(types.lines[0]!, /^google-sheet\/actions\/one\.ts:\d+:\d+: TS2322: /);
  await write(
    'google-sheet/actions/one.ts',
    action('{ n: createServer.length }', "import { createServer } from 'node:net';"),
  );
  const required = await run(folder);
  assert.equal(required.code, 1);
  assert.match(required.lines[0]!, /^google-sheet\/actions\/one: A function cannot use "node:net"/);
  await write('google-sheet/actions/one.ts', action('{ n }'));
  const forbidden = await run(folder, {
    env: { TRELLIS_SECRET_KEY: await trellis.keyWith('functions:write') },
  });
  assert.equal(forbidden.code, 1);
  assert.match(forbidden.lines[0]!, /functions:deploy/);
  const unknown = await run(folder, { env: { TRELLIS_SECRET_KEY: trellis.keys.prod } });
  assert.match(unknown.lines[0]!, /No integration of this environment has the ID "google-sheet"/);
});

test('a partial deploy leaves out the functions with faults, whose deployed versions stay', async () => {
  const partial = await mkdtemp(join(tmpdir(), 'trellis-partial-'));
  const writeIn = (file: string, text: string) => write(join('..', basename(partial), file), text);
  const deployed = async () =>
    (
      (await trellis.call('GET', '/integrations/parts/functions')).body.data as {
        name: string;
        version: number;
      }[]
    ).map(({ name, version }) => `${name} ${version}`);
  try {
    await trellis.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-sheet', unique_key: 'parts' },
    });
    await writeIn('parts/actions/sound.ts', action('{ n }'));
    await writeIn('parts/actions/broken.ts', action('{ n }'));
    assert.equal((await run(partial, { partial: true })).code, 0);

    await writeIn('parts/actions/sound.ts', action('{ n: n + 1 }'));
    await writeIn('parts/actions/broken.ts', action("{ n: 'text' }"));
    await writeIn('parts/numbers.ts', "export const five: number = 'five';\n");
    await writeIn(
      'parts/actions/importer.ts',
      action('{ n: five }', "import { five } from '../numbers.ts';"),
    );
    await writeIn('parts/actions/resolves.ts', action('{ n: x }', "import x from 'missing';"));
    await writeIn(
      'parts/actions/refused.ts',
      action('{ n: readFileSync.length }', "import { readFileSync } from 'node:fs';"),
    );
    await writeIn(
      'parts/actions/throws.ts',
      action('{ n }', "if (Date.now() > 0) throw new Error('at load');"),
    );
    await writeIn(
      'parts/on-events/refused.ts',
      onEvent
        .replace('post-connection-creation', 'never')
        .replace("'never'", "'never' as 'post-connection-creation'"),
    );
    await writeIn('absent/actions/one.ts', action('{ n }'));
    const whole = await run(partial);
    assert.equal(whole.code, 1);
    assert.deepEqual(await deployed(), ['broken 1', 'sound 1']);

    const { code, lines } = await run(partial, { partial: true });
    assert.equal(code, 3);
    assert.deepEqual(
      lines.filter((line) => /^[!+~]| is kept|^Deployed/.test(line)).sort(),
      [
        ...['broken', 'importer', 'refused', 'resolves', 'throws'].map(
          (name) => `! parts/actions/${name} is left out because of its faults`,
        ),
        '! absent/actions/one is left out because of its faults',
        '! parts/on-events/refused is left out because of its faults',
        `Deployed to ${trellis.baseUrl}.`,
        '~ parts/actions/sound',
      ].sort(),
    );
    assert.ok(lines.some((line) => /^parts\/numbers\.ts:1:14: TS2322: /.test(line)));
    assert.ok(lines.includes('absent/actions/one: no integration of this environment has the ID "absent"'));
    assert.ok(lines.some((line) => /^parts\/actions\/throws: cannot be loaded: Error: at load/.test(line)));
    assert.deepEqual(await deployed(), ['broken 1', 'sound 2']);

    const again = await run(partial, { partial: true });
    assert.deepEqual([again.code, again.lines.at(-1)], [3, 'No changes.']);
    for (const name of ['sound', 'importer', 'resolves', 'refused', 'throws'])
      await rm(join(partial, `parts/actions/${name}.ts`));
    await rm(join(partial, 'parts/on-events/refused.ts'));
    await rm(join(partial, 'absent'), { recursive: true });
    const none = await run(partial, { partial: true });
    assert.deepEqual([none.code, none.lines.at(-1)], [1, 'Nothing was deployed.']);
  } finally {
    await rm(partial, { recursive: true });
  }
});

test('invalid arguments and settings are reported in a sentence', async () => {
  await assert.rejects(run(join(folder, 'none')), /none does not exist/);
  await assert.rejects(run(folder, { env: { TRELLIS_SECRET_KEY: '' } }), /TRELLIS_SECRET_KEY is not set/);
  await assert.rejects(run(folder, { env: { TRELLIS_URL: 'http://127.0.0.1:1' } }), /cannot be reached/);
  const empty = await run(join(folder, 'google-sheet'));
  assert.equal(empty.code, 1);
});
