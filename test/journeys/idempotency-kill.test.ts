// Slow: it kills a service and waits for the end of its lease, and for the longest wait of a repeat.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { openEmptyDatabase, type TestDatabase, urlOf } from '../support/database.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

let bench: TestDatabase;
let first: RunningService;
let second: RunningService;
let settings: Record<string, string>;
before(async () => {
  bench = await openEmptyDatabase();
  settings = {
    DATABASE_URL: urlOf(bench.target),
    TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
    TRELLIS_SANDBOX: 'off',
  };
  first = await startRunningService({ env: settings });
  second = await startRunningService({ dataDir: first.dataDir, env: settings });
});
after(async () => {
  await second.stop();
  await bench.drop();
});

const create = ({ baseUrl, secretKey }: { baseUrl: string; secretKey: string }, key = 'interrupted') =>
  fetch(`${baseUrl}/events/endpoints`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${secretKey}`,
      'content-type': 'application/json',
      'idempotency-key': key,
    },
    body: JSON.stringify({ url: 'https://app.customer.example/hooks' }),
  });

test('a request that kill -9 interrupts has an unknown outcome at the other node, and is not done again', async () => {
  let repeat: Promise<Response> | undefined;
  await bench.db.transaction(async (tx) => {
    await tx.query('lock table endpoint in exclusive mode');
    const lost = assert.rejects(create(first));
    for (;;) {
      const begun = await bench.db.query('select from idempotent_request where answer is null');
      if (begun.length > 0) break;
      await pause(20);
    }
    process.kill(first.pid, 'SIGKILL');
    await Promise.all([lost, first.exited]);
    repeat = create({ baseUrl: second.baseUrl, secretKey: first.secretKey });
  });
  const answer = await repeat!;
  const { error } = (await answer.json()) as { error: { code: string; message: string } };
  assert.deepEqual([answer.status, error.code], [409, 'outcome_unknown']);
  assert.match(error.message, /Check whether it took effect; if not, send it with another key/);
  assert.equal((await bench.db.query('select from endpoint')).length, 0);
});

test('a repeat of a request that still runs after a minute is answered with 409 and can be sent again', async () => {
  const at = { baseUrl: second.baseUrl, secretKey: first.secretKey };
  const made = await create(at, 'long');
  assert.equal(made.status, 201);
  // As if another node still did the work.
  await bench.db.query(
    `update idempotent_request set answer = null, is_final = false, leased_until = now() + interval '1 hour'
     where answer is not null`,
  );
  const repeat = await create(at, 'long');
  const { error } = (await repeat.json()) as { error: { code: string } };
  assert.deepEqual([repeat.status, error.code], [409, 'request_in_progress']);
  assert.ok(Number(repeat.headers.get('retry-after')) > 0);
});
