import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';
import type { RefreshNode } from '../../../test/support/refresh-node.ts';
import type { OAuth2Credentials } from '../../auth-modes/oauth2-credentials.ts';
import type { AppError } from '../../errors.ts';
import type { IntegrationFault } from '../../integrations/fault.ts';
import { updateIntegration } from '../../integrations/store.ts';
import { createLog } from '../../log.ts';
import { healthToWire } from '../health/health.ts';
import { endConnection } from '../health/status-transitions.ts';
import { probeJob } from '../refresh/keepalive.ts';
import { takeLease } from '../refresh/lease.ts';
import { codeOf, hour, name, refreshTests } from '../refresh/refresh.fixture.ts';
import { destroyConnection, replaceCredentials } from './save.ts';
import { findHeadForUpdate, holdConnection } from './store.ts';
import { suspend } from './suspension.ts';

const t = refreshTests();
/** Connections whose tokens the integration's client may not use. */
let foreign: Set<string>;
let one: RefreshNode;

beforeEach(async () => {
  await t().open('none');
  foreign = new Set([name]);
  t().bench.provider.plan = (of) => ({
    ...(foreign.has(of.name) && { refusal: { status: 401, error: 'unauthorized_client' } }),
  });
  one = t().node();
});

const connect = async (...names: string[]) => {
  for (const other of names) await t().bench.connect(other, t().now());
};
const fresh = async (who: string, node = one) => node.credentials.fresh(await node.live(who));
const refreshed = async (who: string, node = one) => node.credentials.refreshed(await node.live(who));
const askedOf = (who: string) => t().bench.provider.grant(who).asked;
const healthOf = async (who: string) => {
  const connection = await one.live(who);
  return healthToWire(connection, connection.integration.provider);
};
/** The partial fault of the integration, and its events. */
const integrationOf = async () => {
  const [row] = await t().bench.db.query<{ fault: IntegrationFault | null }>(
    'select coalesce(fault, partial_fault) as fault from integration',
  );
  return row?.fault ?? null;
};
const told = async () =>
  (
    await t().bench.db.query<{ type: string; cause: string }>(
      `select type, data->>'cause' as cause from event where type like 'integration.%' order by created_at`,
    )
  ).map(({ type, cause }) => `${type} ${cause}`);
const misconfigured = 'integration.misconfigured client_not_allowed';
const recovered = 'integration.recovered client_not_allowed';
const sweep = () =>
  probeJob({
    db: one.db,
    reader: one.reader,
    credentials: one.credentials,
    isSandboxOn: false,
    log: createLog({ level: 'silent', format: 'json' }),
    now: t().now,
  }).run({}, new AbortController().signal);
const change = async (clientId = 'another') => {
  const { integration: current } = await one.live(name);
  const client = { clientId, clientSecret: 'secret' };
  await t().bench.db.transaction((tx) =>
    updateIntegration(tx, { ...one.reading, current, change: { client }, at: new Date() }),
  );
};

test('a connection whose own client may not renew is put off alone, and tried at once after a change of settings', async () => {
  const config_override = { client_id: 'own', client_secret: 'own secret' };
  await connect('b');
  const current = await one.live(name);
  const credentials = { ...(current.credentials as OAuth2Credentials), config_override };
  await t().bench.db.transaction((tx) =>
    replaceCredentials(tx, { ...one.reading, current, credentials, grant: {}, at: t().now() }),
  );
  for (let attempt = 1; attempt <= 4; attempt += 1) {
    t().time += 5 * 60_000;
    for (let call = 0; call < 2; call += 1) {
      assert.equal(await codeOf(fresh(name)), 'connection_refresh_failed');
    }
    assert.equal(askedOf(name), attempt, 'it is not asked before the pause is over');
    await fresh('b');
  }
  const { status, cause } = await healthOf(name);
  assert.deepEqual([status, cause], ['active', 'settings_refused']);
  assert.equal(await integrationOf(), null);
  assert.deepEqual(await told(), []);

  foreign.clear();
  await change();
  assert.equal(await codeOf(fresh(name)), 'success');
  assert.equal((await healthOf(name)).cause, null);
  assert.deepEqual(await t().bench.eventsOf(name), ['connection.refresh_delayed', 'connection.recovered']);
});

