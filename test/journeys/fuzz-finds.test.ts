// What spoiled requests have found (test/long/fuzz.ts), each by itself.
// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { countWaiting } from '../support/locks.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let connectionId: string;
before(async () => {
  trellis = await openTrellis();
  ({ connectionId } = await connect(trellis));
});
after(() => trellis.close());

test('a refresh of credentials that nothing renews is refused, and not put off to a better time', async () => {
  const body = {
    provider_config_key: 'google-sheet',
    connection_id: 'without-refresh-token',
    credentials: { type: 'OAUTH2', access_token: 'a-token-that-nothing-renews' },
  };
  assert.equal((await trellis.call('POST', '/connections', { body })).status, 201);
  const path = '/connections/without-refresh-token';
  const asked = [
    ['POST', `${path}/refresh?provider_config_key=google-sheet`],
    ['GET', `${path}?provider_config_key=google-sheet&force_refresh=true`],
  ] as const;
  for (const [method, address] of asked) {
    const { status, headers, body: answer } = await trellis.call(method, address);
    assert.deepEqual([status, (answer.error as { code: string }).code], [400, 'invalid_credentials']);
    assert.equal(headers.get('retry-after'), null);
  }
  // They are used as they are.
  const { status } = await trellis.call('GET', `${path}?provider_config_key=google-sheet`);
  assert.equal(status, 200);
});

/** Does `work` while a transaction that has removed a function is open, and lets that one commit. */
async function whileRemoved<T>(name: string, work: () => Promise<T>): Promise<T> {
  let begun: Promise<T> | undefined;
  await trellis.db.transaction(async (tx) => {
    await tx.query('delete from function where name = $1', [name]);
    begun = work();
    // Until it waits for the row, or is through.
    for (let tries = 0; tries < 100; tries += 1) {
      if (
        (await countWaiting(trellis.db)) > 0 ||
        (await Promise.race([begun.then(() => true), pause(20)])) === true
      )
        return;
    }
  });
  return begun!;
}

test('a sync is paused while its function is removed, and nothing is there to pause', async () => {
  const path = '/integrations/google-sheet/functions/rows';
  assert.equal((await trellis.call('PUT', `${path}/shipped`, { body: { type: 'sync' } })).status, 200);
  await trellis.db.query('delete from sync');
  const body = { provider_config_key: 'google-sheet', connection_id: connectionId, syncs: ['rows'] };
  const answer = await whileRemoved('rows', () => trellis.call('POST', '/sync/pause', { body }));
  assert.equal(answer.status, 200, answer.text);
  assert.equal((await trellis.db.query('select from sync')).length, 0);
});

test('an account is connected while a function is removed, which gets no sync', async () => {
  const path = '/integrations/google-sheet/functions/worksheets';
  assert.equal((await trellis.call('PUT', `${path}/shipped`, { body: { type: 'sync' } })).status, 200);
  await trellis.db.query(
    `update function_version set definition = jsonb_set(definition, '{auto_start}', 'true')
     where id in (select version_id from function where name = 'worksheets')`,
  );
  const body = {
    provider_config_key: 'google-sheet',
    connection_id: 'made-meanwhile',
    credentials: { type: 'OAUTH2', access_token: 'another-token-from-elsewhere' },
  };
  const answer = await whileRemoved('worksheets', () => trellis.call('POST', '/connections', { body }));
  assert.equal(answer.status, 201, answer.text);
  assert.equal((await trellis.db.query('select from sync')).length, 0);
});
