import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkRecords } from '../../records/codec/check.ts';
import { deleteRecords } from '../../records/write/delete.ts';
import { saveRecords } from '../../records/write/save.ts';
import { openRunsBench, type RunsBench, syncOf } from '../runs/runs.fixture.ts';

let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());

test('changes by other writers during a run are kept if the run requests it', async () => {
  const code = (strategy: string) =>
    syncOf(`
      if (nango.lastSyncDate === undefined) {
        await nango.batchSave(['r1', 'r2', 'r3', 'r4'].map((id) => ({ id, v: 'first' })), 'Row');
        return;
      }
      await nango.setMergingStrategy({ strategy: '${strategy}' }, 'Row');
      await nango.get({ endpoint: '/meanwhile' });
      await nango.setMergingStrategy({ strategy: '${strategy}' }, 'Row');
      await nango.trackDeletesStart('Row');
      await nango.batchSave(['r1', 'r2', 'r3', 'n1', 'n2'].map((id) => ({ id, v: 'run' })), 'Row');
      await nango.batchSave([{ id: 'r3', v: 'run again' }], 'Row');
      await nango.batchUpdate([{ id: 'r1', w: 1 }, { id: 'r3', w: 1 }], 'Row');
      await nango.batchDelete([{ id: 'n1' }, { id: 'n2' }], 'Row');
      await nango.trackDeletesEnd('Row');
      const other = '${strategy}' === 'override' ? 'ignore_if_modified_after' : 'override';
      await nango.setMergingStrategy({ strategy: other }, 'Row').catch((error) => nango.log(error.code));
      for await (const { id, v, w, _trellis_metadata: of } of nango.listRecords('Row'))
        await nango.log([id, v, w, of.last_action].join(' '));
    `);
  const reported = async (name: string, strategy: string): Promise<string[]> => {
    await bench.deploy('rows', code(strategy));
    const connection = await bench.connect(name);
    // The deploy has also started the sync for the connection of the other round.
    await bench.db.query('delete from sync where connection_id <> $1', [connection.id]);
    await bench.one.runner.runDue();
    const place = { model: 'Row', variant: 'base' };
    bench.serve(async (_request, response) => {
      const sent = ['r1', 'n1'].map((id) => ({ id, v: 'other' }));
      const records = checkRecords(sent, { metadataKey: '_trellis_metadata', expectedBytes: 1_000 });
      await saveRecords(bench.db, { connection, ...place, records, restore: 'always' });
      await deleteRecords(bench.db, { connection: connection.id, ...place, ids: ['r2'] });
      response.end('{}');
    });
    await bench.db.query(`update sync set next_at = now() - interval '1 second'`);
    await bench.one.runner.runDue();
    assert.deepEqual(new Set((await bench.runs()).map(({ error }) => error)), new Set([null]));
    return (await bench.lines()).sort();
  };
  assert.deepEqual(await reported('ada', 'ignore_if_modified_after'), [
    'invalid_body',
    'n1 other  ADDED',
    'n2 run  DELETED',
    'r1 other  UPDATED',
    'r2 first  DELETED',
    'r3 run again 1 UPDATED',
    'r4 first  DELETED',
  ]);
  assert.deepEqual(await reported('bob', 'override'), [
    'invalid_body',
    'n1 run  DELETED',
    'n2 run  DELETED',
    'r1 run 1 UPDATED',
    'r2 run  ADDED',
    'r3 run again 1 UPDATED',
    'r4 first  DELETED',
  ]);
});
