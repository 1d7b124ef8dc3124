// A local run (`sdk/local`) repeats errors of the service. Both must have the same code and text, since functions and their
// authors read them.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { nothingStored } from '../../sdk/local/model-writes.ts';
import { runLocally } from '../../sdk/local/run-locally.ts';
import { openRunsBench, type RunsBench, syncOf } from '../../server/functions/runs/runs.fixture.ts';

let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());

/** Calls that the service refuses. */
const refused = [
  `nango.setMetadata('text')`,
  `nango.setMetadata()`,
  `nango.updateMetadata(null)`,
  `nango.updateMetadata([1])`,
  `nango.saveCheckpoint(null)`,
  `nango.saveCheckpoint({ page: {} })`,
  `nango.saveCheckpoint({ '': 1 })`,
  `nango.saveCheckpoint({ text: 'x'.repeat(4001) })`,
  `nango.saveCheckpoint(Object.fromEntries(Array.from({ length: 17 }, (_, n) => ['f' + n, n])))`,
  `nango.batchSave([{ id: 'a' }], 'Other')`,
  `nango.batchSave([{ id: 'a' }, { id: '' }], 'Row')`,
  `nango.batchSave([...Array.from({ length: 1000 }, (_, n) => ({ id: n })), { id: 1.5 }], 'Row')`,
  `nango.batchSave([1], 'Row')`,
  `nango.batchUpdate([{ id: {} }], 'Row')`,
  `nango.batchUpdate([{ id: 'x'.repeat(256) }], 'Row')`,
  `nango.batchDelete([{ id: 'a' }, {}], 'Row')`,
  `nango.batchDelete([{ id: '\\ud800' }], 'Row')`,
  `nango.trackDeletesEnd('Row')`,
  `nango.setMergingStrategy({ strategy: 'other' }, 'Row')`,
  `nango.getConnection('api', 'another')`,
  `nango.getConnection('', '', { refreshToken: true })`,
  `nango.getIntegration({ include: 'credentials' })`,
  `(async () => require('f' + 's'))()`,
];
const code = syncOf(`
  ${refused.map((call) => `await report(() => ${call});`).join('\n')}
  async function report(call) {
    const { code, message } = await call().catch((error) => error) ?? {};
    await nango.log(JSON.stringify([code, message]));
  }
`);

test('a local run refuses calls with the codes and texts of the service', async () => {
  await bench.deploy('rows', code);
  const connectionId = crypto.randomUUID();
  await bench.connect(connectionId);
  await bench.one.runner.runDue();
  const [run] = await bench.runs();
  assert.deepEqual([run?.state, run?.error], ['succeeded', null]);
  // Without the warning about a record that does not match its model.
  const served = (await bench.lines()).filter((line) => line.startsWith('['));

  const local: string[] = [];
  const { outcome } = await runLocally({
    code,
    kind: 'sync',
    input: undefined,
    metadata: {},
    checkpoint: null,
    stored: nothingStored,
    about: {
      connectionId,
      providerConfigKey: 'api',
      provider: 'unauthenticated',
      environmentName: 'dev',
      variant: 'base',
    },
    log: (level, text) => void (level === 'info' && local.push(String(text))),
    reads: { call: () => assert.fail('a call was made'), fact: async () => ({}) },
  });
  assert.equal(outcome.error, undefined);
  const byCall = (lines: string[]) => refused.map((call, at) => [call, lines[at]]);
  assert.equal(served.length, refused.length);
  assert.ok(
    served.every((line) => /^\["[a-z_]+","[A-Z].+"\]$/.test(line)),
    served.join('\n'),
  );
  assert.deepEqual(byCall(local), byCall(served));
});
