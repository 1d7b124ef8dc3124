import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';
import { codeOf, failureSteps, type Subject } from './failure-subject.ts';

/** The cases of failure that take steps of their own; the others are in `failure-cases.test.ts`. */
const sheetsScope = 'https://www.googleapis.com/auth/spreadsheets';

let trellis: TestTrellis;
let steps: ReturnType<typeof failureSteps>;
before(async () => {
  trellis = await openTrellis();
  steps = failureSteps(trellis);
});
after(() => trellis.close());

const credentialsOf = async (subject: Subject) =>
  (await trellis.call('GET', `${steps.at(subject)}&refresh_token=true`)).body.credentials as Record<
    string,
    string
  >;
const valuesOf = async (subject: Subject) => (await steps.read(subject)).body.values;
/** The call that the health of a connection offers. */
const repairOf = async (subject: Subject) =>
  (await steps.healthOf(subject)).reconnect as { path: string; body: Record<string, unknown> };
const reconnecting = (subject: Subject) => ({
  path: '/connect/sessions/reconnect',
  body: { integration_id: subject.integration, connection_id: subject.connectionId },
});

describe('connecting', () => {
  test('1: a user who declines leaves the connection unchanged', async () => {
    const subject = await steps.subject();
    const before = await credentialsOf(subject);
    const landed = await steps.walk(reconnecting(subject), { ...subject, deny: true });
    assert.equal(landed.status, 400);
    assert.match(landed.text, /Access was denied/);
    assert.deepEqual(await steps.typesOf(subject), ['connection.connect_failed']);
    assert.deepEqual(await credentialsOf(subject), before);
    assert.equal((await steps.healthOf(subject)).cause, null);
  });

  test('3: a scope that was not ticked is named, and connecting again is offered', async () => {
    const subject = await steps.subject({ allow: ['openid', 'email'] });
    const health = await steps.healthOf(subject);
    assert.deepEqual(
      [health.status, health.kind, health.cause, health.missing_scopes],
      ['active', 'connection', 'scopes_missing', [sheetsScope]],
    );
    assert.ok(health.reconnect);
    for (let turn = 0; turn < 3; turn += 1) {
      assert.deepEqual(codeOf(await steps.read(subject)), [403, null]);
    }
    assert.deepEqual(await steps.typesOf(subject), ['connection.scopes_reduced']);
    assert.equal((await steps.walk(await repairOf(subject), subject)).status, 200);
    assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
    assert.deepEqual((await steps.healthOf(subject)).missing_scopes, []);
  });

  test('7: what `reconnect` holds, sent as it is, brings a dead connection back', async () => {
    const subject = await steps.subject();
    await trellis.control('POST', 'revoke', { account: subject.account });
    await steps.expire(subject);
    assert.deepEqual(codeOf(await steps.read(subject)), [424, 'connection_needs_reauth']);
    assert.equal((await steps.walk(await repairOf(subject), subject)).status, 200);
    assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
    const { status, cause, reconnect } = await steps.healthOf(subject);
    assert.deepEqual({ status, cause, reconnect }, { status: 'active', cause: null, reconnect: null });
    assert.deepEqual(await steps.typesOf(subject), ['connection.needs_reauth']);
  });

  test('5: another account is refused, and the connection stays as it was', async () => {
    const subject = await steps.subject();
    const before = await credentialsOf(subject);
    const account = await steps.makeAccount();
    const landed = await steps.walk(reconnecting(subject), { ...subject, account });
    assert.equal(landed.status, 400);
    assert.match(landed.text, /another account/i);
    assert.deepEqual(await steps.typesOf(subject), ['connection.connect_failed']);
    assert.deepEqual(await credentialsOf(subject), before);
    assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
  });

  test('26: a token lifetime that is tiny, absent or a text is accepted within limits', async () => {
    const lives = [
      ['token_expires_in_tiny', 5],
      ['token_expires_in_absent', 3600],
      ['token_expires_in_string', 3599],
    ] as const;
    for (const [fault, seconds] of lives) {
      const begun = Date.now();
      const subject = await steps.subject({ fault });
      const { expires_at } = await trellis.db
        .query<{ access_expires_at: Date }>(
          'select access_expires_at from connection where connection_id = $1',
          [subject.connectionId],
        )
        .then(([row]) => ({ expires_at: row!.access_expires_at.getTime() }));
      assert.ok(expires_at >= begun + seconds * 1000 - 1000, fault);
      assert.ok(expires_at <= Date.now() + seconds * 1000, fault);
      await steps.heal(subject);
      assert.deepEqual(codeOf(await steps.read(subject)), [200, null], fault);
      assert.deepEqual(await steps.typesOf(subject), []);
    }
  });
});

