/** Records of the run's connection as they are stored, for actions that write back what was read from them. */
import { z } from 'zod';
import type { LiveConnection } from '../../connections/reader.ts';
import { readPage } from '../../records/page.ts';
import { pageToWire } from '../../records/wire.ts';
import { type Ask, ask, type ContextDeps } from './context.ts';

const mostIds = 100;
const args = z.object({
  model: z.string().min(1).max(255),
  variant: z.string().min(1).max(255).default('base'),
  ids: z.array(z.string().min(1).max(510)).max(mostIds),
});

/** `getStoredRecords`: with their metadata, those that were deleted too. */
export function storedRecordsAsk(
  { db, brand }: Pick<ContextDeps, 'db' | 'brand'>,
  { connection }: { connection: () => Promise<LiveConnection> },
): [string, Ask] {
  return ask('getStoredRecords', args, async (of) => {
    if (of.ids.length === 0) return [];
    const parts: Buffer[] = [];
    const portions = readPage(db, { ...of, limit: mostIds, connection });
    for await (const part of pageToWire(portions, brand)) parts.push(Buffer.from(part));
    const { records } = JSON.parse(Buffer.concat(parts).toString()) as {
      records: Record<string, unknown>[];
    };
    return records.map(({ [brand.metadataKey]: metadata, ...record }) => ({ record, metadata }));
  });
}
