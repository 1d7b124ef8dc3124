import type { Routes } from '../client/routes.ts';
import { ConnectError, type ConnectErrorCode } from './connect-error.ts';

/** How far a session is, as `GET /connect/session/progress` tells. */
export type Progress = Routes['GET /connect/session/progress']['answer']['data'];
/** The account that was connected. */
export type Connected = {
  connectionId: string;
  integration: string;
  /** What was asked for and not granted. */
  missingScopes: string[];
};
export type Session = { url: string; token: string };

/** A service that hangs is taken for one that is away. */
const answerWithinMs = 10_000;

/** Undefined where the service cannot be reached at the moment. Throws `invalid_token`. */
export async function fetchProgress(session: Session, signal: AbortSignal): Promise<Progress | undefined> {
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener('abort', stop);
  if (signal.aborted) stop();
  const timer = setTimeout(() => own.abort(), answerWithinMs);
  try {
    return await readProgress(session, own.signal);
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
  // The connection that was to be renewed is gone.
  if (response?.status === 400 || response?.status === 404)
    throw new ConnectError('failed', { reason: await codeOf(response) });
  if (!response?.ok) return undefined;
  const answer = await (response.json() as Promise<{ data: Progress }>).catch(() => undefined);
  return answer?.data;
}

async function codeOf(response: Response): Promise<string | undefined> {
  const body = (await response.json().catch(() => undefined)) as { error?: { code?: string } } | undefined;
  return body?.error?.code;
}

/** What the session has made, whether or not something is left to decide. */
export function connectedBy({ connection }: Progress): Connected | undefined {
  if (connection === null) return undefined;
  return {
    connectionId: connection.connection_id,
    integration: connection.provider_config_key,
    missingScopes: connection.missing_scopes.map(({ scope }) => scope),
  };
}

/** Whether the person has nothing left to do: no box to tick after all, no sheet to choose. */
export function isSettled({ state, setup, connection }: Progress): boolean {
  return state === 'connected' && setup === null && connection?.missing_scopes.length === 0;
}

/** Why the last trip to the provider made no connection. */
export function failureOf({ failure }: Progress): ConnectError | undefined {
  if (failure === null) return undefined;
  const { cause: reason } = failure;
  return new ConnectError(reason === 'access_denied' ? 'denied' : 'failed', { reason });
}

/** The `reason` where nothing is known of the session, and may be later. */
export const unreachable = 'unreachable';

/** How long a service that hangs is asked again. */
const askForMs = 15_000;

/** As `fetchProgress`, asked again while the service is away. Throws `failed` where it stays away. */
export async function askProgress(session: Session, signal: AbortSignal): Promise<Progress> {
  const begunAt = Date.now();
  for (let left = 8; ; left -= 1) {
    const progress = await fetchProgress(session, signal);
    if (progress !== undefined) return progress;
    if (left === 0 || Date.now() - begunAt >= askForMs)
      throw new ConnectError('failed', { reason: unreachable });
    await new Promise((resolve) => setTimeout(resolve, 500));
    signal.throwIfAborted();
  }
}

/** What came of a session whose person is done. Throws `ConnectError` where that is no connection. */
export function outcomeOf(progress: Progress, otherwise: ConnectErrorCode): Connected {
  const made = connectedBy(progress);
  if (made !== undefined) return made;
  if (progress.state === 'expired') throw new ConnectError('session_expired');
  throw failureOf(progress) ?? new ConnectError(otherwise);
}
