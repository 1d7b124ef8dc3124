import type { Db } from '../db/pool.ts';
import { readAhead } from './ahead.ts';
import { cursorWriter } from './cursor.ts';
import { createScratchBuffer, type ListRequest, listRecords, type Portion } from './list.ts';
import type { RecordOwner } from './save.ts';

/** What a list or an export reads at a time: all that it holds in memory, beyond one record that is larger. */
export const portionRecords = 500;
export const portionBytes = 2 * 1024 * 1024;

/** A page that asks for no more is one portion: two take a tenth longer. */
const smallPage = 1000;

/** A page ends with the record that brings its sealed payloads to this size. */
export const pageBytes = 16 * 1024 * 1024;

export type PageRequest = Omit<ListRequest, 'connection' | 'maxBytes' | 'until' | 'scratch'> & {
  /** Asked before each portion, so that a page which a slow reader takes ends with its connection. */
  connection: () => Promise<RecordOwner>;
  /** In place of `pageBytes`. */
  maxPageBytes?: number;
};

/**
 * A page of at most `limit` records after a cursor, and of `pageBytes`, in portions; whether there is more after the
 * page is the last portion's `hasMore`. While one is being used the next is read, and no other.
 *
 * Each portion is as of its own moment, so that no transaction waits for a slow reader. A page holds no record beyond
 * the position that was the last one when it began: one that changes meanwhile comes once, with this page or behind it.
 * A portion is good until the next one is asked for. Throws what `listRecords` throws, at the portion where it
 * happens.
 */
export function readPage(db: Db, request: PageRequest): AsyncGenerator<Portion, void, undefined> {
  return readAhead(readInTurn(db, request));
}

async function* readInTurn(db: Db, request: PageRequest): AsyncGenerator<Portion, void, undefined> {
  let { cursor, limit: left } = request;
  // One is being written to the reader while the other is filled.
  const scratch = [createScratchBuffer(), createScratchBuffer()] as const;
  const max = request.limit <= smallPage ? smallPage : portionRecords;
  let bytesLeft = request.maxPageBytes ?? pageBytes;
  let until: number | undefined;
  let isEnd = false;
  for (let turn: 0 | 1 = 0; !isEnd; turn = turn === 0 ? 1 : 0) {
    const portion: Portion = await listRecords(db, {
      ...request,
      connection: await request.connection(),
      cursor,
      limit: Math.min(left, max),
      maxBytes: Math.min(bytesLeft, portionBytes),
      until,
      scratch: scratch[turn],
    });
    until ??= portion.lastSeq;
    left -= portion.records.length;
    bytesLeft -= portion.bytes;
    cursor = cursorAfter(portion) ?? cursor;
    isEnd = !portion.hasMore || left === 0 || bytesLeft <= 0 || portion.records.length === 0;
    yield portion;
  }
}

/** The cursor of a portion's last record; undefined where it has none. */
export function cursorAfter({ datasetId, since, records }: Portion): string | undefined {
  const last = records.at(-1);
  if (datasetId === undefined || last === undefined) return undefined;
  return cursorWriter(datasetId, since)(last.seq);
}
