import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openEmptyDatabase } from '../../test/support/database.ts';
import { CopyRows } from './copy.ts';

const { db, drop } = await openEmptyDatabase();
after(drop);
await db.query('create table thing (id bigint primary key, size integer, body bytea, name text)');

test('rows go in by COPY and come out by COPY as they were, byte for byte', async () => {
  const bodies = [Buffer.alloc(0), Buffer.from([0, 255, 1]), Buffer.alloc(200_000, 7)];
  const ids = [1, 2 ** 32 + 5, Number.MAX_SAFE_INTEGER];
  const rows = new CopyRows(16);
  for (const [n, id] of ids.entries()) {
    rows
      .row(4)
      .int8(id)
      .int4(-n)
      .bytes(bodies[n] as Buffer)
      .text(`Grüße ${n} 🌍`);
  }
  const read: unknown[] = [];
  await db.transaction(async (tx) => {
    await tx.copyInto('thing (id, size, body, name)', rows);
    await tx.query('insert into thing (id) values (-1)');
    await tx.copyRows('select id, size, body, name from thing order by id', ([id, size, body, name]) => {
      read.push([
        Number(id?.readBigInt64BE()),
        size?.readInt32BE(),
        body && Buffer.from(body),
        name?.toString(),
      ]);
    });
  });
  assert.deepEqual(read, [
    [-1, undefined, undefined, undefined],
    ...ids.map((id, n) => [id, n === 0 ? 0 : -n, bodies[n], `Grüße ${n} 🌍`]),
  ]);
});

test('no row is handed over where there is none', async () => {
  await db.transaction((tx) =>
    tx.copyRows('select id from thing where id = 77', () => assert.fail('there is no such row')),
  );
});

test('what a reader throws ends the reading and comes out, and the transaction is rolled back', async () => {
  let calls = 0;
  const failing = db.transaction(async (tx) => {
    await tx.query('delete from thing');
    await tx.copyRows('select generate_series(1, 50000)', () => {
      calls += 1;
      throw new RangeError('enough');
    });
  });
  await assert.rejects(failing, { name: 'RangeError', message: 'enough' });
  assert.equal(calls, 1);
  assert.equal((await db.query('select from thing')).length, 4);
});

test('a row that breaks a constraint refuses the COPY, and the connection is good for more', async () => {
  const rows = new CopyRows();
  for (const id of [8, 9, 1]) rows.row(1).int8(id);
  await assert.rejects(
    db.transaction((tx) => tx.copyInto('thing (id)', rows)),
    { code: '23505', constraint: 'thing_pkey' },
  );
  await assert.rejects(
    db.transaction((tx) => tx.copyRows('select nothing from thing', () => {})),
    { code: '42703' },
  );
  assert.equal((await db.query('select from thing where id in (8, 9)')).length, 0);
});

test('a connection that is lost between two statements fails the transaction, not the process', async () => {
  const losing = db.transaction(async (tx) => {
    const [row] = await tx.query<{ pid: number }>('select pg_backend_pid() as pid');
    await db.query('select pg_terminate_backend($1, 5000)', [row?.pid]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await tx.query('select');
  });
  await assert.rejects(losing, { code: 'unavailable' });
  assert.equal((await db.query('select from thing')).length, 4);
});

test('rows that cannot be encoded reject the transaction, and the connection stays usable', async () => {
  const rows = new CopyRows(16);
  rows.end = () => {
    throw new RangeError('too large');
  };
  await assert.rejects(
    db.transaction((tx) => tx.copyInto('thing (id)', rows)),
    { message: 'too large' },
  );
  assert.equal((await db.query('select')).length, 1);
});
