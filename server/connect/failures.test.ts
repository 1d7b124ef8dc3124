import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { takeAttempt } from './attempts.ts';
import { type ConnectBench, openConnectBench } from './connect.fixture.ts';

let bench: ConnectBench;
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());
beforeEach(async () => {
  for (const table of ['event', 'connection', 'connect_session'])
    await bench.db.query(`delete from ${table}`);
  await bench.db.query('update integration set fault = null, probe_at = null');
});

const events = () =>
  bench.db.query<{ type: string; data: Record<string, unknown> }>(
    'select type, data from event order by created_at',
  );
const user = { end_user: { id: 'u1', email: 'u1@example.com' }, tags: { plan: 'gold' } };

describe('a trip that fails', () => {
  test('is reported with its cause, its end user and the next step', async () => {
    const browser = bench.browser();
    const callback = await bench.consent(await browser.begin(await bench.session(user)), { deny: true });
    await browser.visit(callback);
    await browser.visit(callback);
    const [reported, ...more] = await events();
    assert.deepEqual(more, []);
    assert.equal(reported?.type, 'connection.connect_failed');
    const { begun_at, next_step, ...data } = reported.data;
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
        (await events())
          .filter(({ type }) => type !== 'integration.misconfigured')
          .map(({ type, data }) => [type, data.cause]),
        [['connection.connect_failed', cause]],
      );
      assert.deepEqual(await bench.connections(), []);
    });
  }

  test('over a refused client is a fault of the integration, until the provider takes a code of it', async () => {
    const browser = bench.browser();
    const connect = async () =>
      (await browser.visit(await bench.consent(await browser.begin(await bench.session())))).status;
    const reported = async () =>
      (await events()).map(({ type }) => type).filter((type) => /^integ/.test(type));
    await bench.control('POST /faults', { case: 'token_wrong_secret', times: 2 });
    assert.deepEqual([await connect(), await connect()], [400, 400]);
    assert.deepEqual(await reported(), ['integration.misconfigured']);
    assert.equal(await connect(), 200);
    assert.deepEqual(await reported(), ['integration.misconfigured', 'integration.recovered']);
  });

  test('a callback in another browser is reported once, and its state cannot be used again', async () => {
    const browser = bench.browser();
    const callback = await bench.consent(await browser.begin(await bench.session(user)));
    assert.equal((await bench.browser().visit(callback)).status, 400);
    assert.equal((await browser.visit(callback)).status, 400);
    await bench.advance(2 * 3600);
    await bench.sweep();
    const [reported, ...more] = await events();
    assert.deepEqual(
      [reported?.type, reported?.data.cause],
      ['connection.connect_failed', 'another_browser'],
    );
    assert.deepEqual(reported?.data.end_user, { id: 'u1' });
    assert.deepEqual(more, []);
  });

  test('an unexpected failure is reported with its code', async () => {
    const browser = bench.browser();
    await browser.visit(await bench.consent(await browser.begin(await bench.session())));
    const [made] = await bench.connections();
    const callback = await bench.consent(
      await browser.begin(await bench.reconnectSession(made?.connection_id ?? '')),
    );
    await bench.db.query('update connection set data_key = null, credentials = null, deleted_at = now()');
    assert.equal((await browser.visit(callback)).status, 400);
    const [, reported, ...more] = await events();
    assert.deepEqual(
      [reported?.type, reported?.data.cause, reported?.data.evidence],
      ['connection.connect_failed', 'not_completed', { error: 'unknown_connection' }],
    );
    assert.deepEqual(more, []);
  });

  test('a declined consent is no warning in the log, and any other failure is', async () => {
    const browser = bench.browser();
    const logOf = async (callback: string) => {
      bench.logged.length = 0;
      await browser.visit(callback);
      const lines = bench.logged.map((line) => JSON.parse(line) as Record<string, unknown>);
      return lines.filter(({ step }) => step !== undefined).map(({ level, step }) => [level, step]);
    };
    const no = await bench.consent(await browser.begin(await bench.session()), { deny: true });
    assert.deepEqual(await logOf(no), [[30, 'callback']]);
    await bench.control('POST /faults', { case: 'token_wrong_secret', times: 1 });
    const wrong = await bench.consent(await browser.begin(await bench.session()));
    assert.deepEqual(await logOf(wrong), [[40, 'exchange']]);
  });

  test('an unknown state is not reported', async () => {
    const browser = bench.browser();
    await browser.visit('/oauth/callback?state=x&error=access_denied');
    assert.deepEqual(await events(), []);
  });
});

