import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { mayRefresh } from './nodes.ts';

const connection = 7;
const sinceMs = 3_000;
let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());

/** Seconds since the last renewal of its row, and since the first one without a gap before it. */
type Row = { seen: number; reachable: number; refreshing?: number[]; migration?: string };

const cases: Record<string, { nodes: Row[]; expected: boolean }> = {
  'no node': { nodes: [], expected: false },
  'a node that refreshes another connection': {
    nodes: [{ seen: 1, reachable: 60, refreshing: [8] }],
    expected: false,
  },
  'a node that refreshes it': { nodes: [{ seen: 1, reachable: 60, refreshing: [8, 7] }], expected: true },
  'a node that has not renewed its row since': { nodes: [{ seen: 4, reachable: 60 }], expected: true },
  'a killed node': {
    nodes: [
      { seen: 1, reachable: 60 },
      { seen: 40, reachable: 60, refreshing: [7] },
    ],
    expected: false,
  },
  'a killed node, and a node of a version that does not tell outages': {
    nodes: [
      { seen: 1, reachable: 60, migration: '0072_imported_before.sql' },
      { seen: 40, reachable: 60, refreshing: [7] },
    ],
    expected: true,
  },
  'a silent node after an outage of the database': {
    nodes: [
      { seen: 1, reachable: 2 },
      { seen: 40, reachable: 60 },
    ],
    expected: true,
  },
  'only silent nodes': { nodes: [{ seen: 40, reachable: 60 }], expected: true },
};

for (const [name, { nodes, expected }] of Object.entries(cases))
  test(`whether a node may still have the answer to a refresh: ${name}`, async () => {
    const { db } = database;
    await db.query('delete from node');
    for (const { seen, reachable, refreshing = [], migration = '0073_refreshing_nodes.sql' } of nodes)
      await db.query(
        `insert into node (id, name, role, version, migration, seen_at, reachable_since, refreshing)
         values (
           gen_random_uuid(), 'one', 'all', '1.0.0', $4,
           clock_timestamp() - make_interval(secs => $1),
           clock_timestamp() - make_interval(secs => $2),
           $3
         )`,
        [seen, reachable, refreshing, migration],
      );
    assert.equal(await mayRefresh(db, { connection, sinceMs }), expected);
  });
