import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { replaceSettings, swapCredentials } from '../connections/store/save.ts';
import { type ConnectBench, openConnectBench, sheetsScope } from './connect.fixture.ts';
import { people } from './consent.fixture.ts';

let bench: ConnectBench;
const person = people(() => bench);
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());
beforeEach(() => person.clear());

const askedBy = (url: string) => new URL(url).searchParams.get('scope');
const eventsOf = async (type: string) =>
  (
    await bench.db.query<{ data: Record<string, unknown> }>('select data from event where type = $1', [type])
  ).map(({ data }) => data);
const withoutSheets = { allow: ['openid', 'email'] };

describe('a request for missing scopes', () => {
  test('contains only those, and the granted scopes are kept', async () => {
    const before = await person.connect(withoutSheets);
    assert.deepEqual(
      await eventsOf('connection.scopes_reduced').then((all) => all.map((one) => one.lost_scopes)),
      [[sheetsScope]],
    );
    const browser = bench.browser();
    const token = await bench.reconnectSession(before.connectionId, { scopes: 'missing' });
    const [choice] = (await bench.choices(token)).choices;
    assert.equal(choice.adds_scopes, true);
    assert.deepEqual(
      choice.scopes.map(({ scope }: { scope: string }) => scope),
      [sheetsScope],
    );
    const url = await browser.begin(token);
    assert.equal(askedBy(url), sheetsScope);
    assert.equal(new URL(url).searchParams.get('include_granted_scopes'), 'true');
    assert.equal((await browser.visit(await bench.consent(url))).status, 200);
    const now = await person.only();
    assert.deepEqual(now.scopesRequested, before.scopesRequested);
    for (const scope of [...(before.scopesGranted ?? []), sheetsScope]) {
      assert.ok(now.scopesGranted?.includes(scope), scope);
    }
    assert.equal((await eventsOf('connection.scopes_reduced')).length, 1);
  });

  test('a list is requested unchanged, and stays requested', async () => {
    const before = await person.connect();
    const drive = 'https://www.googleapis.com/auth/drive.file';
    const browser = bench.browser();
    const url = await browser.begin(await bench.reconnectSession(before.connectionId, { scopes: [drive] }));
    assert.equal(askedBy(url), drive);
    await browser.visit(await bench.consent(url));
    const now = await person.only();
    assert.deepEqual(now.scopesRequested, [...(before.scopesRequested ?? []), drive]);
    assert.ok(now.scopesGranted?.includes(drive) && now.scopesGranted.includes(sheetsScope));
  });

  test('a scope that is refused again is not reported again', async () => {
    const { connectionId } = await person.connect(withoutSheets);
    const token = await bench.reconnectSession(connectionId);
    assert.equal((await person.dance(token, withoutSheets)).status, 200);
    assert.equal((await eventsOf('connection.scopes_reduced')).length, 1);
  });

  test('all scopes are requested if none is missing, the grant is dead, or another account is allowed', async () => {
    const { connectionId, scopesRequested } = await person.connect();
    const asked = async (more: Record<string, unknown>) =>
      askedBy(await bench.browser().begin(await bench.reconnectSession(connectionId, more)));
    const all = scopesRequested?.join(' ');
    assert.equal(await asked({ scopes: 'missing' }), all);
    await bench.db.query("update connection set scopes_granted = '{openid}'");
    assert.equal(await asked({ scopes: 'missing' }), `email ${sheetsScope}`);
    assert.equal(await asked({ scopes: 'missing', require_same_account: false }), all);
    await suspend();
    assert.equal(await asked({ scopes: 'missing' }), all);
    await bench.db.query(
      "update connection set withheld = null, withheld_until = null, status = 'needs_reauth'",
    );
    assert.equal(await asked({ scopes: 'missing' }), all);
  });

  test('scopes that do not fit are refused by name', async () => {
    const { connectionId } = await person.connect();
    const cases: [body: Record<string, unknown>, path: string[]][] = [
      [{ scopes: [] }, ['scopes']],
      [{ scopes: 'all' }, ['scopes']],
      [{ scopes: ['openid', 'two words'] }, ['scopes', '1']],
      [
        { scopes: 'missing', integrations_config_defaults: { sheets: { user_scopes: 'openid' } } },
        ['scopes'],
      ],
    ];
    for (const [more, path] of cases) {
      const body = { connection_id: connectionId, integration_id: 'sheets', ...more };
      const answer = await bench.call('POST /connect/sessions/reconnect', body);
      assert.deepEqual([answer.status, answer.body.error?.code], [400, 'invalid_body'], JSON.stringify(more));
      assert.deepEqual(answer.body.error.errors[0].path, path);
    }
    const session = await bench.call('POST /connect/sessions', { tags: {}, scopes: 'missing' });
    assert.equal(session.status, 400);
  });
});

