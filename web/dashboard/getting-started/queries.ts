import { queryOptions } from '@tanstack/react-query';
import { call } from '../../api/client.ts';

/** How far an environment has come; each step is looked up, never remembered. */
export type Progress = {
  integration: string | undefined;
  connection: { integration: string; id: string } | undefined;
  hasProxied: boolean;
  hasSaved: boolean;
  hasPruned: boolean;
};

export const progressQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'progress'],
    queryFn: async ({ signal }): Promise<Progress> => {
      const done = async (type: 'proxy' | 'records.save' | 'records.prune') => {
        const { operations } = await call('GET /operations', {
          environment,
          signal,
          query: { type, status: 'success', limit: 1 },
        });
        return operations.length > 0;
      };
      const [integrations, connections, hasProxied, hasSaved, hasPruned] = await Promise.all([
        call('GET /integrations', { environment, signal }),
        call('GET /connections', { environment, signal, query: { limit: 1 } }),
        done('proxy'),
        done('records.save'),
        done('records.prune'),
      ]);
      const [connection] = connections.connections;
      return {
        integration: integrations.data[0]?.unique_key,
        connection: connection && {
          integration: connection.provider_config_key,
          id: connection.connection_id,
        },
        hasProxied,
        hasSaved,
        hasPruned,
      };
    },
    refetchInterval: 3_000,
  });
