// Slow: it installs, deploys and runs folders.

import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, renameSync, watch, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../test/support/database.ts';
import { actionCode } from '../test/support/functions.ts';
import { ensureEnvironment } from './environments/store.ts';
import { type Deploys, deploy } from './functions/deploys/deploy.ts';
import { describeHere } from './functions/deploys/examine.ts';
import { listFunctions } from './functions/deploys/store.ts';
import { sdkParts } from './functions/isolation/program.ts';
import { createRuntime, type Runtime } from './functions/isolation/runtime.ts';
import { createFunctionsFolder, type FunctionsFolder } from './functions-folder.ts';
import type { Logger } from './log.ts';
import { openVault } from './vault.ts';

let database: TestDatabase;
let runtime: Runtime;
let directory: string;
let environmentId: number;
let deploys: Deploys;
const open: FunctionsFolder[] = [];
before(async () => {
  database = await openTestDatabase();
  const vault = openVault([{ id: 'test', key: createSecretKey(randomBytes(32)) }]);
  environmentId = (await ensureEnvironment(database.db, { name: 'dev', vault })).environment.id;
  runtime = createRuntime(sdkParts, { maxProcesses: 1 });
  directory = await mkdtemp(join(tmpdir(), 'trellis-folder-'));
  deploys = {
    db: database.db,
    describe: describeHere(runtime),
    now: () => new Date(),
    afterDeploy: async () => {},
  };
});
after(async () => {
  await Promise.all(open.map((folder) => folder.stop()));
  await runtime.close();
  await database.drop();
  await rm(directory, { recursive: true });
});

const addIntegration = (key: string) =>
  database.db.query(
    "insert into integration (environment_id, key, provider, display_name) values ($1, $2, 'github', $2)",
    [environmentId, key],
  );

/** A folder that is started, and the lines that it logs from then on. */
function start({ isWatched }: { isWatched: boolean }) {
  const lines: string[] = [];
  const note = (...said: unknown[]) => void lines.push(String(said.at(-1)));
  const log = { info: note, warn: note, error: note } as unknown as Logger;
  const folder = createFunctionsFolder({
    ...deploys,
    directory,
    environment: 'dev',
    isWatched,
    log,
  });
  open.push(folder);
  folder.start();
  const until = async (wanted: RegExp) => {
    for (let left = 3_000; !lines.some((line) => wanted.test(line)); left--) {
      assert.ok(left > 0, `${wanted} is not among:\n${lines.join('\n')}`);
      await wait(20);
    }
    return lines.splice(0);
  };
  return { folder, lines, until };
}
const functions = async () =>
  (await listFunctions(database.db, { environmentId })).map(({ name, number }) => `${name} ${number}`);
const write = async (file: string, text: string) => {
  await mkdir(join(directory, file, '..'), { recursive: true });
  await writeFile(join(directory, file), text);
};
const source = (factor: string) => `
import { createAction } from 'trellis';
import { z } from 'zod';
export default createAction({
  description: 'Multiplies.',
  input: z.object({ n: z.number() }),
  output: z.object({ n: z.number() }),
  exec: async (trellis, { n }) => ({ n: n * ${factor} }),
});
`;

