import { ConnectError } from '../connect/connect-error.ts';

/** The form of a token: what a server returns by mistake, such as the HTML of a sign-in page, is none. */
const tokenPattern = /^[a-z][a-z0-9]*_connect_session_[0-9a-f]{64}$/;

/**
 * Requests a session token from the application by POST. The response is the token as text, or JSON with `token`, also
 * below `data`, as in the response of the service. Cookies are sent to the page's own origin only.
 *
 * Throws `no_token` with what was wrong, or the signal's reason.
 */
export async function fetchToken(address: string, signal: AbortSignal): Promise<string> {
  const url = new URL(address, document.baseURI);
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw noToken('not an http address');
  const response = await fetch(url, {
    method: 'POST',
    credentials: 'same-origin',
    cache: 'no-store',
    headers: { accept: 'application/json, text/plain' },
    signal,
  }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw noToken('unreachable', error);
  });
  if (!response.ok) throw noToken(`status ${response.status}`);
  const text = (await response.text()).trim();
  const token = tokenIn(text);
  if (!tokenPattern.test(token)) throw noToken('the response has no token');
  return token;
}

function tokenIn(text: string): string {
  if (!text.startsWith('{')) return text;
  try {
    const body = JSON.parse(text) as { token?: unknown; data?: { token?: unknown } | null };
    return String(body.token ?? body.data?.token);
  } catch {
    return '';
  }
}

function noToken(reason: string, cause?: unknown): ConnectError {
  return new ConnectError('no_token', { reason, cause });
}
