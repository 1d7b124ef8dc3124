import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { type Answer, type Body, call, type ExportFormat, exportList, type Query } from '../../api/client.ts';

export type Variable = Answer<'GET /environment-variables'>[number];
export type NewVariable = { name: string; value: string };
export type Settings = Answer<'GET /environment/settings'>['data'];
export type ConnectSettings = Settings['connect'];
export type AuditEntry = Answer<'GET /audit'>['entries'][number];

/** Routes about environments belong to no environment, but the cookie is only accepted with the header. */
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

/** The contents of an environment, which decide whether it can be deleted. */
export const contentsQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'contents'],
    queryFn: async ({ signal }) => {
      const common = { environment, signal };
      const [connections, integrations, keys] = await Promise.all([
        call('GET /connections', { ...common, query: { limit: 1, count: 'true' } }),
        call('GET /integrations', common),
        call('GET /environment/api-keys', common),
      ]);
      return {
        connections: connections.total ?? connections.connections.length,
        integrations: integrations.data.length,
        keys: keys.data.length,
      };
    },
    gcTime: 0,
  });

/** Without values, which the dashboard never receives. */
export const variablesQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'variables'],
    queryFn: ({ signal }) => call('GET /environment-variables', { environment, signal }),
  });

/** Changes only the given variables, because another user may have changed others. Returns all variables. */
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

/** All entries that match the filters, as a file. */
export const exportAudit = (environment: string, query: Query<'GET /audit'>, format: ExportFormat) =>
  exportList('GET /audit', { environment, query, format });
