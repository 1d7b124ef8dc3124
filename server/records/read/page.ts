import type { Db } from '../../db/pool.ts';
import type { RecordOwner } from '../rows.ts';
import { listRecords } from './list.ts';
import { createScratchBuffer, cursorAfter, type ListRequest, type Portion } from './portion.ts';

/** The limits of a portion of a list or an export: all that it has in memory, unless one record is larger. */
export const portionRecords = 500;
export const portionBytes = 2 * 1024 * 1024;

/** A page of at most this size is one portion: two portions take a tenth longer. */
const smallPage = 1000;

/** A page ends with the record that brings its sealed payloads to this size. */
export const pageBytes = 16 * 1024 * 1024;

type PortionsRequest = Omit<ListRequest, 'connection' | keyof PortionLimits | 'scratch'> & {
  /** Called before each portion, so that a long read ends when its connection is deleted. */
  connection: () => Promise<RecordOwner>;
};
type PortionLimits = Pick<ListRequest, 'limit' | 'maxBytes' | 'until'>;

export type PageRequest = PortionsRequest & {
  limit: number;
  /** By default `pageBytes`. */
  maxPageBytes?: number;
};

/**
 * Reads a page of at most `limit` records after a cursor, and of `pageBytes`, in portions. `hasMore` of the last
 * portion says whether there are records after the page. While one portion is used, the next one is read, and no other.
 *
 * A page has no record after the last position at its beginning: a record that changes meanwhile comes once, in this
 * page or after it. Throws what `listRecords` throws, at the portion where it happens.
 */
export function readPage(
  db: Db,
  { limit, maxPageBytes = pageBytes, ...request }: PageRequest,
): AsyncGenerator<Portion, void, undefined> {
  const maxRecords = limit <= smallPage ? smallPage : portionRecords;
  let left = limit;
  let bytesLeft = maxPageBytes;
  let until: number | undefined;
  const portions = readPortions(db, request, (portion) => {
    if (portion !== undefined) {
      until ??= portion.lastSeq;
      left -= portion.records.length;
      bytesLeft -= portion.bytes;
      if (left === 0 || bytesLeft <= 0 || portion.records.length === 0) return undefined;
    }
    return { limit: Math.min(left, maxRecords), maxBytes: Math.min(bytesLeft, portionBytes), until };
  });
  return readAhead(portions);
}

/** Reads all records after a cursor. A record that changes meanwhile may come twice, the later state last. */
export function readAll(db: Db, request: PortionsRequest): AsyncGenerator<Portion, void, undefined> {
  const limits = { limit: portionRecords, maxBytes: portionBytes };
  return readAhead(readPortions(db, request, () => limits));
}

/**
 * Each portion is read in its own snapshot, so that no transaction waits for a slow reader. A portion is valid until
 * the next one is requested. `limitsAfter` returns the limits of the next portion, or undefined to end.
 */
async function* readPortions(
  db: Db,
  request: PortionsRequest,
  limitsAfter: (portion: Portion | undefined) => PortionLimits | undefined,
): AsyncGenerator<Portion, void, undefined> {
  // One buffer is written to the reader while the other is filled.
  const scratch = [createScratchBuffer(), createScratchBuffer()] as const;
  let { cursor } = request;
  let limits = limitsAfter(undefined);
  for (let turn: 0 | 1 = 0; limits !== undefined; turn = turn === 0 ? 1 : 0) {
    const connection = await request.connection();
    const portion: Portion = await listRecords(db, {
      ...request,
      ...limits,
      connection,
      cursor,
      scratch: scratch[turn],
    });
    cursor = cursorAfter(portion) ?? cursor;
    limits = portion.hasMore ? limitsAfter(portion) : undefined;
    yield portion;
  }
}

/**
 * Yields the same values in the same order. While one value is used, the next one is made, and no more than that. An
 * error surfaces in its turn. If the consumer ends early, it waits until the value in progress is made, and nothing
 * runs on.
 */
export async function* readAhead<T>(
  values: AsyncGenerator<T, void, undefined>,
): AsyncGenerator<T, void, undefined> {
  let next = values.next();
  try {
    for (;;) {
      const made = await next;
      if (made.done) return;
      next = values.next();
      // The error is reported when `next` is awaited. Until then, it must not count as unhandled.
      next.catch(() => {});
      yield made.value;
    }
  } finally {
    await values.return();
  }
}
