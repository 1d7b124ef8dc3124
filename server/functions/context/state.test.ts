// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openRunsBench, type RunsBench, syncOf } from '../runs/runs.fixture.ts';

let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
  await bench.connect('ada');
});
after(() => bench.end());

/** What the next run for `ada` logs as JSON. */
async function answerOf(body: string): Promise<unknown> {
  await bench.db.query('delete from run_line');
  await bench.deploy('rows', syncOf(`await nango.log(JSON.stringify(await (async () => { ${body} })()));`));
  bench.advance(3_600_000);
  await bench.one.runner.runDue();
  const [line] = await bench.lines();
  return JSON.parse(line ?? assert.fail('the run logged nothing'));
}

/** The text is the same in two runs. With `bytes` of it random, it is larger than one part of a row that is read. */
const text = (bytes: number) => `(() => {
  let seed = 7;
  const letters = Buffer.alloc(${bytes});
  for (let n = 0; n < ${bytes}; n++) {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    letters[n] = 33 + (seed >> 16) % 90;
  }
  return letters.toString('latin1') + 'é';
})()`;

test('a state comes back as it was saved, whatever its size', async () => {
  assert.equal(await answerOf('return await nango.getState() ?? null'), null);
  for (const bytes of [0, 1, 200_000, 400_000, 3_000_000]) {
    await answerOf(`await nango.saveState(${text(bytes)}); return 'saved'`);
    assert.equal(await answerOf(`return await nango.getState() === ${text(bytes)}`), true, `${bytes} bytes`);
  }
});

test('a state above 64 MB is refused, and the one before stays', async () => {
  await answerOf(`await nango.saveState('before'); return 'saved'`);
  const answer = await answerOf(`
    const error = await nango.saveState('x'.repeat(64 * 1024 * 1024 + 1)).catch((error) => error);
    return [error.code, await nango.getState()];
  `);
  assert.deepEqual(answer, ['invalid_body', 'before']);
});
