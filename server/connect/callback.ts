import { readAccount } from '../auth-modes/account.ts';
import { type Credentials, ownClientOf, refreshTokenOf } from '../auth-modes/modes.ts';
import type { OAuthContext } from '../auth-modes/oauth2-request.ts';
import { signerOf } from '../auth-modes/place.ts';
import { recordIssuedToken } from '../connections/revocation/issued-tokens.ts';
import { whileExchanging } from '../connections/revocation/revocation-lock.ts';
import { templateValues } from '../connections/store/reader.ts';
import { asAppError, recordClientResult, testFailedError, verify } from '../connections/verify.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import { clientOf, type Integration } from '../integrations/store.ts';
import { type Attempt, endAttempt, takeAttempt } from './attempts.ts';
import { beginAgain, redirectUriOf } from './begin.ts';
import { flowEnded, foreignBrowser, loggedFault, recordFailure, unknownState } from './failures.ts';
import { type AuthorizationResult, checkAccount, isSameAccount, type Saved, saveConnection } from './save.ts';
import { getSession, type SessionSettings } from './sessions.ts';
import { errorMessage, notifyClient, successMessage } from './socket.ts';
import { authorizationOf, type ConnectDeps, getTarget, provesClientFault, type Target } from './target.ts';

/** An authorization that made or renewed a connection, or that must be repeated. */
type Finished = (Saved & { kind: 'saved'; integration: Integration }) | { kind: 'again'; location: string };

type AuthorizationFlow = { attempt: Attempt; target: Target; params: URLSearchParams; state: string };

/**
 * Ends an authorization: takes the pending attempt, exchanges the code, saves the connection. If there is no refresh
 * token, neither a new one nor a valid stored one of the same account, the browser is sent once more, with the
 * parameters that make the provider issue one.
 *
 * `params` is the callback's query; `secrets` are those of the browser's cookies. Throws ConnectFault for a fault at
 * the provider and for an unknown state; AppError for the rest, as `saveConnection` does. After an error, no
 * connection was changed, the state is used up, and the application receives the failures that a user or a provider
 * caused.
 */
export async function finish(
  deps: ConnectDeps,
  { params, secrets }: { params: URLSearchParams; secrets: readonly string[] },
): Promise<Finished> {
  const { db, reading, now } = deps;
  const [state, ...others] = params.getAll('state');
  if (!state || others.length > 0) throw unknownState();
  const taken = await takeAttempt(db, { state, secrets, vault: reading.vault, now: now() });
  if (taken.kind === 'unknown') throw unknownState();
  try {
    if (taken.kind === 'another browser') throw foreignBrowser(deps.baseUrl);
    const { attempt, browser } = taken;
    const finished = await complete(deps, { attempt, params, state, browser });
    await endAttempt(db, state).catch((err: unknown) =>
      deps.log.warn({ err }, 'an authorization attempt could not be ended; a job ends it later'),
    );
    if (finished.kind === 'saved') {
      deps.activity.log(flowEnded(finished, { attempt, at: now() }));
      await notifyClient(deps, { waiter: attempt.waiter, message: successMessage(finished.connection) });
    }
    return finished;
  } catch (error) {
    await reportFailure(deps, { state, error });
    const { waiter, integrationKey } = taken.kind === 'taken' ? taken.attempt : taken;
    await notifyClient(deps, { waiter, message: errorMessage(error, integrationKey) });
    throw asAppError(error);
  }
}

async function complete(
  deps: ConnectDeps,
  { attempt, params, state, browser }: Omit<AuthorizationFlow, 'target'> & { browser: string },
): Promise<Finished> {
  const { db, reading } = deps;
  const session = await getSession(db, {
    id: attempt.sessionId,
    environmentId: attempt.environmentId,
    vault: reading.vault,
  });
  // Checked before the exchange, to take no grant that cannot be kept; `saveConnection` checks it again.
  if (session.usedAt !== undefined) throw new AppError('unknown_connect_session_token');
  const target = await getTarget(db, { reading, session, key: attempt.integrationKey });
  const { integration } = target;
  if (integration.id !== attempt.integrationId) throw new AppError('unknown_provider_config');
  const { ownClient } = attempt;
  return whileExchanging(db, { integration, ownClient }, () =>
    settle(deps, { attempt, target, params, state, browser }),
  );
}

async function settle(deps: ConnectDeps, flow: AuthorizationFlow & { browser: string }): Promise<Finished> {
  const { attempt, target } = flow;
  const { integration, session } = target;
  const authorization = await exchange(deps, flow);
  try {
    checkAccount(target, authorization);
    if (lacksRefreshToken(authorization, flow)) {
      const { scopes: asked, scopesRequested: requested } = attempt;
      const next = { ...attempt, target, plan: { asked, requested }, browser: flow.browser };
      return { kind: 'again', location: await beginAgain(deps, next, authorization.grant.account) };
    }
    await refuseRejected(deps, { integration, authorization });
    const saved = await saveConnection(deps, { session, tried: integration, authorization });
    return { ...saved, kind: 'saved', integration };
  } catch (error) {
    if (authorization.isRefreshable) await countUnkeptToken(deps, { target, authorization });
    throw error;
  }
}

/**
 * A stored refresh token is sufficient if it is of the same account, and if its connection is active and not suspended.
 */
function lacksRefreshToken(
  authorization: AuthorizationResult,
  { attempt, target: { integration, current } }: AuthorizationFlow,
): boolean {
  if (authorization.isRefreshable || attempt.isRepeated) return false;
  if (integration.provider.authorization?.refresh_token_params === undefined) return false;
  const isSame = isSameAccount(current?.account, authorization.grant.account);
  const isGood = current?.status === 'active' && current.suspension === undefined;
  return !isSame || !isGood || keptToken(current.credentials, attempt) === undefined;
}

