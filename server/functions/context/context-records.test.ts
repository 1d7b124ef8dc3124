import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { openRunsBench, type RunsBench, syncOf } from '../runs/runs.fixture.ts';

/** What a sync is told of records that are refused, and what the deprecated end of delete tracking deletes. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from run');
  await bench.db.query('delete from function');
  await bench.db.query('delete from connection');
  await bench.db.query('delete from dataset');
});

test('a record that is refused is named, with its field, also behind the first thousand', async () => {
  await bench.deploy(
    'rows',
    syncOf(`
      const rows = Array.from({ length: 1202 }, (_, n) => ({ id: String(n), n }));
      rows[1201].n = 12345678901234567;
      const error = await nango.batchSave(rows, 'Row').catch((error) => error);
      await nango.log(JSON.stringify([error.code, error.errors]));
      await nango.batchUpdate([{ id: '1' }, { id: '' }], 'Row').catch((error) => nango.log(error.message));
      throw error;
    `),
  );
  await bench.connect(crypto.randomUUID());
  await bench.one.runner.runDue();
  const [run] = await bench.runs();
  const [errors = '', update] = await bench.lines();
  const [code, [{ path, message }]] = JSON.parse(errors);
  assert.deepEqual([code, path], ['invalid_record', ['records', '1201', 'n']]);
  assert.match(update ?? '', /records\.1\.id: An id has at least 1 character/);
  assert.deepEqual([run?.error?.code, run?.state], ['invalid_record', 'failed']);
  assert.ok(run?.error?.message.includes(`records.1201.n: ${message}`), String(run?.error?.message));
});

/** A sync that saves what `/rows` lists, in pages of two, from its checkpoint on where it has one. */
const fullSync = (end: string, more = '') =>
  syncOf(
    `
      const { page = 0 } = (await nango.getCheckpoint()) ?? {};
      for (let at = page; ; at++) {
        const { data } = await nango.get({ endpoint: '/rows', params: { page: at } });
        await nango.batchSave(data.rows, 'Row');
        if (data.rows.length < 2) break;
        await nango.saveCheckpoint({ page: at + 1 });
      }
      ${end}
    `,
    more,
  );
const toEnd = `
  await nango.clearCheckpoint();
  const { deletedKeys } = await nango.deleteRecordsFromPreviousExecutions('Row');
  await nango.log('deleted ' + deletedKeys);`;

type Rows = { rows: string[]; broken?: number };
function serveRows(given: Rows) {
  bench.serve(({ url }, response) => {
    const page = Number(new URL(url ?? '', 'http://x').searchParams.get('page'));
    response.statusCode = page === given.broken ? 400 : 200;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ rows: given.rows.slice(page * 2, page * 2 + 2).map((id) => ({ id })) }));
  });
}
/** The next run, and how it ended. */
async function runNext(): Promise<string | undefined> {
  await bench.db.query('delete from run_line');
  await bench.one.runner.runDue();
  bench.advance(3_600_000);
  const last = (await bench.runs()).at(-1);
  return last?.error?.message ?? last?.state;
}
const openTrackings = () => bench.db.query('select from dataset where tracked_from is not null');

test('deleteRecordsFromPreviousExecutions alone deletes what its run did not save', async () => {
  const given = { rows: ['a', 'b', 'c', 'd', 'e'] };
  serveRows(given);
  await bench.deploy('rows', fullSync(toEnd));
  const { id } = await bench.connect(crypto.randomUUID());
  assert.equal(await runNext(), 'succeeded');
  assert.deepEqual(await bench.records(id), given.rows);
  assert.deepEqual(await bench.lines(), ['deleted ']);
  given.rows = ['a', 'c', 'f'];
  assert.equal(await runNext(), 'succeeded');
  assert.deepEqual(await bench.records(id), given.rows);
  assert.deepEqual(await bench.lines(), ['deleted b,d,e']);
  assert.deepEqual(await openTrackings(), []);
});

