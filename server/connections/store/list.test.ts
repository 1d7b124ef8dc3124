import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { countingBlocks } from '../../../test/support/blocks.ts';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import type { Queryable } from '../../db/pool.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { connectionStates } from '../../events/connection-states.ts';
import { createIntegration } from '../../integrations/store.ts';
import { openVault } from '../../vault.ts';
import { healthToWire } from '../health/health.ts';
import { createLastUse } from '../refresh/credentials.ts';
import {
  type ConnectionFilter,
  type ConnectionPage,
  countByIntegration,
  countByStatus,
  countConnections,
  listConnections,
  resolved,
  selectCount,
  selectIntegrationCounts,
  selectPage,
  selectStateCounts,
  selectStatusCounts,
  sorts,
} from './list.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const many = 10_000;
let database: TestDatabase;
let environmentId: number;
let sheets: number;
let drive: number;
before(async () => {
  database = await openTestDatabase();
  const { db } = database;
  ({ id: environmentId } = (await ensureEnvironment(db, { name: 'dev', vault })).environment);
  const other = (await ensureEnvironment(db, { name: 'prod', vault })).environment;
  const make = async (key: string, of = environmentId) => {
    const client = { clientId: 'id', clientSecret: 'secret' };
    const reading = { vault, catalog, testClient: undefined };
    return (
      await createIntegration(db, { ...reading, environmentId: of, key, provider: 'google-sheet', client })
    ).id;
  };
  [sheets, drive] = [await make('sheets'), await make('drive')];
  const fill = (of: number, integration: number, count: number, from: number) =>
    db.query(
      `insert into connection (environment_id, integration_id, connection_id, data_key, status, account_id, account_email,
         end_user, tags, created_at, last_used_at)
       select $1, $2, 'c' || n, gen_random_uuid(),
         case when n % 1000 = 7 then 'needs_reauth' when n % 1000 = 8 then 'blocked' else 'active' end,
         'account-' || n, 'person' || n || '@example.com',
         jsonb_build_object('id', 'user-' || n, 'display_name', 'Person ' || n),
         jsonb_build_object('team', 'team-' || n % 50, 'group', 'group-' || n % 500),
         timestamptz '2026-01-01' + n * interval '1 minute',
         case when n % 2 = 0 then timestamptz '2026-06-01' + (n * 7919 % 10007) * interval '1 minute' end
       from generate_series($4::integer, $4 + $3 - 1) as n`,
      [of, integration, count, from],
    );
  await fill(environmentId, sheets, many - 10, 1);
  await fill(environmentId, drive, 10, many - 9);
  await fill(other.id, await make('sheets', other.id), 100, 1);
  await db.query(`update connection set deleted_at = now(), data_key = null where connection_id = 'c3'`);
  await db.query('vacuum analyze connection');
  await db.query('analyze');
});
after(() => database.drop());

const filter = (more: Partial<ConnectionFilter> = {}): ConnectionFilter => ({ environmentId, ...more });
const list = async (
  more: Partial<ConnectionFilter> = {},
  page: Partial<Omit<ConnectionPage, 'filter'>> = {},
) => {
  const given = { filter: filter(more), sort: 'created' as const, limit: 5, page: 0, ...page };
  return (await listConnections(database.db, { vault, ...given })).map(({ connectionId }) => connectionId);
};
const count = (more: Partial<ConnectionFilter> = {}) => countConnections(database.db, filter(more));

