import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { type Answer, type Body, call, type Query } from '../../api/client.ts';

export type Variable = Answer<'GET /environment-variables'>[number];
export type NewVariable = { name: string; value: string };
export type Settings = Answer<'GET /environment/settings'>['data'];
export type ConnectSettings = Settings['connect'];
export type AuditEntry = Answer<'GET /audit'>['entries'][number];

/** Routes about environments themselves belong to none, but take a cookie only beside the header. */
const noEnvironment = '*';

export const environmentsQuery = () =>
  queryOptions({
    queryKey: ['environments'],
    queryFn: async ({ signal }) =>
      (await call('GET /environments', { environment: noEnvironment, signal })).data,
  });

export async function createEnvironment(name: string): Promise<void> {
  await call('POST /environments', { environment: noEnvironment, body: { name } });
}

export async function renameEnvironment({ from, to }: { from: string; to: string }): Promise<void> {
  await call('PATCH /environments/{name}', {
    environment: noEnvironment,
    path: { name: from },
    body: { name: to },
  });
}

export async function deleteEnvironment(name: string): Promise<void> {
  await call('DELETE /environments/{name}', { environment: noEnvironment, path: { name } });
}

/** What goes with an environment, and what keeps it from going. */
export const contentsQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'contents'],
    queryFn: async ({ signal }) => {
      const asked = { environment, signal };
      const [connections, integrations, keys] = await Promise.all([
        call('GET /connections', { ...asked, query: { limit: 1, count: 'true' } }),
        call('GET /integrations', asked),
        call('GET /environment/api-keys', asked),
      ]);
      return {
        connections: connections.total ?? connections.connections.length,
        integrations: integrations.data.length,
        keys: keys.data.length,
      };
    },
    gcTime: 0,
  });

/** Without values, which a session is never given. */
export const variablesQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'variables'],
    queryFn: ({ signal }) => call('GET /environment-variables', { environment, signal }),
  });

/** Changes what is named alone: others may have set more since the page was loaded. Answers all there are. */
export const changeVariables = (environment: string, body: Body<'PATCH /environment-variables'>) =>
  call('PATCH /environment-variables', { environment, body });

export const settingsQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'settings'],
    queryFn: async ({ signal }) => (await call('GET /environment/settings', { environment, signal })).data,
  });

export const changeConnectPage = async (
  environment: string,
  connect: NonNullable<Body<'PATCH /environment/settings'>['connect']>,
) => (await call('PATCH /environment/settings', { environment, body: { connect } })).data;

/** Newest first. */
export const auditQuery = (environment: string, query: Query<'GET /audit'>) =>
  queryOptions({
    queryKey: [environment, 'audit', query],
    queryFn: ({ signal }) => call('GET /audit', { environment, signal, query }),
    placeholderData: keepPreviousData,
  });