describe('a connection whose token the client may not use', () => {
  test('is suspended alone, with the fault of its integration, which is reported once', async () => {
    const others = ['b', 'c', 'd'];
    await connect(...others);
    const nodes = [one, t().node()];
    for (let turn = 0; turn < 3; turn += 1) {
      for (const node of nodes) {
        await assert.rejects(fresh(name, node), (error: AppError) => {
          const { cause, kind } = error.payload as { cause: string; kind: string };
          assert.deepEqual(
            [error.code, error.status, kind, cause],
            ['integration_misconfigured', 424, 'integration', 'client_not_allowed'],
          );
          assert.match(error.message, /another client/);
          assert.equal(error.retryAfterS, 3600);
          return true;
        });
        for (const other of others) await fresh(other, node);
      }
    }
    assert.equal(askedOf(name), 1);
    assert.deepEqual(others.map(askedOf), [1, 1, 1]);
    const health = await healthOf(name);
    assert.deepEqual(
      [health.status, health.kind, health.cause, health.evidence],
      [
        'active',
        'integration',
        'client_not_allowed',
        { error: 'unauthorized_client', http_status: 401, connection_id: name },
      ],
    );
    assert.equal(health.reconnect?.body.scopes, undefined, 'all is asked for');
    assert.notEqual(health.reconnect, null, 'what is granted to this client is well');
    for (const other of others) assert.equal((await healthOf(other)).cause, null);
    assert.equal((await integrationOf())?.cause, 'client_not_allowed');
    assert.deepEqual(await told(), [misconfigured], 'the success of another says nothing of it');
    assert.deepEqual(await t().bench.eventsOf(name), [], 'there is nothing for its user to do');
  });

  test('uses a token that is still valid, and gets the cause if the API refuses it', async () => {
    foreign.clear();
    const used = await t().fresh(one);
    foreign.add(name);
    t().time += hour - 60_000;
    for (let call = 0; call < 3; call += 1) {
      assert.equal((await t().fresh(one)).access_token, used.access_token);
      await one.credentials.settled();
    }
    assert.equal(askedOf(name), 2);
    const renewal = one.credentials.renewed(await one.live(name), used);
    assert.equal(await codeOf(renewal), 'integration_misconfigured');
    assert.equal(askedOf(name), 2);
  });

  test('does not replace the status of one that needs its user', async () => {
    const { good } = t().grant;
    t().grant.good = [];
    foreign.clear();
    await codeOf(fresh(name));
    t().grant.good = good;
    foreign.add(name);
    assert.equal(await codeOf(refreshed(name)), 'connection_needs_reauth');
    assert.equal(await integrationOf(), null);
    assert.deepEqual(await t().bench.eventsOf(name), ['connection.needs_reauth']);
  });

  test('keeps its fault in an outage, and is tried at the intervals of an outage', async () => {
    await codeOf(fresh(name));
    t().time += hour;
    t().bench.provider.plan = () => ({ refusal: { status: 503, error: 'server_error' } });
    for (let call = 0; call < 5; call += 1) {
      assert.equal(await codeOf(fresh(name)), 'integration_misconfigured');
    }
    assert.equal(askedOf(name), 2);
    assert.equal((await healthOf(name)).cause, 'client_not_allowed');
  });

  test('outlasts a fault of the whole client, and both faults are reported', async () => {
    await connect('b', 'c');
    await codeOf(fresh(name));
    t().bench.provider.plan = () => ({ refusal: { status: 401, error: 'invalid_client' } });
    assert.equal(await codeOf(fresh('b')), 'integration_misconfigured');
    assert.equal((await healthOf(name)).cause, 'client_refused');
    t().bench.provider.plan = () => ({});
    t().time += 60_000;
    await fresh('c');
    assert.equal((await healthOf('b')).cause, null);
    assert.equal((await healthOf(name)).cause, 'client_not_allowed');
    assert.equal((await integrationOf())?.cause, 'client_not_allowed');
    assert.equal(await codeOf(fresh(name)), 'integration_misconfigured');
    assert.equal(askedOf(name), 1);
    t().time += hour;
    await fresh(name);
    assert.equal(await integrationOf(), null);
    assert.deepEqual(await told(), [
      misconfigured,
      'integration.misconfigured client_refused',
      'integration.recovered client_refused',
      recovered,
    ]);
  });

  test('is tried once by two nodes when its hour is over, and on request', async () => {
    const two = t().node();
    await codeOf(fresh(name));
    assert.equal(await codeOf(refreshed(name)), 'integration_misconfigured');
    assert.equal(askedOf(name), 2, 'asked for');
    t().time += hour;
    const calls = [one, two].flatMap((node) => Array.from({ length: 10 }, () => codeOf(fresh(name, node))));
    assert.deepEqual([...new Set(await Promise.all(calls))], ['integration_misconfigured']);
    assert.equal(askedOf(name), 3);
    assert.deepEqual(await told(), [misconfigured]);
  });

  test('is not tried again by who read it before another node did', async () => {
    const two = t().node();
    const seen = await two.live(name);
    await codeOf(fresh(name));
    assert.equal(await codeOf(two.credentials.fresh(seen)), 'integration_misconfigured');
    assert.equal(askedOf(name), 1);
    // Also if the verdict comes between its read and its lock.
    assert.equal(await takeLease(two.db, { connection: seen, forMs: 1_000 }), undefined);
    assert.ok(await takeLease(two.db, { connection: await two.reader.reread(seen), forMs: 1_000 }));
  });
});

