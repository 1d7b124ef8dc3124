/**
 * Who may change where an integration's secrets are sent.
 *
 * Three kinds of settings choose it: one that names origins for `Base-Url-Override`; one in the host of an address, with
 * those in the path and query behind such a host, which may serve several owners; and one by which credentials are placed
 * on a call, since a server may return a header. Once there are secrets, changing such a setting takes the scopes that
 * show them. Otherwise a key with `integrations:write` could read what it may not request.
 */
import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type Caller, hasScope, type Scope } from '../http/caller.ts';
import { addressesOf, type ProviderDefinition } from '../providers/definition.ts';
import { type Part, parseAddress, partsOf } from '../providers/template-grammar.ts';
import { hasSecrets, type Integration } from './store.ts';

type Settings = Readonly<Record<string, string | undefined>>;

const secrets: readonly Scope[] = ['integrations:secrets', 'connections:credentials'];
const refreshTokens: readonly Scope[] = [...secrets, 'connections:refresh_tokens'];

/**
 * Throws `forbidden`, naming the setting and the scopes that the caller lacks, where `after` differs from the settings of
 * `current`, which is read for update, in one that says where its secrets are sent. Without any it may be moved freely.
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
      `"integration_config.${name}" says where secrets of this integration and its connections are sent. Changing it ` +
        `needs a key that may also read them: it lacks ${missing.join(' and ')}.`,
    );
  }
}

/** The integration's settings that choose where secrets go, and the scopes that show what is sent there. */
function destinationsOf(provider: ProviderDefinition): Map<string, readonly Scope[]> {
  const found = new Map([['allowed_base_urls', secrets]]);
  for (const { name, value } of provider.placement) {
    for (const part of [...partsOf(name), ...partsOf(value)].filter(isSetting)) found.set(part.name, secrets);
  }
  for (const [[section], template] of addressesOf(provider)) {
    const { start, host, path, query } = parseAddress(template);
    if (![start, ...host].some(isSetting)) continue;
    for (const { name } of [start, ...host, ...path, ...query].filter(isSetting)) {
      // What renews a token: a refresh token, or the secret of a client that a connection brought along.
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
