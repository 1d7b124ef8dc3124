import { type Credentials, ownClientOf, renewalOf } from '../auth-modes/mode.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import { AppError, type FieldError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import { isExpired } from './refresh-due.ts';
import { askForToken } from './refresh-request.ts';
import type { GrantFacts } from './save.ts';
import type { Tried } from './verify.ts';

/** What it takes to try credentials. */
export type Trial = {
  fetch: Fetch;
  now: Date;
  noteClient: (fault: TokenFault | undefined) => Promise<void>;
};

/** Credentials that have what goes to the API, and what the provider told of them. */
type FirstToken =
  | { readonly ok: true; readonly credentials: Credentials; readonly grant: GrantFacts }
  | { readonly ok: false; readonly fault: TokenFault };

/**
 * Asks the provider for the token of a client that came without one, or with one that has ended. Credentials of other
 * kinds are answered as they are. What is said of the integration's client, where it is that, goes to `noteClient` too;
 * undefined: it was accepted. Throws TemplateError, and AppError when the address may not be reached or nobody brought a client.
 */
export async function firstToken(tried: Tried, { fetch, now, noteClient }: Trial): Promise<FirstToken> {
  const { credentials } = tried;
  if (credentials.type !== 'OAUTH2_CC' || !isExpired(credentials, now))
    return { ok: true, credentials, grant: {} };
  const renewal = renewalOf(credentials);
  const secret = renewal.secretOf(credentials) ?? '';
  const outcome = await askForToken({ ...tried, credentials }, { secret, fetch, now });
  if (ownClientOf(credentials) === undefined) await noteClient(outcome.ok ? undefined : outcome.fault);
  if (!outcome.ok) return outcome;
  const { tokens } = outcome;
  return {
    ok: true,
    credentials: renewal.after(tokens, { previous: credentials, secret }),
    grant: {
      accessExpiresAt: tokens.expiresAt,
      scopesGranted: tokens.scopes && [...tokens.scopes],
    },
  };
}

/** Whether the fault is a judgement, by which asking once more would not help. */
export function isJudged({ kind }: TokenFault): boolean {
  return kind !== 'transient' && kind !== 'protocol';
}

/** What to tell whose client got no token. Holds the provider's code, never its text. */
export function noFirstToken(
  { integration, credentials }: Pick<Tried, 'integration' | 'credentials'>,
  fault: TokenFault,
): AppError {
  const { display_name: provider } = integration.provider;
  const payload = {
    status: fault.httpStatus ?? null,
    ...(fault.error !== undefined && { error: fault.error }),
  };
  const said = fault.error === undefined ? '' : ` (${fault.error})`;
  if (!isJudged(fault)) {
    const message = `${provider} gave no token when the credentials were tried${said}, which proves nothing.`;
    return new AppError('connection_test_failed', message, { payload });
  }
  if (ownClientOf(credentials) !== undefined && fault.kind !== 'client_misconfigured') {
    const message = `${provider} refused this client ID and secret${said}.`;
    return new AppError('connection_test_failed', message, { payload });
  }
  const message = `${provider} refuses the client or a setting of the integration${said}.`;
  return new AppError('integration_misconfigured', message, { status: 400, payload });
}

/** The fields that are missing where credentials name no client and the integration has none either. */
export function missingClient(
  credentials: Credentials,
  { client }: Pick<Integration, 'client'>,
): FieldError[] {
  if (credentials.type !== 'OAUTH2_CC' || (ownClientOf(credentials) ?? client) !== undefined) return [];
  const error = { code: 'custom', message: 'is required' };
  return ['client_id', 'client_secret'].map((name) => ({ ...error, path: [name] }));
}
