import { readAccount } from '../auth-modes/account.ts';
import { type Credentials, ownClientOf } from '../auth-modes/mode.ts';
import { exchangeCode } from '../auth-modes/oauth2.ts';
import { credentialsFrom, type OAuth2Credentials } from '../auth-modes/oauth2-credentials.ts';
import type { OAuthContext } from '../auth-modes/oauth2-request.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import { noteClientVerdict } from '../connections/client-verdict.ts';
import { noteIssuedToken } from '../connections/grants.ts';
import { whileExchanging } from '../connections/revocation-lock.ts';
import { templateValues } from '../connections/values.ts';
import { testFailed, verify } from '../connections/verify.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import { clientOf, type Integration } from '../integrations/store.ts';
import { type Attempt, endAttempt, takeAttempt } from './attempts.ts';
import { beginAgain, redirectUriOf } from './begin.ts';
import { failureOf, queueFailure } from './failures.ts';
import {
  explainError,
  foreignBrowser,
  ownClientFault,
  providerFault,
  unexpected,
  unknownState,
} from './fault.ts';
import { flowEnded, flowFailed } from './flow-log.ts';
import { errorMessage, notifyClient, successMessage } from './notices.ts';
import { type AuthorizationResult, checkAccount, isSameAccount, type Saved, saveConnection } from './save.ts';
import { getSession, noteFailure, type SessionSettings } from './sessions.ts';
import { asAppError, type ConnectDeps, getTarget, type Target } from './target.ts';

/** A trip that made or renewed a connection, or one that has to be gone once more. */
export type Finished =
  | (Saved & { kind: 'saved'; integration: Integration })
  | { kind: 'again'; location: string };

type AuthorizationFlow = { attempt: Attempt; target: Target; params: URLSearchParams; state: string };

/**
 * Ends a trip to the provider: takes the pending attempt, exchanges the code, saves the connection. Where no refresh
 * token came and none is stored that lives and is of the same account, the browser is sent once more, with words that
 * make the provider give one.
 *
 * `params` is the callback's query, `secrets` what the browser's cookies hold. Throws ConnectFault for what happened at
 * the provider and for a state that is not waited for; AppError for the rest, as `saveConnection` does. Whatever is
 * thrown, no connection was touched, the same state never works again, and the application is told of what a person
 * or a provider did.
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
    await forget(deps, state);
    const ended = flowEnded(finished, { attempt, at: now() });
    if (ended !== undefined) deps.activity.log(ended);
    if (finished.kind === 'saved') {
      await notifyClient(deps, { waiter: attempt.waiter, message: successMessage(finished.connection) });
    }
    return finished;
  } catch (error) {
    await tellFailure(deps, { state, error });
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
  // Asked before the exchange, so that no grant is taken that cannot be kept; `saveConnection` makes sure.
  if (session.usedAt !== undefined) throw new AppError('unknown_connect_session_token');
  const target = await getTarget(db, {
    reading,
    session,
    key: attempt.integrationKey,
    mode: 'OAUTH2',
  });
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
      const { connectionConfig, ownClient, waiter, scopes: asked, scopesRequested: requested } = attempt;
      const { browser } = flow;
      const next = {
        ...{ target, plan: { asked, requested }, connectionConfig, ownClient, browser, waiter },
      };
      return { kind: 'again', location: await beginAgain(deps, next, authorization.grant.account) };
    }
    await refuseRejected(deps, { attempt, integration, authorization });
    const saved = await saveConnection(deps, { session, tried: integration, authorization });
    return { ...saved, kind: 'saved', integration };
  } catch (error) {
    if (authorization.isRefreshable) await noteUnkept(deps, { target, authorization });
    throw error;
  }
}

/**
 * The stored refresh token serves where none came, if it is of the same account, and not known to be dead or of no use
 * to the client.
 */
function lacksRefreshToken(
  authorization: AuthorizationResult,
  { attempt, target: { integration, current } }: AuthorizationFlow,
): boolean {
  if (authorization.isRefreshable || attempt.isRepeated) return false;
  if (integration.provider.authorization?.refresh_token_params === undefined) return false;
  const isSame = isSameAccount(current?.account, authorization.grant.account);
  const isGood = current?.status === 'active' && current.suspension === undefined;
  const kept = isSame && isGood ? ofClient(current.credentials, attempt) : undefined;
  return kept?.refresh_token === undefined;
}

/** Credentials of the client that the trip was for: a refresh token of another one is of no use to it. */
function ofClient(
  credentials: Credentials | undefined,
  { ownClient }: Pick<Attempt, 'ownClient'>,
): OAuth2Credentials | undefined {
  if (credentials?.type !== 'OAUTH2') return undefined;
  return credentials.config_override?.client_id === ownClient?.clientId ? credentials : undefined;
}

/** A process that is told to stop ends soon after, and until it is saved the grant is nowhere but here. */
const rejectionMs = 4_000;

/**
 * Throws `connection_test_failed` where the provider's API refuses the token that the provider has just given. What
 * proves nothing stops nobody: the code is spent, and the grant is good by all that is known.
 */
