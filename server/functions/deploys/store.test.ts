// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { actionCode, syncCode } from '../../../test/support/functions.ts';
import { deleteEnvironment, ensureEnvironment } from '../../environments/store.ts';
import { openVault } from '../../vault.ts';
import { sdkParts } from '../isolation/program.ts';
import { createRuntime, type Runtime } from '../isolation/runtime.ts';
import { type Deploys, deploy, plan } from './deploy.ts';
import { describeHere } from './examine.ts';
import {
  findCode,
  getFunction,
  listFunctions,
  listVersions,
  pointTo,
  removeFunction,
  setEnabled,
  sourceOf,
} from './store.ts';
import { bundleSweepJob } from './sweep.ts';

const vault = openVault([{ id: 'test', key: createSecretKey(randomBytes(32)) }]);
let database: TestDatabase;
let runtime: Runtime;
let deploys: Deploys;
let at = new Date('2026-03-01T00:00:00Z');
before(async () => {
  database = await openTestDatabase();
  runtime = createRuntime(sdkParts, { maxProcesses: 1 });
  deploys = { db: database.db, describe: describeHere(runtime), now: () => at, afterDeploy: async () => {} };
});
after(async () => {
  await runtime.close();
  await database.drop();
});

async function environmentWith(name: string): Promise<number> {
  const { environment } = await ensureEnvironment(database.db, { name, vault });
  await database.db.query(
    "insert into integration (environment_id, key, provider, display_name) values ($1, 'shop', 'github', 'Shop')",
    [environment.id],
  );
  return environment.id;
}
const given = (name: string, more = {}) => ({
  integrationKey: 'shop',
  kind: 'action' as const,
  name,
  code: actionCode(),
  source: null,
  features: [],
  sdkVersion: null,
  path: [],
  ...more,
});
const order = (environmentId: number, functions: ReturnType<typeof given>[]) => ({
  environmentId,
  given: functions,
  reconcile: 'none' as const,
  origin: 'deploy' as const,
  actor: 'key:1',
});
const bundles = async (environmentId: number) =>
  (await database.db.query('select from function_bundle where environment_id = $1', [environmentId])).length;

test('an environment that is deleted takes its functions, versions and texts along', async () => {
  const environmentId = await environmentWith('doomed');
  await deploy(deploys, order(environmentId, [given('a'), given('b', { source: 'b' })]));
  await deploy(deploys, order(environmentId, [given('a', { code: actionCode({ more: 'scopes: ["x"],' }) })]));
  assert.equal(await bundles(environmentId), 3);
  await database.db.transaction((tx) => deleteEnvironment(tx, 'doomed'));
  assert.equal(await bundles(environmentId), 0);
  assert.deepEqual(await listFunctions(database.db, { environmentId }), []);
});

test('equal texts are kept once, and ids of another environment find and change nothing', async () => {
  const [mine, other] = [await environmentWith('mine'), await environmentWith('other')];
  await deploy(deploys, order(mine, [given('a'), given('b')]));
  assert.equal(await bundles(mine), 1);
  const found = await getFunction(database.db, { environmentId: mine, integrationKey: 'shop', name: 'a' });
  const { id: functionId, versionId } = found;
  const foreign = { environmentId: other, functionId, versionId };
  assert.equal(await findCode(database.db, foreign), undefined);
  await assert.rejects(sourceOf(database.db, foreign), { code: 'not_found' });
  assert.deepEqual(await listVersions(database.db, foreign), []);
  await database.db.transaction(async (tx) => {
    await setEnabled(tx, { ...foreign, isEnabled: false, at });
    await pointTo(tx, { ...foreign, at: new Date(0) });
    await removeFunction(tx, foreign);
  });
  const again = await getFunction(database.db, { environmentId: mine, integrationKey: 'shop', name: 'a' });
  assert.deepEqual(again, found);
  const code = await findCode(database.db, { environmentId: mine, versionId });
  assert.deepEqual([code?.code, code?.definition.kind], [actionCode(), 'action']);
  assert.equal(await sourceOf(database.db, { environmentId: mine, versionId }), actionCode());
});

test('a plan changes nothing, and lists the later effects of the deploy', async () => {
  const environmentId = await environmentWith('planned');
  const sync = given('s', { kind: 'sync' as const, code: syncCode({ model: 'Lost' }) });
  await deploy(deploys, order(environmentId, [sync, given('same'), given('old')]));
  const next = {
    ...order(environmentId, [given('same'), given('old', { source: 'now with a source' }), given('new')]),
    reconcile: 'all' as const,
  };
  const planned = await plan(deploys, next);
  assert.deepEqual(
    {
      added: planned.added.map(({ name }) => name),
      changed: planned.changed.map(({ after }) => after.name),
      unchanged: planned.unchanged.map(({ after }) => after.name),
      removed: planned.removed.map(({ name }) => name),
      deletedModels: planned.deletedModels,
    },
    { added: ['new'], changed: ['old'], unchanged: ['same'], removed: ['s'], deletedModels: ['Lost'] },
  );
  assert.equal((await listFunctions(database.db, { environmentId })).length, 3);
  await deploy(deploys, next);
  const names = (await listFunctions(database.db, { environmentId })).map(({ name, number }) => [
    name,
    number,
  ]);
  assert.deepEqual(names, [
    ['new', 1],
    ['old', 2],
    ['same', 1],
  ]);
});

test('twenty sweeps at once with deploys of the same text leave each function its text', async () => {
  const environmentId = await environmentWith('swept');
  await deploy(deploys, order(environmentId, [given('a')]));
  const sweep = bundleSweepJob({ db: database.db, now: () => at });
  const { signal } = new AbortController();
  for (let round = 0; round < 5; round += 1) {
    at = new Date(at.getTime() + 7_200_000);
    await deploy(deploys, { ...order(environmentId, []), reconcile: 'all' });
    await Promise.all([
      ...Array.from({ length: 20 }, () => sweep.run({}, signal)),
      deploy(deploys, order(environmentId, [given('a')])),
    ]);
    const { versionId } = await getFunction(database.db, {
      environmentId,
      integrationKey: 'shop',
      name: 'a',
    });
    assert.equal((await findCode(database.db, { environmentId, versionId }))?.code, actionCode());
  }
  assert.equal(await bundles(environmentId), 1);
});

test('a deploy that fails at its end leaves nothing behind', async () => {
  const environmentId = await environmentWith('failing');
  const failing = { ...deploys, afterDeploy: () => Promise.reject(new Error('at the end')) };
  await assert.rejects(deploy(failing, order(environmentId, [given('a')])), /at the end/);
  assert.deepEqual(
    [await bundles(environmentId), await listFunctions(database.db, { environmentId })],
    [0, []],
  );
});
