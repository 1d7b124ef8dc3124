import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, beforeEach, describe, test } from 'node:test';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import type { TokenFault } from '../../auth-modes/token-fault.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import type { AppError } from '../../errors.ts';
import { apiFault, recordFault } from '../../integrations/fault.ts';
import { createIntegration, getIntegration, updateIntegration } from '../../integrations/store.ts';
import { createLog } from '../../log.ts';
import { openVault } from '../../vault.ts';
import { listConnections } from '../store/list.ts';
import { createConnectionReader, type LiveConnection, placeOf } from '../store/reader.ts';
import { insertConnection, replaceCredentials } from '../store/save.ts';
import { findHeadForUpdate, holdConnection } from '../store/store.ts';
import { type HealthWire, healthToWire } from './health.ts';
import { createStatusTransitions, endConnection, type StatusTransitions } from './status-transitions.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const reading = { vault, catalog, testClient: undefined };
const token = { type: 'OAUTH2', access_token: 'access', refresh_token: 'refresh', raw: {} } as const;
const dead: TokenFault = { kind: 'dead_grant', error: 'invalid_grant', httpStatus: 400 };
const outage: TokenFault = { kind: 'transient', error: 'server_error', httpStatus: 503, retryAfterMs: 7000 };
const refusedClient: TokenFault = { kind: 'client_misconfigured', error: 'invalid_client', httpStatus: 401 };

let database: TestDatabase;
let environmentId: number;
let time = new Date('2026-11-21T12:00:00Z');
let reader: ReturnType<typeof createConnectionReader>;
let transitions: StatusTransitions;
let one: LiveConnection;
let other: LiveConnection;
let made = 0;
before(async () => {
  database = await openTestDatabase();
  const { db } = database;
  environmentId = (await ensureEnvironment(db, { name: 'dev', vault })).environment.id;
  reader = createConnectionReader({ db, reading });
  const log = createLog({ level: 'silent', format: 'json' });
  transitions = createStatusTransitions({ db, log, reader, now: () => time });
});
after(() => database.drop());
beforeEach(async () => {
  made += 1;
  const integration = await createIntegration(database.db, {
    ...reading,
    environmentId,
    key: `sheets-${made}`,
    provider: 'google-sheet',
    client: { clientId: 'id', clientSecret: 'secret' },
  });
  const make = async () => {
    const grant = { scopesRequested: ['openid'], scopesGranted: ['openid'] };
    return reader.get(
      placeOf(
        await insertConnection(database.db, { vault, integration, credentials: token, grant, at: time }),
      ),
    );
  };
  [one, other] = [await make(), await make()];
});

const reread = (connection = one) => reader.reread(connection);
const healthOf = async (connection = one) => {
  const current = await reread(connection);
  return healthToWire(current, current.integration.provider);
};
const recovered = (connection = one) =>
  database.db.transaction((tx) => transitions.recovered(tx, connection));
const events = async () =>
  (
    await database.db.query<{ type: string; data: Record<string, unknown> }>(
      `select type, data from event where data->>'provider_config_key' = $1 order by created_at`,
      [one.integrationKey],
    )
  ).map(({ type, data }) => ({ type, ...data }) as Record<string, unknown> & { type: string });
const types = async () => (await events()).map(({ type }) => type);
const refused = async (connection: LiveConnection, fault: TokenFault): Promise<AppError> => {
  const reported = await transitions.refused(connection, fault);
  assert.ok(reported, 'the credentials are still those that were refused');
  return reported;
};
const advance = (seconds: number) => {
  time = new Date(time.getTime() + seconds * 1000);
};

