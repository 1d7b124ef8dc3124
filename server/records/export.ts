import type { Brand } from '../brand.ts';
import type { Db } from '../db/pool.ts';
import { cursorWriter } from './cursor.ts';
import { listRecords } from './list.ts';
import type { RecordOwner } from './save.ts';
import { linesToWire } from './wire.ts';

/** Records read at a time: with their payloads they are all that an export holds in memory. */
const pageLimit = 500;

export type ExportRequest = {
  /** Asked before each page, so that a long export ends with its connection. */
  connection: () => Promise<RecordOwner>;
  model: string;
  variant: string;
  /** Records after this position; from the first one where absent. */
  cursor?: string | undefined;
};

/**
 * All records after a cursor as NDJSON, in the order of their latest changes: page by page as they are asked for, each
 * page as of its own moment, so that a record which changes meanwhile may come twice, the later state last.
 *
 * The last line is `{"_<brand>_export": {"count", "next_cursor"}}`, and only a whole export has it: `next_cursor` is
 * where to go on from later, null where there was nothing to begin with. Throws what `listRecords` throws, at the page
 * where it happens.
 */
export async function* exportRecords(
  db: Db,
  request: ExportRequest & { brand: Brand },
): AsyncGenerator<Buffer, void, undefined> {
  const { model, variant, brand } = request;
  let cursor = request.cursor;
  let count = 0;
  let hasMore = true;
  while (hasMore) {
    const connection = await request.connection();
    const page = await listRecords(db, { connection, model, variant, cursor, limit: pageLimit });
    const last = page.records.at(-1);
    if (page.datasetId !== undefined && last !== undefined) {
      cursor = cursorWriter(page.datasetId, page.since)(last.seq);
      count += page.records.length;
      yield linesToWire(page, brand);
    }
    hasMore = page.hasMore;
  }
  const end = { [brand.exportKey]: { count, next_cursor: cursor ?? null } };
  yield Buffer.from(`${JSON.stringify(end)}\n`);
}
