import { type Db, first, type Queryable, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { cursorWriter, type Position, readFollowedCursor } from './cursor.ts';
import { type DatasetName, ensureDataset, findDataset, lockDataset } from './dataset.ts';

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
};

export type Acknowledgement = DatasetName & {
  name: string;
  /** Undefined: nothing was taken yet, which holds a policy back from the start. */
  cursor: string | undefined;
};

/**
 * Notes that the consumer has taken everything up to and including the cursor; makes the consumer where there is none
 * of that name. The same cursor again says that it is alive.
 *
 * Throws `cursor_behind_consumer` for an earlier position than the one it stands at, `invalid_cursor` for a malformed
 * cursor or one of another dataset, `cursor_expired` for one behind a removed tombstone.
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

type Standing = { seq: number; cursor: string | undefined };

/** Under the dataset's lock, so that no policy removes meanwhile what the consumer is about to need. */
async function move(
  db: Db,
  to: Acknowledgement,
  permit: (seq: number, current: Standing | undefined) => void,
): Promise<Consumer> {
  // Nobody has a cursor of a dataset that does not exist; waiting for its first record is another matter.
  const datasetId = to.cursor === undefined ? await ensureDataset(db, to) : (await findDataset(db, to))?.id;
  if (datasetId === undefined) throw new AppError('invalid_cursor');
  await db.transaction(async (tx) => {
    const dataset = await lockDataset(tx, datasetId);
    if (dataset === undefined) throw new AppError('unknown_connection');
    const { seq, since } =
      to.cursor === undefined ? { seq: 0, since: dataset.lastSeq } : readFollowedCursor(to.cursor, dataset);
    const found = await tx.query<Position>(
      `select seq, since
       from consumer
       where dataset_id = $1 and name = $2`,
      [datasetId, to.name],
    );
    permit(seq, found[0] && { seq: found[0].seq, cursor: spell(datasetId, found[0]) });
    await tx.query(
      `insert into consumer (dataset_id, name, seq, since, acknowledged_at)
       values ($1, $2, $3, $4, clock_timestamp())
       on conflict on constraint consumer_name_unique do update
       set
         seq = excluded.seq,
         since = excluded.since,
         acknowledged_at = excluded.acknowledged_at,
         stale_at = null`,
      [datasetId, to.name, seq, since],
    );
  });
  // How far it is behind is counted without the lock: nobody waits for that.
  const consumer = await findConsumer(db, to);
  if (consumer === undefined) throw new AppError('not_found', 'The consumer was removed meanwhile.');
  return consumer;
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

/** Whether there was one: from now on nothing waits for it. */
export async function removeConsumer(q: Queryable, at: DatasetName & { name: string }): Promise<boolean> {
  const rows = await q.query(
    `delete from consumer
     using dataset
     where
       dataset.id = consumer.dataset_id
       and connection = $1 and model = $2 and variant = $3 and consumer.name = $4
     returning consumer.id`,
    [at.connection, at.model, at.variant, at.name],
  );
  return rows.length > 0;
}

/**
 * The position behind which a policy that waits for consumers may let go: that of the slowest one, or undefined where
 * nothing holds it back. A consumer that was told of as stale is waited for no longer.
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

type Row = Omit<Consumer, 'cursor'> & Position & { datasetId: number };

const select = `
  select
    consumer.name,
    model,
    variant,
    dataset_id as "datasetId",
    seq,
    since,
    acknowledged_at as "acknowledgedAt",
    (select count(*)
     from record
     where record.dataset_id = consumer.dataset_id and record.seq > consumer.seq) as behind
  from consumer
  join dataset on dataset.id = consumer.dataset_id
  where connection = $1`;

function fromRow({ datasetId, seq, since, ...row }: Row): Consumer {
  return { ...row, cursor: spell(datasetId, { seq, since }) };
}

function spell(datasetId: number, { seq, since }: Position): string | undefined {
  return seq === 0 ? undefined : cursorWriter(datasetId, since)(seq);
}