/** The refresh token of credentials of this attempt's client, which cannot use a refresh token of another one. */
function keptToken(
  credentials: Credentials | undefined,
  { ownClient }: Pick<Attempt, 'ownClient'>,
): string | undefined {
  if (credentials === undefined || ownClientOf(credentials)?.clientId !== ownClient?.clientId)
    return undefined;
  return refreshTokenOf(credentials);
}

/** A stopping process ends soon, and the grant exists nowhere else before it is saved. */
const rejectionMs = 4_000;

/**
 * Throws `connection_test_failed` if the provider's API refuses the new token. A test without a result is ignored: the
 * code is used up, and nothing is known against the grant.
 */
async function refuseRejected(
  { fetchFor, log }: ConnectDeps,
  { integration, authorization }: { integration: Integration; authorization: AuthorizationResult },
): Promise<void> {
  const credentials = authorization.credentials(undefined);
  const { connectionConfig } = authorization;
  const fetch = fetchFor(integration);
  const tried = { integration, credentials, connectionConfig };
  const verification = await verify(tried, { fetch, timeoutMs: rejectionMs });
  if (verification.kind === 'accepted') return;
  const facts = { integration: integration.key, step: 'verification', ...verification };
  if (verification.kind === 'refused') {
    log.warn(facts, 'an authorization failed');
    throw testFailedError(integration, verification);
  }
  log.info(facts, 'the credentials could not be verified');
}

/** Counts a token that was not kept, since it is valid at the provider. Never throws. */
async function countUnkeptToken(
  { db, log, now }: ConnectDeps,
  { target: { integration }, authorization }: { target: Target; authorization: AuthorizationResult },
): Promise<void> {
  const { account } = authorization.grant;
  const client = ownClientOf(authorization.credentials(undefined)) ?? integration.client;
  const of = { integration: { ...integration, client }, account, connection: undefined };
  const token = { ...of, wasDead: false, at: now() };
  await db
    .transaction((tx) => recordIssuedToken(tx, token))
    .catch((err: unknown) => log.warn({ err }, 'an unused token could not be counted'));
}

/**
 * Reports the failure to the application, the session and the activity log, unless the session has made its connection
 * by another attempt. Never throws: the original error matters, and the sweep reports what is left.
 */
async function reportFailure(
  { db, log, now, activity, reading: { vault } }: ConnectDeps,
  { state, error }: { state: string; error: unknown },
): Promise<void> {
  const reporting = db.transaction(async (tx) => {
    const ended = await endAttempt(tx, state);
    if (ended === undefined || ended.isUsed) return undefined;
    const key = await environmentKey(tx, { environmentId: ended.environmentId, vault });
    const settings = key.openJson(ended.settings, 'connect session') as SessionSettings;
    return recordFailure(tx, { ...ended, settings, error, at: now() });
  });
  await reporting
    .then((failed) => failed && activity.log(failed))
    .catch((err: unknown) => log.warn({ err }, 'a failed authorization could not be reported'));
}

async function exchange(
  deps: ConnectDeps,
  { attempt, target: { integration, current }, params, state }: AuthorizationFlow,
): Promise<AuthorizationResult> {
  const { ownClient } = attempt;
  const isAddition = attempt.scopes.length < attempt.scopesRequested.length;
  const values = templateValues({ connectionConfig: attempt.connectionConfig, integration });
  const context: OAuthContext = {
    definition: integration.provider,
    // The scopes that a response without scopes grants (RFC 6749 §5.1): the requested ones, and those of the grant to
    // which they are added.
    client: {
      ...(ownClient ?? clientOf(integration)),
      scopes: [...attempt.scopes, ...((isAddition && current?.scopesGranted) || [])],
    },
    values,
  };
  const fetch = deps.fetchFor(integration);
  const authorization = authorizationOf(integration);
  const outcome = await authorization.finish({
    ...context,
    fetch,
    callbackParams: params,
    redirectUri: redirectUriOf(deps),
    expectedState: state,
    kept: attempt.kept,
    now: deps.now(),
  });
  const isVerdict = outcome.ok || provesClientFault(integration);
  if (!params.has('error') && ownClient === undefined && isVerdict) {
    await recordClientResult(deps, { integration, fault: outcome.ok ? undefined : outcome.fault });
  }
  if (!outcome.ok) {
    const step = params.has('error') ? 'callback' : 'exchange';
    throw loggedFault(deps, { integration, ownClient, fault: outcome.fault, step });
  }
  const { tokens } = outcome;
  const credentials = (previous: Credentials | undefined) =>
    authorization.credentials(tokens, { refreshToken: keptToken(previous, attempt), ownClient });
  const { client } = integration;
  const signer = signerOf({
    definition: context.definition,
    credentials: credentials(undefined),
    values,
    client,
  });
  const read = await readAccount({ ...context, tokens, signer, fetch });
  if (!read.ok) loggedFault(deps, { integration, fault: read.fault, step: 'account' });
  const account = read.ok ? read.account : {};
  return {
    credentials,
    grant: {
      account: account.subject === undefined ? undefined : { id: account.subject, email: account.email },
      scopesRequested: attempt.scopesRequested,
      scopesGranted: [...(tokens.scopes ?? context.client.scopes)],
      accessExpiresAt: tokens.expiresAt,
      refreshExpiresAt: tokens.refreshExpiresAt,
    },
    isRefreshable: tokens.refreshToken !== undefined,
    isEmailUnproven: account.isEmailVerified !== true,
    connectionConfig: attempt.connectionConfig,
  };
}