test('each filter lists the matching connections, newest first, and counts as many', async () => {
  assert.deepEqual(await list(), ['c10000', 'c9999', 'c9998', 'c9997', 'c9996']);
  assert.equal(await count(), many - 1);
  assert.deepEqual(await list({ statuses: ['needs_reauth'] }), ['c9007', 'c8007', 'c7007', 'c6007', 'c5007']);
  assert.equal(await count({ statuses: ['needs_reauth'] }), 10);
  assert.deepEqual(await list({ statuses: ['needs_reauth', 'blocked'] }, { limit: 3 }), [
    'c9008',
    'c9007',
    'c8008',
  ]);
  assert.equal(await count({ statuses: ['needs_reauth', 'blocked'] }), 20);
  assert.equal(await count({ statuses: ['active', 'needs_reauth', 'blocked', 'active'] }), many - 1);
  assert.equal(await count({ integrationKeys: ['drive'] }), 10);
  assert.equal(await count({ integrationKeys: ['drive', 'sheets', 'none'] }), many - 1);
  assert.deepEqual(await list({ tags: { team: 'team-49' } }, { limit: 2 }), ['c9999', 'c9949']);
  assert.deepEqual(await list({ statuses: ['blocked'], integrationKeys: ['drive'] }), []);
});

test('each state lists exactly the connections that have it', async () => {
  const { db } = database;
  const scopes = catalog.get('google-sheet').scopes.default;
  const set = (name: string, columns: string) =>
    db.query(`update connection set ${columns} where connection_id = $1 and environment_id = $2`, [
      name,
      environmentId,
    ]);
  const outage = (cause: string) => `outage = '${JSON.stringify({ cause, attempts: 1, evidence: {} })}'`;
  const suspension = `withheld = '{"cause": "client_not_allowed"}', withheld_until = now()`;
  await set('c11', 'is_unverified = true');
  await set('c12', `is_unverified = true, ${outage('provider_not_answering')}`);
  await set('c13', outage('settings_refused'));
  await set('c14', `${suspension}, lacks_scopes = true, scopes_lacking = '{${scopes[0]}}'`);
  await set('c15', `is_unverified = true, lacks_scopes = true, scopes_lacking = '{${scopes[0]}}'`);
  await set('c9995', 'is_unverified = true');
  await db.query(`update integration set fault = '{"cause": "api_disabled"}' where id = $1`, [drive]);
  await set('c9996', 'has_own_client = true');
  const all = await listConnections(db, {
    vault,
    filter: filter(),
    sort: 'created',
    limit: many,
    page: 0,
  });
  const byState = Map.groupBy(
    all,
    (connection) => healthToWire(connection, catalog.get('google-sheet')).state,
  );
  assert.deepEqual([...byState.keys()].sort(), [...connectionStates].sort());
  for (const state of connectionStates)
    assert.deepEqual(
      await list({ state }, { limit: many }),
      byState.get(state)?.map(({ connectionId }) => connectionId),
      state,
    );
  assert.equal(await count({ state: 'integration_error' }), 2 + 9);
  const { db: counting, reads } = countingBlocks(db);
  const counts = await counting.run({ compile: selectStateCounts });
  const ofActive = ['integration_error', 'provider_unavailable', 'scopes_missing', 'unverified'] as const;
  for (const state of ofActive)
    assert.equal(
      counts.reduce((sum, one) => sum + (one.state === state ? one.count : 0), 0),
      byState.get(state)?.length,
      state,
    );
  assert.equal(counts.find(({ state }) => state === 'other')?.count, 0);
  assert.ok(reads[0]!.blocks < 150, reads[0]!.plan);
  await db.query(`update integration set fault = null where id = $1`, [drive]);
});

test('the search finds a part of each name, and takes special characters literally', async () => {
  for (const search of ['c4711', 'ACCOUNT-4711', 'person4711@', 'user-4711', 'Person 4711']) {
    assert.deepEqual(await list({ search }), ['c4711'], search);
    assert.equal(await count({ search }), 1, search);
  }
  for (const search of ['%', '_', '\\', 'c_711']) assert.deepEqual(await list({ search }), [], search);
});

