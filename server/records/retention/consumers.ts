/**
 * Consumers: the clients that follow a dataset, and the positions up to which they have taken the changes.
 *
 * A consumer may be moved or removed by its owner: the key that created it and the keys that replace that key. All
 * other callers need records:write, so that a key that only reads cannot make retention remove what another application
 * has not read.
 */
import { writeDatasetAudit } from '../../activity/audit.ts';
import type { Connection } from '../../connections/store/store.ts';
import { type Db, first, type Queryable, recordsDb, type Tx } from '../../db/pool.ts';
import { readOwner } from '../../environments/keys.ts';
import { AppError } from '../../errors.ts';
import { type Caller, hasScope } from '../../http/auth/caller.ts';
import { cursorWriter, type Position, readCursor, readFollowedCursor } from '../cursor.ts';
import {
  type Dataset,
  type DatasetName,
  ensureDataset,
  findDataset,
  lockDataset,
  planningByIndexAlone,
} from '../dataset.ts';
import { type Remover, removerOf } from './receipt.ts';

export type Consumer = {
  name: string;
  model: string;
  variant: string;
  /** Undefined if nothing was taken yet. */
  cursor: string | undefined;
  acknowledgedAt: Date;
  /** The number of records that changed after the cursor. */
  behind: number;
  /** The first key of the keys that own it (`environments/keys.ts`); null if no key has owned it. */
  ownerKeyId: number | null;
  /**
   * The time since which the consumer acknowledges this cursor while changes wait, once that has lasted for 30 days.
   * Retention still waits for such a consumer: an operator decides whether to remove it.
   */
  stalledSince: Date | undefined;
};

/** SQL: whether the consumer has acknowledged one cursor for 30 days while changes waited. */
const isHeld = `
  consumer.held_seq = consumer.seq
  and consumer.acknowledged_at >= consumer.held_since + make_interval(days => 30)`;

/** SQL: the same, and changes still wait. */
export const isStalled = `${isHeld}
  and exists (select from record where record.dataset_id = consumer.dataset_id and record.seq > consumer.seq)`;

/** A caller that acknowledges or removes consumers. `service` may move and remove every consumer, and owns none. */
type Mover =
  | 'service'
  | (Remover & { environmentId: number; keyId: number | undefined; mayRead: boolean; mayWrite: boolean });

export function moverOf(
  caller: Caller,
  connection: Pick<Connection, 'integrationKey' | 'connectionId'>,
): Mover {
  return {
    ...removerOf(caller, connection),
    environmentId: caller.environmentId,
    keyId: caller.kind === 'key' ? caller.keyId : undefined,
    mayRead: hasScope(caller, 'records:read'),
    mayWrite: hasScope(caller, 'records:write'),
  };
}

type Acknowledgement = DatasetName & {
  name: string;
  /** Undefined if nothing was taken yet: then a policy that waits for consumers removes nothing. */
  cursor: string | undefined;
  by: Mover;
  now?: Date;
};

/**
 * Stores that the consumer has taken everything up to and including the cursor. Creates the consumer if the dataset has
 * none of that name; it belongs to the key that calls. The same cursor again shows that the consumer is alive.
 *
 * A key that may read records and acknowledges the present cursor of a consumer without an owner becomes its owner,
 * also when that cursor has expired. The audit log has an entry for a change of the owner, and for each acknowledgement
 * by a caller that is not the owner.
 *
 * Throws `forbidden` for a consumer of another key, and `consumer_without_owner` for another cursor than the present
 * one of a consumer without an owner, both unless the caller may write records; `cursor_behind_consumer` for an earlier
 * position than the present one, `invalid_cursor` for a malformed cursor or one of another dataset, `cursor_expired`
 * for a cursor before a removed tombstone.
 */
export function acknowledge(db: Db, to: Acknowledgement): Promise<Consumer> {
  return move(db, to, (seq, current) => {
    if (current === undefined || seq >= current.seq) return;
    throw new AppError('cursor_behind_consumer', undefined, { payload: { cursor: current.cursor ?? null } });
  });
}

/** As `acknowledge`, also to an earlier position: the consumer will take the changes after it again. */
export function rewind(db: Db, to: Acknowledgement): Promise<Consumer> {
  return move(db, to, () => {});
}

/** The state of a consumer under the dataset's lock. */
type ConsumerState = Position & {
  ownerKeyId: number | null;
  heldSince: Date | null;
  cursor: string | undefined;
};

