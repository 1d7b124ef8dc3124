import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeNames, wreak } from './chaos.ts';
import { type Fault, killOf, pgbouncerRestart, postgresRestart } from './faults.ts';

const minutes = Number(process.env.CHAOS_MINUTES ?? 15);

test('a quarter of an hour in which something goes down each minute loses nothing that was acknowledged', async (t) => {
  const kills = Array.from({ length: minutes }, (_, n) => killOf(nodeNames[n % nodeNames.length]!));
  const others = new Map<number, Fault>([
    [Math.floor(minutes / 4), postgresRestart],
    [Math.floor(minutes / 2), pgbouncerRestart],
    [Math.floor((minutes * 3) / 4), postgresRestart],
  ]);
  const { faults, ...told } = await wreak({
    faults: kills.flatMap((kill, n) => [kill, ...(others.has(n) ? [others.get(n)!] : [])]),
    calmMs: 45_000,
    maxMs: minutes * 180_000,
    datasets: 4,
    accounts: 6,
    pauseMs: 80,
    seed: 2,
    tell: (line) => t.diagnostic(line),
  });
  t.diagnostic(JSON.stringify(told, undefined, 1));
  assert.deepEqual(faults, []);
  assert.equal(told.refused, 0);
  assert.equal(told.hasPgbouncer, true, 'PgBouncer is not installed');
});