test('a search for a frequent or a rare text finds the same on each page as it counts', async () => {
  const all = await list({}, { limit: many });
  for (const search of ['example', 'PERSON 42', 'on 7', '99', '1', 'c1']) {
    const found = all.filter((id) =>
      `${id} Person ${id.slice(1)}`.toLowerCase().includes(search.toLowerCase()),
    );
    const expected = search === 'example' ? all : found;
    assert.ok(expected.length > 50);
    assert.equal(await count({ search }), expected.length, search);
    for (const [limit, page] of [
      [10, 0],
      [10, 1],
      [25, 3],
      [1_000, 1],
      [many, 0],
    ] as const) {
      assert.deepEqual(
        await list({ search }, { limit, page }),
        expected.slice(limit * page, limit * (page + 1)),
        search,
      );
    }
  }
  const [, position] = (
    await listConnections(database.db, {
      vault,
      filter: filter({ search: 'person 42' }),
      sort: 'created',
      limit: 2,
      page: 0,
    })
  ).map(({ position }) => position);
  const [first, second, third] = await list({ search: 'person 42' }, { limit: 3 });
  assert.deepEqual(
    await list({ search: 'person 42' }, { limit: 1, before: position }),
    [third],
    `${first}, ${second}`,
  );
  assert.deepEqual(await list({ search: 'person 4207', statuses: ['needs_reauth'] }), []);
  assert.deepEqual(await list({ search: 'person 4007', statuses: ['needs_reauth'] }), ['c4007']);
  assert.deepEqual(await list({ search: 'person 4006' }, { sort: 'last_used' }), ['c4006']);
});

test('a search finds the present name of an account, and no deleted connection', async () => {
  const { db } = database;
  const rename = (values: string) => db.query(`update connection set ${values} where connection_id = 'c5'`);
  await rename(`account_email = 'Zoë@Example.ORG', end_user = '{"id":"u","display_name":"李明"}'`);
  for (const search of ['zoë@', 'EXAMPLE.org', '李', '李明', 'example.org'])
    assert.deepEqual(await list({ search }), ['c5'], search);
  assert.deepEqual(await list({ search: 'person5@' }), []);
  await rename('credentials_version = credentials_version + 1');
  await rename(`deleted_at = now(), data_key = null`);
  assert.deepEqual(await list({ search: 'zoë@' }), []);
  assert.deepEqual(await db.query(`select from connection_name where names like '%zoë%'`), []);
  await rename(`deleted_at = null, data_key = gen_random_uuid(), account_email = 'person5@example.com'`);
  assert.deepEqual(await list({ search: 'person5@' }), ['c5']);
});

test('a deletion during a search leaves no gap in its page', async () => {
  const { db } = database;
  const change = (values: string, id: string | undefined) =>
    db.query(`update connection set ${values} where connection_id = $1 and environment_id = $2`, [
      id,
      environmentId,
    ]);
  for (const search of ['person 5', 'c1']) {
    const [first] = await list({ search }, { limit: 1 });
    let count = 0;
    const meanwhile: Queryable = {
      ...db,
      async run(built) {
        count += 1;
        if (count === 2) await change('deleted_at = now(), data_key = null', first);
        return db.run(built);
      },
    };
    const page = { vault, filter: filter({ search }), sort: 'created', limit: 25, page: 0 } as const;
    const found = await listConnections(meanwhile, page);
    assert.equal(found.length, 25);
    assert.ok(found.every(({ connectionId }) => connectionId !== first));
    await change('deleted_at = null, data_key = gen_random_uuid()', first);
  }
});

test('by last use the latest come first, those never used last, and pages join without a gap', async () => {
  const all = await list({}, { sort: 'last_used', limit: many });
  assert.equal(new Set(all).size, many - 1);
  const rows = await listConnections(database.db, {
    vault,
    filter: filter(),
    sort: 'last_used',
    limit: many,
    page: 0,
  });
  const times = rows.map(({ lastUsedAt }) => lastUsedAt?.getTime() ?? 0);
  assert.deepEqual(
    times,
    times.toSorted((one, other) => other - one),
  );
  assert.equal(times.indexOf(0), many / 2);
  const joined: string[] = [];
  for (let page = 0; page < 4; page += 1)
    joined.push(...(await list({}, { sort: 'last_used', limit: 50, page })));
  assert.deepEqual(joined, all.slice(0, 200));
});

