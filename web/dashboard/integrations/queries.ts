import { queryOptions } from '@tanstack/react-query';
import { type Answer, type Body, call } from '../../api/client.ts';

export type Integration = Answer<'GET /integrations'>['data'][number];
export type NewIntegration = Body<'POST /integrations'>;
type IntegrationChange = Body<'PATCH /integrations/{key}'>;
export type Usage = NonNullable<Integration['usage']>;
type Scope = { scope: string; sensitivity: string; description: string };
/** What the pages read of a catalogue entry. */
export type Provider = {
  name: string;
  display_name: string;
  auth_mode: string;
  logo_url: string;
  categories?: string[];
  docs?: string;
  default_scopes?: string[];
  available_scopes?: string[];
  scopes?: Scope[];
  has_sandbox?: boolean;
  integration_config?: Record<
    string,
    { title?: string; description?: string; example?: string; optional?: boolean }
  >;
};

/** Providers that one sets up in Google's console. */
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

/** As `integrationsQuery`, and how many connections each has. */
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

export async function createIntegration(environment: string, body: NewIntegration): Promise<Integration> {
  return (await call('POST /integrations', { environment, body })).data;
}

/** With test credentials: against the sandbox, no set-up at the provider needed. */
export async function createTestIntegration(
  environment: string,
  body: { provider: string; unique_key: string },
): Promise<Integration> {
  return (await call('POST /integrations/quickstart', { environment, body })).data;
}

export async function changeIntegration(
  environment: string,
  { key, change }: { key: string; change: IntegrationChange },
): Promise<Integration> {
  return (await call('PATCH /integrations/{key}', { environment, path: { key }, body: change })).data;
}

export async function deleteIntegration(environment: string, key: string): Promise<void> {
  await call('DELETE /integrations/{key}', { environment, path: { key } });
}