describe('a trip that never comes back', () => {
  test('is reported once, when its session is over', async () => {
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
    const [reported, ...more] = await events();
    assert.deepEqual(more, []);
    assert.deepEqual(
      [reported?.type, reported?.data.cause],
      ['connection.connect_abandoned', 'nothing_came_back'],
    );
    assert.deepEqual(reported?.data.end_user, { id: 'u1' });
    assert.match(String(reported?.data.next_step), /redirect URI not registered/);
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

  test('is also reported when it came back and its node was killed, and its state cannot be used again', async () => {
    const browser = bench.browser();
    const callback = await bench.consent(await browser.begin(await bench.session(user)));
    const state = new URL(callback).searchParams.get('state') ?? '';
    const of = { vault: bench.reading.vault, now: bench.now(), state, secrets: browser.secrets };
    assert.equal((await takeAttempt(bench.db, of)).kind, 'taken');
    assert.equal((await takeAttempt(bench.db, of)).kind, 'unknown');
    assert.equal((await browser.visit(callback)).status, 400);
    await bench.advance(40 * 60);
    await bench.sweep();
    await bench.sweep();
    const [reported, ...more] = await events();
    assert.deepEqual([reported?.type, reported?.data.cause], ['connection.connect_abandoned', 'cut_off']);
    assert.deepEqual(more, []);
  });

  test('that is being completed is not reported when its session ends meanwhile', async () => {
    const browser = bench.browser();
    const callback = await bench.consent(await browser.begin(await bench.session(user)));
    await bench.advance(29 * 60);
    const state = new URL(callback).searchParams.get('state') ?? '';
    const of = { vault: bench.reading.vault, now: bench.now(), state, secrets: browser.secrets };
    await takeAttempt(bench.db, of);
    await bench.advance(2 * 60);
    await bench.sweep();
    assert.deepEqual(await events(), []);
  });

  test('is reported although the settings of another session cannot be opened, and both sessions are removed', async () => {
    await bench.browser().begin(await bench.session(user));
    await bench.db.query("update connect_session set settings = '\\x00'");
    await bench.advance(60);
    await bench.browser().begin(await bench.session(user));
    for (let hours = 0; hours < 2; hours += 1) {
      await bench.advance(3600);
      await bench.sweep();
    }
    assert.deepEqual(await bench.events(), ['connection.connect_abandoned']);
    assert.deepEqual(await bench.db.query('select 1 from connect_session'), []);
  });

  test('is also reported when the user comes back too late', async () => {
    const browser = bench.browser();
    const url = await browser.begin(await bench.session(user));
    await bench.advance(31 * 60);
    assert.equal((await browser.visit(await bench.consent(url))).status, 400);
    await bench.sweep();
    assert.deepEqual(await bench.events(), ['connection.connect_abandoned']);
  });

  test('is not reported for a session that was not begun, was declined or was ended', async () => {
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

  test('is under way for the page until it comes back', async () => {
    const browser = bench.browser();
    const token = await bench.session({ ...user, allowed_integrations: ['sheets'] });
    const underWay = async () => (await bench.progress(token)).under_way;
    assert.equal(await underWay(), false);
    const url = await browser.begin(token);
    assert.equal(await underWay(), true);
    await browser.visit(await bench.consent(url, { deny: true }));
    assert.equal(await underWay(), false);
  });

  test('hides no failure of a later trip, where its own window was closed', async () => {
    const browser = bench.browser();
    const token = await bench.session({ ...user, allowed_integrations: ['sheets'] });
    await browser.begin(token);
    await browser.visit(await bench.consent(await browser.begin(token), { deny: true }));
    const refused = await bench.progress(token);
    assert.deepEqual([refused.under_way, refused.failure?.cause], [false, 'access_denied']);
    await browser.begin(token);
    const again = await bench.progress(token);
    assert.deepEqual([again.under_way, again.failure], [true, null]);
  });

  test('is under way when its session has ended, until it comes back or cannot any more', async () => {
    const late = async () => {
      const token = await bench.session({ ...user, allowed_integrations: ['sheets'] });
      const browser = bench.browser();
      await bench.advance(20 * 60);
      const url = await browser.begin(token);
      await bench.advance(11 * 60);
      const { state, under_way } = await bench.progress(token);
      assert.deepEqual([state, under_way], ['expired', true]);
      return { token, browser, url };
    };
    const back = await late();
    assert.equal((await back.browser.visit(await bench.consent(back.url))).status, 200);
    const made = await bench.progress(back.token);
    assert.deepEqual([made.state, made.under_way], ['connected', false]);
    const gone = await late();
    await bench.advance(20 * 60);
    const { state, under_way } = await bench.progress(gone.token);
    assert.deepEqual([state, under_way], ['expired', false]);
  });

  test('is under way while its tokens are requested', async () => {
    const token = await bench.session({ ...user, allowed_integrations: ['sheets'] });
    await bench.browser().begin(token);
    await bench.db.query('update auth_attempt set taken_at = $1', [bench.now()]);
    assert.equal((await bench.progress(token)).under_way, true);
    await bench.advance(6 * 60);
    assert.equal((await bench.progress(token)).under_way, false, 'it was cut off');
  });
});