describe('a connection', () => {
  test('that is refused for twenty callers at once changes once, and every caller gets the cause', async () => {
    const reported = await Promise.all(Array.from({ length: 20 }, () => refused(one, dead)));
    assert.deepEqual([...new Set(reported.map(({ code }) => code))], ['connection_needs_reauth']);
    const [event, ...more] = await events();
    assert.deepEqual(more, []);
    assert.equal(event?.type, 'connection.needs_reauth');
    assert.equal(event?.cause, 'grant_dead');
    const health = await healthOf();
    assert.deepEqual(
      [health.status, health.kind, health.cause, health.since],
      ['needs_reauth', 'connection', 'grant_dead', time.toISOString()],
    );
    assert.deepEqual(health.evidence, { error: 'invalid_grant', http_status: 400 });
    const body = { integration_id: one.integrationKey, connection_id: one.connectionId };
    assert.deepEqual(health.reconnect?.body, body);
    assert.deepEqual(event?.reconnect, health.reconnect);
    assert.deepEqual(reported[0]?.payload, health);
  });

  test('is not judged by credentials that were replaced meanwhile', async () => {
    await replaceCredentials(database.db, {
      vault,
      current: one,
      credentials: { ...token, refresh_token: 'newer' },
      grant: {},
      at: time,
    });
    assert.equal(await transitions.refused(one, dead), undefined);
    await transitions.delayed(one, outage);
    assert.equal((await healthOf()).cause, null);
    assert.deepEqual(await types(), []);
  });

  test('that is blocked has a status of its own, and is active again once the provider issues a token', async () => {
    const reported = await refused(one, { kind: 'blocked_by_admin', error: 'admin_policy_enforced' });
    assert.equal(reported.code, 'connection_blocked');
    const health = await healthOf();
    assert.deepEqual([health.status, health.reconnect], ['blocked', null]);
    const lacking = healthToWire({ ...(await reader.reread(one)), scopesLacking: ['x'] }, undefined);
    assert.deepEqual([lacking.missing_scopes, lacking.reconnect], [['x'], null]);
    await recovered();
    await recovered();
    assert.deepEqual(
      (await events()).map(({ type, state }) => [type, state]),
      [
        ['connection.blocked', 'blocked'],
        ['connection.recovered', 'healthy'],
      ],
    );
    assert.equal((await healthOf()).status, 'active');
  });

  test('that is blocked for another cause than before has the new one, and reports it once', async () => {
    const byAdmin: TokenFault = { kind: 'blocked_by_admin', error: 'admin_policy_enforced', httpStatus: 400 };
    const byScope: TokenFault = { kind: 'client_misconfigured', error: 'invalid_scope', httpStatus: 400 };
    for (const fault of [byAdmin, byAdmin, byScope, byScope]) {
      advance(3600);
      await refused(await reread(), fault);
    }
    const health = await healthOf();
    assert.deepEqual([health.status, health.cause], ['blocked', 'scopes_refused']);
    assert.notEqual(health.reconnect, null);
    assert.deepEqual(
      (await events()).map(({ type, cause }) => [type, cause]),
      [
        ['connection.blocked', 'blocked_by_admin'],
        ['connection.blocked', 'scopes_refused'],
      ],
    );
  });

  test('of a grant whose end the provider had announced has this cause', async () => {
    const lasting = (days: number, { id }: LiveConnection) =>
      database.db.query(
        `update connection set refresh_expires_at = $2, granted_at = $2::timestamptz - make_interval(days => $3) where id = $1`,
        [id, time, days],
      );
    await lasting(7, one);
    await lasting(30, other);
    await transitions.refused(await reread(one), dead);
    await transitions.refused(await reread(other), dead);
    assert.equal((await healthOf(one)).cause, 'testing_expired');
    assert.equal((await healthOf(other)).cause, 'access_time_ended');
  });

  test('needs its user until a refresh succeeds, whatever other errors refreshes get meanwhile', async () => {
    const blocked: TokenFault = { kind: 'blocked_by_admin', error: 'admin_policy_enforced', httpStatus: 400 };
    const reported: string[] = [];
    for (const fault of [blocked, dead, blocked, dead, blocked]) {
      reported.push((await refused(await reread(), fault)).code);
    }
    assert.deepEqual(reported, ['connection_blocked', ...Array<string>(4).fill('connection_needs_reauth')]);
    assert.deepEqual(await types(), ['connection.blocked', 'connection.needs_reauth']);
    assert.equal((await healthOf()).cause, 'grant_dead');
    await recovered();
    assert.equal((await types()).at(-1), 'connection.recovered');
  });

  test('is over without a wait for who writes its records', async () => {
    const { db } = database;
    await db.transaction(async (writer) => {
      await holdConnection(writer, one.id);
      await db.transaction(async (tx) => {
        await tx.query("set local lock_timeout = '2s'");
        const head = await findHeadForUpdate(tx, one);
        const change = { connection: head!, cause: 'security_event' as const, evidence: {}, at: time };
        assert.equal(await endConnection(tx, change), true);
      });
    });
    assert.equal((await healthOf()).cause, 'security_event');
  });

  test('without a refresh token, or with one that was lost with a response, has that cause', async () => {
    await transitions.lacksRefreshToken(one);
    await transitions.replyLost(other, dead);
    assert.deepEqual(
      [(await healthOf(one)).cause, (await healthOf(other)).cause],
      ['no_refresh_token', 'refresh_reply_lost'],
    );
  });
});

