/** What a sync may ask of its records. Saves are made one after the other: the next is taken when the one before is stored. */
import { z } from 'zod';
import { limitConcurrency } from '../../concurrency.ts';
import type { LiveConnection } from '../../connections/reader.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { JsonValue } from '../../records/canonical.ts';
import {
  type CheckedPart,
  checkParts,
  RecordChecker,
  readRecordId,
  requireParts,
  requireRecords,
} from '../../records/check.ts';
import type { CheckedRecords } from '../../records/checked.ts';
import { findDataset } from '../../records/dataset.ts';
import { deleteRecords } from '../../records/delete.ts';
import { NewerChanges } from '../../records/newer-changes.ts';
import { defaultRestore } from '../../records/policy.ts';
import { RunReads } from '../../records/run-reads.ts';
import { saveRecords } from '../../records/save.ts';
import { readOnThread, readPartsOnThread } from '../../records/save-queue.ts';
import { type Beginning, dropTracking, endTracking, startTracking } from '../../records/track-deletes.ts';
import { updateRecords } from '../../records/update.ts';
import { LargeJson } from '../isolation/payload.ts';
import { largeWork } from './byte-gate.ts';
import { type Ask, ask, type ContextDeps, type RunFacts, unfit } from './context.ts';
import type { ModelCounts } from './run-counts.ts';
import { pageJson, recordsJson } from './stored-records.ts';

type Into = { model: string; connection: LiveConnection };

/** Models that the run has to do with. */
export type Touched = {
  /** It has opened or resumed delete tracking. */
  started: Set<string>;
  /** What it has saved. */
  reads: Map<string, RunReads>;
};

type Given = {
  fenced: Db;
  connection: () => Promise<LiveConnection>;
  facts: RunFacts;
  touched: Touched;
  beginning: () => Promise<Beginning>;
  forgetCheckpoint: (tx: Tx) => Promise<void>;
};

/** As the harness sends them. */
const maxRecords = 1_000;
const maxIds = 100;
const pageRecords = 100;
const model = z.string().min(1).max(255);
const records = z.array(z.unknown()).max(maxRecords);
const inModel = z.object({ model });
const write = z.object({ model, records });
/** `next`: for the run that follows. */
const starting = inModel.extend({ next: z.boolean().default(false) });
/** `ignore_if_modified_after`: what others change from now on stays as they made it. */
const merging = inModel.extend({ strategy: z.enum(['override', 'ignore_if_modified_after']) });

