import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { call, send } from '../../api/client.ts';
import type { Point } from '../activity/queries.ts';
import type { Usage } from '../integrations/queries.ts';

/** What does not work in an environment. */
export type Health = {
  /** Counted up to 10,000. */
  connections: { active: number; needs_reauth: number; blocked: number };
  syncs: { integration_id: string; function: string; failing: number }[];
  endpoints: {
    id: number;
    url: string;
    disabled: boolean;
    failures: number;
    failing_since: string | null;
  }[];
  integrations: { integration_id: string; display_name: string; cause: string; since: string }[];
  quotas: (Omit<Usage['quota'][number], 'counts'> & { integration_id: string })[];
};

export const healthQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'health'],
    queryFn: async ({ signal }) => (await send('GET /environment/health', { environment, signal })) as Health,
    refetchInterval: 30_000,
    staleTime: 10_000,
  });

/** The states of active connections that the status does not tell from healthy ones. */
const weakStates = ['scopes_missing', 'provider_unavailable', 'unverified'] as const;
export type StateCounts = Record<(typeof weakStates)[number], number>;

export const stateCountsQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'connections', 'by state'],
    queryFn: async ({ signal }) => {
      const countOf = async (state: (typeof weakStates)[number]) => {
        const query = { state, count: 'true', limit: 1 } as const;
        const { total = 0 } = await call('GET /connections', { environment, signal, query });
        return [state, total];
      };
      return Object.fromEntries(await Promise.all(weakStates.map(countOf))) as StateCounts;
    },
    refetchInterval: 30_000,
    staleTime: 10_000,
  });

/** The numbers of the navigation's badges. */
export function countProblems({ connections, syncs, endpoints, integrations }: Health) {
  return {
    connections: connections.needs_reauth + connections.blocked,
    syncs: syncs.reduce((sum, { failing }) => sum + failing, 0),
    endpoints: endpoints.length,
    integrations: integrations.length,
  };
}

export type Proxied = {
  points: Point[];
  count: number;
  failed: number;
  p50: number | null;
  p95: number | null;
};

/** Proxied calls since a time: by step, and for the whole time. */
export const proxiedQuery = (
  environment: string,
  { integration, from, stepS }: { integration?: string | undefined; from: string; stepS: number },
) =>
  queryOptions({
    queryKey: [environment, 'operations', 'proxied', integration, from, stepS],
    queryFn: async ({ signal }): Promise<Proxied> => {
      const measure = (query: { step_s: 3600 | 86400 } | { by: 'type' }) =>
        call('GET /operations/stats', {
          environment,
          signal,
          query: {
            type: 'proxy',
            from,
            ...(integration !== undefined && { integration_id: integration }),
            ...query,
          },
        });
      const [{ series = [] }, { groups = [] }] = await Promise.all([
        measure({ step_s: stepS as 3600 }),
        measure({ by: 'type' }),
      ]);
      const [all] = groups;
      return {
        points: series,
        count: all?.count ?? 0,
        failed: all?.failed ?? 0,
        p50: all?.p50_ms ?? null,
        p95: all?.p95_ms ?? null,
      };
    },
    refetchInterval: 30_000,
    placeholderData: keepPreviousData,
  });