/** Locks the dataset, so that no policy removes payloads that the consumer needs next. */
async function move(
  db: Db,
  to: Acknowledgement,
  permit: (seq: number, current: ConsumerState | undefined) => void,
): Promise<Consumer> {
  // No valid cursor exists for a dataset that does not exist, but a consumer may wait for its first record.
  const datasetId = to.cursor === undefined ? await ensureDataset(db, to) : (await findDataset(db, to))?.id;
  if (datasetId === undefined) throw new AppError('invalid_cursor');
  const expired = await withOwnership(db, to, (readOwnership) =>
    recordsDb(db, datasetId).transaction(async (tx) => {
      const dataset = await lockDataset(tx, datasetId);
      if (dataset === undefined || dataset.isClosed) throw new AppError('unknown_connection');
      return moveWithin(tx, { to, dataset, permit, readOwnership });
    }),
  );
  if (expired !== undefined) throw expired;
  // The number of records behind is counted without the lock, so that no writer waits for it.
  const consumer = await readConsumer(db, { ...to, datasetId });
  if (consumer === undefined) throw new AppError('not_found', 'The consumer was removed meanwhile.');
  return consumer;
}

/**
 * Returns `cursor_expired` instead of throwing it when the caller has become the owner, since that is to be committed.
 */
async function moveWithin(
  tx: Tx,
  {
    to,
    dataset,
    permit,
    readOwnership,
  }: {
    to: Acknowledgement;
    dataset: Dataset;
    permit: Parameters<typeof move>[2];
    readOwnership: ReadOwnership;
  },
): Promise<AppError | undefined> {
  const { by, name, cursor, now = new Date() } = to;
  const current = await findState(tx, { datasetId: dataset.id, name });
  const ownerKeyId = current?.ownerKeyId ?? null;
  const { owner, callerKeyId } = readOwnership(ownerKeyId);
  const requested = cursor === undefined ? 0 : readCursor(cursor, dataset);
  const mayOwn = by !== 'service' && by.mayRead && callerKeyId !== undefined;
  const becomesOwner = mayOwn && owner === 'nobody' && requested === current?.seq;
  if (becomesOwner) {
    await tx.query('update consumer set owner_key_id = $3 where dataset_id = $1 and name = $2', [
      dataset.id,
      name,
      callerKeyId,
    ]);
    const details = { key: by.keyId ?? null, former_key: ownerKeyId };
    auditConsumer(tx, by, { action: 'consumer.owner_changed', datasetId: dataset.id, at: to, details });
  } else if (current !== undefined) requireMover(by, { owner, name, cursor: current.cursor });

  let position: Position;
  try {
    position =
      cursor === undefined ? { seq: 0, since: dataset.lastSeq } : readFollowedCursor(cursor, dataset);
  } catch (error) {
    if (becomesOwner && error instanceof AppError) return error;
    throw error;
  }
  const { seq, since } = position;
  permit(seq, current);
  const isBehind = await hasRecordAfter(tx, { dataset, seq });
  await tx.query(
    `insert into consumer (dataset_id, name, seq, since, acknowledged_at, owner_key_id, held_seq, held_since)
     values ($1, $2, $3, $4, $5, $6, $3, $7)
     on conflict on constraint consumer_name_unique do update
     set
       seq = excluded.seq,
       since = excluded.since,
       acknowledged_at = excluded.acknowledged_at,
       stale_at = null,
       held_seq = excluded.held_seq,
       held_since = excluded.held_since`,
    [
      dataset.id,
      name,
      seq,
      since,
      now,
      callerKeyId ?? null,
      isBehind ? ((current?.seq === seq ? current.heldSince : null) ?? now) : null,
    ],
  );
  if (current !== undefined && owner !== 'caller' && !becomesOwner && by !== 'service') {
    const to_cursor = cursorAt(dataset.id, position) ?? null;
    const details = { from_cursor: current.cursor ?? null, to_cursor };
    auditConsumer(tx, by, { action: 'consumer.moved', datasetId: dataset.id, at: to, details });
  }
  return undefined;
}

async function hasRecordAfter(tx: Tx, { dataset, seq }: { dataset: Dataset; seq: number }): Promise<boolean> {
  if (dataset.lastSeq <= seq) return false;
  const rows = await tx.query('select from record where dataset_id = $1 and seq > $2 order by seq limit 1', [
    dataset.id,
    seq,
  ]);
  return rows.length > 0;
}