test('the integrations are counted by the state of their connections', async () => {
  const counts = await countByIntegration(database.db, environmentId);
  assert.deepEqual(counts.get(drive), { total: 10, active: 10, needs_reauth: 0, blocked: 0 });
  assert.deepEqual(counts.get(sheets), {
    total: many - 11,
    active: many - 31,
    needs_reauth: 10,
    blocked: 10,
  });
  assert.equal(counts.size, 2);
});

test('connections are counted by status, without those that are deleted', async () => {
  assert.deepEqual(await countByStatus(database.db, environmentId), {
    active: many - 21,
    needs_reauth: 10,
    blocked: 10,
  });
});

test('a page costs what it shows, and a count looks at no rows', async () => {
  const blocksOf = async ({ sql, parameters }: { sql: string; parameters: readonly unknown[] }) => {
    const rows = await database.db.transaction(async (tx) => {
      // The embedded database has this setting. With the default of 4, PostgreSQL prefers to read this small table whole.
      await tx.query('set local random_page_cost = 1.1');
      return tx.query<Record<string, string>>(`explain (analyze, buffers) ${sql}`, parameters);
    });
    const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
    assert.doesNotMatch(plan, /Seq Scan on connection\b/, plan);
    const [, hit = '0'] = /shared hit=(\d+)/.exec(plan) ?? [];
    const [, read = '0'] = /shared (?:hit=\d+ )?read=(\d+)/.exec(plan) ?? [];
    return { blocks: Number(hit) + Number(read), plan };
  };
  const page = { limit: 25, page: 0 };
  for (const [max, query] of [
    [150, selectPage({ ...page, filter: filter(), sort: 'created' })],
    [150, selectPage({ ...page, filter: filter(), sort: 'last_used' })],
    [150, selectPage({ ...page, filter: filter({ statuses: ['needs_reauth'] }), sort: 'created' })],
    [
      150,
      selectPage({ ...page, filter: filter({ statuses: ['needs_reauth', 'blocked'] }), sort: 'created' }),
    ],
    [
      150,
      selectPage({
        ...page,
        filter: await resolved(database.db, filter({ integrationKeys: ['drive'] })),
        sort: 'created',
      }),
    ],
    ...(['unverified', 'scopes_missing', 'provider_unavailable', 'healthy'] as const).map(
      (state) => [150, selectPage({ ...page, filter: filter({ state }), sort: 'created' })] as const,
    ),
    [150, selectPage({ ...page, filter: filter(), sort: 'created', before: '1769000000000000-5000' })],
    [150, selectCount(filter({ statuses: ['needs_reauth', 'blocked'] }))],
    [150, selectCount(filter())],
    [150, { compile: () => selectStatusCounts(environmentId) }],
    [150, { compile: () => selectIntegrationCounts(environmentId) }],
    ...(await Promise.all(
      [
        { integrationKeys: ['drive'] },
        { connectionId: 'c4711' },
        { endUserId: 'user-4711' },
        { tags: { team: 'team-7', plan: 'none' } },
      ].map(
        async (more) =>
          [
            150,
            selectPage({ ...page, filter: await resolved(database.db, filter(more)), sort: 'created' }),
          ] as const,
      ),
    )),
  ] as const) {
    const { blocks, plan } = await blocksOf(query.compile());
    assert.ok(blocks > 0 && blocks < max, plan);
  }
});

