import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { logAll } from '../../server/activity/logging.fixture.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;
const many = 1_300;
before(async () => {
  trellis = await openTrellis();
  ({ headers } = await connect(trellis));
  const { db } = trellis;
  const [row] = await db.query<{ environment: number }>(
    'select environment_id as environment from connection limit 1',
  );
  const environmentId = row!.environment;
  // Some at the same time: their order is by row.
  await db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key, account_id, account_email, created_at)
     select environment_id, integration_id, 'copy-' || n, gen_random_uuid(), 'a' || n, '=person' || n || '@example.com',
       timestamptz '2026-01-01 00:00:00.000001' + n / 7 * interval '1 microsecond'
     from connection, generate_series(1, $1::integer) as n
     where environment_id = $2`,
    [many, environmentId],
  );
  await db.query(
    `insert into audit (environment_id, actor, action, target, details)
     select $1, 'service', 'test.entry', 'target-' || n, '{}' from generate_series(1, $2::integer) as n`,
    [environmentId, many],
  );
  await logAll(
    db,
    Array.from({ length: many }, (_, n) => ({
      at: `2026-11-${1 + (n % 20)}T10:00:00.000Z`.replace(/-(\d)T/, '-0$1T'),
      environmentId,
      connection: `copy-${n}`,
      integration: 'sheet',
      path: `/v4/values/${n}`,
      ...(n % 10 === 0 && { status: 'failed' as const, errorCode: 'upstream_timeout' }),
    })),
  );
  const records = Array.from({ length: many }, (_, n) => ({ id: `r${n}`, name: `-name ${n}`, size: n }));
  const saved = await trellis.call('POST', '/records', { headers, body: { model: 'City', records } });
  assert.equal(saved.status, 200, saved.text);
  // The service writes operations later, in their order. Without this wait it could write this operation between a list and
  // its export.
  while ((await pagesOf('/operations?type=records.save', 'operations')).length === 0) await pause(20);
});
after(() => trellis.close());

type Entry = Record<string, unknown>;
const lists: [path: string, items: string][] = [
  ['/connections', 'connections'],
  ['/connections?search=person12', 'connections'],
  ['/operations', 'operations'],
  ['/operations?status=failed&type=proxy', 'operations'],
  ['/audit', 'entries'],
  ['/audit?action=test.entry', 'entries'],
  ['/records?model=City', 'records'],
  ['/records?model=City&filter=added&modified_after=2026-01-01', 'records'],
  ['/events/types', 'types'],
];

async function pagesOf(path: string, items: string): Promise<Entry[]> {
  const all: Entry[] = [];
  let cursor: unknown;
  do {
    const url = new URL(path, trellis.baseUrl);
    url.searchParams.set('limit', '700');
    if (cursor !== undefined) url.searchParams.set('cursor', String(cursor));
    const page = await trellis.call('GET', url.pathname + url.search, { headers });
    assert.equal(page.status, 200, page.text);
    all.push(...(page.body[items] as Entry[]));
    cursor = page.body.next_cursor;
  } while (cursor !== null);
  return all;
}

const exported = (path: string, accept: string, key?: string) =>
  trellis.call('GET', path, { headers: { ...headers, accept }, ...(key && { key }) });

for (const [path, items] of lists) {
  test(`an export of ${path} has the entries of its pages`, async () => {
    const entries = await pagesOf(path, items);
    assert.ok(entries.length > 1);
    const lines = (await exported(path, 'application/x-ndjson')).text.trimEnd().split('\n');
    assert.deepEqual(JSON.parse(lines.pop()!), { _trellis_export: { count: entries.length } });
    assert.deepEqual(
      lines.map((line) => JSON.parse(line)),
      entries,
    );
    const csv = (await exported(path, 'text/csv')).text;
    assert.equal(csv.split('\r\n').length - 2, entries.length);
  });
}

test('the columns of a CSV are the fields, and e-mail addresses that look like a formula are texts', async () => {
  const connections = (await exported('/connections?search=copy-12&status=active', 'text/csv')).text;
  const [head, first] = connections.split('\r\n');
  assert.match(head!, /^id,connection_id,provider_config_key,provider,test,/);
  for (const name of ['account.email', 'health.status', 'health.cause', 'integration_id', 'created'])
    assert.ok(head!.split(',').includes(name), name);
  assert.match(first!, /,'=person12\d*@example\.com,/);
  const [fields, city] = (await exported('/records?model=City&ids=r7', 'text/csv')).text.split('\r\n');
  assert.match(fields!, /^id,_trellis_metadata\.first_seen_at,.*,name,size,other_fields$/);
  assert.match(city!, /^r7,.*,'-name 7,7,$/);
});

test('a connection that is deleted during an export hides no other', async () => {
  const { db } = trellis;
  const before = await trellis.call('GET', '/connections?limit=500');
  const [one, other] = [before.body.connections as Entry[], before.body.next_cursor as string];
  await db.query(`update connection set deleted_at = now(), data_key = null where connection_id = any($1)`, [
    one.slice(0, 20).map((connection) => connection.connection_id),
  ]);
  const next = await trellis.call('GET', `/connections?limit=500&cursor=${other}`);
  const names = (entries: Entry[]) => entries.map((connection) => connection.connection_id);
  const rest = await db.query<{ name: string }>(
    `select connection_id as name from connection where deleted_at is null order by created_at desc, id desc
     offset 480 limit 500`,
  );
  assert.deepEqual(
    names(next.body.connections as Entry[]),
    rest.map(({ name }) => name),
  );
});

test('an export needs the scope of its list', async () => {
  const key = await trellis.keyWith('connections:read');
  for (const path of ['/operations', '/audit', '/records?model=City'])
    assert.equal((await exported(path, 'text/csv', key)).status, 403);
  assert.equal((await exported('/connections', 'text/csv', key)).status, 200);
});