test('a folder is deployed once its integration is there, and again at each change that is sound', async () => {
  await write('shop/actions/times.ts', source('2'));
  await write('shop/actions/more.ts', source('3'));
  const { folder, until } = start({ isWatched: true });
  const lines = await until(/0 of .* are deployed in dev/);
  assert.ok(
    lines.some((line) => /no integration of dev has the ID "shop"/.test(line)),
    lines.join('\n'),
  );
  assert.deepEqual(await functions(), []);

  await addIntegration('shop');
  await until(/2 of .* are deployed/);
  assert.deepEqual(await functions(), ['more 1', 'times 1']);
  // What came another way is not the folder's to remove.
  await deploy(deploys, {
    environmentId,
    reconcile: 'none',
    origin: 'deploy',
    actor: 'key:1',
    given: [
      {
        integrationKey: 'shop',
        kind: 'action',
        name: 'pushed',
        code: actionCode(),
        source: null,
        features: [],
        sdkVersion: null,
        path: [],
      },
    ],
  });

  await write('shop/actions/times.ts', source('4'));
  await until(/2 of .* are deployed/);
  assert.deepEqual(await functions(), ['more 1', 'pushed 1', 'times 2']);

  await write('shop/actions/times.ts', source('missing'));
  const faults = await until(/nothing was deployed/);
  assert.ok(
    faults.some((line) => /^functions: shop\/actions\/times\.ts:8:\d+: TS2304: .*'missing'/.test(line)),
    faults.join('\n'),
  );
  await write(
    'shop/actions/times.ts',
    `import { readFileSync } from 'node:fs';\n${source('readFileSync.length')}`,
  );
  await until(/shop\/actions\/times: A function cannot use "node:fs"/);
  assert.deepEqual(await functions(), ['more 1', 'pushed 1', 'times 2']);

  await rm(join(directory, 'shop/actions/times.ts'));
  await until(/1 of .* are deployed/);
  assert.deepEqual(await functions(), ['more 1', 'pushed 1']);
  await folder.stop();
});

test('a folder that is not watched is deployed once', async () => {
  await write('shop/actions/more.ts', source('5'));
  const { folder, until } = start({ isWatched: false });
  await until(/1 of .* are deployed/);
  assert.deepEqual(await functions(), ['more 2', 'pushed 1']);
  await folder.stop();
});

test('a change that comes while it is found out that an integration is missing is not lost', async () => {
  await write('shop/actions/more.ts', source('6'));
  await write('none/actions/more.ts', source('1'));
  const held = Promise.withResolvers<void>();
  const isHeld = Promise.withResolvers<void>();
  const holding = database.db.transaction(async (tx) => {
    await tx.query('lock table environment in access exclusive mode');
    isHeld.resolve();
    await held.promise;
  });
  await isHeld.promise;
  const { folder, until } = start({ isWatched: true });
  const isWaiting = () =>
    database.db.query(`select from pg_locks where not granted and relation = 'environment'::regclass`);
  while ((await isWaiting()).length === 0) await wait(10);
  // It has read the folder by now, and hears of this before it goes on.
  const changes = watch(join(directory, 'shop/actions'));
  const heard = once(changes, 'change');
  await write('shop/actions/more.ts', source('7'));
  await heard;
  changes.close();
  held.resolve();
  await holding;
  await until(/1 of .* are deployed/);
  await until(/1 of .* are deployed/);
  assert.deepEqual(await functions(), ['more 4', 'pushed 1']);
  await rm(join(directory, 'none'), { recursive: true });
  await folder.stop();
});

test('folders that replace others are watched, too', async () => {
  const { folder, until } = start({ isWatched: true });
  await until(/1 of .* are deployed/);
  // At once, as another process would that changes branches.
  const before = join(directory, '..', `${basename(directory)}-before`);
  renameSync(join(directory, 'shop'), before);
  mkdirSync(join(directory, 'shop/actions'), { recursive: true });
  writeFileSync(join(directory, 'shop/actions/more.ts'), source('8'));
  await until(/1 of .* are deployed/);
  await write('shop/actions/other.ts', source('9'));
  await until(/2 of .* are deployed/);
  await write('shop/actions/other.ts', source('missing'));
  await until(/nothing was deployed/);
  await rm(join(directory, 'shop/actions/other.ts'));
  await until(/1 of .* are deployed/);
  await folder.stop();
  await rm(before, { recursive: true });
});

test('what fails for a cause that is none of the folder is tried again', async () => {
  await database.db.query(`update environment set name = 'elsewhere' where name = 'dev'`);
  const { folder, until } = start({ isWatched: false });
  await until(/could not be deployed/);
  await database.db.query(`update environment set name = 'dev' where name = 'elsewhere'`);
  await until(/1 of .* are deployed/);
  await folder.stop();
});
