import type { Fetch } from '../outbound/outbound.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import type { Signer } from './mode.ts';
import { address, type OAuthContext, type Tokens, tokenParams } from './oauth2-request.ts';
import { signedHeaders } from './place.ts';
import { faultOfSilence, protocolFault, type TokenFault } from './token-fault.ts';
import { at, type JsonObject, normalizingFetch, UnreadableAnswerError } from './token-response.ts';

/** The account of a connection at the provider. A field is absent if the provider does not report it. */
type Account = {
  /** Never changes; the e-mail address may. */
  readonly subject?: string;
  readonly email?: string;
  readonly isEmailVerified?: boolean;
  readonly name?: string;
};

/**
 * The account of fresh tokens: from the checked id_token of an exchange, else from the userinfo endpoint (OpenID
 * Connect Core §5.3), else empty. A 401 is the fault `invalid_token`, a 403 `insufficient_scope`: the token may not
 * read userinfo, but the grant may be alive. Throws TemplateError, and AppError when the address may not be reached.
 */
export async function readAccount(
  context: OAuthContext & {
    tokens: Pick<Tokens, 'accessToken' | 'idTokenClaims'>;
    /** Of credentials that sign; absent: the token is sent as bearer token. */
    signer?: Signer | undefined;
    fetch: Fetch;
    signal?: AbortSignal;
  },
): Promise<{ ok: true; account: Account } | { ok: false; fault: TokenFault }> {
  const { definition, tokens, signer } = context;
  const { userinfo, token } = definition;
  if (tokens.idTokenClaims !== undefined) return { ok: true, account: accountOf(tokens.idTokenClaims) };
  if (userinfo === undefined || token === undefined) return { ok: true, account: {} };
  const url = address(context, userinfo.url);
  const answer = normalizingFetch({
    fetch: context.fetch,
    token: { answer: { format: 'json', bearer_token_types: [] }, timeout_ms: token.timeout_ms },
    signal: context.signal,
  });
  try {
    const proof = signer
      ? tokenParams(context, definition.api.headers)
      : { authorization: `Bearer ${tokens.accessToken}` };
    const request = { method: 'GET', url, headers: { accept: 'application/json', ...proof }, signer };
    await answer.fetch(url, { method: 'GET', headers: await signedHeaders(request) });
  } catch (error) {
    if (error instanceof UnreadableAnswerError) return { ok: false, fault: faultOfSilence(error) };
    throw error;
  }
  const seen = answer.seen();
  if (seen === undefined) return { ok: false, fault: protocolFault('invalid_answer') };
  const { httpStatus } = seen;
  if (httpStatus === 401) return { ok: false, fault: protocolFault('invalid_token', seen) };
  if (httpStatus === 403) return { ok: false, fault: protocolFault('insufficient_scope', seen) };
  if (httpStatus === 429)
    return { ok: false, fault: { kind: 'transient', error: 'too_many_requests', httpStatus } };
  if (httpStatus >= 400) return { ok: false, fault: protocolFault('invalid_answer', seen) };
  return { ok: true, account: accountOf(seen.raw, userinfo) };
}

/** The names of OpenID Connect Core §5.1; a definition may have others. */
const standardClaims = { subject: 'sub', email: 'email', email_verified: 'email_verified', name: 'name' };

function accountOf(
  claims: JsonObject,
  names: Omit<NonNullable<ProviderDefinition['userinfo']>, 'url'> = standardClaims,
): Account {
  const subject = at(claims, names.subject);
  const email = at(claims, names.email);
  const isEmailVerified = at(claims, names.email_verified);
  const name = at(claims, names.name);
  return {
    // Some providers use numbers as account IDs.
    ...((typeof subject === 'string' || typeof subject === 'number') && { subject: String(subject) }),
    ...(typeof email === 'string' && email !== '' && { email }),
    ...(isEmailVerified !== undefined && {
      isEmailVerified: isEmailVerified === true || isEmailVerified === 'true',
    }),
    ...(typeof name === 'string' && name !== '' && { name }),
  };
}
