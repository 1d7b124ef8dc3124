// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { queueRuns } from '../runs/queue.ts';
import { openRunsBench, type RunsBench, syncOf } from '../runs/runs.fixture.ts';
import { allowMassDeletes, lockSyncs } from '../syncs/syncs.ts';

/** The usual order of a sync whose source loses most of its rows; pages of 100. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  for (const table of ['run', 'function', 'connection', 'dataset'])
    await bench.db.query(`delete from ${table}`);
});

const code = syncOf(`
  const checkpoint = await nango.getCheckpoint();
  await nango.trackDeletesStart('Row');
  for (let page = checkpoint?.page ?? 0; ; page += 1) {
    const { data } = await nango.get({ endpoint: '/rows', params: { page } });
    if (data.length === 0) break;
    await nango.batchSave(data, 'Row');
    await nango.saveCheckpoint({ page: page + 1 });
  }
  const { deletedKeys } = await nango.trackDeletesEnd('Row');
  await nango.log('deleted ' + deletedKeys.length);
  await nango.clearCheckpoint();
`);

async function open(count: number) {
  const given = {
    rows: Array.from({ length: count }, (_, n) => String(n).padStart(4, '0')),
    pages: [] as number[],
  };
  bench.serve(({ url }, response) => {
    const page = Number(new URL(url ?? '', 'http://x').searchParams.get('page'));
    given.pages.push(page);
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(given.rows.slice(page * 100, page * 100 + 100).map((id) => ({ id }))));
  });
  await bench.deploy('rows', code);
  const { id, connectionId } = await bench.connect(crypto.randomUUID());
  const wanted = [{ name: 'rows', variant: 'base' }];
  return {
    given,
    id,
    /** The next run: how it ended. */
    async run() {
      given.pages.length = 0;
      await bench.db.query('delete from run_line');
      await bench.one.runner.runDue();
      bench.advance(3_600_000);
      const last = (await bench.runs()).at(-1);
      return last?.error ?? last?.state;
    },
    allow: (count: number) =>
      bench.db.transaction(async (tx) => {
        const [sync] = await lockSyncs(tx, { ...bench.place, connectionId, wanted });
        await allowMassDeletes(tx, { sync: sync!, allowed: { Row: count } });
        await queueRuns(tx, { syncIds: [sync!.id], at: bench.now() });
      }),
    live: async () => (await bench.records(id)).length,
  };
}
const held = { code: 'mass_delete_held' };

test('after a hold the next run reads everything again, and deletes only the allowed records', async () => {
  const sync = await open(499);
  assert.equal(await sync.run(), 'succeeded');
  const all = sync.given.rows;
  sync.given.rows = all.slice(0, 200);
  assert.partialDeepStrictEqual(await sync.run(), held);
  assert.deepEqual(await bench.db.query('select from function_checkpoint'), []);
  assert.partialDeepStrictEqual(await sync.run(), held);
  assert.deepEqual(sync.given.pages, [0, 1, 2]);

  await sync.allow(299);
  sync.given.rows = all.slice(0, 100);
  assert.equal(await sync.run(), 'succeeded');
  // The hundred that went since were seen by the held tracking: they go at the next whole run.
  assert.equal(await sync.live(), 200);
  assert.equal(await sync.run(), 'succeeded');
  assert.deepEqual(sync.given.pages, [0, 1]);
  assert.equal(await sync.live(), 100);
});

test('an allowed deletion is used once, and not for more than was shown', async () => {
  const sync = await open(499);
  await sync.run();
  sync.given.rows = sync.given.rows.slice(0, 200);
  assert.partialDeepStrictEqual(await sync.run(), held);
  await sync.allow(250);
  assert.partialDeepStrictEqual(await sync.run(), held);
  assert.partialDeepStrictEqual(await sync.run(), held);
  assert.equal(await sync.live(), 499);
  await sync.allow(299);
  assert.equal(await sync.run(), 'succeeded');
  assert.equal(await sync.live(), 200);
  await assert.rejects(sync.allow(299), { code: 'no_delete_tracking' });
});

test('a source that has its rows again loses none, allowed or not', async () => {
  const sync = await open(499);
  await sync.run();
  const all = sync.given.rows;
  sync.given.rows = all.slice(0, 100);
  assert.partialDeepStrictEqual(await sync.run(), held);
  await sync.allow(399);
  sync.given.rows = all;
  assert.equal(await sync.run(), 'succeeded');
  assert.equal(await sync.live(), 499);
  sync.given.rows = all.slice(0, 100);
  assert.partialDeepStrictEqual(await sync.run(), held);
});

test('records that a run adds do not hide how many of those before it deletes', async () => {
  const sync = await open(300);
  await sync.run();
  sync.given.rows = sync.given.rows.map((id) => `new-${id}`);
  assert.partialDeepStrictEqual(await sync.run(), held);
  assert.equal(await sync.live(), 600);
});

test('a checkpoint and a tracking of an earlier version: nothing is deleted, and the next run reads everything', async () => {
  const sync = await open(300);
  await sync.run();
  sync.given.rows = sync.given.rows.slice(50);
  // As a service of the earlier version leaves them, which knows no ids: the last page, and either no tracking or a held one.
  for (const columns of ['', 'tracked_from = last_seq', 'tracked_from = last_seq, held_at = now()']) {
    await bench.db.query('update dataset set tracking_id = gen_random_uuid()');
    if (columns !== '') await bench.db.query(`update dataset set ${columns}`);
    assert.deepEqual(
      await bench.db.query('select from dataset where tracked_from is not null and tracking_id is not null'),
      [],
    );
    const [connection] = await bench.db.query<{ id: number }>('select id from connection');
    const { dataKey } = await bench.one.reader.get({
      ...bench.place,
      connectionId: (await bench.db.query<{ id: string }>('select connection_id as id from connection'))[0]!
        .id,
    });
    await bench.db.query(
      `insert into function_checkpoint (connection_id, function_id, variant, value)
       select $1, id, 'base', $2 from function`,
      [connection!.id, dataKey.sealJson({ page: 2 }, 'function checkpoint')],
    );
    assert.equal(await sync.run(), 'succeeded');
    assert.equal(await sync.live(), 300);
    assert.deepEqual(await bench.db.query('select from function_checkpoint'), []);
    assert.match((await bench.lines()).join(), /Nothing of Row was deleted/);
  }
  assert.equal(await sync.run(), 'succeeded');
  assert.deepEqual(sync.given.pages, [0, 1, 2, 3]);
  assert.equal(await sync.live(), 250);
});

test('a tracking that a service of an earlier version closed and opened again is not the one before', async () => {
  const sync = await open(10);
  await sync.run();
  const ids = async () =>
    (await bench.db.query<{ id: string | null }>('select tracking_id as id from dataset'))[0]?.id;
  await bench.db.query('update dataset set tracked_from = last_seq, tracking_id = gen_random_uuid()');
  assert.notEqual(await ids(), null);
  await bench.db.query('update dataset set tracked_from = null, held_at = null');
  assert.equal(await ids(), null);
  await bench.db.query('update dataset set tracked_from = last_seq');
  assert.equal(await ids(), null);
});
