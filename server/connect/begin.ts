import type { TokenFault } from '../auth-modes/token-fault.ts';
import { templateValues } from '../connections/store/reader.ts';
import { requireOwnClientsSupported } from '../connections/store/save.ts';
import { asAppError, recordClientResult } from '../connections/verify.ts';
import { readConnectSettings } from '../environments/connect-settings.ts';
import { AppError, fieldError } from '../errors.ts';
import { clientOf, type OAuthClient } from '../integrations/store.ts';
import { storeAttempt } from './attempts.ts';
import { findSecret, newBrowserSecret } from './browser-cookies.ts';
import { endUserOf } from './choices.ts';
import { type ConnectFault, loggedFault, recordFailure } from './failures.ts';
import { paramFault } from './session-input.ts';
import { bindSession, getSession, hashOf, type SessionRef } from './sessions.ts';
import {
  allowsOtherAccount,
  authorizationOf,
  type ConnectDeps,
  type ConnectQuery,
  getTarget,
  planScopes,
  provesClientFault,
  readConfig,
  readConnectQuery,
  type ScopePlan,
  type Target,
} from './target.ts';

/** The only redirect URI, registered at the provider in this form. */
export function redirectUriOf({ callbackBaseUrl }: Pick<ConnectDeps, 'callbackBaseUrl'>): string {
  return `${callbackBaseUrl}/oauth/callback`;
}

/** A request to begin. `url` is that of the request, with its query. */
type Request = { session: SessionRef; key: string; url: string };

/** The end user, the application and the integration of an authorization that has not begun. */
export type Announcement = Awaited<ReturnType<typeof announce>>;

/**
 * The facts for the page that asks before an authorization begins. Binds and stores nothing. Throws the errors of
 * `begin`.
 */
export async function announce(deps: ConnectDeps, request: Request) {
  const { target } = await prepare(deps, request);
  const { session, integration, current } = target;
  const { appName } = await readConnectSettings(deps.db, session.environmentId);
  return {
    /** Undefined if the application has set none. */
    appName,
    environment: session.environment,
    integration,
    isReconnect: current !== undefined,
    endUser: endUserOf(session, current),
  };
}

/**
 * Begins an authorization: the address to which the browser is sent, and the secret for its cookie.
 *
 * The session is bound to the first browser that begins, by a new secret: another browser is refused with
 * `session_in_other_browser`. `secrets` are those of the request's cookies. Throws AppError naming the parameters that
 * do not fit.
 */
export async function begin(
  deps: ConnectDeps,
  request: Request & { secrets: readonly string[] },
): Promise<{ location: string; browser: string }> {
  const flow = await prepare(deps, request);
  const { browserHash } = flow.target.session;
  const browser = browserHash === undefined ? newBrowserSecret() : findSecret(request.secrets, browserHash);
  // Binding another secret would fail after the provider has begun.
  if (browser === undefined) throw new AppError('session_in_other_browser');
  return { location: await startAuthorization(deps, { ...flow, browser, isRepeated: false }), browser };
}

async function prepare(
  { db, reading }: ConnectDeps,
  { session: ref, key, url }: Request,
): Promise<Omit<Start, 'browser' | 'isRepeated'>> {
  const session = await getSession(db, { ...ref, vault: reading.vault });
  const target = await getTarget(db, { reading, session, key });
  authorizationOf(target.integration);
  const query = readConnectQuery(url);
  // Before the provider issues a grant that could not be kept.
  if (query.ownClient !== undefined) await requireOwnClientsSupported(db);
  return {
    target,
    plan: planScopes(target, query),
    connectionConfig: readConfig(target, query.config),
    extraParams: paramsOf(target, query),
    ownClient: query.ownClient,
    waiter: query.waiter,
  };
}

/**
 * Begins another authorization of the same session, after one without a refresh token: with the parameters that make
 * the provider issue one, and with the account that was chosen.
 */
