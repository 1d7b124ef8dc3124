import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nothingStored, type Stored } from './model-writes.ts';
import type { JsonObject } from './outcome.ts';
import { runLocally } from './run-locally.ts';

const place = { connectionId: 'ada', providerConfigKey: 'api' };

/** A sync of the model `Row` that does `body`, on a cache with records. */
function dryRun(
  body: string,
  { ids = [], checkpoint = null }: { ids?: string[]; checkpoint?: JsonObject | null },
) {
  const lines: string[] = [];
  const stored: Stored = {
    ...nothingStored,
    page: async () => ({ records: ids.map((id) => ({ id })), next_cursor: null }),
  };
  const code = `
    const z = require('zod');
    exports.default = {
      type: 'sync', description: 'A test.', frequency: 'every hour', models: { Row: z.object({ id: z.string() }) },
      async exec(nango) { ${body} },
    };`;
  const run = runLocally({
    code,
    kind: 'sync',
    input: undefined,
    metadata: {},
    checkpoint,
    stored,
    about: { ...place, provider: 'any', environmentName: 'dev', variant: 'base' },
    log: (_level, text) => lines.push(String(text)),
    reads: {
      call: () => assert.fail('a call was made'),
      fact: async () => ({ connection_id: 'ada', credentials: {} }),
    },
  });
  return run.then((end) => ({ ...end, lines }));
}

const save = `await nango.batchSave([{ id: 'a' }], 'Row');
  await nango.log('gone ' + (await nango.deleteRecordsFromPreviousExecutions('Row')).deletedKeys);`;

test('deleteRecordsFromPreviousExecutions shows the deletions, and none with a checkpoint', async () => {
  const { outcome, lines } = await dryRun(save, { ids: ['a', 'b'] });
  assert.deepEqual([outcome.error, outcome.records.Row?.deleted, lines], [undefined, ['b'], ['gone b']]);
  const behind = await dryRun(save, { ids: ['a', 'b'], checkpoint: { page: 1 } });
  assert.deepEqual([behind.outcome.error, behind.outcome.records.Row?.deleted], [undefined, []]);
  assert.match(behind.lines[0] ?? '', /Nothing of Row was deleted/);
});

test('another connection is refused, and credentials would be refreshed', async () => {
  const { outcome, lines, notes } = await dryRun(
    `await nango.log((await nango.post({ endpoint: '/', connectionId: 'eve' }).catch((error) => error)).code);
     await nango.getConnection('api', 'ada', { forceRefresh: true });`,
    {},
  );
  assert.deepEqual([outcome.error, lines], [undefined, ['other_connection']]);
  assert.deepEqual(notes, ['The credentials would be refreshed']);
});
