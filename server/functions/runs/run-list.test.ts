// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { randomUUIDv7 } from 'node:crypto';
import { after, before, test } from 'node:test';
import { getFunction } from '../deploys/store.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';
import { listRuns, type RunFilter } from './runs.ts';

let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());

const action = `exports.default = { type: 'action', description: 'A test.', async exec() {} };`;

type Of = Omit<RunFilter, 'environmentId' | 'integrationKey'>;

test('runs are found by each thing that they are of, in pages, newest first', async () => {
  for (const name of ['rows', 'tabs']) await bench.deploy(name, syncOf(''));
  await bench.deploy('rows', action, 'action');
  const functions = await Promise.all(
    (
      [
        ['rows', 'sync'],
        ['tabs', 'sync'],
        ['rows', 'action'],
      ] as const
    ).map(([name, kind]) => getFunction(bench.db, { ...bench.place, name, kind })),
  );
  const connections = await Promise.all(['ada', 'bob'].map((name) => bench.connect(name)));
  await bench.db.query('delete from sync');
  const made: (Of & { id: string })[] = [];
  for (let n = 0; n < 60; n += 1) {
    const of = functions[n % 3]!;
    const connection = n % 5 === 0 ? connections[1]! : connections[0]!;
    const state = n % 7 === 0 ? 'failed' : 'succeeded';
    const kind = of.kind === 'sync' && n % 4 === 0 ? 'webhook' : (of.kind as 'sync' | 'action');
    const id = randomUUIDv7();
    await bench.db.query(
      `insert into run (id, environment_id, function_id, version_id, connection_id, kind, trigger, state, ended_at)
       values ($1, $2, $3, $4, $5, $6, 'manual', $7, now())`,
      [id, bench.environment.id, of.id, of.versionId, connection.id, kind, state],
    );
    const connectionId = n % 5 === 0 ? 'bob' : 'ada';
    made.unshift({ id, function: of.name, functionKind: of.kind, connectionId, kind, state });
  }
  // Ids of one millisecond are in no order of their making.
  made.sort((a, b) => (a.id < b.id ? 1 : -1));
  const { environmentId } = bench.place;
  const values: Of[] = [
    {},
    ...['rows', 'tabs', 'none'].map((name) => ({ function: name })),
    { functionKind: 'sync' },
    { function: 'rows', functionKind: 'action' },
    { kind: 'webhook' },
    { kind: 'action' },
    { kind: 'on_event' },
    { kind: 'action', functionKind: 'sync' },
    { state: 'failed' },
    { state: 'running' },
  ];
  for (const value of values) {
    for (const connectionId of [undefined, 'ada', 'bob', 'nobody']) {
      const filter = { ...value, ...(connectionId && { connectionId }) };
      const expected = made.filter((one) =>
        Object.entries(filter).every(([name, wanted]) => one[name as keyof Of] === wanted),
      );
      const listed: string[] = [];
      for (let before: string | undefined; ; ) {
        const page = await listRuns(bench.db, { environmentId, ...filter, before, limit: 7 });
        listed.push(...page.map(({ id }) => id));
        if (page.length < 7) break;
        before = page.at(-1)!.id;
      }
      assert.deepEqual(
        listed,
        expected.map(({ id }) => id),
        JSON.stringify(filter),
      );
    }
  }
  const place = { environmentId, integrationKey: 'api', limit: 100 };
  assert.equal((await listRuns(bench.db, place)).length, 60);
  assert.deepEqual(await listRuns(bench.db, { ...place, integrationKey: 'none' }), []);
  assert.deepEqual(await listRuns(bench.db, { ...place, environmentId: environmentId + 1 }), []);
});

test('where few runs, or none, are of a kind or state, no list looks at all the others', async () => {
  const [of] = await bench.db.query<{ id: number; version: number }>(
    `select id, version_id as version from function where kind = 'sync' order by id limit 1`,
  );
  await bench.db.query(
    `insert into run (id, environment_id, function_id, version_id, kind, trigger, state, ended_at)
     select gen_random_uuid(), $1, $2, $3, 'sync', 'schedule', 'succeeded', now()
     from generate_series(1, 20000)`,
    [bench.environment.id, of!.id, of!.version],
  );
  await bench.db.query("delete from run where kind = 'webhook' or state = 'cancelled'");
  await bench.db.query('vacuum analyze run');
  const read = async () => {
    await bench.db.query('select pg_stat_force_next_flush()');
    const [row] = await bench.db.query<{ rows: number }>(
      `select (idx_tup_fetch + seq_tup_read)::integer as rows from pg_stat_user_tables where relname = 'run'`,
    );
    return row!.rows;
  };
  const { environmentId } = bench.place;
  for (const filter of [{ kind: 'webhook' }, { state: 'cancelled' }, { state: 'failed' }] as const) {
    const before = await read();
    await listRuns(bench.db, { environmentId, ...filter, limit: 10 });
    assert.ok((await read()) - before < 1_000, JSON.stringify(filter));
  }
});
