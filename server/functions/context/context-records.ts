/** Calls of a sync for its records. Writes are made one after the other. */
import { z } from 'zod';
import type { OperationDetails } from '../../activity/operations.ts';
import { logged } from '../../activity/writer.ts';
import { limitConcurrency } from '../../concurrency.ts';
import type { LiveConnection } from '../../connections/store/reader.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { JsonValue } from '../../records/codec/canonical.ts';
import {
  type CheckedPart,
  type CheckedRecords,
  checkParts,
  checkRecords,
  readRecordId,
  requireValid,
} from '../../records/codec/check.ts';
import { readOnThread, readPartsOnThread } from '../../records/codec/thread.ts';
import { findDataset } from '../../records/dataset.ts';
import { defaultRestore } from '../../records/retention/policy.ts';
import { savedCounts } from '../../records/routes/wire.ts';
import { deleteRecords } from '../../records/write/delete.ts';
import { NewerChanges, RunReads } from '../../records/write/run-positions.ts';
import { saveRecords } from '../../records/write/save.ts';
import {
  type Beginning,
  dropTracking,
  endTracking,
  startTracking,
} from '../../records/write/track-deletes.ts';
import { updateRecords } from '../../records/write/update.ts';
import { LargeJson } from '../isolation/payload.ts';
import { largeWork } from './byte-gate.ts';
import {
  argumentsFault,
  type ContextDeps,
  type ModelCounts,
  type RunFacts,
  type ServiceCall,
  serviceCall,
} from './service-call.ts';
import { pageJson, recordsJson } from './stored-records.ts';

type Into = { model: string; connection: LiveConnection };

/** The models that the run has used. */
export type Touched = {
  /** Models whose delete tracking it has started or continued. */
  started: Set<string>;
  /** The positions of the records that it has saved. */
  reads: Map<string, RunReads>;
};

type RecordCallParts = {
  fenced: Db;
  connection: () => Promise<LiveConnection>;
  facts: RunFacts;
  touched: Touched;
  beginning: () => Promise<Beginning>;
  forgetCheckpoint: (tx: Tx) => Promise<void>;
};

/** The limits of the harness. */
const maxRecords = 1_000;
const maxIds = 100;
const pageRecords = 100;
const model = z.string().min(1).max(255);
const records = z.array(z.unknown()).max(maxRecords);
const inModel = z.object({ model });
const write = z.object({ model, records });
/** `next`: for the next run. */
const starting = inModel.extend({ next: z.boolean().default(false) });
/** `ignore_if_modified_after`: later changes by other writers stay. */
const merging = inModel.extend({ strategy: z.enum(['override', 'ignore_if_modified_after']) });

