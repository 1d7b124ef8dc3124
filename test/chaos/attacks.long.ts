import assert from 'node:assert/strict';
import path from 'node:path';
import { test } from 'node:test';
import { nodeNames, wreak } from './chaos.ts';
import { clockJumpOf, diskFull, type Fault, freezeOf, postgresAway, readOnly } from './faults.ts';

const [one, , three] = nodeNames;
const load = { calmMs: 10_000, maxMs: 600_000, datasets: 3, accounts: 4, pauseMs: 100 };

/** The same promises hold, whatever goes wrong. */
async function withstand(t: { diagnostic(line: string): void }, trial: Parameters<typeof wreak>[0]) {
  const { faults, ...told } = await wreak({ ...trial, tell: (line) => t.diagnostic(line) });
  t.diagnostic(JSON.stringify(told, undefined, 1));
  assert.deepEqual(faults, []);
  return told;
}

const attacks: [string, Fault[]][] = [
  ['nodes that stand still for longer than their leases change nothing late', [freezeOf(one)]],
  ['a database that only reads for a while costs nothing that was acknowledged', [readOnly]],
  ['a database without disk space for a while costs nothing that was acknowledged', [diskFull]],
];
for (const [n, [promise, faults]] of attacks.entries())
  test(promise, async (t) => {
    const { refused } = await withstand(t, { ...load, faults, seed: 10 + n });
    assert.equal(refused, 0);
  });

test('a database that is away for longer than a lease costs no token that had come meanwhile', async (t) => {
  const { refused, tokens, deaths } = await withstand(t, { ...load, faults: [postgresAway], seed: 30 });
  // All nodes live: the node that holds an answer stores it before another node asks.
  assert.deepEqual({ refused, repeated: tokens.repeated, deaths }, { refused: 0, repeated: 0, deaths: [] });
});

test('a node whose clock is a day ahead for a while costs nothing that was acknowledged', async (t) => {
  const jump = `--import=${path.join(import.meta.dirname, 'clock-jump.ts')}`;
  // What it sends is dated by its clock, and refused; it arrives later.
  await withstand(t, {
    ...load,
    faults: [clockJumpOf(three)],
    seed: 20,
    environmentOf: (node) => (node === three ? { NODE_OPTIONS: jump } : {}),
  });
});
