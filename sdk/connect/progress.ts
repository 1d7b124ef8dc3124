import type { Routes } from '../client/routes.ts';
import { ConnectError, type ConnectErrorCode } from './connect-error.ts';

/** The progress of a session, as returned by `GET /connect/session/progress`. */
export type Progress = Routes['GET /connect/session/progress']['answer']['data'];
/** The account that was connected. */
export type Connected = {
  connectionId: string;
  integration: string;
  /** The scopes that were requested and not granted. */
  missingScopes: string[];
};
/** A connect session: the address of the service, and the token. */
export type Session = { url: string; token: string };

/** A service that does not respond within this time counts as unreachable. */
const requestTimeoutMs = 10_000;

/** Returns undefined if the service cannot be reached. Throws `ConnectError`, or the signal's reason. */
export async function fetchProgress(session: Session, signal: AbortSignal): Promise<Progress | undefined> {
  const request = new AbortController();
  const stop = () => request.abort();
  signal.addEventListener('abort', stop);
  if (signal.aborted) stop();
  const timer = setTimeout(stop, requestTimeoutMs);
  try {
    return await readProgress(session, request.signal);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
    signal.throwIfAborted();
  }
}

async function readProgress({ url, token }: Session, signal: AbortSignal): Promise<Progress | undefined> {
  const response = await fetch(`${url}/connect/session/progress`, {
    headers: { authorization: `Bearer ${token}` },
    credentials: 'omit',
    cache: 'no-store',
    signal,
  }).catch(() => undefined);
  if (response?.status === 401) throw new ConnectError('invalid_token');
  // The connection of a reconnect session was deleted.
  if (response?.status === 400 || response?.status === 404)
    throw new ConnectError('failed', { reason: await codeOf(response) });
  if (!response?.ok) return undefined;
  const body = await (response.json() as Promise<{ data: Progress }>).catch(() => undefined);
  return body?.data;
}

async function codeOf(response: Response): Promise<string | undefined> {
  const body = (await response.json().catch(() => undefined)) as { error?: { code?: string } } | undefined;
  return body?.error?.code;
}

/** The connection of the session, even if the user has decisions left. */
export function connectionIn({ connection }: Progress): Connected | undefined {
  if (connection === null) return undefined;
  return {
    connectionId: connection.connection_id,
    integration: connection.provider_config_key,
    missingScopes: connection.missing_scopes.map(({ scope }) => scope),
  };
}

/** Whether the user has no decision left: no missing scope to allow, no sheet to choose. */
export function isSettled({ state, setup, connection }: Progress): boolean {
  return state === 'connected' && setup === null && connection?.missing_scopes.length === 0;
}

/** The reason why the last attempt at the provider created no connection. */
export function failureOf({ failure }: Progress): ConnectError | undefined {
  if (failure === null) return undefined;
  const { cause: reason } = failure;
  return new ConnectError(reason === 'access_denied' ? 'denied' : 'failed', { reason });
}

/** The `reason` of a `ConnectError` if the progress is unknown because the service could not be reached. */
export const unreachable = 'unreachable';

/** The time during which requests to an unreachable service are repeated. */
const retryForMs = 15_000;

/** Like `fetchProgress`, but retries while the service cannot be reached. Throws `failed` after 15 s or 9 attempts. */
export async function retryProgress(session: Session, signal: AbortSignal): Promise<Progress> {
  const startedAt = Date.now();
  for (let left = 8; ; left -= 1) {
    const progress = await fetchProgress(session, signal);
    if (progress !== undefined) return progress;
    if (left === 0 || Date.now() - startedAt >= retryForMs)
      throw new ConnectError('failed', { reason: unreachable });
    await new Promise((resolve) => setTimeout(resolve, 500));
    signal.throwIfAborted();
  }
}

/** The connection of a session that the user is finished with. If there is none, throws `ConnectError`, by default with `code`. */
export function resultOf(progress: Progress, code: ConnectErrorCode): Connected {
  const connected = connectionIn(progress);
  if (connected !== undefined) return connected;
  if (progress.state === 'expired') throw new ConnectError('session_expired');
  throw failureOf(progress) ?? new ConnectError(code);
}