test('no statement of a list reads many blocks, whatever its text, filter, order and page, nor does its count', async () => {
  await database.db.query(`update integration set fault = '{"cause": "api_disabled"}' where id = $1`, [
    sheets,
  ]);
  await database.db.query('vacuum analyze connection, connection_name');
  await database.db.transaction(async (tx) => {
    await tx.query('set local random_page_cost = 1.1');
    const { db, reads } = countingBlocks({ ...database.db, ...tx });
    const read = async (more: Partial<ConnectionFilter>) => {
      for (const sort of sorts)
        await listConnections(db, { vault, filter: filter(more), sort, limit: 50, page: 1 });
      await countConnections(db, filter(more));
    };
    const filters: Partial<ConnectionFilter>[] = [
      {},
      { statuses: ['active'] },
      { integrationKeys: ['sheets'] },
      { tags: { group: 'group-7' } },
      { state: 'integration_error' },
    ];
    for (const search of [undefined, 'example', '42', 'qx'])
      for (const more of filters) await read({ search, ...more });
    for (const search of ['person 4', 'person 42', 'person 4711', 'none such', '9']) await read({ search });
    for (const state of connectionStates) await read({ state });
    for (const { blocks, plan } of reads) assert.ok(blocks < 150, plan);
  });
  await database.db.query('update integration set fault = null where id = $1', [sheets]);
});

test('a use is stored once a minute, by one of many nodes, and not for deleted connections', async () => {
  const { db } = database;
  const row = async (name: string) => {
    const [found] = await db.query<{ id: number; at: Date | null }>(
      'select id, last_used_at as at from connection where connection_id = $1 and environment_id = $2',
      [name, environmentId],
    );
    return found!;
  };
  const { id } = await row('c1');
  const at = new Date('2026-11-01T12:00:00Z');
  const later = (seconds: number) => new Date(at.getTime() + seconds * 1000);
  const nodes = Array.from({ length: 20 }, () => createLastUse(db));
  const connection = (lastUsedAt?: Date) => ({
    id,
    environmentId,
    lastUsedAt,
    isUnverified: false,
    credentialsVersion: 1,
  });
  for (const [index, node] of nodes.entries()) node.record(connection(), later(index / 100));
  await Promise.all(nodes.map((node) => node.settled()));
  const first = (await row('c1')).at!;
  assert.ok(first >= at && first < later(1));
  const shared = connection(first);
  nodes[0]!.record(shared, later(59));
  await nodes[0]!.settled();
  assert.deepEqual((await row('c1')).at, first);
  nodes[0]!.record(shared, later(61));
  nodes[0]!.record(shared, later(62));
  await nodes[0]!.settled();
  assert.deepEqual((await row('c1')).at, later(61));
  assert.deepEqual(shared.lastUsedAt, later(61));

  nodes[0]!.record({ ...connection(), id: (await row('c3')).id }, at);
  nodes[0]!.record({ ...connection(), environmentId: environmentId + 1 }, later(600));
  await nodes[0]!.settled();
  assert.equal((await row('c3')).at, null);
  assert.deepEqual((await row('c1')).at, later(61));
});