describe('refreshing', () => {
  test('13: fewer scopes than before are reported once', async () => {
    const subject = await steps.subject();
    await steps.fault('refresh_fewer_scopes', subject);
    for (let turn = 0; turn < 3; turn += 1) {
      await steps.expire(subject);
      assert.deepEqual(codeOf(await steps.read(subject)), [403, null]);
    }
    assert.deepEqual(await steps.typesOf(subject), ['connection.scopes_reduced']);
    const health = await steps.healthOf(subject);
    assert.deepEqual([health.status, health.cause], ['active', 'scopes_missing']);
    assert.deepEqual(health.missing_scopes, [sheetsScope]);
  });

  test('14: a new refresh token is kept, and the next refresh works with it', async () => {
    const subject = await steps.subject();
    const seen = new Set([(await credentialsOf(subject)).refresh_token]);
    await steps.fault('refresh_rotates', subject);
    for (let turn = 0; turn < 3; turn += 1) {
      await steps.expire(subject);
      assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
      seen.add((await credentialsOf(subject)).refresh_token);
    }
    assert.equal(seen.size, 4);
    assert.deepEqual(await steps.typesOf(subject), []);
  });

  test('15: twenty calls at the moment of expiry are one refresh', async () => {
    const subject = await steps.subject();
    await steps.expire(subject);
    const before = await steps.calls('POST /token');
    const answers = await Promise.all(Array.from({ length: 20 }, () => steps.read(subject)));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    assert.equal((await steps.calls('POST /token')) - before, 1);
  });

  test('11: a client that is accepted again is reported once, and all connections continue', async () => {
    const subject = await steps.subject();
    await steps.expire(subject);
    await steps.fault('token_wrong_secret', subject);
    const before = await steps.calls('POST /token');
    for (let turn = 0; turn < 5; turn += 1) {
      assert.deepEqual(codeOf(await steps.read(subject)), [424, 'integration_misconfigured']);
    }
    assert.equal((await steps.calls('POST /token')) - before, 1, 'the others wait for a probe');
    const shown = await trellis.call('GET', `/integrations/${subject.integration}`);
    assert.equal((shown.body.data as { fault: { cause: string } }).fault.cause, 'client_refused');
    await steps.heal(subject);
    await trellis.db.query("update integration set probe_at = now() - interval '1 second' where key = $1", [
      subject.integration,
    ]);
    assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
    assert.deepEqual(await steps.typesOf(subject), ['integration.misconfigured', 'integration.recovered']);
    const after = await trellis.call('GET', `/integrations/${subject.integration}`);
    assert.equal((after.body.data as { fault: unknown }).fault, null);
  });
});

describe('a client that may not use one token', () => {
  test('11: is reported for that connection alone, while the others of the integration continue', async () => {
    const subject = await steps.subject();
    const account = await steps.makeAccount();
    const other = {
      ...subject,
      account,
      ...(await connect(trellis, { account, integration: subject.integration })),
    };
    await steps.expire(subject);
    await steps.fault('token_unauthorized_client', subject);
    const before = await steps.calls('POST /token');
    for (let turn = 0; turn < 5; turn += 1) {
      assert.deepEqual(codeOf(await steps.read(subject)), [424, 'integration_misconfigured']);
    }
    const asked = await trellis.call('GET', steps.at(subject));
    assert.deepEqual(
      [asked.status, (asked.body.error as { code: string }).code],
      [424, 'integration_misconfigured'],
    );
    assert.equal((await steps.calls('POST /token')) - before, 1);
    await steps.expire(other);
    // The sheet is another account's: this is the API's own answer, with a token that was refreshed.
    assert.deepEqual(codeOf(await steps.read(other)), [403, null]);
    assert.equal((await steps.calls('POST /token')) - before, 2);
    assert.equal((await steps.healthOf(other)).cause, null);
    const shown = async () => {
      const { body } = await trellis.call('GET', `/integrations/${subject.integration}`);
      return (body.data as { fault: { cause: string } | null }).fault?.cause ?? null;
    };
    assert.equal(await shown(), 'client_not_allowed');
    assert.deepEqual(await steps.typesOf(subject), ['integration.misconfigured']);
    await steps.heal(subject);
    const refreshed = await trellis.call('POST', steps.at(subject, '/refresh'));
    assert.deepEqual([refreshed.status, refreshed.body.cause], [200, null]);
    assert.equal(await shown(), null);
    assert.deepEqual(await steps.typesOf(subject), ['integration.misconfigured', 'integration.recovered']);
  });
});

