import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findCitus } from '../support/citus.ts';
import { nodeNames, wreak } from './chaos.ts';
import { killOf, postgresRestart, workerKillOf } from './faults.ts';

const kills = Number(process.env.CHAOS_KILLS ?? 1_000);
const citusDir = findCitus();
const skip = citusDir === undefined ? 'no PostgreSQL of this machine has the extension citus' : false;

/** A node takes seconds to start, a machine a part of one: most kills are of machines. */
const round = [
  workerKillOf(0),
  postgresRestart,
  workerKillOf(1),
  workerKillOf(0),
  postgresRestart,
  workerKillOf(1),
];

test('a thousand kills of workers, coordinator and nodes during commits lose nothing that was acknowledged', {
  skip,
}, async (t) => {
  const faults = Array.from({ length: kills }, (_, n) => {
    const [rounds, of] = [Math.floor(n / (round.length + 1)), n % (round.length + 1)];
    return round[of] ?? killOf(nodeNames[rounds % nodeNames.length]!);
  });
  const { faults: wrong, ...told } = await wreak({
    faults,
    citusDir,
    calmMs: 300,
    maxMs: Number.POSITIVE_INFINITY,
    datasets: 4,
    accounts: 2,
    pauseMs: 20,
    seed: 7,
  });
  t.diagnostic(JSON.stringify({ ...told, applied: told.applied.length }, undefined, 1));
  assert.deepEqual(wrong, []);
  assert.equal(told.applied.length, kills);
});
