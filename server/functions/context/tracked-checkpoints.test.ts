// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import {
  type Bench,
  bothOrders,
  openTrackedBench,
  openTrackedSync,
  type Program,
} from './tracked-checkpoints.fixture.ts';

let bench: Bench;
before(async () => {
  bench = await openTrackedBench();
});
after(() => bench.end());

const last = fc.constantFrom(
  ...bothOrders,
  ...bothOrders,
  'end-save' as const,
  'save-end' as const,
  'end' as const,
);
const program: fc.Arbitrary<Program> = fc.oneof(
  fc.record({
    start: fc.constantFrom('first', 'first', 'fresh', 'late', 'twice'),
    last,
    models: fc.constant(['Row']),
  }),
  fc.record({
    start: fc.constantFrom('first', 'fresh', 'twice'),
    last,
    models: fc.constant(['Row', 'Other']),
  }),
);
type Change = { model: string; at: number; add: number; share: number; other: readonly ('start' | 'end')[] };
const change: fc.Arbitrary<Change> = fc.record({
  model: fc.constantFrom('Row', 'Other'),
  at: fc.nat(20),
  add: fc.nat(3),
  share: fc.constantFrom(0, 0, 0.2, 0.7),
  /** What another caller does with the tracking of the model. */
  other: fc.constantFrom<Change['other'][]>([], [], [], ['start'], ['end'], ['end', 'start']),
});
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('run' as const),
      cut: fc.option(
        fc.record({
          after: fc.nat(24),
          by: fc.constantFrom('lost' as const, 'threw' as const, 'returned' as const),
        }),
        { freq: 2 },
      ),
      changes: fc.array(change, { maxLength: 3 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('change' as const), change }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('come back' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('allow' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('override' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('reset' as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('deploy' as const),
      program: fc.oneof(
        program,
        fc.constant<Program>({ start: 'never', last: 'end-clear', models: ['Row'] }),
      ),
    }),
  },
);

const models = ['Row'];
const runs = process.env.LONG === undefined ? 20 : 500;

test('whatever is killed, held, allowed, reset or deployed: no live record is deleted, no dead one outlives two whole runs', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom('on', 'off'),
      program,
      fc.array(step, { minLength: 4, maxLength: 12 }),
      program,
      async (guard, first, steps, final) => {
        const sync = await openTrackedSync(bench, first, guard);
        try {
          sync.add('Row', 9);
          sync.add('Other', 3);
          const apply = async ({ model, add, share, other }: Change) => {
            sync.remove(model, share);
            sync.add(model, add);
            for (const does of other) await sync.other(model, does);
          };
          for (const next of steps) {
            if (next.do === 'run') {
              await sync.run(next.cut ?? undefined, async (statement) => {
                for (const one of next.changes) if (one.at === statement) await apply(one);
              });
            } else if (next.do === 'change') await apply(next.change);
            else if (next.do === 'come back') await sync.comeBack();
            else if (next.do === 'allow') await sync.allow();
            else if (next.do === 'override') await sync.overrideNow();
            else if (next.do === 'reset') await sync.reset();
            else sync.deploy(next.program);
          }
          sync.deploy(final);
          // A checkpoint that is saved before the end and left there makes every other run delete nothing.
          let whole = final.last === 'save-end' || final.last === 'end' ? 3 : 2;
          for (let turn = 0; whole > 0; turn += 1) {
            assert.ok(turn < 12, sync.history.join('\n'));
            const ending = await sync.run();
            if (ending === 'succeeded') whole -= 1;
            else await sync.allow();
          }
          assert.deepEqual(await sync.differences(final.models), [], sync.history.join('\n'));
        } finally {
          // Else the runs of a smaller counterexample are not the only ones.
          await sync.end();
        }
      },
    ),
    { numRuns: runs },
  );
});

async function openWith(program: Partial<Program>) {
  const sync = await openTrackedSync(bench, { start: 'first', last: 'end-clear', models, ...program }, 'off');
  sync.add('Row', 9);
  return sync;
}

test('what a run has saved counts as seen when another caller opens or ends the tracking in the middle of it', async () => {
  for (const [start, at, does] of [
    ['late', 2, ['start']],
    ['first', 5, ['end', 'start']],
    ['first', 6, ['end', 'start']],
  ] as const) {
    const sync = await openWith({ start });
    await sync.run();
    const other = async (statement: number) => {
      if (statement === at) for (const one of does) await sync.other('Row', one);
    };
    assert.equal(await sync.run(undefined, other), 'succeeded');
    assert.equal(await sync.run(), 'succeeded');
    assert.deepEqual(await sync.differences(models), [], sync.history.join('\n'));
    await sync.end();
  }
});

test('a tracking that another caller opened in the middle does not hold what is before the checkpoint', async () => {
  for (const by of ['threw', 'returned'] as const) {
    for (const start of ['first', 'never'] as const) {
      const sync = await openWith({});
      await sync.run();
      sync.deploy({ start, last: 'end-clear', models });
      // After the second page: a tracking that is the run's own ends, and the other one knows nothing of the first page.
      await sync.run({ after: 6, by }, async (statement) => {
        if (statement !== 3) return;
        for (const does of ['end', 'start'] as const) await sync.other('Row', does);
      });
      sync.deploy({ start: 'first', last: 'end-clear', models });
      assert.equal(await sync.run(), 'succeeded');
      assert.equal(await sync.run(), 'succeeded');
      assert.deepEqual(await sync.differences(models), [], sync.history.join('\n'));
      await sync.end();
    }
  }
});

test('the checkpoint of a run that died behind its end is removed: the next run reads everything and deletes', async () => {
  const sync = await openWith({});
  // Five pages, and all but `clearCheckpoint`.
  assert.equal(await sync.run({ after: 12, by: 'threw' }), 'threw');
  assert.match(sync.history.at(-2) ?? '', /trackDeletesEnd/);
  sync.remove('Row', 0.2);
  assert.equal(await sync.run(), 'succeeded');
  assert.equal(
    sync.history.findLast((line) => line.includes('getCheckpoint')),
    '  getCheckpoint "" null',
  );
  assert.deepEqual(await sync.differences(models), []);
  await sync.end();
});
