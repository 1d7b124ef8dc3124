import { queryOptions } from '@tanstack/react-query';
import { call } from '../../api/client.ts';
import { providerQuery } from '../integrations/queries.ts';

/** The progress of an environment; each step is read from the service. */
export type Progress = {
  /** The integration of the newest connection, else the first one. */
  integration: { key: string; logo: string } | undefined;
  /** The newest connection. */
  connection:
    | {
        integration: string;
        id: string;
        account: string;
        provider: string;
        /** The provider has an HTTP API. */
        hasApi: boolean;
        isTest: boolean;
      }
    | undefined;
  /** A dataset of the newest connection. */
  dataset: { model: string; variant: string } | undefined;
  /** The provider was called, or the credentials of a connection without an HTTP API were read. */
  isUsed: boolean;
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
export function stepsOf({ integration, connection, isUsed, hasSaved, hasPruned }: Progress) {
  const done = [integration !== undefined, connection !== undefined, isUsed, hasSaved, hasPruned];
  return titles.map((title, index) => ({
    title: title === callStep && connection?.hasApi === false ? 'Read the credentials' : title,
    isDone: done[index] === true,
  }));
}

/** The titles of the steps that are left. */
export function stepsLeft(progress: Progress): string[] {
  return stepsOf(progress)
    .filter(({ isDone }) => !isDone)
    .map(({ title }) => title);
}

/** The number of newest connections whose datasets are examined. */
const maxConnections = 20;
/** The service keeps daily counts for 400 days. */
const countedMs = 390 * 86_400_000;

export const progressQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'progress'],
    queryFn: async ({ signal, client }): Promise<Progress> => {
      const at = { environment, signal };
      const from = new Date(Date.now() - countedMs).toISOString();
      const [integrations, { connections }, { groups = [] }] = await Promise.all([
        call('GET /integrations', at),
        call('GET /connections', { ...at, query: { limit: maxConnections } }),
        call('GET /operations/stats', { ...at, query: { status: 'success', by: 'type', from } }),
      ]);
      const isLogged = (type: string) => groups.some((group) => group.type === type);
      const [connection] = connections;
      const integration =
        integrations.data.find(({ integration_id }) => integration_id === connection?.integration_id) ??
        integrations.data[0];
      const hasApi =
        connection === undefined ||
        (await client.ensureQueryData(providerQuery(environment, connection.provider))).proxy !== undefined;
      const { datasets } =
        connection === undefined
          ? { datasets: [] }
          : await call('GET /records/datasets/of-connections', {
              ...at,
              query: { connection_ids: connections.map(({ id }) => id).join() },
            });
      return {
        integration: integration && { key: integration.integration_id, logo: integration.logo },
        connection: connection && {
          integration: connection.integration_id,
          id: connection.connection_id,
          account: connection.account?.email ?? connection.connection_id,
          provider: connection.provider,
          hasApi,
          isTest: connection.test,
        },
        dataset: datasets.find((dataset) => dataset.connection === connection?.id),
        // The log may be turned off, and its counts end. The use of a connection, cached records and the counts of pruned
        // ones remain.
        isUsed:
          isLogged('proxy') ||
          ((groups.length === 0 || !hasApi) && connections.some(({ last_used_at: last }) => last !== null)),
        hasSaved: isLogged('records.save') || datasets.some(({ last_modified_at: last }) => last !== null),
        hasPruned: isLogged('records.prune') || datasets.some(({ pruned }) => pruned > 0),
      };
    },
    refetchInterval: 3_000,
  });
