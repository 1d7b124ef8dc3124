// Slow: it kills a service and waits for the end of its lease.

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

const create = ({ baseUrl, secretKey }: { baseUrl: string; secretKey: string }) =>
  fetch(`${baseUrl}/events/endpoints`, {
    method: 'POST',
    headers: {
      ...{ authorization: `Bearer ${secretKey}`, 'content-type': 'application/json' },
      'idempotency-key': 'interrupted',
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
