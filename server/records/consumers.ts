import { type Db, first, type Queryable, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { auditConsumer, type Mover, readOwnership, requireMover } from './consumer-owner.ts';
import { cursorWriter, type Position, readCursor, readFollowedCursor } from './cursor.ts';
import { type Dataset, type DatasetName, ensureDataset, findDataset, lockDataset } from './dataset.ts';

/** Who follows a dataset, and up to where it has taken the changes. */
export type Consumer = {
  name: string;
  model: string;
  variant: string;
  /** Undefined: nothing was taken yet. */
  cursor: string | undefined;
  acknowledgedAt: Date;
  /** Records that changed after the cursor. */
  behind: number;
  /** The first key of the keys that own it (`environments/key-replacements.ts`); null: no key has owned it. */
  ownerKeyId: number | null;
  /**
   * Since when it acknowledges the cursor while changes wait, when it has done so for 30 days. Retention still waits for such a
   * consumer: to end it is a decision of an operator.
   */
  stalledSince: Date | undefined;
};

/** Whether a consumer has acknowledged one cursor for 30 days while changes waited behind it, and still wait. */
export const isStalled = `
  consumer.held_seq = consumer.seq
  and consumer.acknowledged_at >= consumer.held_since + make_interval(days => 30)
  and exists (select from record where record.dataset_id = consumer.dataset_id and record.seq > consumer.seq)`;

type Acknowledgement = DatasetName & {
  name: string;
  /** Undefined: nothing was taken yet, which holds a policy back from the start. */
  cursor: string | undefined;
  by: Mover;
  now?: Date;
};

/**
 * Records that the consumer has taken everything up to and including the cursor. Creates the consumer, which belongs to the key
 * that calls, if the dataset has none of that name. The same cursor again is a sign of life.
 *
 * A key that may read records and acknowledges the present cursor of a consumer without an owner becomes its owner, also when
 * that cursor has expired. The audit log has an entry for a change of the owner, and for each acknowledgement by a caller that
 * is not the owner.
 *
 * Throws `forbidden` for a consumer of another key, and `consumer_without_owner` for another cursor than the present one of a
 * consumer without an owner, both unless the caller may write records; `cursor_behind_consumer` for an earlier position than
 * the present one, `invalid_cursor` for a malformed cursor or one of another dataset, `cursor_expired` for a cursor before a
 * removed tombstone.
 */
export function acknowledge(db: Db, to: Acknowledgement): Promise<Consumer> {
  return move(db, to, (seq, current) => {
    if (current === undefined || seq >= current.seq) return;
    throw new AppError('cursor_behind_consumer', undefined, { payload: { cursor: current.cursor ?? null } });
  });
}

/** As `acknowledge`, also to an earlier position: what follows it will be taken again. */
export function rewind(db: Db, to: Acknowledgement): Promise<Consumer> {
  return move(db, to, () => {});
}

/** A consumer under the dataset's lock. */
type Standing = Position & { ownerKeyId: number | null; heldSince: Date | null; cursor: string | undefined };

/** Under the dataset's lock, so that no policy removes meanwhile what the consumer is about to need. */
async function move(
  db: Db,
  to: Acknowledgement,
  permit: (seq: number, current: Standing | undefined) => void,
): Promise<Consumer> {
  // Nobody has a cursor of a dataset that does not exist; waiting for its first record is another matter.
  const datasetId = to.cursor === undefined ? await ensureDataset(db, to) : (await findDataset(db, to))?.id;
  if (datasetId === undefined) throw new AppError('invalid_cursor');
  const expired = await db.transaction(async (tx) => {
    const dataset = await lockDataset(tx, datasetId);
    if (dataset === undefined) throw new AppError('unknown_connection');
    return moveWithin(tx, { to, dataset, permit });
  });
  if (expired !== undefined) throw expired;
  // How far it is behind is counted without the lock: nobody waits for that.
  const consumer = await findConsumer(db, to);
  if (consumer === undefined) throw new AppError('not_found', 'The consumer was removed meanwhile.');
  return consumer;
}

/** Returns `cursor_expired` instead of throwing it when the caller has become the owner, since that is to be committed. */
async function moveWithin(
  tx: Tx,
  given: { to: Acknowledgement; dataset: Dataset; permit: Parameters<typeof move>[2] },
): Promise<AppError | undefined> {
  const { to, dataset, permit } = given;
  const { by, name, cursor, now = new Date() } = to;
  const current = await findStanding(tx, { datasetId: dataset.id, name });
  const ownerKeyId = current?.ownerKeyId ?? null;
  const { owner, callerKeyId } = await readOwnership(tx, { by, ownerKeyId, now });
  const asked = cursor === undefined ? 0 : readCursor(cursor, dataset);
  const mayOwn = by !== 'service' && by.mayRead && callerKeyId !== undefined;
  const becomesOwner = mayOwn && owner === 'nobody' && asked === current?.seq;
  if (becomesOwner) {
    await tx.query('update consumer set owner_key_id = $3 where dataset_id = $1 and name = $2', [
      dataset.id,
      name,
      callerKeyId,
    ]);
    const details = { key: by.keyId ?? null, former_key: ownerKeyId };
    await auditConsumer(tx, by, { action: 'consumer.owner_changed', at: to, details });
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
  await tx.query(
    `insert into consumer (dataset_id, name, seq, since, acknowledged_at, owner_key_id, held_seq, held_since)
     values (
       $1, $2, $3, $4, $5, $6, $3,
       case when exists (select from record where dataset_id = $1 and seq > $3) then $7::timestamptz end
     )
     on conflict on constraint consumer_name_unique do update
     set
       seq = excluded.seq,
       since = excluded.since,
       acknowledged_at = excluded.acknowledged_at,
       stale_at = null,
       held_seq = excluded.held_seq,
       held_since = excluded.held_since`,
    [
      ...[dataset.id, name, seq, since, now, callerKeyId ?? null],
      (current?.seq === seq ? current.heldSince : null) ?? now,
    ],
  );
  if (current !== undefined && owner !== 'caller' && !becomesOwner && by !== 'service') {
    const to_cursor = spell(dataset.id, position) ?? null;
    const details = { from_cursor: current.cursor ?? null, to_cursor };
    await auditConsumer(tx, by, { action: 'consumer.moved', at: to, details });
  }
  return undefined;
}

async function findStanding(
  tx: Tx,
  { datasetId, name }: { datasetId: number; name: string },
): Promise<Standing | undefined> {
  const rows = await tx.query<Omit<Standing, 'cursor'>>(
    `select
       seq,
       since,
       owner_key_id as "ownerKeyId",
       case when held_seq = seq then held_since end as "heldSince"
     from consumer
     where dataset_id = $1 and name = $2`,
    [datasetId, name],
  );
  const row = first(rows);
  return row && { ...row, cursor: spell(datasetId, row) };
}

/** Undefined where nobody of that name follows the dataset. */
export async function findConsumer(
  q: Queryable,
  at: DatasetName & { name: string },
): Promise<Consumer | undefined> {
  const rows = await q.query<Row>(`${select} and model = $2 and variant = $3 and consumer.name = $4`, [
    at.connection,
    at.model,
    at.variant,
    at.name,
  ]);
  return first(rows.map(fromRow));
}

/** Everyone who follows a dataset of the connection, by model, variant and name. */
export async function listConsumers(q: Queryable, connection: number): Promise<Consumer[]> {
  const rows = await q.query<Row>(`${select} order by model, variant, consumer.name`, [connection]);
  return rows.map(fromRow);
}

/**
 * Removes the consumer, so that nothing waits for it, and returns whether there was one. Throws `forbidden` for a consumer of
 * another key, and `consumer_without_owner` for one without an owner, both unless the caller may write records.
 */
export async function removeConsumer(
  db: Db,
  { by, now = new Date(), ...at }: DatasetName & { name: string; by: Mover; now?: Date },
): Promise<boolean> {
  return db.transaction(async (tx) => {
    // Locked, so that no other key becomes its owner meanwhile.
    const rows = await tx.query<Position & { id: number; datasetId: number; ownerKeyId: number | null }>(
      `select consumer.id, dataset_id as "datasetId", seq, since, owner_key_id as "ownerKeyId"
       from consumer
       join dataset on dataset.id = consumer.dataset_id
       where connection = $1 and model = $2 and variant = $3 and consumer.name = $4
       for update of consumer`,
      [at.connection, at.model, at.variant, at.name],
    );
    const found = first(rows);
    if (found === undefined) return false;
    const { owner } = await readOwnership(tx, { by, ownerKeyId: found.ownerKeyId, now });
    requireMover(by, { owner, name: at.name, cursor: spell(found.datasetId, found) });
    await tx.query('delete from consumer where id = $1', [found.id]);
    if (by !== 'service') await auditConsumer(tx, by, { action: 'consumer.removed', at });
    return true;
  });
}

/**
 * The position up to which a policy that waits for consumers may remove payloads: that of the slowest consumer, or undefined
 * if there is none. Consumers that were reported as stale do not count.
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

type Row = Omit<Consumer, 'cursor' | 'stalledSince'> &
  Position & { datasetId: number; stalledSince: Date | null };

const select = `
  select
    consumer.name,
    model,
    variant,
    dataset_id as "datasetId",
    seq,
    since,
    acknowledged_at as "acknowledgedAt",
    owner_key_id as "ownerKeyId",
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
  where connection = $1`;

function fromRow({ datasetId, seq, since, stalledSince, ...row }: Row): Consumer {
  return { ...row, cursor: spell(datasetId, { seq, since }), stalledSince: stalledSince ?? undefined };
}

function spell(datasetId: number, { seq, since }: Position): string | undefined {
  return seq === 0 ? undefined : cursorWriter(datasetId, since)(seq);
}
