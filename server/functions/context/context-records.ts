/** What a sync may ask of its records. Saves are made one after the other: the next is taken when the one before is stored. */
import { z } from 'zod';
import type { LiveConnection } from '../../connections/reader.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { JsonValue } from '../../records/canonical.ts';
import { RecordChecker, readRecordId, requireRecords } from '../../records/check.ts';
import { findDataset } from '../../records/dataset.ts';
import { deleteRecords } from '../../records/delete.ts';
import { NewerChanges } from '../../records/newer-changes.ts';
import { readPage } from '../../records/page.ts';
import { defaultRestore } from '../../records/policy.ts';
import { saveRecords } from '../../records/save.ts';
import { dropTracking, endTracking, startTracking } from '../../records/track-deletes.ts';
import { updateRecords } from '../../records/update.ts';
import { pageToWire } from '../../records/wire.ts';
import { type Ask, ask, type ContextDeps, type RunFacts } from './context.ts';
import type { ModelCounts } from './run-counts.ts';

type Given = { fenced: Db; connection: () => Promise<LiveConnection>; facts: RunFacts };

/** As the harness sends them. */
const mostRecords = 1_000;
const mostIds = 100;
const pageRecords = 100;
const model = z.string().min(1).max(255);
const records = z.array(z.unknown()).max(mostRecords);
const inModel = z.object({ model });
const write = z.object({ model, records });
/** `ignore_if_modified_after`: what others change from now on stays as they made it. */
const merging = inModel.extend({ strategy: z.enum(['override', 'ignore_if_modified_after']) });

export function recordAsks(
  { db, brand }: ContextDeps,
  { fenced, connection, facts }: Given,
): [string, Ask][] {
  const { variant, counts } = facts;
  const { metadataKey } = brand;
  /** By model; what was set stays set. */
  const strategies = new Map<string, NewerChanges | 'override'>();
  let turn: Promise<unknown> = Promise.resolve();

  /** One write after the other, whatever the code does not wait for. */
  function inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = turn.then(work);
    turn = done.catch(() => {});
    return done;
  }
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

  return [
    writing('batchSave', write, async (args, { connection: of, counts: sum }) => {
      const checker = new RecordChecker({ metadataKey, expectedBytes: 1_024 * args.records.length });
      for (const [index, record] of args.records.entries()) checker.add(record as JsonValue, index);
      const saved = await saveRecords(fenced, {
        connection: of,
        ...{ model: args.model, variant },
        records: requireRecords(checker.end()),
        restore: await defaultRestore(db, of),
        leaves: leftAlone(args.model),
      });
      sum.added += saved.added.length;
      sum.updated += saved.updated.length;
      sum.unchanged += saved.unchangedCount;
      return { duplicates: saved.duplicates };
    }),
    writing('batchUpdate', write, async (args, { connection: of, counts: sum }) => {
      const updated = await updateRecords(fenced, {
        connection: of,
        ...{ model: args.model, variant, metadataKey },
        records: args.records as JsonValue[],
        leaves: leftAlone(args.model),
      });
      sum.updated += updated.updatedCount;
      sum.unchanged += updated.unchangedCount;
      const { missing, deleted, pruned } = updated;
      return { missing, deleted, pruned };
    }),
    writing('batchDelete', write, async (args, { connection: of, counts: sum }) => {
      const ids = args.records.map((record) => idOf(record));
      const leaves = leftAlone(args.model);
      const name = { connection: of.id, model: args.model, variant };
      const { count } = await deleteRecords(fenced, { ...name, ids, leaves });
      sum.deleted += count;
      return null;
    }),
    writing('trackDeletesStart', inModel, async (args, { connection: of }) => {
      await startTracking(fenced, { connection: of.id, model: args.model, variant });
      return null;
    }),
    writing('trackDeletesEnd', inModel, async (args, { connection: of, counts: sum }) => {
      const ended = await endTracking(fenced, {
        ...{ connection: of.id, model: args.model, variant },
        override: 'none',
      });
      sum.deleted += ended.count;
      return { deletedKeys: ended.deletedKeys };
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
    ask('listRecords', inModel.extend({ cursor: z.string().max(1_000).optional() }), async (args) => {
      requireModel(args.model);
      return page({ model: args.model, cursor: args.cursor, limit: pageRecords });
    }),
    ask(
      'getRecordsByIds',
      inModel.extend({ ids: z.array(z.string().min(1).max(510)).max(mostIds) }),
      async (args) => {
        requireModel(args.model);
        const found = await page({ model: args.model, ids: args.ids, limit: mostIds });
        return (found as { records: { [key: string]: { last_action?: string } }[] }).records.filter(
          (record) => record[metadataKey]?.last_action !== 'DELETED',
        );
      },
    ),
  ];

  async function page(of: {
    model: string;
    cursor?: string | undefined;
    ids?: readonly string[];
    limit: number;
  }): Promise<unknown> {
    const portions = readPage(db, { ...of, connection, variant });
    const parts: Buffer[] = [];
    for await (const part of pageToWire(portions, brand)) parts.push(Buffer.from(part));
    return JSON.parse(Buffer.concat(parts).toString());
  }
}

function idOf(record: unknown): string {
  const read = readRecordId((record as { id?: unknown } | null)?.id);
  if ('id' in read) return read.id;
  throw new AppError('invalid_record', `A record to delete does not fit: ${read.fault}.`);
}