async function refuseRejected(
  { fetchFor, log }: ConnectDeps,
  {
    attempt,
    integration,
    authorization,
  }: { attempt: Attempt; integration: Integration; authorization: AuthorizationResult },
): Promise<void> {
  const credentials = authorization.credentials(undefined);
  const { connectionConfig } = attempt;
  const fetch = fetchFor(integration);
  const verdict = await verify(
    { integration, credentials, connectionConfig },
    { fetch, timeoutMs: rejectionMs },
  );
  if (verdict.kind === 'accepted') return;
  const facts = { integration: integration.key, step: 'verification', ...verdict };
  if (verdict.kind === 'refused') {
    log.warn(facts, 'connecting failed');
    throw testFailed(integration, verdict);
  }
  log.info(facts, 'the credentials were not proven');
}

/** A token that nobody keeps is alive at the provider all the same. Never throws. */
async function noteUnkept(
  { db, log, now }: ConnectDeps,
  { target: { integration }, authorization }: { target: Target; authorization: AuthorizationResult },
): Promise<void> {
  const { account } = authorization.grant;
  const client = ownClientOf(authorization.credentials(undefined)) ?? integration.client;
  const of = { integration: { ...integration, client }, account, connection: undefined };
  const token = { ...of, wasDead: false, at: now() };
  await db
    .transaction((tx) => noteIssuedToken(tx, token))
    .catch((err: unknown) => log.warn({ err }, 'a token that was not kept was not counted'));
}

/** Never throws: the trip is done, and the sweep removes what is left of it. */
async function forget({ db, log }: ConnectDeps, state: string): Promise<void> {
  await endAttempt(db, state).catch((err: unknown) => log.warn({ err }, 'a trip is left to the sweep'));
}

/**
 * Never throws: what failed before is what matters, and what is not told now is left to the sweep. Where the session
 * has made its connection by another trip, nothing is missing.
 */
async function tellFailure(
  { db, log, now, activity, reading: { vault } }: ConnectDeps,
  { state, error }: { state: string; error: unknown },
): Promise<void> {
  const tell = db.transaction(async (tx) => {
    const ended = await endAttempt(tx, state);
    if (ended === undefined || ended.isUsed) return undefined;
    const key = await environmentKey(tx, { environmentId: ended.environmentId, vault });
    const settings = key.openJson(ended.settings, 'connect session') as SessionSettings;
    const facts = { ...ended, settings, ...failureOf(error) };
    const { cause, evidence } = facts;
    const { type } = explainError(error) ?? unexpected;
    await noteFailure(tx, {
      id: ended.sessionId,
      failure: { cause, type, evidence, at: now().toISOString() },
    });
    await queueFailure(tx, 'connection.connect_failed', facts);
    return flowFailed(facts, now());
  });
  await tell
    .then((failed) => failed && activity.log(failed))
    .catch((err: unknown) => log.warn({ err }, 'a failed connect was not told'));
}

async function exchange(
  deps: ConnectDeps,
  { attempt, target: { integration, current }, params, state }: AuthorizationFlow,
): Promise<AuthorizationResult> {
  const { ownClient } = attempt;
  const isAddition = attempt.scopes.length < attempt.scopesRequested.length;
  const context: OAuthContext = {
    definition: integration.provider,
    // What a silent answer grants (RFC 6749 §5.1): what was asked for, beside what an addition adds to.
    client: {
      ...(ownClient ?? clientOf(integration)),
      scopes: [...attempt.scopes, ...((isAddition && current?.scopesGranted) || [])],
    },
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
    now: deps.now(),
  });
  if (!params.has('error') && ownClient === undefined) {
    await noteClientVerdict(deps, { integration, fault: outcome.ok ? undefined : outcome.fault });
  }
  if (!outcome.ok) {
    note(deps, { integration, fault: outcome.fault, step: params.has('error') ? 'callback' : 'exchange' });
    const { display_name: provider } = integration.provider;
    throw ownClient ? ownClientFault(outcome.fault, provider) : providerFault(outcome.fault, provider);
  }
  const { tokens } = outcome;
  const read = await readAccount({ ...context, tokens, fetch });
  if (!read.ok) note(deps, { integration, fault: read.fault, step: 'account' });
  const account = read.ok ? read.account : {};
  return {
    credentials: (previous) => {
      const own = ownClient && { client_id: ownClient.clientId, client_secret: ownClient.clientSecret };
      const token = ofClient(previous, attempt)?.refresh_token;
      return credentialsFrom(tokens, {
        ...(token !== undefined && { refresh_token: token }),
        ...(own && { config_override: own }),
      });
    },
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

/** The provider's code alone: its text may hold anything. A person who says no is no reason to look. */
function note(
  { log }: ConnectDeps,
  {
    integration,
    fault: { kind, error, httpStatus },
    step,
  }: { integration: Integration; fault: TokenFault; step: 'callback' | 'exchange' | 'account' },
): void {
  const facts = { integration: integration.key, step, kind, fault: error, status: httpStatus };
  if (kind === 'denied') log.info(facts, 'access was not given');
  else log.warn(facts, 'connecting failed');
}