test('a proof verifies a connection in the write of its use, once for many calls and nodes', async () => {
  const { db } = database;
  await db.query(`
    create table written (connection bigint not null);
    create function count_write() returns trigger language plpgsql as $$
      begin insert into written values (new.id); return null; end
    $$;
    create trigger count_write after update on connection for each row execute function count_write()`);
  const at = new Date('2026-11-01T12:00:00Z');
  const later = (seconds: number) => new Date(at.getTime() + seconds * 1000);
  const begin = async (name: string) => {
    const [row] = await db.query<{ id: number; credentialsVersion: number }>(
      `update connection
       set is_unverified = true, last_used_at = null
       where connection_id = $1 and environment_id = $2
       returning id, credentials_version as "credentialsVersion"`,
      [name, environmentId],
    );
    await db.query('truncate written');
    return () => ({ ...row!, environmentId, lastUsedAt: undefined, isUnverified: true });
  };
  const stored = async (name: string) => {
    const [row] = await db.query(
      `select
         is_unverified as "isUnverified",
         last_used_at as "lastUsedAt",
         (select count(*)::integer from written where written.connection = connection.id) as writes
       from connection
       where connection_id = $1 and environment_id = $2`,
      [name, environmentId],
    );
    return row;
  };

  const unproven = (await begin('c20'))();
  const one = createLastUse(db);
  for (let call = 0; call < 20; call += 1) one.record(unproven, later(call));
  await one.settled();
  assert.deepEqual(await stored('c20'), { isUnverified: true, lastUsedAt: at, writes: 1 });

  // A proof that comes after the write of the use, and within its minute.
  for (let call = 0; call < 20; call += 1) one.prove(unproven, later(30));
  await one.settled();
  assert.deepEqual(await stored('c20'), { isUnverified: false, lastUsedAt: later(30), writes: 2 });

  const cached = await begin('c21');
  const nodes = Array.from({ length: 20 }, () => createLastUse(db));
  for (const node of nodes) {
    const connection = cached();
    node.record(connection, at);
    node.prove(connection, at);
    node.prove(connection, at);
  }
  await Promise.all(nodes.map((node) => node.settled()));
  assert.deepEqual(await stored('c21'), { isUnverified: false, lastUsedAt: at, writes: 1 });

  // Imported again since the call began.
  const former = (await begin('c22'))();
  one.record(former, at);
  one.prove({ ...former, credentialsVersion: former.credentialsVersion - 1 }, later(1));
  await one.settled();
  assert.deepEqual(await stored('c22'), { isUnverified: true, lastUsedAt: later(1), writes: 1 });

  // Calls that the provider accepts and refuses by turns, and one refusal of the credentials before.
  const alternating = (await begin('c23'))();
  for (let call = 0; call < 20; call += 1) {
    one.prove(alternating, at);
    await one.settled();
    one.refuse(alternating);
    await one.settled();
  }
  assert.deepEqual(await stored('c23'), { isUnverified: false, lastUsedAt: at, writes: 3 });
  one.refuse({ ...alternating, credentialsVersion: alternating.credentialsVersion - 1 });
  await one.settled();
  assert.deepEqual(await stored('c23'), { isUnverified: false, lastUsedAt: at, writes: 3 });
  await db.query('drop trigger count_write on connection');
});

test('pages by position join without a gap, also when connections of one moment are deleted between them', async () => {
  const { db } = database;
  const moment = `timestamptz '2026-01-07 22:39:00.000001'`;
  await db.query(
    `update connection set created_at = ${moment} + interval '1 microsecond' * (id % 3)
     where environment_id = $1 and connection_id = any($2)`,
    [environmentId, Array.from({ length: 30 }, (_, n) => `c${9_900 + n}`)],
  );
  const all = await list({}, { limit: many });
  const joined: string[] = [];
  let before: string | undefined;
  const gone: string[] = [];
  for (let page = 0; page < 20; page += 1) {
    const rows = await listConnections(db, {
      vault,
      filter: filter(),
      sort: 'created' as const,
      limit: 10,
      page: 0,
      before,
    });
    joined.push(...rows.map(({ connectionId }) => connectionId));
    before = rows.at(-1)!.position;
    // Also the one that the position names.
    gone.push(joined.at(-1)!, joined.at(-3)!);
    await db.query(
      'update connection set deleted_at = now(), data_key = null where connection_id = any($1) and environment_id = $2',
      [gone, environmentId],
    );
  }
  assert.deepEqual(joined, all.slice(0, 200));
});

test('a search with a filter, and its pages, know the time of creation that an import has set', async () => {
  const { db } = database;
  const move = (by: string) =>
    db.query(
      `update connection set created_at = created_at ${by}
       where environment_id = $1 and connection_id like 'c12__'`,
      [environmentId],
    );
  await move("- interval '200 days'");
  assert.equal(
    await count({ search: 'person', statuses: ['active'] }),
    await count({ statuses: ['active'] }),
  );
  const found: string[] = [];
  for (let before: string | undefined; ; ) {
    const page = await listConnections(db, {
      vault,
      filter: filter({ search: 'person' }),
      sort: 'created',
      limit: 1_000,
      page: 0,
      before,
    });
    if (page.length === 0) break;
    found.push(...page.map(({ connectionId }) => connectionId));
    before = page.at(-1)?.position;
  }
  assert.equal(new Set(found).size, await count({ search: 'person' }));
  assert.ok(found.slice(-100).every((id) => /^c12..$/.test(id)));
  await move("+ interval '200 days'");
});
