import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { plainHarness } from './runtime.fixture.ts';
import { createRuntime, type Runtime } from './runtime.ts';

/** What one run leaves for the next in the same process. */
let runtime: Runtime;
before(() => {
  runtime = createRuntime(async () => ({ modules: {}, harness: plainHarness }), {
    maxProcesses: 1,
    confinement: 'off',
  });
});
after(() => runtime.close());

async function run(code: string) {
  return runtime.run({
    environmentId: 1,
    bundle: { id: String(code.length), code },
    exportName: 'default',
    kind: 'action',
    input: null,
    serve: async () => ({ value: null }),
    log: () => {},
  });
}

test('a response to a ping of the previous run is no fault of the next run', async () => {
  for (let turn = 0; turn < 80; turn += 1) {
    assert.deepEqual(await run('exports.default = () => 1;'), { result: 1 }, `run ${turn}`);
  }
});

test('memory that a run freed shows nothing to the next run', async () => {
  const fill = `exports.default = () => {
    for (let n = 0; n < 200; n++) Buffer.alloc(4096, 'SECRET-OF-A!');
    return 'done';
  };`;
  const look = `exports.default = () => {
    let found = 0;
    for (let n = 0; n < 2000; n++) if (Buffer.allocUnsafe(4096).includes('SECRET-OF-A!')) found++;
    return found;
  };`;
  assert.deepEqual(await run(fill), { result: 'done' });
  assert.deepEqual(await run(look), { result: 0 });
});
