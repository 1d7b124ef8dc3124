// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attack, type Seen } from './hostile-traffic.ts';

test('whatever is thrown at it, the service answers everybody else, and its memory stays', async (t) => {
  const all: Seen[] = [];
  const strength = { slow: 100, idle: 200, bodyMb: 8, atOnce: 8, holdMs: 200 };
  const { restMb, afterMb } = await attack(strength, (seen) => all.push(seen));
  t.diagnostic(`at rest ${restMb.toFixed(0)} MB, afterwards ${afterMb.toFixed(0)} MB`);
  assert.equal(all.length, 10);
  for (const { attack: name, probed, rssMb } of all) {
    assert.equal(probed.health.failed, 0, name);
    assert.equal(probed.calls.failed, 0, name);
    assert.ok(rssMb < restMb + 300, `${name}: ${rssMb}`);
  }
});
