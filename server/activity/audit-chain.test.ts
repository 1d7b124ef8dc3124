import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { asOwnerOfAudit } from '../../test/support/audit.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../../test/support/database.ts';
import { openDb } from '../db/pool.ts';
import { keepPlacing } from '../db/sequencer.ts';
import { writeAudit } from './audit.ts';
import { auditSequence, canonicalText, chainAll, headOf, verifyAudit } from './audit-chain.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
afterEach(() =>
  asAttacker([
    'truncate audit restart identity',
    `update sequencer set last_position = 0, chain = null where name = 'audit'`,
  ]),
);
after(() => database.drop());

const asAttacker = (statements: string[]) => asOwnerOfAudit(database.db, statements);

const write = (target: string, tx: Parameters<typeof writeAudit>[0] = database.db) =>
  writeAudit(tx, {
    environmentId: 1,
    actor: 'key:1',
    action: 'thing.changed',
    target,
    details: { b: 'ß "', a: 1.5, none: null },
  });

async function fill(count: number): Promise<void> {
  for (let n = 1; n <= count; n += 1) await write(`thing-${n}`);
  await chainAll(database.db);
}

/** Moves all positions behind `after` by so many. */
const shift = (after: number, by: number) => [
  `update audit set position = -(position + ${by}) where position > ${after}`,
  'update audit set position = -position where position < 0',
];

test('entries are chained in order, and the chain can be written again by hand', async () => {
  await fill(3);
  const { fault, ...verdict } = await verifyAudit(database.db);
  assert.equal(fault, undefined);
  const rows = await database.db.query<{ id: number; at: string; text: string; chain: Buffer }>(
    `select id, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, chain
     from audit
     order by position`,
  );
  let chain = Buffer.alloc(32);
  for (const [index, row] of rows.entries()) {
    const text =
      `{"action":"thing.changed","actor":"key:1","created_at":"${row.at}","details":{"a":1.5,"b":"ß \\"","none":null},` +
      `"environment_id":1,"id":${row.id},"position":${index + 1},"target":"thing-${index + 1}"}`;
    chain = createHash('sha256').update(chain).update(text).digest();
    assert.deepEqual(chain, row.chain);
  }
  assert.deepEqual(verdict, { proven: 3, waiting: 0, head: { position: 3, chain: chain.toString('hex') } });
  assert.deepEqual(await headOf(database.db), { position: 3, chain });
});

test('names that look like numbers are sorted as text', () => {
  const entry = { id: 1, createdAt: '', environmentId: null, actor: '', action: '', target: '' };
  assert.ok(
    canonicalText({ ...entry, details: { 9: [{ z: 1, y: true }], 10: 'a' } }, 1).includes(
      '"details":{"10":"a","9":[{"y":true,"z":1}]}',
    ),
  );
});

test('an entry that was written is never changed, moved, removed or emptied', async () => {
  await fill(2);
  await write('waiting');
  const refused = [
    `update audit set target = 'other'`,
    `update audit set details = '{}' where position is null`,
    `update audit set position = 9, chain = '\\x00', actor = 'me' where position is null`,
    'update audit set position = 9 where position = 2',
    `update audit set chain = '\\x00' where position = 2`,
    'update audit set position = null, chain = null where position = 2',
    'delete from audit where position = 1',
    'truncate audit',
  ];
  for (const statement of refused) {
    await assert.rejects(database.db.query(statement), /append-only/, statement);
  }
  await chainAll(database.db);
  assert.equal((await verifyAudit(database.db)).proven, 3);
});

