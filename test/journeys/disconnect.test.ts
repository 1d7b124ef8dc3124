import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** The end of a connection: by the application, with or without its grant, and by a notice of the provider. */
let trellis: TestTrellis;
const inQuery = 'provider_config_key=google-sheet';
const account = 'grace@example.com';

before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());
beforeEach(() => trellis.control('DELETE', 'faults'));

type Connected = Awaited<ReturnType<typeof connect>>;
const disconnect = ({ connectionId }: Connected, query = '') =>
  trellis.call('DELETE', `/connections/${connectionId}?${inQuery}${query}`);
/** 404 is the provider's: the token was good. */
const works = async ({ headers }: Connected) =>
  (await trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers })).status === 404;
const health = async ({ connectionId }: Connected) =>
  (await trellis.call('GET', `/connections/${connectionId}/health?${inQuery}`)).body;
const tokenWorks = async (accessToken: string) => {
  const headers = { authorization: `Bearer ${accessToken}` };
  const answer = await fetch(`${trellis.sandbox.url}/v4/spreadsheets/none`, { headers });
  await answer.body?.cancel();
  return answer.status === 404;
};
const accessTokenOf = async ({ connectionId }: Connected) => {
  const { body } = await trellis.call('GET', `/connections/${connectionId}?${inQuery}`);
  return (body.credentials as { access_token: string }).access_token;
};

describe('a disconnected account', () => {
  test('keeps working for its other connections; the last one takes the grant with it', async () => {
    const [one, other] = [await connect(trellis, { account }), await connect(trellis, { account })];
    assert.deepEqual((await disconnect(one)).body, { success: true, revocation: 'shared' });
    assert.ok(await works(other));
    const token = await accessTokenOf(other);
    assert.ok(await tokenWorks(token));
    assert.deepEqual((await disconnect(other)).body, { success: true, revocation: 'done' });
    assert.ok(!(await tokenWorks(token)), 'the provider has ended it');
  });

  test('is revoked for all on request, after the number of connections that lose access was reported', async () => {
    const [one, other] = [await connect(trellis, { account }), await connect(trellis, { account })];
    const reported = await disconnect(one, '&revoke=always');
    assert.equal(reported.status, 409);
    const error = reported.body.error as { code: string; payload: { others: number } };
    assert.deepEqual([error.code, error.payload], ['revocation_ends_others', { others: 1 }]);
    assert.ok(await works(one), 'nothing was changed');
    const done = await disconnect(one, '&revoke=always&confirm_others=1');
    assert.deepEqual(done.body, { success: true, revocation: 'done' });
    assert.equal((await health(other)).cause, 'revoked_by_disconnect');
    assert.ok(!(await works(other)));
    await disconnect(other);
  });

  test('is deleted in an outage of the provider too, and its grant is kept unless its end is requested', async () => {
    for (const fault of ['revoke_503', 'revoke_reset']) {
      const one = await connect(trellis, { account });
      await trellis.control('POST', 'faults', { case: fault });
      assert.deepEqual((await disconnect(one)).body, { success: true, revocation: 'queued' });
      await trellis.control('DELETE', 'faults');
      // No account connects again while the provider may still end the grant: this time has passed.
      await trellis.db.query('update revocation set sending_until = null');
    }
    const one = await connect(trellis, { account });
    const token = await accessTokenOf(one);
    assert.deepEqual((await disconnect(one, '&revoke=never')).body, { success: true, revocation: 'none' });
    assert.ok(await tokenWorks(token));
  });

  test('is not deleted by a query that makes no sense', async () => {
    const one = await connect(trellis, { account });
    for (const query of ['&revoke=maybe', '&confirm_others=-1', '&confirm_others=many', '&force=true']) {
      assert.equal((await disconnect(one, query)).status, 400, query);
    }
    assert.ok(await works(one));
    await disconnect(one);
  });
});

describe('a security event', () => {
  const send = (type: string, more: object = {}) =>
    trellis.control('POST', 'security-events', {
      account,
      type,
      ...more,
      receiver: `${trellis.baseUrl}/webhook/dev/google-sheet`,
    });

  test('of the provider ends the connections of its account before it is answered, and no forged one does', async () => {
    const one = await connect(trellis, { account });
    assert.equal((await send('account-disabled', { fake_signature: true })).status, 400);
    assert.equal((await send('account-disabled', { audience: 'another' })).status, 400);
    assert.ok(await works(one));
    await trellis.control('POST', 'clock', { advance_s: 2 });
    assert.equal((await send('verification', { state: 'hello' })).status, 202);
    assert.equal((await send('account-disabled', { reason: 'hijacking', jti: 'notice-1' })).status, 202);
    assert.equal((await send('account-disabled', { reason: 'hijacking', jti: 'notice-1' })).status, 202);
    const { status, cause, evidence } = await health(one);
    assert.deepEqual([status, cause], ['needs_reauth', 'security_event']);
    assert.deepEqual(evidence, { event: 'risc/event-type/account-disabled', reason: 'hijacking' });
    assert.ok(!(await works(one)));
    const { body } = await trellis.call('GET', '/events?limit=1000');
    const events = body.events as { type: string; data: { connection_id: string } }[];
    const reported = events.filter(({ type, data }) => {
      return type === 'connection.needs_reauth' && data.connection_id === one.connectionId;
    });
    assert.equal(reported.length, 1);
    assert.equal((await send('account-enabled')).status, 202);
    for (let waits = 0; waits < 300 && !(await works(one)); waits += 1) await wait(10);
    assert.ok(await works(one), 'it was tried again');
    await disconnect(one);
  });

  test('is in force on every node when a second has passed, and what it ended stays so', async () => {
    const one = await connect(trellis, { account });
    const node = await trellis.serveAnother();
    const statusThere = async () =>
      (await node.call('GET', '/proxy/v4/spreadsheets/none', { headers: one.headers })).status;
    try {
      await trellis.control('POST', 'clock', { advance_s: 2 });
      assert.equal(await statusThere(), 404, 'this node has cached the connection, and uses the cache');
      assert.equal((await send('sessions-revoked')).status, 202);
      assert.ok(!(await works(one)), 'at once on the node that took it');
      await trellis.advance(1);
      assert.equal(await statusThere(), 424);
      await trellis.advance(7200);
      assert.equal(await statusThere(), 424, 'nor is its token refreshed when it has expired');
      assert.equal((await health(one)).cause, 'security_event');
    } finally {
      await node.close();
      await disconnect(one);
    }
  });
});
