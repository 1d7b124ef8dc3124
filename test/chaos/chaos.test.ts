// Slow: it kills nodes and databases under load.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeNames, wreak } from './chaos.ts';
import { killOf, pgbouncerRestart, postgresRestart } from './faults.ts';

const [one, two, three] = nodeNames;

// Three nodes are started twice each: on a busy machine that takes longer than other tests may.
const limits = { timeout: 600_000 };

test(
  'nodes, PostgreSQL and PgBouncer go down under a mixed load, and nothing acknowledged is lost or done twice',
  limits,
  async (t) => {
    const outcome = await wreak({
      faults: [killOf(one), postgresRestart, killOf(two), pgbouncerRestart, killOf(three)],
      calmMs: 4_000,
      maxMs: 40_000,
      datasets: 2,
      accounts: 2,
      pauseMs: 200,
      seed: 1,
      tell: (line) => t.diagnostic(line),
    });
    const { faults, ...told } = outcome;
    t.diagnostic(JSON.stringify(told, undefined, 1));
    if (!outcome.hasPgbouncer) t.diagnostic('without PgBouncer, which is not installed');
    assert.deepEqual(faults, []);
    assert.equal(outcome.refused, 0);
    assert.ok(Object.values(outcome.records).every((count) => count > 0));
    assert.ok(outcome.tokens.accepted > 0 && outcome.events.delivered > 0 && outcome.runs.attempts > 0);
  },
);
