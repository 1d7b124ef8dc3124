import { queryOptions } from '@tanstack/react-query';
import { call } from '../../api/client.ts';

/** How far an environment has come; each step is looked up, never remembered. */
export type Progress = {
  integration: { key: string; logo: string } | undefined;
  /** The newest. */
  connection: { integration: string; id: string; account: string } | undefined;
  hasProxied: boolean;
  hasSaved: boolean;
  hasPruned: boolean;
};

/** A page of the log looks at a bounded number of entries, so what is rare may stand on a later one. */
const mostPages = 4;

export const progressQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'progress'],
    queryFn: async ({ signal }): Promise<Progress> => {
      const at = { environment, signal };
      const isLogged = async (type: 'proxy' | 'records.save' | 'records.prune') => {
        let cursor: string | undefined;
        for (let page = 0; page < mostPages; page += 1) {
          const { operations, next_cursor } = await call('GET /operations', {
            ...at,
            query: { type, status: 'success', limit: 1, ...(cursor !== undefined && { cursor }) },
          });
          if (operations.length > 0) return true;
          if (next_cursor === null) return false;
          cursor = next_cursor;
        }
        return false;
      };
      const [integrations, newest, hasProxied, wasSaved, wasPruned] = await Promise.all([
        call('GET /integrations', at),
        call('GET /connections', { ...at, query: { limit: 1 } }),
        isLogged('proxy'),
        isLogged('records.save'),
        isLogged('records.prune'),
      ]);
      const [integration] = integrations.data;
      const [connection] = newest.connections;
      // The log is cleared after a while; what was kept, and what was taken out of it, is not.
      const datasets =
        connection === undefined || (wasSaved && wasPruned)
          ? []
          : await call('GET /records/datasets', {
              ...at,
              headers: {
                'connection-id': connection.connection_id,
                'provider-config-key': connection.provider_config_key,
              },
            }).then(({ datasets: found }) => found);
      return {
        integration: integration && { key: integration.unique_key, logo: integration.logo },
        connection: connection && {
          integration: connection.provider_config_key,
          id: connection.connection_id,
          account: connection.account?.email ?? connection.connection_id,
        },
        hasProxied,
        hasSaved: wasSaved || datasets.some(({ records, deleted }) => records + deleted > 0),
        hasPruned: wasPruned || datasets.some(({ pruned }) => pruned > 0),
      };
    },
    refetchInterval: 3_000,
  });
