import { z } from 'zod';
import type { Integration } from './store.ts';

/** What is made of an integration. Higher floors know it: `app.ts` passes in who counts. */
type IntegrationUsage = {
  connections: { total: number; active: number; needs_reauth: number; blocked: number };
  quota: readonly {
    name: string;
    counts: 'read' | 'write' | 'all';
    limit: number;
    windowS: number;
    used: number;
    closedUntil: Date | undefined;
  }[];
  /** What the provider has announced to end within 90 days, where it concerns connections. */
  sunsets: readonly { on: string; ends: string; page: string; count: number }[];
};

/** Of each of these, which are of one environment. */
export type UsageOf = (given: {
  environmentId: number;
  integrations: readonly Integration[];
}) => Promise<(integration: Integration) => IntegrationUsage>;

export const usageWire = z.object({
  connections: z.object({
    total: z.number(),
    active: z.number(),
    needs_reauth: z.number(),
    blocked: z.number(),
  }),
  /** Limits of the client as a whole, over all nodes and environments; none where the quota is off. */
  quota: z.array(
    z.object({
      name: z.string(),
      counts: z.enum(['read', 'write', 'all']),
      limit: z.number(),
      window_s: z.number(),
      /** In the last window. */
      used: z.number(),
      /** Nothing goes out before. */
      closed_until: z.string().nullable(),
    }),
  ),
  /** What the provider has announced to end, from 90 days before, while connections may stop working. */
  sunsets: z.array(
    z.object({
      /** ISO 8601 date. */
      on: z.string(),
      ends: z.string(),
      /** Address of the provider's announcement. */
      announcement: z.string(),
      /** How many connections may stop working. */
      connections: z.number(),
    }),
  ),
});

export function usageToWire({ connections, quota, sunsets }: IntegrationUsage): z.input<typeof usageWire> {
  return {
    connections,
    quota: quota.map(({ windowS, closedUntil, ...use }) => ({
      ...use,
      window_s: windowS,
      closed_until: closedUntil?.toISOString() ?? null,
    })),
    sunsets: sunsets.map(({ on, ends, page, count }) => ({
      on,
      ends,
      announcement: page,
      connections: count,
    })),
  };
}
