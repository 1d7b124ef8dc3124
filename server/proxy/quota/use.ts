import type { Queryable } from '../../db/pool.ts';
import type { Integration } from '../../integrations/store.ts';
import type { ProviderQuota } from '../../providers/definition.ts';
import { quotaWith } from '../../providers/quota-setting.ts';
import { keyOf } from './quota.ts';
import { cellAt, cellsPerWindow, type Pages } from './sliding-window.ts';

/** How much of one limit of an integration's client is used, over all nodes. */
type QuotaUse = {
  name: string;
  counts: 'read' | 'write' | 'all';
  limit: number;
  windowS: number;
  /** Tokens of the last window, with those that nodes hold for calls to come. */
  used: number;
  /** Set while the provider has refused, or somebody has closed it: nothing goes out before. */
  closedUntil: Date | undefined;
};

type Counted = Pick<Integration, 'id' | 'provider' | 'integrationConfig' | 'isTest' | 'client'>;
type Row = { bucket: string; pages: Pages; clock: number };

/**
 * What each integration's client has used of its limits, by the ID of the integration's row. Limits of single accounts are
 * left out, and so are integrations whose quota is off. One statement, whatever their number.
 */
export async function quotaUse(
  db: Queryable,
  integrations: readonly Counted[],
): Promise<Map<number, QuotaUse[]>> {
  const limits = integrations.flatMap((integration) =>
    limitsOf(integration).map((limit) => ({
      id: integration.id,
      limit,
      bucket: keyOf(limit, { id: 0, account: undefined, integration: integration as Integration }),
    })),
  );
  const uses = new Map<number, QuotaUse[]>();
  if (limits.length === 0) return uses;
  const rows = await db.query<Row>(
    `select bucket, pages, extract(epoch from clock_timestamp())::float8 * 1000 as clock
     from quota_book
     where bucket = any($1)`,
    [limits.map(({ bucket }) => bucket)],
  );
  for (const { id, limit, bucket } of limits) {
    const row = rows.find((found) => found.bucket === bucket);
    const closedUntil =
      row && row.pages.closedUntil > row.clock ? new Date(row.pages.closedUntil) : undefined;
    const use = {
      ...{ name: limit.name, counts: limit.counts, limit: limit.count, windowS: limit.window_s },
      ...{ used: row === undefined ? 0 : usedOf(limit, row), closedUntil },
    };
    uses.set(id, [...(uses.get(id) ?? []), use]);
  }
  return uses;
}

function limitsOf({ provider, integrationConfig, isTest }: Counted): ProviderQuota['limits'] {
  try {
    const quota = quotaWith(provider.api.quota, { setting: integrationConfig.quota, isTest });
    return (quota?.limits ?? []).filter(({ per }) => per === 'owner');
  } catch (error) {
    // A setting that fits no more is told by each call.
    if (error instanceof RangeError) return [];
    throw error;
  }
}

function usedOf(
  { count, burst = count, window_s }: ProviderQuota['limits'][number],
  { pages, clock }: Row,
): number {
  const now = cellAt({ count, burst, windowMs: window_s * 1000 }, clock);
  const taken = pages.cells.filter(([cell]) => cell > now - cellsPerWindow);
  return taken.reduce((sum, [, interactive, background]) => sum + interactive + background, 0);
}
