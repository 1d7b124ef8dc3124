/** Stored records for the code of runs, as JSON that the service does not parse. */
import { z } from 'zod';
import type { Brand } from '../../brand.ts';
import { limitConcurrency } from '../../concurrency.ts';
import type { LiveConnection } from '../../connections/store/reader.ts';
import type { Db } from '../../db/pool.ts';
import { type PageRequest, readPage } from '../../records/read/page.ts';
import { linesToWire, pageToWire } from '../../records/routes/wire.ts';
import { type ContextDeps, type ServiceCall, serviceCall } from './service-call.ts';

const maxIds = 100;
const args = z.object({
  model: z.string().min(1).max(255),
  variant: z.string().min(1).max(255).default('base'),
  ids: z.array(z.string().min(1).max(510)).max(maxIds),
});

/** A page of `listRecords` ends with the record that reaches this size. */
const pageBytes = 4 * 1024 * 1024;

type Page = PageRequest & { brand: Brand };

/** `{"records": [...], "next_cursor"}`. */
export async function pageJson(db: Db, { brand, ...of }: Page): Promise<Buffer> {
  const portions = readPage(db, { ...of, maxPageBytes: pageBytes });
  return Buffer.concat(await Array.fromAsync(pageToWire(portions, brand)));
}

/** `[record, ...]` without deleted records. */
export async function recordsJson(db: Db, { brand, ...of }: Page): Promise<Buffer> {
  const records: Buffer[] = [];
  for await (const portion of readPage(db, of))
    for (const record of portion.records)
      if (record.lastAction !== 'DELETED')
        records.push(linesToWire({ ...portion, records: [record] }, brand));
  return arrayOf(records);
}

/** `getStoredRecords`: records with their metadata, including deleted ones. */
export function storedRecordsCall(
  { db, brand }: Pick<ContextDeps, 'db' | 'brand'>,
  { connection }: { connection: () => Promise<LiveConnection> },
): [string, ServiceCall] {
  const inTurn = limitConcurrency(1);
  // The metadata are the last field of a record, and contain no field of the same name.
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
  return serviceCall('getStoredRecords', args, (of, { drained }) =>
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
