// Nodes as processes of their own, of which one is killed in the middle of a sync.
// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { NodeSettings } from './run-node.fixture.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';

/** The lease of a real node is 20 s: nothing here depends on its length. */
const limits = { leaseMs: 4_000, renewMs: 500, pollMs: 100 };
let bench: RunsBench;
let nodes: ChildProcess[] = [];
beforeEach(async () => {
  bench = await openRunsBench(limits);
});
afterEach(async () => {
  for (const node of nodes) {
    if (node.exitCode !== null || node.signalCode !== null) continue;
    node.kill('SIGKILL');
    await once(node, 'exit');
  }
  nodes = [];
  await bench.end();
});

function startNode(): ChildProcess {
  const settings: NodeSettings = { target: bench.target, masterKey: bench.masterKey, limits };
  const node = spawn(
    process.execPath,
    [join(import.meta.dirname, 'run-node.fixture.ts'), JSON.stringify(settings)],
    {
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  nodes.push(node);
  return node;
}

const until = async (isSo: () => Promise<boolean>) => {
  while (!(await isSo())) await pause(50);
};
const range = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, n) => `r${String(from + n).padStart(3, '0')}`);

test('a node killed during a sync: another continues from the checkpoint, and deletes only missing records', async () => {
  // Pages of ten; the one in the middle is not answered while the first node lives.
  const asked: number[] = [];
  let isHeld = false;
  let rows = range(0, 100);
  bench.serve(({ url }, response) => {
    const page = Number(new URL(url ?? '', 'http://x').searchParams.get('page'));
    asked.push(page);
    if (isHeld && page === 5) return;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(rows.slice(page * 10, page * 10 + 10).map((id) => ({ id }))));
  });
  await bench.deploy(
    'rows',
    syncOf(`
      const checkpoint = await nango.getCheckpoint();
      if (!checkpoint) await nango.trackDeletesStart('Row');
      for (let page = checkpoint?.page ?? 0; ; page += 1) {
        const { data } = await nango.get({ endpoint: '/rows', params: { page } });
        if (data.length === 0) break;
        await nango.batchSave(data, 'Row');
        await nango.saveCheckpoint({ page: page + 1 });
      }
      const { deletedKeys } = await nango.trackDeletesEnd('Row');
      await nango.log('deleted ' + deletedKeys.join());
      await nango.clearCheckpoint();
    `),
  );
  const { id } = await bench.connect('ada');
  await bench.one.runner.runDue();
  assert.deepEqual(await bench.records(id), range(0, 100));

  // Two are gone at the provider: one that the first node will have looked for, one behind the place where it dies.
  rows = rows.filter((row) => row !== 'r003' && row !== 'r090');
  isHeld = true;
  asked.length = 0;
  await bench.db.query('update sync set next_at = now()');
  const first = startNode();
  await until(async () => asked.includes(5));
  first.kill('SIGKILL');
  await once(first, 'exit');
  const killedAtMs = performance.now();
  assert.deepEqual((await bench.runs()).at(-1)?.state, 'running');
  assert.deepEqual(await bench.records(id), range(0, 100));
  isHeld = false;
  asked.length = 0;
  startNode();
  await until(async () => (await bench.runs()).every(({ state }) => state === 'succeeded'));
  assert.ok(performance.now() - killedAtMs < 30_000);

  const [, resumed] = await bench.runs();
  assert.equal(resumed?.attempt, 2);
  assert.deepEqual(asked, [5, 6, 7, 8, 9, 10]);
  assert.deepEqual(await bench.records(id), rows);
  assert.equal((await bench.lines()).at(-1), 'deleted r003,r090');
  assert.deepEqual(await bench.db.query('select from dataset where tracked_from is not null'), []);
  const { data } = (await bench.events('sync.changed')).at(-1)!;
  assert.deepEqual([data.added, data.updated, data.deleted], [0, 0, 2]);
});