const attacks: {
  what: string;
  statements: string[];
  found: [kind: string, position: number];
}[] = [
  { what: 'other content', statements: [`update audit set target = 'x' where position = 5`], found: ['changed', 5] },
  { what: 'another time', statements: [`update audit set created_at = created_at + interval '1 microsecond' where position = 5`], found: ['changed', 5] },
  { what: 'another detail', statements: [`update audit set details = '{"a": 2}' where position = 5`], found: ['changed', 5] },
  { what: 'another environment', statements: ['update audit set environment_id = null where position = 5'], found: ['changed', 5] },
  { what: 'another hash', statements: [`update audit set chain = sha256('x') where position = 5`], found: ['changed', 5] },
  { what: 'no hash', statements: ['update audit set chain = null where position = 5'], found: ['changed', 5] },
  { what: 'other content of the first', statements: [`update audit set actor = 'x' where position = 1`], found: ['changed', 1] },
  { what: 'other content of the last', statements: [`update audit set actor = 'x' where position = 12`], found: ['changed', 12] },
  { what: 'another hash of the last', statements: [`update audit set chain = sha256('x') where position = 12`], found: ['changed', 12] },
  { what: 'a removed one', statements: ['delete from audit where position = 5'], found: ['removed', 5] },
  { what: 'the first removed', statements: ['delete from audit where position = 1'], found: ['removed', 1] },
  { what: 'three removed', statements: ['delete from audit where position in (5, 6, 7)'], found: ['removed', 5] },
  { what: 'the last removed', statements: ['delete from audit where position = 12'], found: ['removed', 12] },
  { what: 'all removed', statements: ['delete from audit'], found: ['removed', 1] },
  { what: 'one removed and the others moved up', statements: ['delete from audit where position = 5', ...shift(5, -1)], found: ['removed', 5] },
  { what: 'two removed and the others moved up', statements: ['delete from audit where position in (5, 6)', ...shift(6, -2)], found: ['removed', 5] },
  { what: 'two that changed places with their hashes', statements: ['update audit set position = -1 where position = 5', 'update audit set position = 5 where position = 9', 'update audit set position = 9 where position = -1'], found: ['reordered', 5] },
  { what: 'neighbours that changed places', statements: ['update audit set position = -1 where position = 5', 'update audit set position = 5 where position = 6', 'update audit set position = 6 where position = -1'], found: ['reordered', 5] },
  { what: 'the last two that changed places', statements: ['update audit set position = -1 where position = 11', 'update audit set position = 11 where position = 12', 'update audit set position = 12 where position = -1'], found: ['reordered', 11] },
  { what: 'contents that changed places', statements: ['update audit as one set chain = other.chain from audit as other where one.position in (5, 6) and other.position = 11 - one.position', 'update audit set position = -1 where position = 5', 'update audit set position = 5 where position = 6', 'update audit set position = 6 where position = -1'], found: ['reordered', 5] },
  { what: 'one moved to the end', statements: ['update audit set position = 13 where position = 5'], found: ['reordered', 5] },
  { what: 'one put in', statements: [...shift(4, 1), `insert into audit (position, chain, actor, action, target) values (5, sha256('x'), 'a', 'b', 'c')`], found: ['inserted', 5] },
  { what: 'two put in', statements: [...shift(4, 2), `insert into audit (position, chain, actor, action, target) values (5, sha256('x'), 'a', 'b', 'c'), (6, sha256('y'), 'a', 'b', 'd')`], found: ['inserted', 5] },
  { what: 'one put in before the last', statements: [...shift(11, 1), `insert into audit (position, chain, actor, action, target) values (12, sha256('x'), 'a', 'b', 'c')`], found: ['inserted', 12] },
  { what: 'one put behind the end', statements: [`insert into audit (position, chain, actor, action, target) values (13, sha256('x'), 'a', 'b', 'c')`], found: ['inserted', 13] },
  { what: 'one put at a taken place', statements: ['alter table audit drop constraint audit_position_unique', `insert into audit (position, chain, actor, action, target) values (5, sha256('x'), 'a', 'b', 'c')`], found: ['inserted', 6] },
  { what: 'one put at a taken place, with an earlier id', statements: ['alter table audit drop constraint audit_position_unique', `insert into audit (id, position, chain, actor, action, target) overriding system value values (0, 5, sha256('x'), 'a', 'b', 'c')`], found: ['inserted', 5] },
]; // biome-ignore format: a line each

