import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findCitus } from '../support/citus.ts';
import { nodeNames, wreak } from './chaos.ts';
import { killOf, postgresRestart, workerAwayOf, workerFreezeOf } from './faults.ts';

const minutes = Number(process.env.CHAOS_MINUTES ?? 15);
const citusDir = findCitus();
const skip = citusDir === undefined ? 'no PostgreSQL of this machine has the extension citus' : false;

test('a quarter of an hour in which a machine of a cluster or a node goes down each minute loses nothing that was acknowledged', {
  skip,
}, async (t) => {
  const faults = Array.from({ length: minutes }, (_, n) => [
    workerAwayOf(n % 2),
    killOf(nodeNames[n % nodeNames.length]!),
    workerFreezeOf((n + 1) % 2),
    postgresRestart,
  ]).flat();
  const { faults: wrong, ...told } = await wreak({
    faults,
    citusDir,
    calmMs: 10_000,
    maxMs: minutes * 60_000,
    datasets: 4,
    accounts: 4,
    pauseMs: 120,
    seed: 3,
    tell: (line) => t.diagnostic(line),
  });
  t.diagnostic(JSON.stringify(told, undefined, 1));
  assert.deepEqual(wrong, []);
  assert.equal(told.refused, 0);
});
