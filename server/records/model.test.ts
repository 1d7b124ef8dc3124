import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { datasetCalls, openRecordBench, type RecordBench } from '../../test/support/records.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

type Step =
  | { do: 'save'; records: { id: string; x: number }[]; restore: 'always' | 'on_change' }
  | { do: 'prune'; until: number; limit: number };

const save = fc.record({
  do: fc.constant('save' as const),
  records: fc.array(fc.record({ id: fc.constantFrom(...'abcdefgh'), x: fc.nat(2) }), { maxLength: 9 }),
  restore: fc.constantFrom('always' as const, 'on_change' as const),
});
const prune = fc.record({
  do: fc.constant('prune' as const),
  // A share of the positions given out so far.
  until: fc.double({ min: 0.01, max: 1, noNaN: true }),
  limit: fc.integer({ min: 1, max: 5 }),
});
const steps = fc.array(fc.oneof({ weight: 2, arbitrary: save }, { weight: 3, arbitrary: prune }), {
  minLength: 5,
  maxLength: 25,
});

/** What the store promises, in as few words as memory allows. */
class Model {
  lastSeq = 0;
  readonly records = new Map<string, { seq: number; x: number; isUpdated: boolean; isPruned: boolean }>();

  save({ records, restore }: Extract<Step, { do: 'save' }>) {
    const result = {
      added: [] as string[],
      updated: [] as string[],
      restored: [] as string[],
      unchangedCount: 0,
    };
    const last = new Map<string, number>();
    for (const { id, x } of records) {
      last.delete(id);
      last.set(id, x);
    }
    for (const [id, x] of last) {
      const known = this.records.get(id);
      if (known?.x === x) {
        result.unchangedCount += 1;
        if (known.isPruned && restore === 'always') {
          known.isPruned = false;
          result.restored.push(id);
        }
        continue;
      }
      this.lastSeq += 1;
      this.records.set(id, { seq: this.lastSeq, x, isUpdated: known !== undefined, isPruned: false });
      (known === undefined ? result.added : result.updated).push(id);
    }
    const isTwice = (id: string) => records.filter((record) => record.id === id).length > 1;
    return { ...result, duplicates: new Set([...last.keys()].filter(isTwice)) };
  }

  prune(until: number, limit: number) {
    const reached = this.inOrder().filter(({ seq, isPruned }) => seq <= until && !isPruned);
    for (const record of reached.slice(0, limit)) record.isPruned = true;
    return { count: Math.min(limit, reached.length), hasMore: reached.length > limit };
  }

  inOrder() {
    return [...this.records.values()].sort((a, b) => a.seq - b.seq);
  }

  listed() {
    return [...this.records]
      .sort(([, a], [, b]) => a.seq - b.seq)
      .map(([id, { x, isUpdated, isPruned }]) => ({
        id,
        x: isPruned ? undefined : x,
        action: isUpdated ? 'UPDATED' : 'ADDED',
        isPruned,
      }));
  }
}

test('any order of saves and prunes leaves what the model says, answer by answer', async () => {
  await fc.assert(
    fc.asyncProperty(steps, fc.integer({ min: 1, max: 9 }), async (given, limit) => {
      const calls = datasetCalls(bench.db, await bench.connect());
      const model = new Model();
      for (const step of given) {
        if (step.do === 'save') {
          const { duplicates, ...result } = await calls.save(step.records, step.restore);
          const { duplicates: expectedDuplicates, ...expected } = model.save(step);
          assert.deepEqual(result, expected);
          assert.deepEqual(new Set(duplicates), expectedDuplicates);
        } else if (model.lastSeq > 0) {
          const until = Math.ceil(step.until * model.lastSeq);
          assert.deepEqual(
            await calls.prune(await calls.cursorOf(until), step.limit),
            model.prune(until, step.limit),
          );
        }
      }
      const listed = (await calls.listAll({ limit })).map(({ id, x, _trellis_metadata: metadata }) => ({
        id,
        x,
        action: metadata.last_action,
        isPruned: metadata.pruned_at !== null,
      }));
      assert.deepEqual(listed, model.listed());
      if (model.lastSeq === 0) return;
      const { records, deleted, pruned, payload_bytes } = await calls.row();
      assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
    }),
    { numRuns: 40 },
  );
});
