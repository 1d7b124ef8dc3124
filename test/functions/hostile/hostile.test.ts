// Slow: hostile functions run until their limits.

import assert from 'node:assert/strict';
import { getPriority } from 'node:os';
import { test } from 'node:test';
import { openRuntime, runCode } from '../../../server/functions/isolation/runtime.fixture.ts';
import { hostileFunctions } from './functions.ts';
import { hostileVolumes } from './volumes.ts';

const neighbour = `exports.default = async (service, input) => {
  await new Promise((resolve) => setTimeout(resolve, 1));
  return (await service.call('echo', input)).value.args;
};`;

test('no function harms the service or its neighbours, and each is told what went wrong', {
  concurrency: 3,
  timeout: 600_000,
}, async (t) => {
  const runtime = openRuntime(t, { maxProcesses: 4 });
  const { outcome } = await runCode(runtime, neighbour, { environmentId: 7, input: 0 });
  assert.deepEqual(outcome, { result: 0 });
  const priority = getPriority();

  const all = { ...hostileFunctions, ...hostileVolumes };
  const tried = Object.entries(all).map(([name, { code, limits, fails, returns }], at) =>
    t.test(name, async () => {
      const [hostile, beside] = await Promise.all([
        runCode(runtime, code, { environmentId: at % 3, ...(limits && { limits }) }),
        runCode(runtime, neighbour, { environmentId: 7, input: name }),
      ]);
      assert.deepEqual(beside.outcome, { result: name });
      if (fails === undefined) return assert.deepEqual(hostile.outcome, { result: returns });
      assert.ok('failure' in hostile.outcome, JSON.stringify(hostile.outcome).slice(0, 500));
      assert.equal(hostile.outcome.failure.cause, fails[0], hostile.outcome.failure.message);
      assert.match(hostile.outcome.failure.message, fails[1]);
    }),
  );
  await Promise.all(tried);

  assert.equal(({} as { polluted?: unknown }).polluted, undefined);
  assert.equal(getPriority(), priority);
  assert.deepEqual((await runCode(runtime, neighbour, { input: 'after' })).outcome, { result: 'after' });
});
