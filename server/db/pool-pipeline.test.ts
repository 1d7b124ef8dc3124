import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { AppError } from '../errors.ts';
import { copied } from './copy.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
  await database.db.query('create table thing (n bigint primary key, body bytea)');
  await database.db.query(
    "insert into thing select n, decode('00ff', 'hex') from generate_series(1, 3) as n",
  );
});
after(() => database.drop());

const ignored = { onRow() {}, onCopied() {} };

test('rows come with the statement that they answer, those of the COPY as bytes', async () => {
  const rows: [number, readonly (string | null)[]][] = [];
  const bodies: (Buffer | undefined)[] = [];
  await database.db.pipeline({
    statements: [
      'select n, null from thing order by n limit 2',
      copied('select body from thing'),
      'select count(*) from thing',
    ],
    onRow: (statement, values) => rows.push([statement, values]),
    onCopied: ([body]) => bodies.push(Buffer.from(body!)),
  });
  assert.deepEqual(rows, [
    [0, ['1', null]],
    [0, ['2', null]],
    [2, ['3']],
  ]);
  assert.deepEqual(bodies, Array(3).fill(Buffer.from('00ff', 'hex')));
});

test('all statements see one moment', async () => {
  const counts: string[] = [];
  let written: Promise<unknown> | undefined;
  await database.db.pipeline({
    statements: ['select count(*) from thing', 'select pg_sleep(0.3)', 'select count(*) from thing'],
    onRow(statement, [value]) {
      if (statement === 1) return;
      counts.push(value!);
      written ??= database.db.query('insert into thing values (4)');
    },
    onCopied() {},
  });
  await written;
  assert.deepEqual(counts, ['3', '3']);
  await database.db.query('delete from thing where n = 4');
});

test('a flight writes nothing, and a failing one leaves its connection as good as before', async () => {
  const refused = database.db.pipeline({ statements: ['delete from thing'], ...ignored });
  await assert.rejects(refused, { code: 'unavailable' });
  await assert.rejects(database.db.pipeline({ statements: ['select 1/0', 'select 1'], ...ignored }), /zero/);
  const { total, idle } = database.db.load();
  assert.equal(total, idle);
  assert.deepEqual(await database.db.query('select count(*) as count from thing'), [{ count: 3 }]);
});

test('what a handler throws ends the flight, and nothing more is handed over', async () => {
  let handed = 0;
  const pipeline = database.db.pipeline({
    statements: ['select n from thing', copied('select n from thing')],
    onRow() {
      handed += 1;
      throw new AppError('invalid_cursor');
    },
    onCopied() {
      handed += 1;
    },
  });
  await assert.rejects(pipeline, { code: 'invalid_cursor' });
  assert.equal(handed, 1);
});
