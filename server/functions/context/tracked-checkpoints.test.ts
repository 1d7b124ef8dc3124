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
type Change = { model: string; at: number; add: number; share: number };
const change: fc.Arbitrary<Change> = fc.record({
  model: fc.constantFrom('Row', 'Other'),
  at: fc.nat(20),
  add: fc.nat(3),
  share: fc.constantFrom(0, 0, 0.2, 0.7),
});
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('run' as const),
      cut: fc.option(
        fc.record({ after: fc.nat(24), by: fc.constantFrom('lost' as const, 'threw' as const) }),
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
        sync.add('Row', 9);
        sync.add('Other', 3);
        const apply = ({ model, add, share }: Change) => {
          sync.remove(model, share);
          sync.add(model, add);
        };
        for (const next of steps) {
          if (next.do === 'run') {
            await sync.run(next.cut ?? undefined, (statement) => {
              for (const one of next.changes) if (one.at === statement) apply(one);
            });
          } else if (next.do === 'change') apply(next.change);
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
        await sync.end();
      },
    ),
    { numRuns: runs },
  );
});