export function recordAsks(
  { db, brand }: ContextDeps,
  { fenced, connection, facts, touched, beginning, forgetCheckpoint }: Given,
): [string, Ask][] {
  const { variant, counts } = facts;
  const { metadataKey } = brand;
  /** By model; what was set stays set. */
  const strategies = new Map<string, NewerChanges | 'override'>();
  /** One write after the other, whatever the code does not wait for. */
  const inTurn = limitConcurrency(1);
  const inPageTurn = limitConcurrency(1);
  function countsOf(name: string): ModelCounts {
    // A model may have the name of something that every object has.
    if (!Object.hasOwn(counts, name)) counts[name] = { added: 0, updated: 0, deleted: 0, unchanged: 0 };
    return counts[name]!;
  }
  /** What others changed since the run chose to leave that alone; undefined: nothing is left alone. */
  function leftAlone(name: string): NewerChanges | undefined {
    const strategy = strategies.get(name);
    return strategy === 'override' ? undefined : strategy;
  }
  const readsOf = (name: string) => touched.reads.getOrInsertComputed(name, () => new RunReads());
  function requireModel(name: string): void {
    if (facts.models.includes(name)) return;
    throw new AppError('invalid_body', `The function declares no model "${name.slice(0, 100)}".`);
  }
  /** A write to a model that the sync declares. */
  function writing<S extends z.ZodType<{ model: string }>>(
    name: string,
    schema: S,
    work: (args: z.output<S>, of: { connection: LiveConnection; counts: ModelCounts }) => Promise<unknown>,
  ): [string, Ask] {
    return ask(name, schema, (args) => {
      requireModel(args.model);
      return inTurn(async () => work(args, { connection: await connection(), counts: countsOf(args.model) }));
    });
  }

  const [, saveSmall] = writing('batchSave', write, async (args, { connection: of }) => {
    const checker = new RecordChecker({ metadataKey, expectedBytes: 1_024 * args.records.length });
    for (const [index, record] of args.records.entries()) checker.add(record as JsonValue, index);
    return save(requireRecords(checker.end()), { model: args.model, connection: of });
  });
  const saveLarge = writingLarge('batchSave', async (bytes) => {
    const { body, records: checked } = await readOnThread(bytes, metadataKey);
    return { body, write: (of) => save(requireRecords(checked!), of) };
  });
  async function save(checked: CheckedRecords, { model: name, connection: of }: Into) {
    const sum = countsOf(name);
    const saved = await saveRecords(fenced, {
      connection: of,
      ...{ model: name, variant },
      records: checked,
      restore: await defaultRestore(db, of),
      ...{ leaves: leftAlone(name), reads: readsOf(name) },
    });
    sum.added += saved.added.length;
    sum.updated += saved.updated.length;
    sum.unchanged += saved.unchangedCount;
    return { duplicates: saved.duplicates };
  }
  const [, updateSmall] = writing('batchUpdate', write, async (args, { connection: of }) => {
    const parts = checkParts(args.records as JsonValue[], metadataKey);
    return update(parts, { model: args.model, connection: of });
  });
  const updateLarge = writingLarge('batchUpdate', async (bytes) => {
    const { body, parts } = await readPartsOnThread(bytes, metadataKey);
    return { body, write: (of) => update(requireParts(parts!), of) };
  });
  async function update(parts: readonly CheckedPart[], { model: name, connection: of }: Into) {
    const sum = countsOf(name);
    const updated = await updateRecords(fenced, {
      connection: of,
      ...{ model: name, variant, parts },
      ...{ leaves: leftAlone(name), reads: readsOf(name) },
    });
    sum.updated += updated.updatedCount;
    sum.unchanged += updated.unchangedCount;
    const { missing, deleted, pruned } = updated;
    return { missing, deleted, pruned };
  }

  /** A write whose records are read on a thread: `body` has nulls in their place. */
  function writingLarge(
    name: string,
    read: (bytes: Buffer<ArrayBuffer>) => Promise<{ body: unknown; write: (into: Into) => Promise<unknown> }>,
  ): Ask {
    return async (args, { signal }) => {
      const { bytes } = args as LargeJson;
      const work = async () => {
        const { body, write: store } = await read(bytes).catch((error: unknown) => {
          if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
          throw new AppError('invalid_body', `What was given to ${name} does not fit: ${error.message}.`);
        });
        const fits = write.safeParse(body);
        if (!fits.success) throw unfit(name, fits.error.issues);
        const { model: into } = fits.data;
        requireModel(into);
        return store({ model: into, connection: await connection() });
      };
      return { value: await inTurn(() => largeWork.run(bytes.length, work, signal)) };
    };
  }

  return [
    ['batchSave', async (args, asked) => (args instanceof LargeJson ? saveLarge : saveSmall)(args, asked)],
    [
      'batchUpdate',
      async (args, asked) => (args instanceof LargeJson ? updateLarge : updateSmall)(args, asked),
    ],
    writing('batchDelete', write, async (args, { connection: of, counts: sum }) => {
      const ids = args.records.map((record) => idOf(record));
      const leaves = leftAlone(args.model);
      const name = { connection: of.id, model: args.model, variant };
      const { count } = await deleteRecords(fenced, { ...name, ids, leaves });
      sum.deleted += count;
      return null;
    }),
    writing('trackDeletesStart', starting, async ({ model: name, next }, { connection: of }) => {
      await startTracking(fenced, {
        ...{ connection: of.id, model: name, variant, beginning: await beginning() },
        reads: next ? undefined : readsOf(name),
      });
      touched.started.add(name);
      return null;
    }),
    writing('trackDeletesEnd', inModel, async (args, { connection: of, counts: sum }) => {
      const ended = await endTracking(fenced, {
        ...{ connection: of.id, model: args.model, variant, beginning: await beginning() },
        ...{ override: 'none', reads: touched.reads.get(args.model) },
        forgetPlace: facts.isSync ? forgetCheckpoint : undefined,
      }).catch((error: unknown) => {
        throw isHeld(error) ? heldOf(error, { facts, model: args.model }) : error;
      });
      sum.deleted += ended.count;
      const { deletedKeys, isPartial } = ended;
      return { deletedKeys, ...(isPartial && { isPartial }) };
    }),
    writing('trackDeletesDrop', inModel, async (args, { connection: of }) => {
      await dropTracking(fenced, { connection: of.id, model: args.model, variant });
      return null;
    }),
    writing('setMergingStrategy', merging, async ({ model: name, strategy }, { connection: of }) => {
      const set = strategies.get(name);
      if (set === undefined) {
        const found = await findDataset(db, { connection: of.id, model: name, variant });
        const isOverride = strategy === 'override';
        strategies.set(name, isOverride ? strategy : new NewerChanges(found?.lastSeq ?? 0));
      } else if ((set === 'override') !== (strategy === 'override')) {
        throw new AppError('invalid_body', `The merging strategy of "${name}" is set already.`);
      }
      return null;
    }),
    ask('listRecords', inModel.extend({ cursor: z.string().max(1_000).optional() }), async (args, asked) => {
      requireModel(args.model);
      // One page after the other: a run that does not read its answers holds few of them.
      return inPageTurn(async () => {
        await asked.drained();
        return pageJson(db, { ...args, limit: pageRecords, connection, variant, brand });
      });
    }),
    ask(
      'getRecordsByIds',
      inModel.extend({ ids: z.array(z.string().min(1).max(510)).max(maxIds) }),
      async ({ model: name, ids }, { drained }) => {
        requireModel(name);
        return inPageTurn(async () => {
          await drained();
          return recordsJson(db, { model: name, ids, limit: maxIds, connection, variant, brand });
        });
      },
    ),
  ];
}

type HeldError = AppError & { payload: { would_delete: number; live: number } };

function isHeld(error: unknown): error is HeldError {
  return error instanceof AppError && error.code === 'mass_delete_held';
}

/** Names the call that allows the deletion once. */
function heldOf(error: HeldError, { facts, model: name }: { facts: RunFacts; model: string }): AppError {
  const { would_delete: count, live } = error.payload;
  const body = {
    provider_config_key: facts.integrationKey,
    connection_id: facts.connectionId,
    syncs: [{ name: facts.functionName, variant: facts.variant }],
    allow_mass_delete: { [name]: count },
  };
  const message =
    `${count} of ${live} records of ${name} would be deleted, so none was. If they are gone at the provider, allow it once ` +
    `by POST /sync/trigger with ${JSON.stringify(body)}: the sync reads everything again and deletes at most ${count}.`;
  return new AppError('mass_delete_held', message, { payload: { ...error.payload, model: name } });
}

function idOf(record: unknown): string {
  const read = readRecordId((record as { id?: unknown } | null)?.id);
  if ('id' in read) return read.id;
  throw new AppError('invalid_record', `A record to delete does not fit: ${read.fault}.`);
}