for (const { what, statements, found } of attacks) {
  test(`verify finds ${what}`, async () => {
    await fill(12);
    await asAttacker(statements);
    const { fault, proven } = await verifyAudit(database.db);
    assert.deepEqual([fault?.kind, fault?.position], found, String(fault?.message));
    assert.equal(proven, fault!.position - 1);
    await database.db.query('alter table audit drop constraint if exists audit_position_unique');
    await asAttacker(['truncate audit']);
    await database.db.query('alter table audit add constraint audit_position_unique unique (position)');
  });
}

test('a kept head finds a log that was cut off or rewritten', async () => {
  await fill(6);
  const { head: kept } = await verifyAudit(database.db);
  await fill(2);
  assert.equal((await verifyAudit(database.db, { kept })).fault, undefined);
  await asAttacker([
    'delete from audit where position > 4',
    `update sequencer set last_position = 4, chain = (select chain from audit where position = 4) where name = 'audit'`,
  ]);
  assert.equal((await verifyAudit(database.db)).fault, undefined);
  const cut = await verifyAudit(database.db, { kept });
  assert.deepEqual([cut.fault?.kind, cut.fault?.position], ['removed', 5]);
  await fill(5);
  const rewritten = await verifyAudit(database.db, { kept });
  assert.deepEqual([rewritten.fault?.kind, rewritten.fault?.position], ['changed', 6]);
});

test('an entry that its owner removes while it is chained leaves the chain whole', async () => {
  await fill(1);
  for (const target of ['goes', 'stays', 'stays too']) await write(target);
  const other = openDb(database.target);
  await other.transaction(async (tx) => {
    await tx.query(`select set_config('session_replication_role', 'replica', true)`);
    await tx.query(`delete from audit where target = 'goes'`);
    await chainAll(database.db);
  });
  await other.end();
  await write('later');
  await chainAll(database.db);
  const { proven, waiting, fault } = await verifyAudit(database.db);
  assert.deepEqual([proven, waiting, fault], [4, 0, undefined]);
});

test('eight writers, none missed, in a chain that holds while it grows', async () => {
  const sequencer = keepPlacing(database.db, {
    sequences: [auditSequence],
    everyMs: 5,
    onError: (error) => assert.fail(String(error)),
  });
  await writeMuch();
  await sequencer.stop();
  await chainAll(database.db);
  const { proven, waiting, fault } = await verifyAudit(database.db);
  assert.deepEqual([proven, waiting, fault], [160, 0, undefined]);
});

test('the sequencer is killed again and again, and the chain holds', async () => {
  let isWriting = true;
  let kills = 0;
  const killer = (async () => {
    while (isWriting || kills === 0) {
      const child = startSequencer();
      await once(child.stdout!, 'data');
      await sleep(Math.random() * 60);
      await kill(child);
      kills += 1;
    }
  })();
  await writeMuch();
  isWriting = false;
  await killer;
  await chainAll(database.db);
  const { proven, waiting, fault } = await verifyAudit(database.db);
  assert.deepEqual([proven, waiting, fault], [160, 0, undefined]);
});

test('a sequencer that is killed within a step leaves no trace', async () => {
  for (let n = 1; n <= 5; n += 1) await write(`thing-${n}`);
  const child = startSequencer('hold');
  await once(child.stdout!, 'data');
  await write('later');
  assert.equal((await verifyAudit(database.db)).waiting, 6);
  await kill(child);
  await chainAll(database.db);
  const { proven, fault } = await verifyAudit(database.db);
  assert.deepEqual([proven, fault], [6, undefined]);
});

/** Eight at once, twenty entries each, which commit in another order than they were written in. */
async function writeMuch(): Promise<void> {
  const writers = Array.from({ length: 8 }, async (_, writer) => {
    for (let n = 0; n < 20; n += 1) {
      await database.db.transaction(async (tx) => {
        await write(`${writer}-${n}`, tx);
        await sleep(Math.random() * 20);
      });
    }
  });
  await Promise.all(writers);
}

function startSequencer(...mode: string[]): ChildProcess {
  const file = join(import.meta.dirname, 'audit-sequencer.fixture.ts');
  return spawn(process.execPath, [file, urlOf(database.target), ...mode], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

async function kill(child: ChildProcess): Promise<void> {
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
