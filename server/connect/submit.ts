import { authModes, type Credentials, ownClientOf } from '../auth-modes/mode.ts';
import { noteClientVerdict } from '../connections/client-verdict.ts';
import { firstToken, missingClient, noFirstToken } from '../connections/first-token.ts';
import { type Tried, testFailed, verify } from '../connections/verify.ts';
import { AppError, type FieldError, fieldError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import { readFields } from '../providers/fields.ts';
import { findSecret } from './browser-cookies.ts';
import { readWishes, sentenceOf } from './query.ts';
import { type AuthorizationResult, type Saved, saveConnection } from './save.ts';
import { getSession } from './sessions.ts';
import { asAppError, type ConnectDeps, getTarget, readConfig } from './target.ts';

/** Modes whose credentials a person types in, or that have none. */
export type FormMode = 'API_KEY' | 'BASIC' | 'OAUTH2_CC' | 'NONE';

/**
 * Connects with what was filled in: the credentials are tried where the definition says how, a client by asking for its
 * token, then saved.
 *
 * A form binds the session to no browser, but keeps to the one that has begun at a provider: who merely holds the link
 * cannot put an account of his own in place of the one that is on its way.
 *
 * `url` is the request's own, with `params[x]` in its query, `secrets` what the browser's cookies hold. Throws
 * `session_in_other_browser`, `invalid_body` and `invalid_query_params` naming the fields, `connection_test_failed` where the provider refuses the credentials or does not answer,
 * `integration_misconfigured` where it refuses the integration's client, and what `saveConnection` throws.
 */
export async function submit(
  deps: ConnectDeps,
  request: {
    session: { sessionId: number; environmentId: number };
    key: string;
    mode: FormMode;
    url: string;
    secrets: readonly string[];
    body: Record<string, unknown>;
  },
): Promise<Saved> {
  const { db, reading } = deps;
  const { sessionId: id, environmentId } = request.session;
  const session = await getSession(db, { id, environmentId, vault: reading.vault });
  if (session.browserHash !== undefined && findSecret(request.secrets, session.browserHash) === undefined)
    throw new AppError('session_in_other_browser');
  const target = await getTarget(db, { reading, session, key: request.key, mode: request.mode });
  const { integration } = target;
  const wishes = readWishes(request.url);
  if (wishes.ownClient !== undefined)
    throw fieldError('invalid_query_params', ['credentials'], 'belong in the body of a form');
  const connectionConfig = readConfig(target, wishes.config);
  const credentials = readForm(integration, request);
  const gained = await authorizationFrom(deps, { integration, credentials, connectionConfig }).catch(
    (error) => {
      throw asAppError(error);
    },
  );
  return saveConnection(deps, {
    session,
    tried: integration,
    authorization: { ...gained, connectionConfig },
  });
}

function readForm(
  integration: Integration,
  { mode, body }: { mode: FormMode; body: Record<string, unknown> },
): Credentials {
  const { provider } = integration;
  const read = authModes[mode].importSchema.safeParse({ ...body, type: mode });
  const faults: FieldError[] = read.success
    ? missingClient(read.data, integration)
    : read.error.issues.map(({ code, message, path }) => ({ code, message, path: path.map(String) }));
  const form = readFields(provider.credentials, body);
  const isIntegrations =
    read.success && read.data.type === 'OAUTH2_CC' && ownClientOf(read.data) === undefined;
  const isRefined = Object.keys(provider.credentials).length > 0 && !isIntegrations;
  for (const { field, message } of isRefined && !form.ok ? form.issues : []) {
    if (!faults.some(({ path }) => path[0] === field))
      faults.push({ code: 'custom', message, path: [field] });
  }
  if (read.success && faults.length === 0) return read.data;
  throw new AppError('invalid_body', sentenceOf(faults), { errors: faults });
}

/**
 * The authorization for credentials that the provider has accepted. A test without a result refuses them, too, since the
 * user who entered them is present and can try again.
 */
async function authorizationFrom(
  deps: ConnectDeps,
  tried: Tried,
): Promise<Pick<AuthorizationResult, 'credentials' | 'grant'>> {
  const { integration } = tried;
  const fetch = deps.fetchFor(integration);
  const first = await firstToken(tried, {
    fetch,
    now: deps.now(),
    noteClient: (fault) => noteClientVerdict(deps, { integration, fault }),
  });
  if (!first.ok) throw noFirstToken(tried, first.fault);
  const { credentials, grant } = first;
  const verdict = await verify({ ...tried, credentials }, { fetch });
  if (verdict.kind !== 'accepted') throw testFailed(integration, verdict);
  return { credentials: () => credentials, grant };
}
