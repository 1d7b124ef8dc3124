import { type Credentials, isRenewable } from '../auth-modes/mode.ts';
import { verificationRequest } from '../auth-modes/place.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import { AppError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import { templateValues } from './values.ts';

/**
 * Whether a provider accepts credentials, by the call that its definition names for that.
 *
 * Owns: the call, and what its answer says. Does not own: what follows from it, which differs by who gave the
 * credentials: a form (`connect/submit.ts`), the provider itself (`connect/callback.ts`), or an application
 * (`import.ts`).
 */
type Verdict =
  /** Also where the definition names no call: then nothing is known against them. */
  | { readonly kind: 'accepted' }
  | { readonly kind: 'refused'; readonly status: number }
  /** No answer, an outage, a redirect, a path that is not there: says nothing of the credentials. */
  | { readonly kind: 'unproven'; readonly status: number | undefined };

/** What is tried: credentials on their way into a connection of this integration. */
export type Tried = {
  integration: Integration;
  credentials: Credentials;
  connectionConfig: Record<string, unknown>;
};

/** How long the provider may take where nobody says less. */
const longestMs = 15_000;

/** Tries them, for `timeoutMs` at most. Throws TemplateError, and AppError when the address may not be reached. */
export async function verify(
  { integration, credentials, connectionConfig }: Tried,
  { fetch, timeoutMs = longestMs }: { fetch: Fetch; timeoutMs?: number },
): Promise<Verdict> {
  const values = templateValues({ connectionConfig, integration });
  const request = verificationRequest({ definition: integration.provider, credentials, values });
  if (request === undefined) return { kind: 'accepted' };
  const status = await statusOf(request, { fetch, timeoutMs });
  if (status === undefined) return { kind: 'unproven', status };
  if (status >= 200 && status < 300) return { kind: 'accepted' };
  // RFC 6750 §3.1: to a token that is good, 403 says that it lacks a scope, or that an API is switched off.
  const isRefused = status === 401 || (status === 403 && !isRenewable(credentials));
  return { kind: isRefused ? 'refused' : 'unproven', status };
}

/** What to tell whose credentials were not accepted. Holds none of them, nor a word of the provider's. */
export function testFailed(
  { provider: { display_name: provider } }: Integration,
  { kind, status }: Exclude<Verdict, { kind: 'accepted' }>,
): AppError {
  const message =
    kind === 'refused'
      ? `${provider} refused these credentials (status ${status}).`
      : status === undefined
        ? `${provider} did not answer when the credentials were tried.`
        : `${provider} answered with status ${status} when the credentials were tried, which proves nothing.`;
  return new AppError('connection_test_failed', message, { payload: { status: status ?? null } });
}

/** Known as soon as the head is there. Undefined where there was no answer. An address that may not be reached is the operator's to see: it throws. */
async function statusOf(
  request: { method: string; url: string; headers: Readonly<Record<string, string>> },
  { fetch, timeoutMs }: { fetch: Fetch; timeoutMs: number },
): Promise<number | undefined> {
  const over = new AbortController();
  try {
    const response = await fetch(request.url, {
      method: request.method,
      headers: { ...request.headers },
      redirect: 'manual',
      signal: AbortSignal.any([over.signal, AbortSignal.timeout(timeoutMs)]),
    });
    return response.status;
  } catch (error) {
    for (let cause = error; cause instanceof Error; cause = cause.cause) {
      if (cause instanceof AppError) throw cause;
    }
    return undefined;
  } finally {
    // Nobody reads the body, and it may never end.
    over.abort();
  }
}