describe('another account', () => {
  test('is refused, and the page names the expected account', async () => {
    const before = await person.connect();
    const token = await bench.reconnectSession(before.connectionId);
    const answer = await person.dance(token, { account: 'grace@example.com' });
    assert.equal(answer.status, 400);
    assert.match(answer.text, /The connected account is a…@example\.com/);
    assert.deepEqual((await person.only()).credentials, before.credentials);
    const [failure] = await eventsOf('connection.connect_failed');
    assert.deepEqual([failure?.cause, failure?.connection_id], ['another_account', before.connectionId]);
  });

  test('that is refused has a token that counts all the same', async () => {
    const tokens = () =>
      bench.db.query<{ connection: number | null }>('select connection from issued_token order by id');
    const end_user = { id: 'u1', email: 'grace@example.com' };
    const { id } = await person.connect();
    const token = await bench.session({ end_user, require_same_account: true });
    assert.equal((await person.dance(token)).status, 400);
    assert.deepEqual(await tokens(), [{ connection: id }, { connection: null }]);
  });

  test('replaces the previous account if the session allows it', async () => {
    const before = await person.connect();
    const token = await bench.reconnectSession(before.connectionId, { require_same_account: false });
    const browser = bench.browser();
    const [choice] = (await bench.choices(token)).choices;
    assert.deepEqual(choice.account, { email: 'a…@example.com', rule: 'replaceable' });
    const url = await browser.begin(token);
    assert.equal(new URL(url).searchParams.get('login_hint'), null);
    const answer = await browser.visit(await bench.consent(url, { account: 'grace@example.com' }));
    assert.equal(answer.status, 200);
    assert.match(answer.text, /grace@example\.com.*in place of the one/);
    const now = await person.only();
    assert.equal(now.connectionId, before.connectionId);
    assert.equal(now.account?.email, 'grace@example.com');
  });

  test('never inherits the refresh token of the one before', async () => {
    const before = await person.connect();
    await bench.control('POST /faults', { case: 'no_refresh_token', account: 'grace@example.com', times: 2 });
    const token = await bench.reconnectSession(before.connectionId, { require_same_account: false });
    const browser = bench.browser();
    const again = await person.dance(token, { account: 'grace@example.com' }, browser);
    assert.equal(again.status, 302);
    const landed = await browser.visit(await bench.consent(again.location, { account: 'grace@example.com' }));
    assert.equal(landed.status, 200);
    const now = await person.only();
    assert.equal(now.account?.email, 'grace@example.com');
    assert.equal(now.credentials.refresh_token, undefined);
  });

  test("is refused beside the end user's if the session requires that", async () => {
    const end_user = { id: 'u1', email: 'ada@example.com' };
    const token = await bench.session({
      end_user,
      require_same_account: true,
      allowed_integrations: ['sheets'],
    });
    const [choice] = (await bench.choices(token)).choices;
    assert.deepEqual(choice.account, { email: 'ada@example.com', rule: 'end_user' });
    const answer = await person.dance(token, { account: 'grace@example.com' });
    assert.equal(answer.status, 400);
    assert.match(answer.text, /The account must be ada@example\.com/);
    assert.deepEqual(await bench.connections(), []);
  });
});

test('what a refresh and a change of tags store while a reconnect is saved is not lost', async () => {
  const before = await person.connect();
  await bench.control('POST /faults', { case: 'no_refresh_token', times: 1 });
  const browser = bench.browser();
  const token = await bench.reconnectSession(before.connectionId, { end_user: { id: 'u1' } });
  const callback = await bench.consent(await browser.begin(token));
  const { landed } = await bench.db.transaction(async (tx) => {
    await tx.query('select from connection where id = $1 for update', [before.id]);
    const answer = browser.visit(callback);
    while (!(await isSomebodyWaiting())) await pause(10);
    const credentials = { ...before.credentials, refresh_token: 'rotated' };
    assert.ok(await swapCredentials(tx, { current: before, credentials, grant: {}, at: new Date() }));
    await replaceSettings(tx, { connection: before, at: new Date(), tags: { plan: 'gold' } });
    return { landed: answer };
  });
  assert.equal((await landed).status, 200);
  const now = await person.only();
  assert.notEqual(now.credentials.access_token, before.credentials.access_token);
  assert.equal(now.credentials.refresh_token, 'rotated');
  assert.deepEqual(now.tags, { plan: 'gold', end_user_id: 'u1' });
});