/** With `for update`, no other key can become the owner until the transaction ends. */
async function findState(
  tx: Tx,
  { datasetId, name, lock = '' }: { datasetId: number; name: string; lock?: 'for update' | '' },
): Promise<ConsumerState | undefined> {
  const rows = await tx.query<Omit<ConsumerState, 'cursor'>>(
    `select
       seq,
       since,
       owner_key_id as "ownerKeyId",
       case when held_seq = seq then held_since end as "heldSince"
     from consumer
     where dataset_id = $1 and name = $2
     ${lock}`,
    [datasetId, name],
  );
  const row = first(rows);
  return row && { ...row, cursor: cursorAt(datasetId, row) };
}

/** Undefined if the dataset has no consumer of that name. */
export async function findConsumer(
  db: Db,
  at: DatasetName & { name: string },
): Promise<Consumer | undefined> {
  const dataset = await findDataset(db, at);
  return dataset && readConsumer(db, { ...at, datasetId: dataset.id });
}

async function readConsumer(
  db: Db,
  { datasetId, model, variant, name }: { datasetId: number; model: string; variant: string; name: string },
): Promise<Consumer | undefined> {
  const row = first(
    await recordsDb(db, datasetId).query<Omit<ConsumerRow, 'model' | 'variant' | 'behind'>>(
      `select ${columns}, case when ${isHeld} then held_since end as "stalledSince"
       from consumer
       where dataset_id = $1 and name = $2`,
      [datasetId, name],
    ),
  );
  if (row === undefined) return undefined;
  const behind = await countAfter(db, { datasetId, seq: row.seq });
  const stalledSince = behind > 0 ? row.stalledSince : null;
  return fromRow({ ...row, model, variant, behind, stalledSince });
}

/** Counts the records after a position by index, whatever the statistics are. */
async function countAfter(db: Db, { datasetId, seq }: { datasetId: number; seq: number }): Promise<number> {
  let count = 0;
  await recordsDb(db, datasetId).pipeline({
    statements: [
      planningByIndexAlone,
      `select count(*) from record where dataset_id = ${datasetId} and seq > ${seq}`,
    ],
    onRow(statement, [value]) {
      if (statement === 1) count = Number(value);
    },
    onCopied() {},
  });
  return count;
}

/** Lists the consumers of all datasets of the connection, by model, variant and name. */
export async function listConsumers(q: Queryable, connection: number): Promise<Consumer[]> {
  const rows = await q.query<ConsumerRow>(
    `select
       model,
       variant,
       ${columns},
       case when ${isStalled} then held_since end as "stalledSince",
       (select count(*)
        from record
        where record.dataset_id = consumer.dataset_id and record.seq > consumer.seq) as behind
     from dataset
     cross join lateral (
       select *
       from consumer
       where dataset_id = dataset.id
       offset 0
     ) as consumer
     where connection = $1
     order by model, variant, consumer.name`,
    [connection],
  );
  return rows.map(fromRow);
}

/**
 * Removes the consumer, so that retention no longer waits for it, and returns whether there was one. Throws `forbidden`
 * for a consumer of another key, and `consumer_without_owner` for one without an owner, both unless the caller may
 * write records.
 */
export async function removeConsumer(
  db: Db,
  { by, now = new Date(), ...at }: DatasetName & { name: string; by: Mover; now?: Date },
): Promise<boolean> {
  const datasetId = (await findDataset(db, at))?.id;
  if (datasetId === undefined) return false;
  return withOwnership(db, { by, now }, (readOwnership) =>
    recordsDb(db, datasetId).transaction(async (tx) => {
      const found = await findState(tx, { datasetId, name: at.name, lock: 'for update' });
      if (found === undefined) return false;
      const { owner } = readOwnership(found.ownerKeyId);
      requireMover(by, { owner, name: at.name, cursor: found.cursor });
      await tx.query('delete from consumer where dataset_id = $1 and name = $2', [datasetId, at.name]);
      if (by !== 'service') auditConsumer(tx, by, { action: 'consumer.removed', datasetId, at });
      return true;
    }),
  );
}

/**
 * Returns the position up to which a policy that waits for consumers may remove payloads: that of the slowest consumer,
 * or undefined if there is none. Consumers that were reported as stale do not count.
 */