describe('an API', () => {
  test('21: that is enabled again is reported once', async () => {
    const subject = await steps.subject();
    await steps.fault('api_service_disabled', subject);
    await steps.read(subject);
    await steps.settledEvents(subject, 1);
    await steps.heal(subject);
    for (let turn = 0; turn < 3; turn += 1) {
      assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
    }
    const types = (await steps.settledEvents(subject, 2)).map(({ type }) => type);
    assert.deepEqual(types, ['integration.misconfigured', 'integration.recovered']);
    assert.equal((await steps.healthOf(subject)).cause, null);
  });

  test('23: an append whose response is lost is sent once, and its outcome is reported as unknown', async () => {
    const subject = await steps.subject();
    await steps.fault('api_reset_after', subject, { times: 1 });
    assert.deepEqual(codeOf(await steps.append(subject)), [502, 'upstream_unknown_outcome']);
    assert.deepEqual(await valuesOf(subject), [['id'], ['a'], ['b'], ['c']]);
    assert.deepEqual(await steps.typesOf(subject), []);
  });

  test('24: half of an answer is never taken for a whole one', async () => {
    const subject = await steps.subject();
    await steps.fault('api_truncated', subject, { times: 1 });
    await assert.rejects(steps.read(subject));
    assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
    assert.deepEqual(await steps.typesOf(subject), []);
  });
});

describe('the end', () => {
  test('16: a revocation that fails, or has been done, does not keep a connection from being deleted', async () => {
    for (const fault of ['revoke_503', 'revoke_invalid_token'] as const) {
      const subject = await steps.subject();
      await steps.fault(fault, subject);
      assert.equal((await trellis.call('DELETE', steps.at(subject))).status, 200, fault);
      assert.deepEqual(await steps.typesOf(subject), ['connection.deleted']);
      assert.equal((await trellis.call('GET', steps.at(subject))).status, 404);
    }
  });

  test('27: a security event ends the connections of the account, once; a forged one nothing', async () => {
    const subject = await steps.subject();
    const event = {
      account: subject.account,
      type: 'sessions-revoked',
      receiver: `${trellis.baseUrl}/webhook/dev/${subject.integration}`,
    };
    const send = (more: Record<string, unknown> = {}) =>
      trellis.control('POST', 'security-events', { ...event, ...more });
    assert.equal((await send({ fake_signature: true })).status, 400);
    assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
    for (let turn = 0; turn < 3; turn += 1) assert.equal((await send({ jti: 'same' })).status, 202);
    assert.deepEqual(codeOf(await steps.read(subject)), [424, 'connection_needs_reauth']);
    const [ended, ...more] = await steps.eventsOf(subject);
    assert.deepEqual([ended?.type, ended?.data.cause], ['connection.needs_reauth', 'security_event']);
    assert.deepEqual(more, []);
    assert.equal((await steps.healthOf(subject)).cause, 'security_event');
  });
});

// Last, because these move the clock.
describe('time', () => {
  test('2: an error page of the provider, from which the user does not return, is reported once the session is over', async () => {
    const subject = await steps.subject();
    const before = await credentialsOf(subject);
    const pages = ['error_page', 'error_page_org_internal', 'error_page_untested_user'] as const;
    for (const fault of pages) {
      await steps.fault(fault, subject, { times: 1 });
      await assert.rejects(steps.walk(reconnecting(subject), subject), /error page/);
    }
    await trellis.runJob('connect.sweep');
    assert.deepEqual(await steps.typesOf(subject), []);
    await trellis.advance(31 * 60);
    for (let turn = 0; turn < 3; turn += 1) await trellis.runJob('connect.sweep');
    assert.deepEqual(
      await steps.typesOf(subject),
      pages.map(() => 'connection.connect_abandoned'),
    );
    assert.deepEqual(await credentialsOf(subject), before);
    assert.equal((await steps.healthOf(subject)).cause, null);
  });

  test('8: the end of a grant in Testing is reported two days before, and in its health from the start', async () => {
    const subject = await steps.subject({ fault: 'testing_mode' });
    const [warning] = (await steps.healthOf(subject)).warnings as { code: string; next_step: string }[];
    assert.equal(warning?.code, 'testing_expiry');
    assert.match(warning.next_step, /Publish the application/);
    await trellis.advance(4.9 * 86_400);
    await trellis.runJob('connections.expiry');
    assert.deepEqual(await steps.typesOf(subject), []);
    await trellis.advance(0.2 * 86_400);
    for (let turn = 0; turn < 3; turn += 1) await trellis.runJob('connections.expiry');
    assert.deepEqual(await steps.typesOf(subject), ['connection.expiring']);
    assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
    await trellis.advance(2 * 86_400);
    for (let turn = 0; turn < 3; turn += 1) {
      assert.deepEqual(codeOf(await steps.read(subject)), [424, 'connection_needs_reauth']);
    }
    const types = await steps.typesOf(subject);
    assert.deepEqual(types, ['connection.expiring', 'connection.needs_reauth']);
    assert.equal((await steps.healthOf(subject)).cause, 'testing_expired');
  });
});
