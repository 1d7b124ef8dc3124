/**
 * The check whether a caller may change the destination of an integration's secrets.
 *
 * Three kinds of settings determine it: the one with origins for `Base-Url-Override`; those in the host of an address,
 * and in the path and query behind such a host, which may serve several owners; and those that place credentials on a
 * call, since a server may return a header. If there are secrets, a change of such a setting requires the scopes that
 * show them. Otherwise a key with `integrations:write` could read secrets that it may not request.
 */
import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type Caller, hasScope, type Scope } from '../http/auth/caller.ts';
import { addressesOf, type ProviderDefinition } from '../providers/definition.ts';
import { type Part, parseAddress, partsOf } from '../providers/template.ts';
import { hasSecrets, type Integration } from './store.ts';

type Settings = Readonly<Record<string, string | undefined>>;

const secrets: readonly Scope[] = ['integrations:secrets', 'connections:credentials'];
const refreshTokens: readonly Scope[] = [...secrets, 'connections:refresh_tokens'];

/**
 * Throws `forbidden`, naming the setting and the missing scopes, if `after` changes a setting that determines where
 * secrets are sent. `current` is read for update. Does nothing if the integration has no secrets.
 */
export async function requireMayMove(
  tx: Queryable,
  caller: Caller,
  { current, provider, after }: { current: Integration; provider: ProviderDefinition; after: Settings },
): Promise<void> {
  const before: Settings = current.integrationConfig;
  const moved = [...destinationsOf(provider)].filter(([name]) => after[name] !== before[name]);
  if (moved.length === 0 || !(await hasSecrets(tx, current))) return;
  for (const [name, scopes] of moved) {
    const missing = scopes.filter((scope) => !hasScope(caller, scope));
    if (missing.length === 0) continue;
    throw new AppError(
      'forbidden',
      `"integration_config.${name}" determines where secrets of this integration and its connections are sent. ` +
        `Only a key that may read them can change it: the key lacks ${missing.join(' and ')}.`,
    );
  }
}

/** The settings that determine the destination of secrets, and the scopes that show these secrets. */
function destinationsOf(provider: ProviderDefinition): Map<string, readonly Scope[]> {
  const found = new Map([['allowed_base_urls', secrets]]);
  for (const { name, value } of provider.placement) {
    for (const part of [...partsOf(name), ...partsOf(value)].filter(isSetting)) found.set(part.name, secrets);
  }
  for (const [[section], template] of addressesOf(provider)) {
    const { start, host, path, query } = parseAddress(template);
    if (![start, ...host].some(isSetting)) continue;
    for (const { name } of [start, ...host, ...path, ...query].filter(isSetting)) {
      // These endpoints receive a secret that renews tokens: a refresh token, or the secret of a connection's own
      // client.
      const getsWhatRenews = section === 'token' || section === 'refresh' || section === 'revocation';
      if (getsWhatRenews) found.set(name, refreshTokens);
      else if (!found.has(name)) found.set(name, secrets);
    }
  }
  return found;
}

function isSetting(part: Part): part is Exclude<Part, string> {
  return typeof part !== 'string' && part.source === 'integrationConfig';
}