export function recordCalls(
  { db, brand, activity }: ContextDeps,
  { fenced, connection, facts, touched, beginning, forgetCheckpoint }: RecordCallParts,
): [string, ServiceCall][] {
  const { variant, counts } = facts;
  const { metadataKey } = brand;
  /** By model. A strategy cannot be changed. */
  const strategies = new Map<string, NewerChanges | 'override'>();
  /** One write after the other, even if the code does not await them. */
  const inTurn = limitConcurrency(1);
  const inPageTurn = limitConcurrency(1);
  function countsOf(name: string): ModelCounts {
    // The name of a model may be that of a property that every object has.
    if (!Object.hasOwn(counts, name)) counts[name] = { added: 0, updated: 0, deleted: 0, unchanged: 0 };
    return counts[name]!;
  }
  /** Changes of other writers that stay; undefined: none. */
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
  ): [string, ServiceCall] {
    return serviceCall(name, schema, (args) => {
      requireModel(args.model);
      return inTurn(async () => work(args, { connection: await connection(), counts: countsOf(args.model) }));
    });
  }

  /** Logs a write in the activity log, under the ID of the run. */
  function loggedWrite<T>(
    type: 'records.save' | 'records.update' | 'records.delete',
    { model: name, detailsOf }: { model: string; detailsOf: (result: T) => OperationDetails },
    work: () => Promise<T>,
  ): Promise<T> {
    const details = { model: name, variant, run: facts.right.id };
    const { environmentId, integrationKey: integration, connectionId } = facts;
    const about = { type, environmentId, integration, connection: connectionId, details };
    const of = (result: T) => ({ details: { ...details, ...detailsOf(result) } });
    return logged(activity, { ...about, of }, work);
  }

  async function save(checked: CheckedRecords, { model: name, connection: of }: Into) {
    const sum = countsOf(name);
    const restore = await defaultRestore(db, of);
    const saved = await loggedWrite('records.save', { model: name, detailsOf: savedCounts }, () =>
      saveRecords(fenced, {
        connection: of,
        model: name,
        variant,
        restore,
        records: checked,
        leaves: leftAlone(name),
        reads: readsOf(name),
      }),
    );
    sum.added += saved.added.length;
    sum.updated += saved.updated.length;
    sum.unchanged += saved.unchangedCount;
    return { duplicates: saved.duplicates };
  }
  async function update(parts: readonly CheckedPart[], { model: name, connection: of }: Into) {
    const sum = countsOf(name);
    const countsOfUpdate = ({ updatedCount, unchangedCount }: Awaited<ReturnType<typeof updateRecords>>) => ({
      updated: updatedCount,
      unchanged: unchangedCount,
    });
    const updated = await loggedWrite('records.update', { model: name, detailsOf: countsOfUpdate }, () =>
      updateRecords(fenced, {
        connection: of,
        model: name,
        variant,
        parts,
        leaves: leftAlone(name),
        reads: readsOf(name),
      }),
    );
    sum.updated += updated.updatedCount;
    sum.unchanged += updated.unchangedCount;
    const { missing, deleted, pruned } = updated;
    return { missing, deleted, pruned };
  }

  /** A write of records. `readLarge` parses a `LargeJson` on a thread: `body` has nulls in place of the records. */
  function writingRecords(
    name: string,
    small: (records: JsonValue[], into: Into) => Promise<unknown>,
    readLarge: (
      bytes: Buffer<ArrayBuffer>,
    ) => Promise<{ body: unknown; store: (into: Into) => Promise<unknown> }>,
  ): [string, ServiceCall] {
    const [, writeSmall] = writing(name, write, async ({ model: into, records: given }, { connection: of }) =>
      small(given as JsonValue[], { model: into, connection: of }),
    );
    async function writeLarge(bytes: Buffer<ArrayBuffer>) {
      const { body, store } = await readLarge(bytes).catch((error: unknown) => {
        if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
        throw new AppError('invalid_body', `The arguments of ${name} are not valid: ${error.message}.`);
      });
      const fits = write.safeParse(body);
      if (!fits.success) throw argumentsFault(name, fits.error.issues);
      const { model: into } = fits.data;
      requireModel(into);
      return store({ model: into, connection: await connection() });
    }
    return [
      name,
      async (args, call) => {
        if (!(args instanceof LargeJson)) return writeSmall(args, call);
        const { bytes } = args;
        const work = () => largeWork.run(bytes.length, () => writeLarge(bytes), call.signal);
        return { value: await inTurn(work) };
      },
    ];
  }

  return [
    writingRecords(
      'batchSave',
      async (given, into) => {
        const expectedBytes = 1_024 * given.length;
        return save(checkRecords(given, { metadataKey, expectedBytes }), into);
      },
      async (bytes) => {
        const { body, records: checked } = await readOnThread(bytes, metadataKey);
        return { body, store: (into) => save(requireValid(checked!), into) };
      },
    ),
    writingRecords(
      'batchUpdate',
      async (given, into) => update(checkParts(given, metadataKey), into),
      async (bytes) => {
        const { body, parts } = await readPartsOnThread(bytes, metadataKey);
        return { body, store: (into) => update(requireValid(parts!), into) };
      },
    ),
    writing('batchDelete', write, async (args, { connection: of, counts: sum }) => {
      const ids = args.records.map((record) => idOf(record));
      const leaves = leftAlone(args.model);
      const name = { connection: of.id, model: args.model, variant };
      const { count } = await loggedWrite(
        'records.delete',
        { model: args.model, detailsOf: ({ count: deleted }) => ({ count: deleted }) },
        () => deleteRecords(fenced, { ...name, ids, leaves }),
      );
      sum.deleted += count;
      return null;
    }),
    writing('trackDeletesStart', starting, async ({ model: name, next }, { connection: of }) => {
      await startTracking(fenced, {
        connection: of.id,
        model: name,
        variant,
        beginning: await beginning(),
        reads: next ? undefined : readsOf(name),
      });
      touched.started.add(name);
      return null;
    }),
    writing('trackDeletesEnd', inModel, async (args, { connection: of, counts: sum }) => {
      const ended = await endTracking(fenced, {
        connection: of.id,
        model: args.model,
        variant,
        beginning: await beginning(),
        override: 'none',
        reads: touched.reads.get(args.model),
        forgetPlace: facts.isSync ? () => fenced.transaction(forgetCheckpoint) : undefined,
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
    serviceCall(
      'listRecords',
      inModel.extend({ cursor: z.string().max(1_000).optional() }),
      async (args, call) => {
        requireModel(args.model);
        // One page after the other, so that few pages are in memory if the run does not read its answers.
        return inPageTurn(async () => {
          await call.drained();
          return pageJson(db, { ...args, limit: pageRecords, connection, variant, brand });
        });
      },
    ),
    serviceCall(
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
    `${count} of ${live} records of ${name} would be deleted, so no record was deleted. If they no longer exist at the provider, allow it once ` +
    `by POST /functions/syncs/trigger with ${JSON.stringify(body)}: the sync reads everything again and deletes at most ${count}.`;
  return new AppError('mass_delete_held', message, { payload: { ...error.payload, model: name } });
}

function idOf(record: unknown): string {
  const read = readRecordId((record as { id?: unknown } | null)?.id);
  if ('id' in read) return read.id;
  throw new AppError('invalid_record', `A record to delete is not valid: ${read.fault}.`);
}
