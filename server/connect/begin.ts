import { randomBytes } from 'node:crypto';
import { authorizationRequest } from '../auth-modes/oauth2.ts';
import { templateValues } from '../connections/values.ts';
import { AppError, fieldError } from '../errors.ts';
import { clientOf, type Integration } from '../integrations/store.ts';
import { storeAttempt } from './attempts.ts';
import { ConnectFault } from './fault.ts';
import { readWishes, type Wishes } from './query.ts';
import { fixedScopes, paramFault } from './session-input.ts';
import { bindSession, getSession, hashOf, type Session } from './sessions.ts';
import { asAppError, type ConnectDeps, getTarget, readConfig, type Target } from './target.ts';

/** The only redirect URI there is; registered at the provider as it stands. */
export function redirectUriOf({ baseUrl }: Pick<ConnectDeps, 'baseUrl'>): string {
  return `${baseUrl}/oauth/callback`;
}

/**
 * Begins a trip to the provider: where to send the browser, and the secret that its cookie is to hold.
 *
 * The first browser that begins has the session for itself: another one is refused with `session_in_other_browser`.
 * `url` is the request's own, with its query. Throws AppError naming what does not fit.
 */
export async function begin(
  deps: ConnectDeps,
  request: {
    session: { sessionId: number; environmentId: number };
    key: string;
    url: string;
    browser: string | undefined;
  },
): Promise<{ location: string; browser: string }> {
  const { db, reading } = deps;
  const { vault } = reading;
  const { sessionId: id, environmentId } = request.session;
  const session = await getSession(db, { id, environmentId, vault });
  const target = await getTarget(db, { reading, session, key: request.key, mode: 'OAUTH2' });
  const { integration } = target;
  const wishes = readWishes(request.url);
  const scopes = scopesOf(integration, { session, wishes });
  const connectionConfig = readConfig(target, wishes.config);
  const browser = isBrowserSecret(request.browser) ? request.browser : randomBytes(32).toString('base64url');
  try {
    const { url, state, codeVerifier } = await authorizationRequest({
      definition: integration.provider,
      client: { ...clientOf(integration), scopes },
      values: templateValues({ connectionConfig, integration }),
      redirectUri: redirectUriOf(deps),
      extraParams: paramsOf(target, wishes),
    });
    await db.transaction(async (tx) => {
      if (!(await bindSession(tx, { id, browserHash: hashOf(browser) }))) throw otherBrowser();
      await storeAttempt(tx, {
        vault,
        state,
        browser,
        sessionId: id,
        environmentId,
        integrationId: integration.id,
        integrationKey: integration.key,
        codeVerifier,
        scopes,
        connectionConfig,
      });
    });
    return { location: url, browser };
  } catch (error) {
    throw asAppError(error);
  }
}

/** The scopes to ask for. A browser may ask for less than the session or the integration says, never for more. */
export function scopesOf(
  integration: Integration,
  { session, wishes }: { session: Session; wishes: Pick<Wishes, 'scopes'> },
): string[] {
  const fixed = fixedScopes(session.settings.integrations_config_defaults?.[integration.key]);
  if (fixed !== undefined) return fixed;
  const all = integration.scopes ?? integration.provider.scopes.default;
  const wider = wishes.scopes?.filter((scope) => !all.includes(scope)) ?? [];
  if (wider.length > 0) {
    throw fieldError(
      'invalid_query_params',
      ['user_scope'],
      `asks for more than allowed: ${wider.join(' ')}`,
    );
  }
  return [...(wishes.scopes ?? all)];
}

function paramsOf({ session, integration, current }: Target, wishes: Wishes): Record<string, string> {
  const { settings } = session;
  for (const [name, value] of Object.entries(wishes.authorizationParams)) {
    const fault = paramFault(integration.provider, { name, value });
    if (fault !== undefined)
      throw fieldError('invalid_query_params', [`authorization_params[${name}]`], fault);
  }
  // The provider preselects the account that is expected; the callback checks which one it was.
  const expected =
    current?.account?.email ?? (settings.require_same_account ? settings.end_user?.email : undefined);
  return {
    ...(expected && { login_hint: expected }),
    ...wishes.authorizationParams,
    ...settings.integrations_config_defaults?.[integration.key]?.authorization_params,
  };
}

function isBrowserSecret(value: string | undefined): value is string {
  return value !== undefined && /^[A-Za-z0-9_-]{43}$/.test(value);
}

function otherBrowser(): ConnectFault {
  return new ConnectFault({
    type: 'session_in_other_browser',
    title: 'This link is in use in another browser',
    message: 'Connecting was begun with it in another browser, and it works in that one alone.',
    nextStep: 'Go on there, or ask the application for a new link.',
    cause: new AppError('unknown_connect_session_token'),
  });
}
