import { authModes, type Credentials } from '../auth-modes/mode.ts';
import { verificationRequest } from '../auth-modes/place.ts';
import { templateValues } from '../connections/values.ts';
import { AppError, type FieldError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import { readFields } from '../providers/fields.ts';
import { readWishes, sentenceOf } from './query.ts';
import { type Saved, saveConnection } from './save.ts';
import { getSession } from './sessions.ts';
import { asAppError, type ConnectDeps, getTarget, readConfig } from './target.ts';

/** How long the provider may take to judge credentials. */
const verificationTimeoutMs = 15_000;

/** Modes whose credentials a person types in, or that have none. */
export type FormMode = 'API_KEY' | 'BASIC' | 'NONE';

/**
 * Connects with what was filled in: the credentials are tried where the definition says how, then saved.
 *
 * `url` is the request's own, with `params[x]` in its query. Throws `invalid_body` and `invalid_query_params` naming
 * the fields, `connection_test_failed` where the provider refuses the credentials or does not answer, and what
 * `saveConnection` throws.
 */
export async function submit(
  deps: ConnectDeps,
  request: {
    session: { sessionId: number; environmentId: number };
    key: string;
    mode: FormMode;
    url: string;
    body: Record<string, unknown>;
  },
): Promise<Saved> {
  const { db, reading } = deps;
  const { sessionId: id, environmentId } = request.session;
  const session = await getSession(db, { id, environmentId, vault: reading.vault });
  const target = await getTarget(db, { reading, session, key: request.key, mode: request.mode });
  const { integration } = target;
  const connectionConfig = readConfig(target, readWishes(request.url).config);
  const credentials = readCredentials(integration, request);
  try {
    await verify(deps, { integration, credentials, connectionConfig });
  } catch (error) {
    throw asAppError(error);
  }
  return saveConnection(deps, {
    session,
    key: integration.key,
    gain: { credentials: () => credentials, grant: {}, connectionConfig },
  });
}

function readCredentials(
  { provider }: Integration,
  { mode, body }: { mode: FormMode; body: Record<string, unknown> },
): Credentials {
  const read = authModes[mode].importSchema.safeParse({ ...body, type: mode });
  const faults: FieldError[] = read.success
    ? []
    : read.error.issues.map(({ code, message, path }) => ({ code, message, path: path.map(String) }));
  const form = readFields(provider.credentials, body);
  const isRefined = Object.keys(provider.credentials).length > 0;
  for (const { field, message } of isRefined && !form.ok ? form.issues : []) {
    if (!faults.some(({ path }) => path[0] === field))
      faults.push({ code: 'custom', message, path: [field] });
  }
  if (read.success && faults.length === 0) return read.data;
  throw new AppError('invalid_body', sentenceOf(faults), { errors: faults });
}

/** Any answer below 400 says that the credentials work. */
async function verify(
  { fetchFor }: ConnectDeps,
  {
    integration,
    credentials,
    connectionConfig,
  }: { integration: Integration; credentials: Credentials; connectionConfig: Record<string, string> },
): Promise<void> {
  const { provider: definition } = integration;
  const values = templateValues({ connectionConfig, integration });
  const request = verificationRequest({ definition, credentials, values });
  if (request === undefined) return;
  const status = await statusOf(fetchFor(integration), request);
  if (status !== undefined && status < 400) return;
  throw new AppError('connection_test_failed', sentenceFor(definition.display_name, status), {
    payload: { status: status ?? null },
  });
}

function sentenceFor(provider: string, status: number | undefined): string {
  if (status === 401 || status === 403) return `${provider} refused these credentials (status ${status}).`;
  if (status === undefined) return `${provider} did not answer when the credentials were tried.`;
  return `${provider} answered with status ${status} when the credentials were tried, which proves nothing.`;
}

/** Undefined where there was no answer. An address that may not be reached is the operator's to see: it throws. */
async function statusOf(
  fetch: ReturnType<ConnectDeps['fetchFor']>,
  request: { method: string; url: string; headers: Readonly<Record<string, string>> },
): Promise<number | undefined> {
  try {
    const response = await fetch(request.url, {
      method: request.method,
      headers: { ...request.headers },
      redirect: 'manual',
      signal: AbortSignal.timeout(verificationTimeoutMs),
    });
    for await (const _chunk of response.body ?? []) break;
    return response.status;
  } catch (error) {
    for (let cause = error; cause instanceof Error; cause = cause.cause) {
      if (cause instanceof AppError) throw cause;
    }
    return undefined;
  }
}
