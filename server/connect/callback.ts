import { readAccount } from '../auth-modes/account.ts';
import { exchangeCode, type Tokens } from '../auth-modes/oauth2.ts';
import { credentialsFrom } from '../auth-modes/oauth2-credentials.ts';
import type { OAuthContext } from '../auth-modes/oauth2-request.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import { templateValues } from '../connections/values.ts';
import { AppError } from '../errors.ts';
import { clientOf, type Integration } from '../integrations/store.ts';
import { type Attempt, takeAttempt } from './attempts.ts';
import { redirectUriOf } from './begin.ts';
import { foreignBrowser, providerFault, unknownState } from './fault.ts';
import { type Gain, type Saved, saveConnection } from './save.ts';
import { getSession } from './sessions.ts';
import { asAppError, type ConnectDeps, getTarget } from './target.ts';

/**
 * Ends a trip to the provider: takes the pending attempt, exchanges the code, saves the connection.
 *
 * `params` is the callback's query and `browser` the secret of its cookie. Throws ConnectFault for what happened at
 * the provider and for a state that is not waited for; AppError for the rest, as `saveConnection` does. Whatever is
 * thrown, no connection was touched, and the same state never works again.
 */
export async function finish(
  deps: ConnectDeps,
  { params, browser }: { params: URLSearchParams; browser: string | undefined },
): Promise<Saved & { integration: Integration }> {
  const { db, reading } = deps;
  const [state, ...others] = params.getAll('state');
  if (!state || others.length > 0) throw unknownState();
  const taken = await takeAttempt(db, { state, browser, vault: reading.vault });
  if (taken.kind === 'another browser') throw foreignBrowser(deps.baseUrl);
  if (taken.kind === 'unknown') throw unknownState();
  const { attempt } = taken;
  const session = await getSession(db, {
    id: attempt.sessionId,
    environmentId: attempt.environmentId,
    vault: reading.vault,
  });
  // Asked before the exchange, so that no grant is taken that cannot be kept; `saveConnection` makes sure.
  if (session.usedAt !== undefined) throw new AppError('unknown_connect_session_token');
  const { integration } = await getTarget(db, {
    reading,
    session,
    key: attempt.integrationKey,
    mode: 'OAUTH2',
  });
  if (integration.id !== attempt.integrationId) throw new AppError('unknown_provider_config');
  try {
    const gain = await exchange(deps, { attempt, integration, params, state });
    const saved = await saveConnection(deps, { session, key: integration.key, gain });
    return { ...saved, integration };
  } catch (error) {
    throw asAppError(error);
  }
}

async function exchange(
  deps: ConnectDeps,
  {
    attempt,
    integration,
    params,
    state,
  }: { attempt: Attempt; integration: Integration; params: URLSearchParams; state: string },
): Promise<Gain> {
  const context: OAuthContext = {
    definition: integration.provider,
    client: { ...clientOf(integration), scopes: attempt.scopes },
    values: templateValues({ connectionConfig: attempt.connectionConfig, integration }),
  };
  const fetch = deps.fetchFor(integration);
  const outcome = await exchangeCode({
    ...context,
    fetch,
    callbackParams: params,
    redirectUri: redirectUriOf(deps),
    expectedState: state,
    codeVerifier: attempt.codeVerifier,
  });
  if (!outcome.ok) {
    note(deps, { integration, fault: outcome.fault, step: 'exchange' });
    throw providerFault(outcome.fault, integration.provider.display_name);
  }
  const { tokens } = outcome;
  const read = await readAccount({ ...context, tokens, fetch });
  if (!read.ok) note(deps, { integration, fault: read.fault, step: 'account' });
  const account = read.ok ? read.account : {};
  return {
    credentials: (previous) => credentialsFrom(tokens, previous?.type === 'OAUTH2' ? previous : undefined),
    grant: {
      account: account.subject === undefined ? undefined : { id: account.subject, email: account.email },
      scopesRequested: attempt.scopes,
      scopesGranted: grantedScopes(tokens, attempt),
      accessExpiresAt: tokens.expiresAt,
      refreshExpiresAt: tokens.refreshExpiresAt,
    },
    isEmailUnproven: account.isEmailVerified !== true,
    connectionConfig: attempt.connectionConfig,
  };
}

/** RFC 6749 §5.1: an answer that names no scope grants what was asked for. */
function grantedScopes(tokens: Tokens, attempt: Attempt): string[] {
  return [...(tokens.scopes ?? attempt.scopes)];
}

/** The provider's code alone: its text may hold anything. */
function note(
  { log }: ConnectDeps,
  { integration, fault, step }: { integration: Integration; fault: TokenFault; step: string },
): void {
  const { kind, error, httpStatus } = fault;
  log.warn(
    { integration: integration.key, step, kind, fault: error, status: httpStatus },
    'connecting failed',
  );
}
