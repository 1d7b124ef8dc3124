import type { Brand } from '../brand.ts';
import type { Db } from '../db/pool.ts';
import { createRoom, listRecords } from './list.ts';
import { cursorAfter, portionBytes, portionRecords } from './page.ts';
import type { RecordOwner } from './save.ts';
import { linesToWire } from './wire.ts';

export type ExportRequest = {
  /** Asked before each portion, so that a long export ends with its connection. */
  connection: () => Promise<RecordOwner>;
  model: string;
  variant: string;
  /** Records after this position; from the first one where absent. */
  cursor?: string | undefined;
};

/**
 * All records after a cursor as NDJSON, in the order of their latest changes: in portions as they are asked for, each
 * as of its own moment, so that a record which changes meanwhile may come twice, the later state last.
 *
 * The last line is `{"_<brand>_export": {"count", "next_cursor"}}`, and only a whole export has it: `next_cursor` is
 * where to go on from later, null where there was nothing to begin with. Throws what `listRecords` throws, at the
 * portion where it happens.
 */
export async function* exportRecords(
  db: Db,
  request: ExportRequest & { brand: Brand },
): AsyncGenerator<Buffer, void, undefined> {
  const { model, variant, brand } = request;
  const room = createRoom();
  let cursor = request.cursor;
  let count = 0;
  let hasMore = true;
  while (hasMore) {
    const connection = await request.connection();
    const portion = await listRecords(db, {
      ...{ connection, model, variant, cursor },
      ...{ limit: portionRecords, maxBytes: portionBytes, room },
    });
    cursor = cursorAfter(portion) ?? cursor;
    count += portion.records.length;
    hasMore = portion.hasMore;
    const lines = linesToWire(portion, brand);
    portion.records.length = 0;
    if (lines.length > 0) yield lines;
  }
  const end = { [brand.exportKey]: { count, next_cursor: cursor ?? null } };
  yield Buffer.from(`${JSON.stringify(end)}\n`);
}
