import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type ConnectBench, openConnectBench, sheetsScope } from './connect.fixture.ts';
import { type Decision, people } from './consent.fixture.ts';

/** Renewing where nobody can say whether the account is the one before: no token of the one may serve for the other. */
let bench: ConnectBench;
const person = people(() => bench);
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());
beforeEach(() => person.clear());

describe('an account that is not known', () => {
  const grace = { account: 'grace@example.com' };
  const forget = () => bench.db.query('update connection set account_id = null, account_email = null');
  const withoutToken = (times: number, account?: string) =>
    bench.control('POST /faults', { case: 'no_refresh_token', times, ...(account && { account }) });
  /** The accounts are known by the scope `openid` alone. */
  const withoutAccount = { integrations_config_defaults: { sheets: { user_scopes: sheetsScope } } };
  type Renewal = { more?: Record<string, unknown>; decision?: Decision; forgets?: boolean };
  const renewals: Record<string, Renewal> = {
    'before and is now': { forgets: true, decision: grace },
    'now and was before': { more: { ...withoutAccount, require_same_account: false }, decision: grace },
    'before, nor now': { more: withoutAccount, decision: grace, forgets: true },
  };
  const renew = async ({ more = {}, decision = {}, forgets = false }: Renewal, times: number) => {
    const before = await person.connect();
    if (forgets) await forget();
    // What an earlier refresh has left behind belongs to the account before as well.
    await bench.db.query("update connection set kept_tokens = 'x'");
    await withoutToken(times);
    const browser = bench.browser();
    const again = await person.dance(
      await bench.reconnectSession(before.connectionId, more),
      decision,
      browser,
    );
    assert.equal(again.status, 302, again.text);
    assert.equal(new URL(again.location).searchParams.get('prompt'), 'consent');
    assert.deepEqual(
      (await person.only()).credentials,
      before.credentials,
      'nothing is stored before the second trip',
    );
    const landed = await browser.visit(await bench.consent(again.location, decision));
    assert.equal(landed.status, 200, landed.text);
    const now = await person.only();
    assert.notEqual(now.credentials.access_token, before.credentials.access_token);
    assert.equal(now.account?.email, more.integrations_config_defaults ? undefined : decision.account);
    assert.deepEqual(await bench.db.query('select 1 from connection where kept_tokens is not null'), []);
    return { before, now };
  };

  for (const [when, renewal] of Object.entries(renewals)) {
    test(`${when}: consent is requested once more, and its tokens are stored`, async () => {
      const { before, now } = await renew(renewal, 1);
      assert.ok(now.credentials.refresh_token);
      assert.notEqual(now.credentials.refresh_token, before.credentials.refresh_token);
    });

    test(`${when}: where no refresh token comes then either, the old one is not kept`, async () => {
      const { now } = await renew(renewal, 2);
      assert.equal(now.credentials.refresh_token, undefined);
    });
  }

  test('before: any account is accepted without a fault, whatever the browser requests', async () => {
    await person.connect(grace);
    await bench.db.query('delete from connection');
    const before = await person.connect();
    await forget();
    const browser = bench.browser();
    const token = await bench.reconnectSession(before.connectionId);
    const url = await browser.begin(token, { query: '&authorization_params[prompt]=select_account' });
    const again = await browser.visit(await bench.consent(url, grace));
    assert.equal(again.status, 302, 'Grace has consented before, so no token came');
    assert.equal((await browser.visit(await bench.consent(again.location, grace))).status, 200);
    const now = await person.only();
    assert.equal(now.account?.email, 'grace@example.com');
    assert.ok(now.credentials.refresh_token);
    assert.notEqual(now.credentials.refresh_token, before.credentials.refresh_token);
  });

  test('before, and a refresh token comes at once: the connection is wholly that of the new account', async () => {
    const before = await person.connect();
    await forget();
    assert.equal((await person.dance(await bench.reconnectSession(before.connectionId), grace)).status, 200);
    const now = await person.only();
    assert.equal(now.account?.email, 'grace@example.com');
    assert.equal(now.connectionId, before.connectionId);
    assert.ok(now.credentials.refresh_token);
    assert.notEqual(now.credentials.refresh_token, before.credentials.refresh_token);
  });

  test('now: the name of the one before goes with its tokens, also where it had no refresh token', async () => {
    await bench.control('POST /faults', { case: 'no_refresh_token', times: 2 });
    const browser = bench.browser();
    const again = await person.dance(await bench.session(), {}, browser);
    await browser.visit(await bench.consent(again.location));
    const before = await person.only();
    assert.deepEqual(
      [before.account?.email, before.credentials.refresh_token],
      ['ada@example.com', undefined],
    );
    await withoutToken(2);
    const token = await bench.reconnectSession(before.connectionId, {
      ...withoutAccount,
      require_same_account: false,
    });
    const next = await person.dance(token, grace, browser);
    assert.equal((await browser.visit(await bench.consent(next.location, grace))).status, 200);
    assert.equal((await person.only()).account, undefined);
  });
});
