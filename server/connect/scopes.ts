import { ownClientOf } from '../auth-modes/mode.ts';
import { missingScopesOf } from '../connections/health.ts';
import { fieldError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import type { Wishes } from './query.ts';
import { fixedScopes } from './session-input.ts';
import type { Target } from './target.ts';

/** What a trip asks the provider for, and what the connection is to have in the end. */
export type ScopePlan = { asked: string[]; requested: string[] };

/**
 * The scopes of a trip. The application's choice counts, then the integration's, then the definition's defaults; a
 * browser (`wished`) may ask for less, never for more: `invalid_query_params`.
 *
 * A renewal that is to add scopes asks for those alone where the provider adds them to what it granted before and the
 * account will be the same one; else for all, since what is not asked for would be lost.
 */
export function planScopes(
  target: Target,
  { scopes: wished, ownClient }: Partial<Pick<Wishes, 'scopes' | 'ownClient'>> = {},
): ScopePlan {
  const { session, integration, current } = target;
  const all = wantedScopes(target);
  const added = addedScopes(target);
  const requested = added === undefined ? all : union(current?.scopesRequested ?? all, added);
  const asked = added !== undefined && keepsGrant(target, ownClient) ? added : requested;
  if (wished === undefined || hasFixedScopes(session, integration)) return { asked, requested };
  const wider = wished.filter((scope) => !asked.includes(scope));
  if (wider.length > 0) {
    throw fieldError(
      'invalid_query_params',
      ['user_scope'],
      `asks for more than allowed: ${wider.join(' ')}`,
    );
  }
  const isAddition = asked !== requested;
  return { asked: [...wished], requested: isAddition ? requested : [...wished] };
}

/** What a session asks to add; undefined where it asks for all, also where nothing is left to add. */
function addedScopes({ session, integration, current }: Target): string[] | undefined {
  const wanted = session.settings.scopes;
  if (wanted === undefined || current === undefined) return undefined;
  const added = wanted === 'missing' ? missingScopesOf(current, integration.provider) : wanted;
  return added.length > 0 ? added : undefined;
}

/** Whether a session lets another account take the place of the one that is connected. */
export function allowsOtherAccount({ session }: Pick<Target, 'session'>): boolean {
  return session.settings.require_same_account === false;
}

function wantedScopes({ session, integration }: Target): string[] {
  const fixed = fixedScopes(session.settings.integrations_config_defaults?.[integration.key]);
  return fixed ?? [...(integration.scopes ?? integration.provider.scopes.default)];
}

function hasFixedScopes({ settings }: Target['session'], { key }: Integration): boolean {
  return fixedScopes(settings.integrations_config_defaults?.[key]) !== undefined;
}

/**
 * A dead grant has nothing left to add to, one of another client adds nothing to this one's, one that the client may not
 * use is perhaps another client's, and one of an account that is not known may turn out to be another's.
 */
function keepsGrant(target: Target, ownClient: Wishes['ownClient']): boolean {
  const { integration, current } = target;
  return (
    integration.provider.scopes.incremental &&
    current?.status === 'active' &&
    ownClientOf(current.credentials)?.clientId === ownClient?.clientId &&
    current.suspension === undefined &&
    current.account !== undefined &&
    !allowsOtherAccount(target)
  );
}

function union(one: readonly string[], other: readonly string[]): string[] {
  return [...new Set([...one, ...other])];
}