export async function slowestPosition(tx: Tx, datasetId: number): Promise<number | undefined> {
  const rows = await tx.query<{ seq: number | null }>(
    `select min(seq) as seq
     from consumer
     where dataset_id = $1 and stale_at is null`,
    [datasetId],
  );
  return first(rows)?.seq ?? undefined;
}

type ConsumerRow = Omit<Consumer, 'cursor' | 'stalledSince'> &
  Position & { datasetId: number; stalledSince: Date | null };

const columns = `
  consumer.name,
  dataset_id as "datasetId",
  seq,
  since,
  acknowledged_at as "acknowledgedAt",
  owner_key_id as "ownerKeyId"`;

function fromRow({ datasetId, seq, since, stalledSince, ...row }: ConsumerRow): Consumer {
  return { ...row, cursor: cursorAt(datasetId, { seq, since }), stalledSince: stalledSince ?? undefined };
}

function cursorAt(datasetId: number, { seq, since }: Position): string | undefined {
  return seq === 0 ? undefined : cursorWriter(datasetId, since)(seq);
}

type Ownership = {
  /** The owner that the caller's key stands for; undefined for a caller that is not a key. */
  callerKeyId: number | undefined;
  /** `nobody`: no key has owned the consumer yet, or none of those that did is valid. */
  owner: 'caller' | 'another' | 'nobody';
};

/** For a consumer with this owner, or for a new one. Ends the transaction if the keys of that owner were not read yet. */
type ReadOwnership = (ownerKeyId: number | null) => Ownership;

class UnreadOwner extends Error {
  readonly keyId: number;

  constructor(keyId: number) {
    super('the keys of the owner were not read');
    this.keyId = keyId;
  }
}

/**
 * Runs `work`, whose transaction finds the owner. Keys are in a table of no dataset, so they are read before it; if the owner
 * is another than the caller, `work` runs once more. For the service, the ownership does not matter and is not read.
 */
async function withOwnership<T>(
  db: Db,
  { by, now = new Date() }: { by: Mover; now?: Date },
  work: (read: ReadOwnership) => Promise<T>,
): Promise<T> {
  if (by === 'service') return work(() => ({ callerKeyId: undefined, owner: 'nobody' }));
  const { environmentId, keyId } = by;
  for (let known: number | null = null; ; ) {
    const { firstKeyId, isOwned } = await readOwner(db, { environmentId, keyId, ownerKeyId: known, now });
    const read = (ownerKeyId: number | null): Ownership => {
      if (ownerKeyId === null) return { callerKeyId: firstKeyId, owner: 'nobody' };
      if (ownerKeyId === firstKeyId) return { callerKeyId: firstKeyId, owner: 'caller' };
      if (ownerKeyId !== known) throw new UnreadOwner(ownerKeyId);
      return { callerKeyId: firstKeyId, owner: isOwned ? 'another' : 'nobody' };
    };
    try {
      return await work(read);
    } catch (error) {
      if (!(error instanceof UnreadOwner)) throw error;
      known = error.keyId;
    }
  }
}

/** Throws `forbidden` or `consumer_without_owner` for a caller that may not move or remove the consumer. */
function requireMover(
  by: Mover,
  { owner, name, cursor }: Pick<Ownership, 'owner'> & { name: string; cursor: string | undefined },
): void {
  if (by === 'service' || by.mayWrite || owner === 'caller') return;
  if (owner === 'another')
    throw new AppError(
      'forbidden',
      `The consumer "${name}" belongs to another key. To move or remove it, use a key with the scope records:write.`,
    );
  throw new AppError('consumer_without_owner', undefined, { payload: { cursor: cursor ?? null } });
}

/** Adds an entry about the consumer to the audit log. */
function auditConsumer(
  tx: Tx,
  by: Exclude<Mover, 'service'>,
  entry: {
    action: 'consumer.owner_changed' | 'consumer.moved' | 'consumer.removed';
    datasetId: number;
    at: { name: string; model: string; variant: string };
    details?: Record<string, string | number | null>;
  },
): void {
  const { environmentId, actor, target } = by;
  const { name, model, variant } = entry.at;
  const details = { name, model, variant, ...entry.details };
  const { datasetId, action } = entry;
  writeDatasetAudit(tx, datasetId, { environmentId, actor, target, action, details });
}
