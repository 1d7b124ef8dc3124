import { queryOptions } from '@tanstack/react-query';
import { type Answer, type Body, call } from '../../api/client.ts';

export type Integration = Answer<'GET /integrations'>['data'][number];
export type NewIntegration = Body<'POST /integrations'>;
type IntegrationChange = Body<'PATCH /integrations/{key}'>;
export type Usage = NonNullable<Integration['usage']>;
type Scope = { scope: string; sensitivity: string; description: string };
/** The fields of a catalogue entry that the pages read. */
export type Provider = {
  name: string;
  display_name: string;
  auth_mode: string;
  oauth_client: 'required' | 'optional' | 'none';
  logo_url: string;
  /** The redirect URI of OAuth clients; absent if there is no authorization at the provider. */
  redirect_uri?: string;
  categories?: string[];
  docs?: string;
  /** Absent if the provider has no HTTP API. */
  proxy?: object;
  default_scopes?: string[];
  available_scopes?: string[];
  scopes?: Scope[];
  has_sandbox?: boolean;
  /** Set for a provider that only this environment has; `definition` is its text. */
  origin?: 'environment';
  definition?: string;
  /** How far the facts of the definition reach: `verified`, `documented` or `community`. */
  level?: string;
  source?: { on: string; page: string };
  /** What to do in the provider's console at `url`, with the redirect URI of this installation. */
  setup?: { url?: string; steps: string[] };
  integration_config?: Record<
    string,
    { title?: string; description?: string; example?: string; optional?: boolean }
  >;
};

/** Providers with an OAuth client in Google's console. */
export function isGoogle(provider: string): boolean {
  return provider === 'google' || provider.startsWith('google-');
}

export const providersQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'providers'],
    queryFn: async ({ signal }) =>
      (await call('GET /providers', { environment, signal })).data as unknown as Provider[],
    staleTime: 600_000,
  });

export const providerQuery = (environment: string, provider: string) =>
  queryOptions({
    queryKey: [environment, 'providers', provider],
    queryFn: async ({ signal }) =>
      (await call('GET /providers/{provider}', { environment, signal, path: { provider } }))
        .data as unknown as Provider,
    staleTime: 600_000,
  });

export const integrationsQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'integrations'],
    queryFn: async ({ signal }) => (await call('GET /integrations', { environment, signal })).data,
  });

/** As `integrationsQuery`, with the number of connections. */
export const usedIntegrationsQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'integrations', { include: 'usage' }],
    queryFn: async ({ signal }) =>
      (await call('GET /integrations', { environment, signal, query: { include: 'usage' } })).data,
  });

export const integrationQuery = (environment: string, key: string) =>
  queryOptions({
    queryKey: [environment, 'integrations', 'of', key],
    queryFn: async ({ signal }) =>
      (
        await call('GET /integrations/{key}', {
          environment,
          signal,
          path: { key },
          query: { include: ['webhook', 'usage'] },
        })
      ).data,
  });

export async function createProvider(
  environment: string,
  body: { name: string; definition: string },
): Promise<void> {
  await call('POST /providers', { environment, body });
}

export async function replaceProvider(
  environment: string,
  { name, definition }: { name: string; definition: string },
): Promise<void> {
  await call('PUT /providers/{provider}', { environment, path: { provider: name }, body: { definition } });
}

export async function deleteProvider(environment: string, name: string): Promise<void> {
  await call('DELETE /providers/{provider}', { environment, path: { provider: name } });
}

export async function createIntegration(environment: string, body: NewIntegration): Promise<Integration> {
  return (await call('POST /integrations', { environment, body })).data;
}

/** With test credentials, for the sandbox: the provider needs no set-up. */
export async function createTestIntegration(
  environment: string,
  body: { provider: string; integration_id: string; display_name?: string },
): Promise<Integration> {
  return (await call('POST /integrations/quickstart', { environment, body })).data;
}

export async function changeIntegration(
  environment: string,
  { key, change }: { key: string; change: IntegrationChange },
): Promise<Integration> {
  return (await call('PATCH /integrations/{key}', { environment, path: { key }, body: change })).data;
}

/** Tries the client again at the provider, by a refresh of the newest connection; nothing without a connection. */
export async function tryClient(environment: string, integration: string): Promise<void> {
  const query = { integrationId: integration, limit: 1 };
  const [newest] = (await call('GET /connections', { environment, query })).connections;
  if (newest === undefined) return;
  await call('POST /connections/{id}/refresh', {
    environment,
    path: { id: newest.connection_id },
    query: { integration_id: integration },
  });
}

export async function deleteIntegration(environment: string, key: string): Promise<void> {
  await call('DELETE /integrations/{key}', { environment, path: { key } });
}

/** The public addresses of the service (BASE_URL), whatever address the browser used. */
type Installation = {
  baseUrl: string;
  /** An authorized JavaScript origin, in Google's terms. */
  origin: string;
};

/** Derived from the URL of a logo, which every provider and integration has. */
export function installationOf(logoUrl: string): Installation {
  const baseUrl = logoUrl.replace(/\/providers\/logos\/.*$/, '');
  return { baseUrl, origin: new URL(baseUrl).origin };
}
