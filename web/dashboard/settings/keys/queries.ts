import { queryOptions } from '@tanstack/react-query';
import { type Answer, type Body, call } from '../../../api/client.ts';

export type Key = Answer<'GET /environment/api-keys'>['data'][number];
export type NewKey = Answer<'POST /environment/api-keys'>['data'];
export type ProxyRule = Key['proxy_rules'][number];
export type KeyInput = {
  name: string;
  scopes: string[];
  proxy_rules: ProxyRule[];
  /** ISO 8601; null: the key does not expire. */
  expires_at: string | null;
  /** Calls per minute; null: no limit of its own. */
  rate_limit: number | null;
};
type NewKeyInput = KeyInput & {
  /** The key whose consumers the new key also owns; null: no key. */
  replaces: number | null;
};

export const keysQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'keys'],
    queryFn: async ({ signal }) => (await call('GET /environment/api-keys', { environment, signal })).data,
    refetchInterval: 15_000,
  });

/** The secret is returned only once. */
export async function createKey(
  environment: string,
  { expires_at: expiresAt, rate_limit: rateLimit, replaces, scopes, ...rest }: NewKeyInput,
): Promise<NewKey> {
  const body = {
    ...rest,
    scopes: scopes as Body<'POST /environment/api-keys'>['scopes'],
    ...(expiresAt !== null && { expires_at: expiresAt }),
    ...(rateLimit !== null && { rate_limit: rateLimit }),
    ...(replaces !== null && { replaces }),
  };
  return (await call('POST /environment/api-keys', { environment, body })).data;
}

/** Omitted fields are unchanged. */
export async function changeKey(
  environment: string,
  { id, scopes, ...rest }: Partial<KeyInput> & { id: number },
): Promise<void> {
  const body = {
    ...rest,
    ...(scopes !== undefined && { scopes: scopes as Body<'POST /environment/api-keys'>['scopes'] }),
  };
  await call('PATCH /environment/api-keys/{id}', { environment, path: { id }, body });
}

export async function revokeKey(environment: string, id: number): Promise<void> {
  await call('DELETE /environment/api-keys/{id}', { environment, path: { id } });
}
