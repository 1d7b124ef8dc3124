/** Records as they are stored, for the code of runs: answered as JSON that nobody parses here. */
import { z } from 'zod';
import type { Brand } from '../../brand.ts';
import { limitConcurrency } from '../../concurrency.ts';
import type { LiveConnection } from '../../connections/reader.ts';
import type { Db } from '../../db/pool.ts';
import { type PageRequest, readPage } from '../../records/page.ts';
import { linesToWire, pageToWire } from '../../records/wire.ts';
import { type Ask, ask, type ContextDeps } from './context.ts';

const maxIds = 100;
const args = z.object({
  model: z.string().min(1).max(255),
  variant: z.string().min(1).max(255).default('base'),
  ids: z.array(z.string().min(1).max(510)).max(maxIds),
});

/** A page of `listRecords` ends with the record that brings it to this size; the next one is behind its cursor. */
const pageBytes = 4 * 1024 * 1024;

type Page = PageRequest & { brand: Brand };

/** `{"records": [...], "next_cursor"}`. */
export async function pageJson(db: Db, { brand, ...of }: Page): Promise<Buffer> {
  const portions = readPage(db, { ...of, maxPageBytes: pageBytes });
  return Buffer.concat(await Array.fromAsync(pageToWire(portions, brand)));
}

/** `[record, ...]` of those that were not deleted. */
export async function recordsJson(db: Db, { brand, ...of }: Page): Promise<Buffer> {
  const records: Buffer[] = [];
  for await (const portion of readPage(db, of))
    for (const record of portion.records)
      if (record.lastAction !== 'DELETED')
        records.push(linesToWire({ ...portion, records: [record] }, brand));
  return arrayOf(records);
}

/** `getStoredRecords`: with their metadata, those that were deleted too. */
export function storedRecordsAsk(
  { db, brand }: Pick<ContextDeps, 'db' | 'brand'>,
  { connection }: { connection: () => Promise<LiveConnection> },
): [string, Ask] {
  const inTurn = limitConcurrency(1);
  // The metadata are the last field of a record, and have no field of that name themselves.
  const key = `,${JSON.stringify(brand.metadataKey)}:`;
  async function read(of: z.output<typeof args>): Promise<Buffer> {
    const found: Buffer[] = [];
    for await (const portion of readPage(db, { ...of, limit: maxIds, connection }))
      for (const record of portion.records) {
        const line = linesToWire({ ...portion, records: [record] }, brand);
        const end = line.lastIndexOf(key);
        const metadata = line.subarray(end + key.length);
        found.push(
          Buffer.concat([
            Buffer.from('{"record":'),
            line.subarray(0, end),
            Buffer.from('},"metadata":'),
            metadata,
          ]),
        );
      }
    return arrayOf(found);
  }
  return ask('getStoredRecords', args, (of, { drained }) =>
    inTurn(async () => {
      await drained();
      return of.ids.length === 0 ? [] : read(of);
    }),
  );
}

function arrayOf(items: readonly Buffer[]): Buffer {
  const parts = items.flatMap((item, n) => (n === 0 ? [item] : [Buffer.from(','), item]));
  return Buffer.concat([Buffer.from('['), ...parts, Buffer.from(']')]);
}
