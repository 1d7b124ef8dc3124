import { authorizationRequest } from '../auth-modes/oauth2.ts';
import { requireOwnClientsKnown } from '../connections/save.ts';
import { templateValues } from '../connections/values.ts';
import { readConnectSettings } from '../environments/connect-settings.ts';
import { AppError, fieldError } from '../errors.ts';
import { clientOf, type Integration, type OAuthClient } from '../integrations/store.ts';
import { storeAttempt } from './attempts.ts';
import { findSecret, newBrowserSecret } from './browser-cookies.ts';
import { endUserOf } from './choices.ts';
import { readWishes, type Wishes } from './query.ts';
import { allowsOtherAccount, planScopes, type ScopePlan } from './scopes.ts';
import { paramFault } from './session-input.ts';
import { bindSession, getSession, hashOf } from './sessions.ts';
import { asAppError, type ConnectDeps, getTarget, readConfig, type Target } from './target.ts';

/** The only redirect URI there is; registered at the provider as it stands. */
export function redirectUriOf({ baseUrl }: Pick<ConnectDeps, 'baseUrl'>): string {
  return `${baseUrl}/oauth/callback`;
}

/** A request to begin. `url` is its own, with the query. */
type Request = { session: { sessionId: number; environmentId: number }; key: string; url: string };

/** For whom a trip would begin, and whose it is. */
export type Announcement = {
  /** What the application calls itself, if it does. */
  appName: string | undefined;
  environment: string;
  integration: Integration;
  isReconnect: boolean;
  endUser: ReturnType<typeof endUserOf>;
};

/**
 * What a person is to know before a trip begins that nobody has agreed to on a page of ours. Binds and stores nothing.
 * Throws what `begin` throws of what does not fit.
 */
export async function announce(deps: ConnectDeps, request: Request): Promise<Announcement> {
  const { target } = await prepare(deps, request);
  const { session, integration, current } = target;
  const { appName } = await readConnectSettings(deps.db, session.environmentId);
  return {
    appName,
    environment: session.environment,
    integration,
    isReconnect: current !== undefined,
    endUser: endUserOf(session, current),
  };
}

/**
 * Begins a trip to the provider: where to send the browser, and the secret that its cookie is to hold.
 *
 * The first browser that begins has the session for itself, by a secret that it never had before: another one is
 * refused with `session_in_other_browser`. `secrets` is what the request's cookies hold. Throws AppError naming what does
 * not fit.
 */
export async function begin(
  deps: ConnectDeps,
  request: Request & { secrets: readonly string[] },
): Promise<{ location: string; browser: string }> {
  const flow = await prepare(deps, request);
  const { browserHash } = flow.target.session;
  // Where the session has one that is not shown, the new one is refused when it is bound.
  const browser = (browserHash && findSecret(request.secrets, browserHash)) ?? newBrowserSecret();
  return { location: await startTrip(deps, { ...flow, browser, isRepeated: false }), browser };
}

async function prepare(
  { db, reading }: ConnectDeps,
  { session: { sessionId: id, environmentId }, key, url }: Request,
): Promise<Omit<Start, 'browser' | 'isRepeated'>> {
  const session = await getSession(db, { id, environmentId, vault: reading.vault });
  const target = await getTarget(db, { reading, session, key, mode: 'OAUTH2' });
  const wishes = readWishes(url);
  // Before the provider gives a grant that could not be kept.
  if (wishes.ownClient !== undefined) await requireOwnClientsKnown(db);
  return {
    target,
    plan: planScopes(target, wishes),
    connectionConfig: readConfig(target, wishes.config),
    extraParams: paramsOf(target, wishes),
    ownClient: wishes.ownClient,
    waiter: wishes.waiter,
  };
}

/**
 * Sends the browser on another trip of the same session, after one that brought no refresh token: this time in the
 * words that make the provider give one, with the account that was chosen.
 */
export async function beginAgain(
  deps: ConnectDeps,
  flow: Omit<Start, 'extraParams' | 'isRepeated'>,
  account: { id: string; email?: string | undefined } | undefined,
): Promise<string> {
  const { integration, session } = flow.target;
  const chosen = account?.email ?? account?.id;
  return startTrip(deps, {
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

async function startTrip(deps: ConnectDeps, flow: Start): Promise<string> {
  const { db, reading, now } = deps;
  const { target, plan, connectionConfig, extraParams, ownClient, browser, waiter, isRepeated } = flow;
  const { session, integration } = target;
  try {
    const { url, state, codeVerifier } = await authorizationRequest({
      definition: integration.provider,
      client: { ...(ownClient ?? clientOf(integration)), scopes: plan.asked },
      values: templateValues({ connectionConfig, integration }),
      redirectUri: redirectUriOf(deps),
      extraParams,
    });
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
        codeVerifier,
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

function paramsOf(target: Target, wishes: Wishes): Record<string, string> {
  const { session, integration, current } = target;
  const { settings } = session;
  for (const [name, value] of Object.entries(wishes.authorizationParams)) {
    const fault = paramFault(integration.provider, { name, value });
    if (fault !== undefined)
      throw fieldError('invalid_query_params', [`authorization_params[${name}]`], fault);
  }
  // The provider preselects the account that is expected; the callback checks which one it was.
  const before = allowsOtherAccount(target) ? undefined : current?.account?.email;
  const expected = before ?? (settings.require_same_account ? settings.end_user?.email : undefined);
  return {
    ...(expected && { login_hint: expected }),
    ...wishes.authorizationParams,
    ...settings.integrations_config_defaults?.[integration.key]?.authorization_params,
  };
}
