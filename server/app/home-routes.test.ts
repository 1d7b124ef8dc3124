import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, openTrellis, type TestTrellis } from '../../test/support/trellis.ts';

const path = '/environment/health';
let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

async function health(key = trellis.keys.dev) {
  const { status, body, text } = await trellis.call('GET', path, { key });
  assert.equal(status, 200, text);
  return body;
}
const nothing = {
  connections: { active: 0, needs_reauth: 0, blocked: 0 },
  syncs: [],
  endpoints: [],
  integrations: [],
  quotas: [],
};

test('an environment without connections has no problems', async () => {
  assert.deepEqual(await health(), nothing);
});

test('each problem is counted once, in its environment', async () => {
  const { db } = trellis;
  const { connectionId, integration } = await connect(trellis);
  const [found] = await db.query<{ environment: number; integration: number }>(
    'select environment_id as environment, integration_id as integration from connection where connection_id = $1',
    [connectionId],
  );
  const { environment, integration: integrationId } = found!;
  const at = [environment, integrationId];
  await db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key, status, deleted_at)
     select
       $1, $2, status || n,
       case when status <> 'deleted' then gen_random_uuid() end,
       case when status = 'deleted' then 'needs_reauth' else status end,
       case when status = 'deleted' then now() end
     from (values ('needs_reauth', 3), ('blocked', 2), ('deleted', 4)) as of (status, count)
     cross join generate_series(1, count) as n`,
    at,
  );
  // Of each function: syncs with failures, and others that do not count. A job removes those of deleted connections.
  await db.query(
    `with functions as (
       insert into function (environment_id, integration_id, kind, name, origin, is_enabled)
       select $1, $2, 'sync', name, 'deploy', name <> 'off'
       from unnest(array['rows', 'files', 'off']) as name
       returning id, name
     )
     insert into sync (function_id, connection_id, failures, state, held)
     select
       functions.id,
       connection.id,
       case when functions.name = 'files' and connection.connection_id <> 'blocked1' then 0 else 2 end,
       case when connection.connection_id = 'blocked2' then 'paused' else 'active' end,
       case when connection.connection_id = 'needs_reauth3' then '{"code":"connection_dead"}'::jsonb end
     from functions
     cross join connection
     where connection.environment_id = $1 and connection.deleted_at is null`,
    at,
  );
  await db.query(
    `insert into endpoint
       (environment_id, kind, url, failures, failing_since, open_until, disabled_cause, disabled_at, deleted_at)
     values
       ($1, 'events', 'https://open.example/hook', 7, '2026-01-02', '2026-01-03', null, null, null),
       ($1, 'events', 'https://gone.example/hook', 0, null, null, 'gone', '2026-01-01', null),
       ($1, 'events', 'https://retried.example/hook', 1, '2026-01-01', null, null, null, null),
       ($1, 'events', 'https://off.example/hook', 9, '2026-01-01', '2026-01-03', 'operator', '2026-01-01', null),
       ($1, 'events', 'https://deleted.example/hook', 7, '2026-01-01', '2026-01-03', null, null, now())`,
    [environment],
  );
  const own = await trellis.call('POST', '/integrations', {
    body: {
      provider: 'google-sheet',
      integration_id: 'own',
      display_name: 'Our sheets',
      credentials: {
        type: 'OAUTH2',
        client_id: '123-one.apps.googleusercontent.com',
        client_secret: 'secret',
      },
    },
  });
  assert.equal(own.status, 200, own.text);
  await db.query(
    `update integration
     set fault = '{"cause":"client_refused","evidence":{},"since":"2026-01-01T00:00:00.000Z","next_step":"Check."}'
     where key = 'own'`,
  );
  const reads = 'ReadRequestsPerMinutePerProject';
  await db.query(
    `insert into quota_book (bucket, pages, version)
     select
       $1,
       jsonb_build_object('closedUntil', 0, 'cells', jsonb_build_array(
         jsonb_build_array(floor(extract(epoch from clock_timestamp()) / 2)::integer - 1, 200, 70)
       )),
       gen_random_uuid()`,
    [JSON.stringify(['sheets.googleapis.com', '123', '', reads, 60])],
  );

  const { quotas, endpoints, ...rest } = await health();
  assert.deepEqual(rest, {
    connections: { active: 1, needs_reauth: 3, blocked: 2 },
    syncs: [
      { integration_id: integration, function: 'rows', failing: 4 },
      { integration_id: integration, function: 'files', failing: 1 },
    ],
    integrations: [
      {
        integration_id: 'own',
        display_name: 'Our sheets',
        cause: 'client_refused',
        since: '2026-01-01T00:00:00.000Z',
      },
    ],
  });
  assert.deepEqual(
    (endpoints as Record<string, unknown>[]).map(({ id: _, ...one }) => one),
    [
      {
        url: 'https://gone.example/hook',
        disabled: true,
        failures: 0,
        failing_since: '2026-01-01T00:00:00.000Z',
      },
      {
        url: 'https://open.example/hook',
        disabled: false,
        failures: 7,
        failing_since: '2026-01-02T00:00:00.000Z',
      },
    ],
  );
  assert.deepEqual((quotas as unknown[])[0], {
    integration_id: 'own',
    name: reads,
    limit: 300,
    window_s: 60,
    used: 270,
    closed_until: null,
  });
  assert.deepEqual(await health(trellis.keys.prod), nothing);
});

test('the figures need the scope of the activity log', async () => {
  const answer = await trellis.call('GET', path, { key: await trellis.keyWith('connections:read') });
  assert.equal(answer.status, 403);
});
