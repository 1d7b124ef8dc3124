/** What the tests of the catalogue share: the definitions, values for their fields, and a way to a provider on loopback. */
import { join } from 'node:path';
import { authModes } from '../../server/auth-modes/modes.ts';
import { address, type OAuthContext } from '../../server/auth-modes/oauth2-request.ts';
import { apiBase } from '../../server/auth-modes/place.ts';
import type { Fetch } from '../../server/outbound/outbound.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import type { FormField, ProviderDefinition } from '../../server/providers/definition.ts';
import type { TemplateValues } from '../../server/providers/template.ts';

export const directory = join(import.meta.dirname, '../../providers');
export const catalog = loadCatalog(directory, authModes);
export const oauthProviders = catalog.list().filter(({ auth_mode }) => auth_mode === 'OAUTH2');
export const now = new Date('2026-11-21T16:00:00Z');
export const redirectUri = 'https://trellis.example/oauth/callback';
export const client = {
  clientId: 'client-1.a_b',
  clientSecret: 's3cr3t-_.+/=',
  scopes: ['alpha', 'beta', 'gamma'],
};

/** The examples that the definition gives for its fields. */
export function exampleValues(definition: ProviderDefinition): TemplateValues {
  const examples = (form: Readonly<Record<string, FormField>>) =>
    Object.fromEntries(Object.entries(form).map(([name, { example = '' }]) => [name, example]));
  return {
    connectionConfig: examples(definition.connection_config),
    integrationConfig: examples(definition.integration_config),
  };
}

/** All addresses of a definition, filled. */
export function endpointsOf(context: OAuthContext) {
  const { authorization, token, refresh, revocation, userinfo } = context.definition;
  const fill = (template: string) => address(context, template);
  const tokenUrl = fill(token?.url ?? '');
  return {
    authorization: fill(authorization?.url ?? ''),
    token: tokenUrl,
    refresh: refresh.url === undefined ? tokenUrl : fill(refresh.url),
    revocation: revocation && fill(revocation.url),
    userinfo: userinfo && fill(userinfo.url),
    api: apiBase({
      definition: context.definition,
      credentials: { type: 'OAUTH2', access_token: 'x', raw: {} },
      values: context.values ?? {},
    }),
  };
}

/** Takes `https://host/path` to `/host/path` of a server on loopback, over a real socket. */
export function wayTo(origin: string): Fetch {
  return (url, init) => fetch(url.replace(/^https:\/\//, `${origin}/`), init);
}