describe('a connection with a client of its own', () => {
  const config_override = { client_id: 'own', client_secret: 'own secret' };
  let mine: LiveConnection;
  beforeEach(async () => {
    const { integration } = one;
    const given = { vault, integration, credentials: { ...token, config_override }, grant: {}, at: time };
    mine = await reader.get(placeOf(await insertConnection(database.db, given)));
  });

  const faultsOf = async () => {
    const [row] = await database.db.query(
      'select fault, partial_fault as "partial" from integration where id = $1',
      [one.integrationId],
    );
    return row;
  };

  test('needs its user where the provider refuses that client, and no other connection hears of it', async () => {
    const faults = [
      ...['invalid_client', 'deleted_client'].map((error): TokenFault => ({ ...refusedClient, error })),
      { ...refusedClient, error: 'bad_client_secret', isOfClient: true } as const,
    ];
    for (const fault of faults) {
      const reported = await refused(await reread(mine), fault);
      assert.equal(reported.code, 'connection_needs_reauth', String(fault.error));
      const { status, kind, cause, reconnect } = await healthOf(mine);
      assert.deepEqual([status, kind, cause], ['needs_reauth', 'connection', 'credentials_refused']);
      assert.notEqual(reconnect, null);
      assert.deepEqual(await faultsOf(), { fault: null, partial: null }, String(fault.error));
      assert.equal(await transitions.blockedByIntegration(await reread()), undefined);
      assert.equal((await healthOf()).cause, null);
      await recovered(await reread(mine));
    }
    assert.equal((await types()).filter((type) => type.startsWith('integration.')).length, 0);
  });

  test('stays active if a setting is refused, has the code as evidence, and affects no other connection', async () => {
    const [byTenant, byMode] = ['unauthorized_client', 'unsupported_grant_type'];
    for (const error of [byTenant!, byMode!, 'invalid_resource', 'redirect_uri_mismatch']) {
      const fault: TokenFault = { ...refusedClient, error, ...(error === byMode && { isOfOneGrant: true }) };
      for (let attempt = 1; attempt <= 4; attempt += 1) {
        const reported = await refused(await reread(mine), fault);
        assert.equal(reported.code, 'connection_refresh_failed', error);
        assert.match(reported.message, /integration's settings/);
      }
      const { status, kind, cause, evidence, next_step, reconnect } = await healthOf(mine);
      assert.deepEqual([status, kind, cause], ['active', 'integration', 'settings_refused'], error);
      assert.deepEqual(evidence, { error, http_status: 401, attempts: 4 });
      assert.match(next_step ?? '', /integration's settings/);
      // A new client may help only against this code.
      const all = { integration_id: mine.integrationKey, connection_id: mine.connectionId };
      assert.deepEqual(reconnect?.body, error === byTenant ? all : undefined);
      assert.deepEqual(await faultsOf(), { fault: null, partial: null }, error);
      assert.equal((await healthOf()).cause, null);
      await recovered(await reread(mine));
      assert.equal((await healthOf(mine)).cause, null);
      assert.deepEqual(
        (await events()).slice(-2).map(({ type, cause }) => [type, cause]),
        [
          ['connection.refresh_delayed', 'settings_refused'],
          ['connection.recovered', 'settings_refused'],
        ],
      );
    }
    assert.equal((await types()).length, 8);
  });

  test('has the cause of a dead grant or a refused scope', async () => {
    await refused(mine, { ...refusedClient, error: 'invalid_scope' });
    assert.equal((await healthOf(mine)).cause, 'scopes_refused');
    await refused(await reread(mine), { ...dead, error: 'token_revoked' });
    assert.equal((await healthOf(mine)).cause, 'grant_dead');
  });

  test("neither shows the integration's fault nor is blocked by it, also in lists", async () => {
    const { environmentId, integrationKey } = one;
    const causes = async () => {
      const listed = await listConnections(database.db, {
        vault,
        filter: { environmentId, integrationKeys: [integrationKey] },
        sort: 'created',
        limit: 10,
        page: 0,
      });
      const byId = new Map(listed.map((each) => [each.id, healthToWire(each, undefined).cause]));
      return { mine: [byId.get(mine.id), (await healthOf(mine)).cause], one: byId.get(one.id) };
    };
    await transitions.refused(one, refusedClient);
    assert.deepEqual(await causes(), { mine: [null, null], one: 'client_refused' });
    assert.equal(await transitions.blockedByIntegration(await reread(mine)), undefined);
    assert.equal((await refused(await reread(mine), outage)).code, 'connection_refresh_failed');
    assert.equal((await healthOf(mine)).cause, 'provider_not_answering');
    await recovered(mine);
    await recovered();
    const fault = apiFault({ api: 'https://sheets.example/v4' }, time);
    await recordFault(database.db, { integration: one.integration, fault });
    assert.deepEqual(await causes(), { mine: [null, null], one: 'api_disabled' });
  });

  test('is held back no more once it brings the client to which its token was given', async () => {
    const reported = { kind: 'client_misconfigured', error: 'unauthorized_client', httpStatus: 401 } as const;
    await refused(one, reported);
    assert.equal((await healthOf()).cause, 'client_not_allowed');
    const credentials = { ...token, config_override };
    await database.db.transaction(async (tx) =>
      replaceCredentials(tx, { vault, current: await reread(), credentials, grant: {}, at: time }),
    );
    const current = await reread();
    assert.deepEqual([current.suspension, (await healthOf()).cause], [undefined, null]);
    assert.deepEqual(await types(), ['integration.misconfigured', 'integration.recovered']);
  });
});

describe('an outage', () => {
  test('changes no status, and is reported at the third attempt in a row and at its end', async () => {
    const reported = await refused(one, outage);
    assert.deepEqual([reported.code, reported.retryAfterS], ['connection_refresh_failed', 7]);
    const since = time.toISOString();
    for (let attempt = 2; attempt <= 10; attempt += 1) {
      advance(60);
      await transitions.refused(one, outage);
      assert.equal((await types()).length, attempt < 3 ? 0 : 1);
    }
    const health: HealthWire = await healthOf();
    assert.deepEqual(
      [health.status, health.kind, health.cause, health.since, health.reconnect],
      ['active', 'transient', 'provider_not_answering', since, null],
    );
    assert.deepEqual(health.evidence, { error: 'server_error', http_status: 503, attempts: 10 });
    await recovered();
    const [delayed, ended, ...more] = await events();
    assert.deepEqual([delayed?.state, ended?.state], ['provider_unavailable', 'healthy']);
    assert.deepEqual([delayed?.type, delayed?.since], ['connection.refresh_delayed', since]);
    assert.deepEqual([ended?.type, ended?.since], ['connection.recovered', since]);
    assert.deepEqual(more, []);
    assert.equal((await healthOf()).cause, null);
  });

  test('that was not reported ends without an event, and twenty attempts at once are one outage', async () => {
    await transitions.delayed(one, outage);
    await recovered();
    assert.deepEqual(await types(), []);
    await Promise.all(Array.from({ length: 20 }, () => transitions.delayed(one, outage)));
    assert.deepEqual(await types(), ['connection.refresh_delayed']);
  });
});

describe('a refused client', () => {
  test('is the fault of the integration: reported once, and no connection changes its state', async () => {
    const reported = await Promise.all(
      Array.from({ length: 20 }, (_, index) => refused(index % 2 ? one : other, refusedClient)),
    );
    assert.deepEqual([...new Set(reported.map(({ code }) => code))], ['integration_misconfigured']);
    assert.deepEqual(await types(), ['integration.misconfigured']);
    for (const connection of [one, other]) {
      const health = await healthOf(connection);
      assert.deepEqual(
        [health.status, health.kind, health.cause, health.reconnect],
        ['active', 'integration', 'client_refused', null],
      );
    }
  });

  test("is distinguished from a refused setting, also by the provider's own codes", async () => {
    for (const [fault, cause] of [
      [{ ...refusedClient, error: 'bad_client_secret', isOfClient: true }, 'client_refused'],
      [{ ...refusedClient, error: 'deleted_client', isOfClient: true }, 'client_deleted'],
      [{ ...refusedClient, error: 'invalid_resource' }, 'client_misconfigured'],
    ] as const) {
      await refused(await reread(), fault);
      assert.equal((await healthOf()).cause, cause);
    }
  });

  test('is tried again by one caller at growing intervals, on all nodes together', async () => {
    await transitions.refused(one, refusedClient);
    const tries = async () => {
      const current = [await reread(one), await reread(other)];
      const reported = await Promise.all(
        Array.from({ length: 20 }, (_, index) => transitions.blockedByIntegration(current[index % 2]!)),
      );
      return reported.filter((error) => error === undefined).length;
    };
    assert.equal(await tries(), 0, 'it was tried this moment');
    const intervals = [60, 120, 240, 480, 960, 1920, 3600, 3600];
    for (const seconds of intervals) {
      advance(seconds - 1);
      assert.equal(await tries(), 0);
      advance(1);
      assert.equal(await tries(), 1, `after ${seconds} s`);
      await transitions.refused(one, refusedClient);
    }
    await Promise.all(Array.from({ length: 5 }, () => recovered(other)));
    assert.deepEqual(await types(), ['integration.misconfigured', 'integration.recovered']);
    assert.equal(await tries(), 20);
  });

  test('is tried at once after its secret was changed', async () => {
    await transitions.refused(one, refusedClient);
    assert.ok(await transitions.blockedByIntegration(await reread()));
    const current = await getIntegration(database.db, { ...reading, environmentId, key: one.integrationKey });
    const client = { clientId: 'id', clientSecret: 'right' };
    await updateIntegration(database.db, { ...reading, current, change: { client }, at: new Date() });
    time = new Date(Date.now() + 1000);
    assert.equal(await transitions.blockedByIntegration(await reread()), undefined);
    assert.ok(await transitions.blockedByIntegration(await reread()));
  });

  test('has no fault after a refused scope: only the affected connection is blocked', async () => {
    const reported = { kind: 'client_misconfigured', error: 'invalid_scope', httpStatus: 400 } as const;
    for (const connection of [one, other]) {
      const refusal = await refused(connection, reported);
      assert.deepEqual([refusal.code, refusal.status], ['connection_blocked', 424]);
      const health = await healthOf(connection);
      assert.deepEqual(
        [health.status, health.kind, health.cause],
        ['blocked', 'connection', 'scopes_refused'],
      );
      assert.notEqual(health.reconnect, null, 'another token may be well');
    }
    assert.equal((await reread()).integration.fault, undefined);
    await recovered(one);
    assert.deepEqual(await types(), ['connection.blocked', 'connection.blocked', 'connection.recovered']);
  });

  test("that may not use a connection's token is the fault of the integration, and keeps no other from its turn", async () => {
    const reported = { kind: 'client_misconfigured', error: 'unauthorized_client', httpStatus: 401 } as const;
    const refusals = await Promise.all(Array.from({ length: 20 }, () => refused(one, reported)));
    assert.deepEqual([...new Set(refusals.map(({ code }) => code))], ['integration_misconfigured']);
    const health = await healthOf();
    assert.deepEqual(
      [health.status, health.kind, health.cause],
      ['active', 'integration', 'client_not_allowed'],
    );
    assert.deepEqual(refusals[0]?.payload, health);
    assert.equal(await transitions.blockedByIntegration(await reread(other)), undefined);
    assert.equal((await healthOf(other)).cause, null);
    await recovered(other);
    assert.deepEqual(await types(), ['integration.misconfigured']);
    await recovered();
    assert.deepEqual(await types(), ['integration.misconfigured', 'integration.recovered']);
  });

  for (const kind of ['dead_grant', 'session_policy', 'blocked_by_admin'] as const) {
    test(`that was refused is accepted where the provider judges a grant (${kind})`, async () => {
      await transitions.refused(one, refusedClient);
      await transitions.refused(await reread(other), { kind, error: 'invalid_grant', httpStatus: 400 });
      assert.equal((await healthOf()).cause, null);
      assert.deepEqual((await types()).slice(0, 2), ['integration.misconfigured', 'integration.recovered']);
    });
  }

  test('that may not use one token is not proven by that', async () => {
    await transitions.refused(one, refusedClient);
    await transitions.refused(await reread(other), {
      kind: 'client_misconfigured',
      error: 'unauthorized_client',
    });
    assert.equal((await healthOf()).cause, 'client_refused');
  });

  test('is not forgotten over an API that is switched off', async () => {
    await transitions.refused(one, refusedClient);
    const note = () =>
      recordFault(database.db, {
        integration: one.integration,
        fault: apiFault({ api: 'https://sheets.example/v4' }, time),
      });
    assert.equal(await note(), false);
    await recovered();
    assert.equal(await note(), true);
    await recovered();
    assert.equal((await healthOf()).cause, 'api_disabled', 'a refresh says nothing of the API');
  });
});