export async function beginAgain(
  deps: ConnectDeps,
  flow: Omit<Start, 'extraParams' | 'isRepeated'>,
  account: { id: string; email?: string | undefined } | undefined,
): Promise<string> {
  const { integration, session } = flow.target;
  const chosen = account?.email ?? account?.id;
  return startAuthorization(deps, {
    ...flow,
    extraParams: {
      ...session.settings.integrations_config_defaults?.[integration.key]?.authorization_params,
      ...(chosen !== undefined && { login_hint: chosen }),
      ...integration.provider.authorization?.refresh_token_params,
    },
    isRepeated: true,
  });
}

type Start = {
  target: Target;
  plan: ScopePlan;
  connectionConfig: Record<string, string>;
  extraParams: Record<string, string>;
  ownClient: OAuthClient | undefined;
  browser: string;
  waiter: string | undefined;
  isRepeated: boolean;
};

async function startAuthorization(deps: ConnectDeps, flow: Start): Promise<string> {
  const { db, reading, now } = deps;
  const { target, plan, connectionConfig, extraParams, ownClient, browser, waiter, isRepeated } = flow;
  const { session, integration } = target;
  try {
    const begun = await authorizationOf(integration).begin({
      definition: integration.provider,
      client: { ...(ownClient ?? clientOf(integration)), scopes: plan.asked },
      values: templateValues({ connectionConfig, integration }),
      redirectUri: redirectUriOf(deps),
      extraParams,
      fetch: deps.fetchFor(integration),
      now: now(),
    });
    if (!begun.ok) throw await failedToBegin(deps, { ...flow, fault: begun.fault });
    const { url, state, kept } = begun;
    await db.transaction(async (tx) => {
      if (!(await bindSession(tx, { id: session.id, browserHash: hashOf(browser) })))
        throw new AppError('session_in_other_browser');
      await storeAttempt(tx, {
        vault: reading.vault,
        state,
        browser,
        sessionId: session.id,
        environmentId: session.environmentId,
        integrationId: integration.id,
        integrationKey: integration.key,
        kept,
        scopes: plan.asked,
        scopesRequested: plan.requested,
        isRepeated,
        connectionConfig,
        ownClient,
        waiter,
        begunAt: now(),
      });
    });
    return url;
  } catch (error) {
    throw asAppError(error);
  }
}

/** Reports an authorization that the provider did not begin, and returns its explanation for the end user. */
async function failedToBegin(
  deps: ConnectDeps,
  { target: { session, integration }, ownClient, fault }: Start & { fault: TokenFault },
): Promise<ConnectFault> {
  const { db, log, activity } = deps;
  if (ownClient === undefined && provesClientFault(integration))
    await recordClientResult(deps, { integration, fault });
  const error = loggedFault(deps, { integration, ownClient, fault, step: 'begin' });
  const at = deps.now();
  const { key, isTest, provider } = integration;
  const about = { integration: { key, isTest, providerName: provider.name }, settings: session.settings };
  const { environmentId, id: sessionId } = session;
  await db
    .transaction((tx) => recordFailure(tx, { ...about, environmentId, sessionId, begunAt: at, error, at }))
    .then((failed) => activity.log(failed))
    .catch((err: unknown) => log.warn({ err }, 'a failed authorization could not be reported'));
  return error;
}

function paramsOf(target: Target, query: ConnectQuery): Record<string, string> {
  const { session, integration, current } = target;
  const { settings } = session;
  for (const [name, value] of Object.entries(query.authorizationParams)) {
    const fault = paramFault(integration.provider, { name, value });
    if (fault !== undefined)
      throw fieldError('invalid_query_params', [`authorization_params[${name}]`], fault);
  }
  // The provider preselects the expected account; the callback checks the actual one.
  const before = allowsOtherAccount(target) ? undefined : current?.account?.email;
  const expected = before ?? (settings.require_same_account ? settings.end_user?.email : undefined);
  return {
    ...(expected && { login_hint: expected }),
    ...query.authorizationParams,
    ...settings.integrations_config_defaults?.[integration.key]?.authorization_params,
  };
}
