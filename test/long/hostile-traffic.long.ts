import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attack, type Seen } from './hostile-traffic.ts';

test('whatever is thrown at it, /health answers within 100 ms for 99 of 100 who ask, and calls go on', async (t) => {
  const idle = 10_000;
  const maxMs = 100;
  const all: Seen[] = [];
  const strength = { slow: 1_000, idle, bodyMb: 100, atOnce: 50, holdMs: 10_000 };
  const { restMb, afterMb } = await attack(strength, (seen) => {
    all.push(seen);
    const { p50, p99, max, asked, failed } = seen.probed.health;
    const { done, turnedAway, failed: broken } = seen.probed.calls;
    t.diagnostic(
      `${seen.attack.padEnd(16)} health of ${asked}: p50 ${p50.toFixed(1)}, p99 ${p99.toFixed(1)}, most ${max.toFixed(1)} ms, ` +
        `${failed} failed; calls: ${done} done, ${turnedAway} turned away, ${broken} failed; ${seen.rssMb.toFixed(0)} MB, ${seen.sockets} sockets`,
    );
  });
  const kb = (((all.find((one) => one.attack === 'idle sockets')?.rssMb ?? 0) - restMb) * 1024) / idle;
  t.diagnostic(
    `at rest ${restMb.toFixed(0)} MB, afterwards ${afterMb.toFixed(0)} MB; an idle socket ${kb.toFixed(1)} KB`,
  );
  for (const { attack: name, probed, rssMb, sockets } of all) {
    assert.equal(probed.health.failed, 0, name);
    assert.ok(probed.health.p99 < maxMs, `${name}: ${probed.health.p99}`);
    assert.equal(probed.calls.failed, 0, name);
    assert.ok(probed.calls.done > 0, name);
    if (name === 'idle sockets') assert.ok(sockets > idle * 0.99, `${sockets} sockets stayed`);
    assert.ok(rssMb < restMb + 400, `${name}: ${rssMb}`);
  }
});
