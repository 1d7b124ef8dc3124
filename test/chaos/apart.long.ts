import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeNames, wreak } from './chaos.ts';
import { freezeOf, killOf, pgbouncerRestart, postgresRestart } from './faults.ts';

const [api, first, second] = nodeNames;

test('where one node answers and two others work, each is killed and frozen, and nothing acknowledged is lost or done twice', async (t) => {
  const { faults, ...told } = await wreak({
    faults: [
      killOf(first),
      freezeOf(second),
      killOf(api),
      freezeOf(api),
      postgresRestart,
      pgbouncerRestart,
      killOf(second),
    ],
    calmMs: 15_000,
    maxMs: 600_000,
    datasets: 2,
    accounts: 4,
    pauseMs: 100,
    seed: 3,
    environmentOf: (node) => ({ TRELLIS_ROLE: node === api ? 'api' : 'worker' }),
    tell: (line) => t.diagnostic(line),
  });
  t.diagnostic(JSON.stringify(told, undefined, 1));
  assert.deepEqual(faults, []);
  assert.equal(told.refused, 0);
  assert.equal(told.hasPgbouncer, true, 'PgBouncer is not installed');
});
