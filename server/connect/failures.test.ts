import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type ConnectBench, openConnectBench } from './connect.fixture.ts';

let bench: ConnectBench;
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());
beforeEach(async () => {
  for (const table of ['event', 'connection', 'connect_session'])
    await bench.db.query(`delete from ${table}`);
});

const events = () =>
  bench.db.query<{ type: string; data: Record<string, unknown> }>(
    'select type, data from event order by created_at',
  );
const user = { end_user: { id: 'u1', email: 'u1@example.com' }, tags: { plan: 'gold' } };

describe('a trip that fails', () => {
  test('is told with its cause, whom it was for, and what to do', async () => {
    const browser = bench.browser();
    const callback = await bench.consent(await browser.begin(await bench.session(user)), { deny: true });
    await browser.visit(callback);
    await browser.visit(callback);
    const [told, ...more] = await events();
    assert.deepEqual(more, []);
    assert.equal(told?.type, 'connection.connect_failed');
    const { begun_at, next_step, ...data } = told.data;
    assert.deepEqual(data, {
      connection_id: null,
      provider_config_key: 'sheets',
      provider: 'google-sheet',
      test: true,
      tags: { end_user_id: 'u1', end_user_email: 'u1@example.com', plan: 'gold' },
      end_user: { id: 'u1' },
      cause: 'access_denied',
      evidence: { error: 'access_denied' },
    });
    assert.ok(!Number.isNaN(Date.parse(String(begun_at))));
    assert.match(String(next_step), /did not allow access/);
  });

  const faults: [string, string][] = [
    ['token_wrong_secret', 'client_refused'],
    ['token_503', 'provider_not_answering'],
    ['token_html_403', 'provider_not_answering'],
    ['wrong_iss', 'unexpected_answer'],
  ];
  for (const [name, cause] of faults) {
    test(`${name} is ${cause}`, async () => {
      await bench.control('POST /faults', { case: name, times: 1 });
      const browser = bench.browser();
      const answer = await browser.visit(await bench.consent(await browser.begin(await bench.session())));
      assert.equal(answer.status, 400);
      assert.deepEqual(
        (await events()).map(({ type, data }) => [type, data.cause]),
        [['connection.connect_failed', cause]],
      );
      assert.deepEqual(await bench.connections(), []);
    });
  }

  test('nobody is told of a state that is not waited for', async () => {
    const browser = bench.browser();
    const callback = await bench.consent(await browser.begin(await bench.session()));
    await bench.browser().visit(callback);
    await browser.visit(callback);
    await browser.visit('/oauth/callback?state=x&error=access_denied');
    assert.deepEqual(await events(), []);
  });
});

describe('a trip that never comes back', () => {
  test('is told once, when its session is over', async () => {
    const token = await bench.session(user);
    await bench.control('POST /faults', { case: 'error_page_org_internal', times: 1 });
    const page = await fetch(await bench.browser().begin(token));
    assert.equal(page.status, 403);
    assert.match(await page.text(), /organization/);
    await bench.advance(29 * 60);
    await bench.sweep();
    assert.deepEqual(await events(), []);
    await bench.advance(2 * 60);
    await Promise.all(Array.from({ length: 20 }, () => bench.sweep()));
    await bench.sweep();
    const [told, ...more] = await events();
    assert.deepEqual(more, []);
    assert.deepEqual([told?.type, told?.data.cause], ['connection.connect_abandoned', 'nothing_came_back']);
    assert.deepEqual(told?.data.end_user, { id: 'u1' });
    assert.match(String(told?.data.next_step), /redirect address not registered/);
  });

  test('waits for the last trip of the session', async () => {
    const browser = bench.browser();
    const token = await bench.session(user);
    await browser.begin(token);
    await bench.advance(25 * 60);
    const url = await browser.begin(token);
    await bench.advance(10 * 60);
    await bench.sweep();
    assert.deepEqual(await events(), []);
    assert.equal((await browser.visit(await bench.consent(url))).status, 200);
    await bench.advance(60 * 60);
    await bench.sweep();
    assert.deepEqual(await bench.events(), ['connection.created']);
    assert.deepEqual(await bench.db.query('select 1 from auth_attempt'), []);
    assert.deepEqual(await bench.db.query('select 1 from connect_session'), []);
  });

  test('is told of, too, when somebody comes back too late', async () => {
    const browser = bench.browser();
    const url = await browser.begin(await bench.session(user));
    await bench.advance(31 * 60);
    assert.equal((await browser.visit(await bench.consent(url))).status, 400);
    await bench.sweep();
    assert.deepEqual(await bench.events(), ['connection.connect_abandoned']);
  });

  test('is not made up: nobody began, somebody was refused, or the session was ended', async () => {
    await bench.session(user);
    const browser = bench.browser();
    await browser.visit(await bench.consent(await browser.begin(await bench.session(user)), { deny: true }));
    const ended = await bench.session(user);
    await bench.browser().begin(ended);
    await bench.call('DELETE /connect/session', undefined, { authorization: `Bearer ${ended}` });
    await bench.advance(2 * 3600);
    await bench.sweep();
    assert.deepEqual(await bench.events(), ['connection.connect_failed']);
  });

  test('shows its hints to whoever comes back to the page without an answer', async () => {
    const browser = bench.browser();
    const token = await bench.session({ ...user, allowed_integrations: ['sheets'] });
    const page = () => browser.visit(`/connect/?session_token=${token}`);
    assert.match((await page()).text, /<details id="hints">/);
    await browser.begin(token);
    const { text } = await page();
    assert.match(text, /nothing has come back yet/);
    assert.match(text, /<details id="hints" open>/);
  });
});