describe('the fault of an integration that some connections show', () => {
  test('ends with the last of them, and names one of those that are left until then', async () => {
    await connect('b', 'c');
    foreign = new Set([name, 'b', 'c']);
    const since = t().now().toISOString();
    for (const who of foreign) {
      await codeOf(fresh(who));
      t().time += 60_000;
    }
    const named = [];
    for (const who of ['b', name, 'c']) {
      t().time += hour;
      assert.deepEqual(await told(), [misconfigured]);
      const fault = (await integrationOf())!;
      named.push(fault.evidence.connection_id);
      assert.equal(fault.since, since);
      foreign.delete(who);
      await fresh(who);
      assert.equal((await healthOf(who)).cause, null);
    }
    assert.deepEqual(named, [name, name, 'c']);
    assert.equal(await integrationOf(), null);
    assert.deepEqual(await told(), [misconfigured, recovered]);
    assert.deepEqual(await t().bench.eventsOf(name), [], 'its users were never told');
  });

  const ends = {
    'connected again': () => connect(name),
    deleted: async () => {
      const { id } = await one.live(name);
      await t().bench.db.transaction((tx) => destroyConnection(tx, { id, at: new Date() }));
    },
    'dead for itself': async () => {
      foreign.clear();
      t().grant.good = [];
      t().time += hour;
      assert.equal(await codeOf(fresh(name)), 'connection_needs_reauth');
    },
    'blocked by its administrator': async () => {
      t().bench.provider.plan = () => ({ refusal: { status: 400, error: 'admin_policy_enforced' } });
      t().time += hour;
      assert.equal(await codeOf(fresh(name)), 'connection_blocked');
    },
    'ended by a security event': async () => {
      const seen = await one.live(name);
      await t().bench.db.transaction(async (tx) => {
        const connection = (await findHeadForUpdate(tx, seen))!;
        await endConnection(tx, { connection, cause: 'security_event', evidence: {}, at: t().now() });
      });
    },
  };
  for (const [end, work] of Object.entries(ends)) {
    test(`ends where its one connection is ${end}`, async () => {
      await codeOf(fresh(name));
      await work();
      assert.equal(await integrationOf(), null);
      assert.deepEqual(await told(), [misconfigured, recovered]);
    });
  }

  test('is not over where the same token is imported once more, and found out about at once', async () => {
    await codeOf(fresh(name));
    const current = await one.live(name);
    const { credentials } = current;
    await t().bench.db.transaction((tx) =>
      replaceCredentials(tx, { vault: one.reading.vault, current, credentials, grant: {}, at: new Date() }),
    );
    assert.equal((await healthOf(name)).cause, 'client_not_allowed');
    t().time = Math.max(t().time, Date.now());
    assert.equal(await codeOf(fresh(name)), 'integration_misconfigured');
    assert.equal(askedOf(name), 2);
    assert.deepEqual(await told(), [misconfigured]);
  });

  test('is checked at once after a change of the integration, and its end is reported only when all connections have recovered', async () => {
    await connect('b');
    foreign.add('b');
    for (const who of foreign) await codeOf(fresh(who));
    await change();
    t().time = Math.max(t().time, Date.now());
    foreign.delete(name);
    await fresh(name);
    assert.deepEqual(await told(), [misconfigured]);
    assert.equal(await codeOf(fresh('b')), 'integration_misconfigured');
    assert.deepEqual([askedOf(name), askedOf('b')], [2, 2]);
    await change('a third');
    t().time = Math.max(t().time, Date.now());
    foreign.clear();
    await fresh('b');
    assert.deepEqual(await told(), [misconfigured, recovered]);
  });

  test('does not come from an error about the previous client', async () => {
    t().bench.provider.plan = ({ asked }) => ({
      ...(asked === 0 && { beforeMs: 150, refusal: { status: 401, error: 'unauthorized_client' } }),
    });
    const underWay = codeOf(fresh(name));
    await t().untilLeased();
    await change();
    assert.equal(await underWay, 'success', 'the other client is asked at once');
    assert.equal(await integrationOf(), null);
    assert.deepEqual(await told(), []);
  });

  test('is reported once when twenty connections show it at once, and once when all recover at once', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `c${index}`);
    await connect(...names);
    foreign = new Set(names);
    const nodes = [one, t().node(), t().node()];
    const atOnce = () =>
      Promise.all(names.map((who, index) => codeOf(fresh(who, nodes[index % nodes.length]))));
    assert.deepEqual([...new Set(await atOnce())], ['integration_misconfigured']);
    assert.deepEqual(await told(), [misconfigured]);
    foreign.clear();
    t().time += hour;
    assert.deepEqual([...new Set(await atOnce())], ['success']);
    await sweep();
    await sweep();
    assert.equal(await integrationOf(), null);
    assert.deepEqual(await told(), [misconfigured, recovered]);
  });

  test('is left to the job where the last two are released beside each other', async () => {
    await connect('b');
    foreign.add('b');
    for (const who of foreign) await codeOf(fresh(who));
    const ids = [(await one.live(name)).id, (await one.live('b')).id];
    const { db } = t().bench;
    await db.transaction(async (first) => {
      await destroyConnection(first, { id: ids[0]!, at: new Date() });
      // The other connection is still suspended for this transaction, which does not wait for it.
      await db.transaction((second) => destroyConnection(second, { id: ids[1]!, at: new Date() }));
    });
    assert.deepEqual(await told(), [misconfigured]);
    await sweep();
    assert.deepEqual(await told(), [misconfigured, recovered]);
    assert.equal(await integrationOf(), null);
  });

  test('stays where another connection comes to show it while the last one is deleted', async () => {
    await connect('b');
    await codeOf(fresh(name));
    const [gone, connection] = [await one.live(name), await one.live('b')];
    const evidence = { connection_id: 'b' };
    const fault = { cause: 'client_not_allowed', evidence, since: 'later', next_step: '' } as const;
    const { db } = t().bench;
    await db.transaction(async (first) => {
      assert.equal(await suspend(first, { connection, fault, at: t().now() }), 'suspended');
      await db.transaction(async (second) => {
        await second.query("set local lock_timeout = '2s'");
        await destroyConnection(second, { id: gone.id, at: new Date() });
      });
    });
    await sweep();
    assert.equal((await integrationOf())?.evidence.connection_id, 'b');
    assert.deepEqual(await told(), [misconfigured]);
  });

  test('does not wait for who writes records of the connection', async () => {
    const connection = await one.live(name);
    const fault = {
      cause: 'client_not_allowed',
      evidence: {},
      since: t().now().toISOString(),
      next_step: '',
    } as const;
    const { db } = t().bench;
    await db.transaction(async (writer) => {
      await holdConnection(writer, connection.id);
      await db.transaction(async (tx) => {
        await tx.query("set local lock_timeout = '2s'");
        assert.equal(await suspend(tx, { connection, fault, at: t().now() }), 'first suspended');
      });
    });
  });
});
