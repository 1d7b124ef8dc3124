// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { datasetCalls, openRecordBench, type RecordBench } from '../../test/support/records.ts';
import { AppError } from '../errors.ts';
import { Model, type Part } from './model.fixture.ts';
import type { RecordAction } from './read/portion.ts';
import { emptyDataset } from './write/delete.ts';

/** 10,000 operations with `LONG=1`, a few hundred without. */
const runs = process.env.LONG === '1' ? 500 : 25;

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const ids = [...'abcdefgh'];
const id = fc.constantFrom(...ids);
const parts = fc.array(
  fc.record({ id, x: fc.nat(2), y: fc.nat(2) }, { requiredKeys: ['id'] }) as fc.Arbitrary<Part>,
  { maxLength: 9 },
);
const actions = fc.subarray<RecordAction>(['ADDED', 'UPDATED', 'DELETED'], { minLength: 1 });
/** A share of the positions given out so far. */
const position = fc.double({ min: 0.01, max: 1, noNaN: true });
const limit = fc.integer({ min: 1, max: 5 });
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('save' as const),
      sent: parts,
      restore: fc.constantFrom('always' as const, 'on_change' as const),
      namesChanges: fc.boolean(),
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('update' as const), sent: parts }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('delete' as const), sent: fc.array(id, { maxLength: 4 }) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('start' as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('end' as const),
      override: fc.constantFrom('none' as const, 'mass_delete' as const),
    }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('prune' as const), until: position, limit }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('ignore' as const), y: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('keep' as const), previous: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('empty' as const) }) },
  {
    weight: 5,
    arbitrary: fc.record(
      {
        do: fc.constant('list' as const),
        limit,
        actions,
        ids: fc.subarray(ids),
        after: position,
        /** A share of the records there are: the time of that one. */
        since: fc.double({ min: 0, max: 0.99, noNaN: true }),
      },
      { requiredKeys: ['do', 'limit'] },
    ),
  },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;
type Calls = ReturnType<typeof datasetCalls>;

/** Takes the step in both and compares the answers. */
async function take(given: Step, calls: Calls, model: Model): Promise<void> {
  switch (given.do) {
    case 'save': {
      const { restore, namesChanges: withChangedFields } = given;
      const {
        duplicates,
        changedFields: _,
        ...result
      } = await calls.saveBy(given.sent, {
        restore,
        withChangedFields,
      });
      const expected = model.save(given.sent, given);
      assert.deepEqual({ ...result, duplicates: [...duplicates].sort() }, expected);
      return;
    }
    case 'update':
      assert.deepEqual(await calls.update(given.sent), model.update(given.sent));
      return;
    case 'delete':
      assert.deepEqual(await calls.delete(...given.sent), model.delete(given.sent));
      return;
    case 'start':
      assert.deepEqual(await calls.startTracking(), model.start());
      return;
    case 'end': {
      const result = await calls.endTracking(given.override).catch((error: AppError) => {
        assert.ok(error instanceof AppError);
        return error.code;
      });
      assert.deepEqual(result, model.end(given.override));
      return;
    }
    case 'prune': {
      if (model.lastSeq === 0) return;
      const until = Math.ceil(given.until * model.lastSeq);
      const cursor = await calls.cursorOf(until);
      assert.equal((await calls.estimate(cursor)).count, model.standingUpTo(until));
      assert.deepEqual(await calls.prune(cursor, given.limit), model.prune(until, given.limit));
      return;
    }
    case 'ignore':
      await calls.set({ ignoreFields: given.y ? ['y'] : [] });
      model.ignoresY = given.y;
      return;
    case 'keep':
      await calls.set({ keepPrevious: given.previous });
      model.keepsPrevious = given.previous;
      return;
    case 'empty': {
      const { id: datasetId } = await calls.row();
      assert.equal(await bench.db.transaction((tx) => emptyDataset(tx, datasetId)), true);
      model.empty();
      return;
    }
    case 'list':
      await compareList(given, calls, model);
  }
}

async function compareList(given: Extract<Step, { do: 'list' }>, calls: Calls, model: Model) {
  const plain = await calls.listAll({ limit: given.limit });
  const all = await calls.listAll({ limit: given.limit, withChanges: true });
  assert.deepEqual(
    all.map(({ _trellis_metadata: { changes: _, ...metadata }, ...record }) => ({
      ...record,
      _trellis_metadata: metadata,
    })),
    plain,
  );
  assert.deepEqual(
    all.map(({ id: recordId, x, y, _trellis_metadata: metadata }) => ({
      recordId,
      x,
      y,
      action: metadata.last_action,
      isDeleted: metadata.deleted_at !== null,
      isPruned: metadata.pruned_at !== null,
      changes: metadata.changes,
    })),
    model.inOrder().map(([recordId, { x, y, action, isPruned, changes }]) => ({
      recordId,
      x: isPruned ? undefined : x,
      y: isPruned ? undefined : y,
      action,
      isDeleted: action === 'DELETED',
      isPruned,
      changes,
    })),
  );
  const times = new Map(all.map((record) => [record.id, record._trellis_metadata.last_modified_at]));
  const since =
    given.since === undefined ? undefined : [...times.values()][Math.floor(given.since * all.length)];
  const after =
    given.after === undefined || model.lastSeq === 0 ? undefined : Math.ceil(given.after * model.lastSeq);
  const filtered = await calls.listAll({
    limit: given.limit,
    actions: given.actions,
    ids: given.ids,
    modifiedAfter: since,
    cursor: after === undefined ? undefined : await calls.cursorOf(after),
  });
  const expected = model
    .inOrder()
    .filter(
      ([recordId, { seq, action }]) =>
        seq > (after ?? 0) &&
        (given.actions?.includes(action) ?? true) &&
        (given.ids?.includes(recordId) ?? true) &&
        (since === undefined || String(times.get(recordId)) >= since),
    )
    .map(([recordId]) => recordId);
  assert.deepEqual(
    filtered.map(({ id: recordId }) => recordId),
    expected,
  );
}

test('all operations in any order give the results of the model, response by response', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 30 }), limit, async (given, pageLimit) => {
      const calls = datasetCalls(bench.db, await bench.connect());
      const model = new Model();
      await calls.set({ massDeleteNumber: model.massDeleteNumber });
      for (const next of given) await take(next, calls, model);
      await compareList({ do: 'list', limit: pageLimit }, calls, model);
      const { last_seq, records, deleted, pruned, payload_bytes } = await calls.row();
      assert.equal(last_seq, model.lastSeq);
      assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
    }),
    { numRuns: runs },
  );
});
