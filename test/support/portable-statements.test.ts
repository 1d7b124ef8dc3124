import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { acknowledge, findConsumer } from '../../server/records/retention/consumers.ts';
import { judgedStatements, portabilityFaults } from './portable-statements.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from './records.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

test('a statement that does not name the dataset in each relation is found', () => {
  const bad = [
    'select seq from record where seq > $1',
    'select seq from record where dataset_id = (select id from dataset where id = $1)',
    'select (select seq from record where dataset_id = dataset.id limit 1) from dataset where id = $1',
    'select body from record join payload using (dataset_id, seq) where dataset_id = $1',
    'select from record, payload where record.dataset_id = $1 and payload.seq = record.seq',
    'update payload set seq = 1 from (select ctid from payload where dataset_id = $1) as part where payload.ctid = part.ctid',
    'update dataset set last_modified_at = clock_timestamp() where id = $1',
    `update record set last_modified_at = last_modified_at - interval '1 day' where dataset_id = $1`,
    'delete from tracked',
    'with gone as (delete from payload where dataset_id = $1 returning seq), receipt as (insert into prune (dataset_id) select $1 from gone) select from gone',
    'insert into consumer (name, dataset_id) values ($1, $2)',
    `insert into prune (dataset_id) values (12); insert into dataset_outbox (id, dataset_id) values ('a', 12)`,
    'select from dataset join connection on connection.id = dataset.connection where dataset.id = $1',
  ];
  for (const statement of bad) assert.equal(portabilityFaults(statement).length, 1, statement);
});

test('a statement of one dataset is allowed, whatever its form', () => {
  const good = [
    'select seq from record where dataset_id = $1 and seq > $2 order by seq limit 1',
    'select "seq" from "record" where "dataset_id" = $1',
    'select seq from payload where dataset_id = 12 and exists (select from dataset where id = 12 and connection = 3)',
    'select from record join payload on payload.dataset_id = $1 and payload.seq = record.seq where record.dataset_id = $1',
    'update payload set seq = 1 from (select ctid as row_id from payload where dataset_id = $1) as part where payload.ctid = part.row_id and payload.dataset_id = $1::bigint::double precision',
    'with gone as (delete from payload where dataset_id = $1 returning seq) update dataset set pruned = 0 where id = $1',
    'insert into prune (dataset_id, pruned_at) values ($1, $2)',
    'insert into dataset (id, connection) overriding system value values ($1, $2)',
    `insert into prune (dataset_id) values (12); insert into dataset_outbox (dataset_id, entry) values (12, 'a; b')`,
    'copy payload (dataset_id, seq, body) from stdin (format binary)',
    'select payload from event where id = $1',
  ];
  for (const statement of good) assert.deepEqual(portabilityFaults(statement), [], statement);
});

test('the statements of writes, reads and removals are judged', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 9));
  await calls.save(rows(1, 3, 'other'));
  await calls.delete('r9');
  await calls.listAll();
  await calls.list({ ids: ['r1'] });
  const cursor = await calls.cursorOf(5);
  await calls.prune(cursor);
  const consumer = { connection: connection.id, model: 'Row', variant: 'base', name: 'reader' };
  await acknowledge(bench.db, { ...consumer, cursor, by: 'service' });
  await findConsumer(bench.db, consumer);
  const judged = judgedStatements();
  for (const part of [
    'for no key update',
    'insert into record',
    'copy payload (',
    'update record',
    'update payload',
    'delete from payload',
    'insert into prune',
    'insert into dataset_outbox',
    'insert into consumer',
    'select seq, body from payload where dataset_id = 0',
  ])
    assert.ok(
      judged.some((text) => text.includes(part)),
      part,
    );
});
