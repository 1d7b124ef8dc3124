import type { Db, Tx } from '../db/pool.ts';
import { cursorWriter } from './cursor.ts';
import { planByIndexAlone } from './dataset.ts';

/** A dataset as its owner sees it. */
export type DatasetView = {
  model: string;
  variant: string;
  /** Live records, pruned ones included. */
  records: number;
  deleted: number;
  /** Records without a payload, live or deleted. */
  pruned: number;
  payloadBytes: number;
  /** Of the first and the last record in the feed; undefined where there is none. */
  firstCursor: string | undefined;
  lastCursor: string | undefined;
  /** In UTC as PostgreSQL writes it; null where nothing was ever changed. */
  lastModifiedAt: string | null;
  ignoreFields: string[];
  keepPrevious: boolean;
  massDeleteShare: number;
  massDeleteNumber: number;
  isTracking: boolean;
  heldAt: Date | null;
};

type Row = Omit<DatasetView, 'firstCursor' | 'lastCursor'> & {
  id: number;
  firstSeq: number | null;
  lastSeq: number | null;
};

const select = `
  select
    id,
    model,
    variant,
    records,
    deleted,
    pruned,
    payload_bytes as "payloadBytes",
    (select seq from record where dataset_id = dataset.id order by seq limit 1) as "firstSeq",
    (select seq from record where dataset_id = dataset.id order by seq desc limit 1) as "lastSeq",
    case
      when isfinite(last_modified_at) then (last_modified_at at time zone 'UTC')::text
    end as "lastModifiedAt",
    ignore_fields as "ignoreFields",
    keep_previous as "keepPrevious",
    mass_delete_share as "massDeleteShare",
    mass_delete_number as "massDeleteNumber",
    tracked_from is not null as "isTracking",
    held_at as "heldAt"
  from dataset`;

/** All datasets of a connection, by model and variant. */
export async function listDatasets(db: Db, connection: number): Promise<DatasetView[]> {
  const rows = await db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    return tx.query<Row>(
      `${select}
       where connection = $1
       order by model collate "C", variant collate "C"`,
      [connection],
    );
  });
  return rows.map(toView);
}

/** One dataset, under its lock; throws where there is none of this id. */
export async function getDataset(tx: Tx, id: number): Promise<DatasetView> {
  const [row] = await tx.query<Row>(`${select} where id = $1`, [id]);
  if (row === undefined) throw new Error('the dataset has no row');
  return toView(row);
}

function toView({ id, firstSeq, lastSeq, ...row }: Row): DatasetView {
  const cursorOf = cursorWriter(id);
  return {
    ...row,
    firstCursor: firstSeq === null ? undefined : cursorOf(firstSeq),
    lastCursor: lastSeq === null ? undefined : cursorOf(lastSeq),
  };
}