test('a run that continues from a checkpoint deletes nothing that was saved before it', async () => {
  const given: Rows = { rows: ['a', 'b', 'c', 'd', 'e'] };
  serveRows(given);
  await bench.deploy('rows', fullSync(toEnd));
  const { id } = await bench.connect(crypto.randomUUID());
  assert.equal(await runNext(), 'succeeded');
  Object.assign(given, { rows: ['a', 'b', 'd', 'e'], broken: 1 });
  assert.match(String(await runNext()), /status code 400/);
  assert.deepEqual(await bench.records(id), ['a', 'b', 'c', 'd', 'e']);
  given.broken = -1;
  assert.equal(await runNext(), 'succeeded');
  assert.deepEqual(await bench.records(id), ['a', 'b', 'd', 'e']);
  assert.deepEqual(await bench.lines(), ['deleted c']);
});

test('if saves before the checkpoint were untracked nothing is deleted, which is logged; the next run deletes', async () => {
  const given: Rows = { rows: ['a', 'b', 'c', 'd', 'e'], broken: 1 };
  serveRows(given);
  // As a version that did not name the method leaves it.
  await bench.deploy('rows', fullSync(''));
  const { id } = await bench.connect(crypto.randomUUID());
  assert.match(String(await runNext()), /status code 400/);
  assert.deepEqual(await openTrackings(), []);
  await bench.deploy('rows', fullSync(toEnd));
  given.broken = -1;
  assert.equal(await runNext(), 'succeeded');
  assert.deepEqual(await bench.records(id), given.rows);
  const [warning, deleted] = await bench.lines();
  assert.match(warning ?? '', /Nothing of Row was deleted/);
  assert.equal(deleted, 'deleted ');
  given.rows = ['b'];
  assert.equal(await runNext(), 'succeeded');
  assert.deepEqual(await bench.records(id), ['b']);
});

test('a checkpoint that stays when all is done does not keep the next run from deleting', async () => {
  const given = { rows: ['a', 'b', 'c'] };
  serveRows(given);
  await bench.deploy(
    'rows',
    syncOf(`
      const { data } = await nango.get({ endpoint: '/rows' });
      await nango.batchSave(data.rows, 'Row');
      const { deletedKeys } = await nango.deleteRecordsFromPreviousExecutions('Row');
      await nango.log('deleted ' + deletedKeys);
      await nango.saveCheckpoint({ at: 'now' });
    `),
  );
  const { id } = await bench.connect(crypto.randomUUID());
  given.rows = ['a', 'b'];
  assert.equal(await runNext(), 'succeeded');
  given.rows = ['b'];
  assert.equal(await runNext(), 'succeeded');
  assert.deepEqual(await bench.lines(), ['deleted a']);
  assert.deepEqual(await bench.records(id), ['b']);
});

test('a run that ends without deleting leaves no tracking behind, unless the code keeps its own', async () => {
  serveRows({ rows: ['a', 'b', 'c'] });
  const seldom = `if (nango.lastSyncDate === undefined) { ${toEnd} } else await nango.clearCheckpoint();`;
  await bench.deploy('rows', fullSync(seldom));
  await bench.connect(crypto.randomUUID());
  assert.equal(await runNext(), 'succeeded');
  assert.equal(await runNext(), 'succeeded');
  assert.deepEqual(await openTrackings(), []);
  await bench.deploy(
    'rows',
    fullSync(`await nango.trackDeletesStart('Row'); await nango.clearCheckpoint(); ${seldom}`),
  );
  assert.equal(await runNext(), 'succeeded');
  assert.equal((await openTrackings()).length, 1);
});

test('trackDeletes: true and the deprecated end of it go together', async () => {
  const given = { rows: ['a', 'b', 'c'] };
  serveRows(given);
  await bench.deploy('rows', fullSync(toEnd, 'trackDeletes: true,'));
  const { id } = await bench.connect(crypto.randomUUID());
  assert.equal(await runNext(), 'succeeded');
  given.rows = ['a'];
  assert.equal(await runNext(), 'succeeded');
  assert.deepEqual(await bench.records(id), ['a']);
});
