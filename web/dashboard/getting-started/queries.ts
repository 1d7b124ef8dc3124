import { queryOptions } from '@tanstack/react-query';
import { type Answer, call } from '../../api/client.ts';

type Connection = Answer<'GET /connections'>['connections'][number];

/** The progress of an environment; each step is read from the service. */
export type Progress = {
  /** The integration of the newest connection, else the first one. */
  integration: { key: string; logo: string } | undefined;
  /** The newest connection. */
  connection:
    | { integration: string; id: string; account: string; provider: string; isTest: boolean }
    | undefined;
  /** A dataset of the newest connection. */
  dataset: { model: string; variant: string } | undefined;
  hasProxied: boolean;
  hasSaved: boolean;
  hasPruned: boolean;
};

/** The step that the playground does. */
export const callStep = 'Call the provider';

const titles = [
  'Add an integration',
  'Connect an account',
  callStep,
  'Save records',
  'Prune records',
] as const;

/** The steps in their order. */
export function stepsOf({ integration, connection, hasProxied, hasSaved, hasPruned }: Progress) {
  const done = [integration !== undefined, connection !== undefined, hasProxied, hasSaved, hasPruned];
  return titles.map((title, index) => ({ title, isDone: done[index] === true }));
}

/** The titles of the steps that are left. */
export function stepsLeft(progress: Progress): string[] {
  return stepsOf(progress)
    .filter(({ isDone }) => !isDone)
    .map(({ title }) => title);
}

/** A page of the log reads a limited number of entries, so a rare entry may be on a later page. */
const maxPages = 4;
/** The number of newest and of last used connections to look at. */
const maxConnections = 3;

export const progressQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'progress'],
    queryFn: async ({ signal }): Promise<Progress> => {
      const at = { environment, signal };
      const isLogged = async (type: 'proxy' | 'records.save' | 'records.prune') => {
        let cursor: string | undefined;
        for (let page = 0; page < maxPages; page += 1) {
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
      const datasetsOf = async ({ connection_id: id, integration_id: integration }: Connection) =>
        (
          await call('GET /records/datasets', {
            ...at,
            headers: { 'connection-id': id, 'integration-id': integration },
          })
        ).datasets;
      const [integrations, newest, lastUsed, wasProxied, wasSaved, wasPruned] = await Promise.all([
        call('GET /integrations', at),
        call('GET /connections', { ...at, query: { limit: maxConnections } }),
        call('GET /connections', { ...at, query: { limit: maxConnections, sort: 'last_used' } }),
        isLogged('proxy'),
        isLogged('records.save'),
        isLogged('records.prune'),
      ]);
      const [connection] = newest.connections;
      const integration =
        integrations.data.find(({ integration_id }) => integration_id === connection?.integration_id) ??
        integrations.data[0];
      // The log may be turned off and is purged; the last use, the cached records and the pruned counts
      // remain.
      const looked = new Map(
        [...newest.connections, ...lastUsed.connections].map((one) => [one.id, one] as const),
      );
      const all = wasSaved && wasPruned ? newest.connections.slice(0, 1) : [...looked.values()];
      const datasets = await Promise.all(all.map(datasetsOf));
      return {
        integration: integration && { key: integration.integration_id, logo: integration.logo },
        connection: connection && {
          integration: connection.integration_id,
          id: connection.connection_id,
          account: connection.account?.email ?? connection.connection_id,
          provider: connection.provider,
          isTest: connection.test,
        },
        dataset: connection && datasets[0]?.[0],
        hasProxied: wasProxied || lastUsed.connections.some(({ last_used_at: at }) => at !== null),
        hasSaved: wasSaved || datasets.flat().some(({ records, deleted }) => records + deleted > 0),
        hasPruned: wasPruned || datasets.flat().some(({ pruned }) => pruned > 0),
      };
    },
    refetchInterval: 3_000,
  });