describe('a session that is reopened for missing scopes', () => {
  const rest = (token: string) =>
    bench.call('POST /connect/session/rest', undefined, { authorization: `Bearer ${token}` });
  /** Another account takes the place, as one that nobody knows: there is nothing to compare with. */
  async function replace(connectionId: string) {
    const token = await bench.reconnectSession(connectionId, { require_same_account: false });
    await person.dance(token, { account: 'grace@example.com' });
    await bench.db.query('update connection set account_id = null, account_email = null');
    return person.only();
  }

  test('renews the connection that it has made, not one that has replaced it since', async () => {
    const browser = bench.browser();
    const token = await bench.session();
    assert.equal((await person.dance(token, withoutSheets, browser)).status, 200);
    const { connectionId } = await person.only();
    assert.equal((await rest(token)).status, 204);
    const callback = await bench.consent(await browser.begin(token));
    const { credentials } = await replace(connectionId);
    assert.equal((await browser.visit(callback)).status, 400);
    assert.equal((await browser.visit(`/oauth/connect/sheets?connect_session_token=${token}`)).status, 400);
    assert.deepEqual((await person.only()).credentials, credentials);
  });

  test('is not opened for a connection that has replaced its own', async () => {
    const token = await bench.session();
    await person.dance(token, withoutSheets);
    await replace((await person.only()).connectionId);
    const { status, body } = await rest(token);
    assert.deepEqual([status, body.error?.code], [401, 'unknown_connect_session_token']);
    await bench.db.query("update connect_session set outcome = outcome - 'grant'");
    assert.equal((await rest(token)).status, 401);
  });

  test('continues if a service of an earlier version, which stored no grant, has opened it', async () => {
    const browser = bench.browser();
    const token = await bench.session();
    await person.dance(token, withoutSheets, browser);
    await bench.db.query("update connect_session set outcome = outcome - 'grant'");
    assert.equal((await rest(token)).status, 204);
    assert.equal((await person.dance(token, {}, browser)).status, 200);
    assert.ok((await person.only()).scopesGranted?.includes(sheetsScope));
  });
});

describe('tags of the end user', () => {
  const ada = { id: 'ada', email: 'ada@example.com', display_name: 'Ada' };
  async function tagsAfter(more: Record<string, unknown>) {
    await person.dance(
      await bench.session({ end_user: ada, organization: { id: 'o1' }, tags: { plan: 'gold' } }),
    );
    const { connectionId } = await person.only();
    await person.dance(await bench.reconnectSession(connectionId, more));
    return (await person.only()).tags;
  }

  test('go with him when another one renews the connection; those that were set stay', async () => {
    assert.deepEqual(await tagsAfter({ end_user: { id: 'bob', display_name: 'Bob' } }), {
      plan: 'gold',
      end_user_id: 'bob',
      end_user_display_name: 'Bob',
    });
  });

  test('are kept if a renewal has no end user', async () => {
    assert.deepEqual(await tagsAfter({ tags: { team: 'x' } }), {
      plan: 'gold',
      team: 'x',
      organization_id: 'o1',
      end_user_id: 'ada',
      end_user_email: 'ada@example.com',
      end_user_display_name: 'Ada',
    });
  });
});

const suspend = () =>
  bench.db.query("update connection set withheld = '{}', withheld_until = now() + interval '1 hour'");
const isSomebodyWaiting = async () =>
  (
    await bench.db.query(
      "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    )
  ).length > 0;

test('a page that renews names the user of the connection where the session names none', async () => {
  const end_user = { id: 'u1', display_name: 'Ada Lovelace' };
  await person.dance(await bench.session({ end_user }));
  const { connectionId } = await person.only();
  const choices = await bench.choices(await bench.reconnectSession(connectionId));
  assert.deepEqual(
    [choices.reconnect, choices.end_user.name, choices.choices[0].account],
    [true, 'Ada Lovelace', { email: 'a…@example.com', rule: 'same' }],
  );
});

describe('no refresh token', () => {
  test('and none stored: the browser is sent once more, with consent and the account that was chosen', async () => {
    await bench.control('POST /faults', { case: 'no_refresh_token', times: 1 });
    const browser = bench.browser();
    const first = await person.dance(await bench.session(), {}, browser);
    assert.equal(first.status, 302);
    assert.deepEqual(await bench.connections(), []);
    const params = new URL(first.location).searchParams;
    assert.deepEqual([params.get('prompt'), params.get('login_hint')], ['consent', 'ada@example.com']);
    assert.equal((await browser.visit(await bench.consent(first.location))).status, 200);
    assert.ok((await person.only()).credentials.refresh_token);
    assert.deepEqual(await bench.events(), ['connection.created']);
  });

  const uses = {
    dead: () => bench.db.query("update connection set status = 'needs_reauth'"),
    'one that the client may not use': () => suspend(),
  };
  for (const [what, make] of Object.entries(uses)) {
    test(`also where the stored one is known to be ${what}`, async () => {
      const before = await person.connect();
      await make();
      await bench.control('POST /faults', { case: 'no_refresh_token', times: 1 });
      const browser = bench.browser();
      const again = await person.dance(await bench.reconnectSession(before.connectionId), {}, browser);
      assert.equal(again.status, 302);
      await browser.visit(await bench.consent(again.location));
      const now = await person.only();
      assert.ok(now.credentials.refresh_token);
      assert.notEqual(now.credentials.refresh_token, before.credentials.refresh_token);
      assert.equal(now.suspension, undefined);
    });
  }

  test('twice: the connection is made without one, and the user is not sent again', async () => {
    await bench.control('POST /faults', { case: 'no_refresh_token', times: 2 });
    const browser = bench.browser();
    const again = await person.dance(await bench.session(), {}, browser);
    assert.equal((await browser.visit(await bench.consent(again.location))).status, 200);
    assert.equal((await person.only()).credentials.refresh_token, undefined);
  });
});
