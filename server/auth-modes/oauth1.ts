/**
 * OAuth 1.0a (RFC 5849): temporary credentials, the user's agreement on the provider's pages, token credentials, and a
 * signature on each request of the connection.
 *
 * A signature covers method, address, query and the fields of a form. Bodies of other types are not covered, so they are
 * streamed. Tokens have no expiry: the call that verifies credentials shows whether one was revoked.
 */
import { createHmac, randomBytes } from 'node:crypto';
import OAuth from 'oauth-1.0a';
import { z } from 'zod';
import { AppError } from '../errors.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { TemplateError } from '../providers/template.ts';
import type { RenewableMode } from './mode.ts';
import { clientText, tokenText } from './oauth2-credentials.ts';
import {
  address,
  authorizationUrl,
  type Network,
  type OAuthClient,
  type OAuthContext,
  type TokenOutcome,
  tokenParams,
  tokenSection,
} from './oauth2-request.ts';
import { faultOfAnswer, faultOfSilence, protocolFault, type TokenFault } from './token-fault.ts';
import { at, decode, isHtml, type JsonObject, readAnswer, UnreadableAnswerError } from './token-response.ts';

type OAuth1Credentials = {
  readonly type: 'OAUTH1';
  readonly oauth_token: string;
  readonly oauth_token_secret: string;
  /** The connection's own client, if the token was not issued to the integration's. */
  readonly config_override?: { readonly client_id: string; readonly client_secret: string };
  /** Never set: a token ends when it is revoked. */
  readonly expires_at?: string;
  /** The provider's response, unchanged. */
  readonly raw: JsonObject;
};

const importSchema = z
  .strictObject({
    type: z.literal('OAUTH1'),
    oauth_token: tokenText,
    oauth_token_secret: tokenText,
    config_override: z.strictObject({ client_id: clientText, client_secret: clientText }).optional(),
    raw: z.record(z.string(), z.json()).optional(),
  })
  .transform(
    ({ type, oauth_token, oauth_token_secret, config_override: own, raw }): OAuth1Credentials => ({
      type,
      oauth_token,
      oauth_token_secret,
      ...(own && { config_override: own }),
      raw: (raw as JsonObject | undefined) ?? { oauth_token, oauth_token_secret },
    }),
  );

export const oauth1: RenewableMode<OAuth1Credentials> = {
  name: 'OAUTH1',
  client: 'required',
  ownCredentialsOnly: false,
  importSchema,
  placeholders: [],
  templateValues: () => ({}),
  placement: [],
  definitionFaults: (definition) => {
    const missing = (['authorization', 'token', 'oauth1'] as const).filter(
      (section) => definition[section] === undefined,
    );
    return [
      ...missing.map((section): [string[], string] => [[section], 'an OAUTH1 provider needs it']),
      ...(definition.placement.length > 0
        ? [[['placement'], 'is not allowed: an OAUTH1 provider signs each request'] as [string[], string]]
        : []),
      ...(definition.sandbox !== undefined
        ? [[['sandbox'], 'is not allowed: the sandbox has no OAuth 1.0a'] as [string[], string]]
        : []),
    ];
  },
  authorization: {
    begin,
    finish,
    credentials: ({ accessToken, tokenSecret = '', raw }, { ownClient: own }) => ({
      type: 'OAUTH1',
      oauth_token: accessToken,
      oauth_token_secret: tokenSecret,
      ...(own && { config_override: { client_id: own.clientId, client_secret: own.clientSecret } }),
      raw,
    }),
  },
  signer({ oauth_token, oauth_token_secret, config_override: own }, { definition, client: ofIntegration }) {
    const client = own ? { clientId: own.client_id, clientSecret: own.client_secret } : ofIntegration;
    if (client === undefined) throw new TemplateError('the integration has no OAuth client');
    const token = { token: oauth_token, secret: oauth_token_secret };
    const isCovered = oauth1Section(definition).signature_method !== 'PLAINTEXT';
    return {
      coversBody: (headers) => isCovered && isForm(headers),
      async sign({ method, url, headers, body }) {
        const form = isCovered && isForm(headers) ? (body?.toString() ?? '') : '';
        return { authorization: authorizationHeader({ definition, client, token, method, url, form }) };
      },
    };
  },
  toWire: ({ type, oauth_token, oauth_token_secret, config_override: own, raw }) => ({
    type,
    oauth_token,
    oauth_token_secret,
    ...(own && { config_override: { client_id: own.client_id } }),
    raw,
  }),
  renewal: {
    grantType: 'none',
    accessTokenOf: ({ oauth_token }) => oauth_token,
    secretOf: () => '',
    ownClientOf: ({ config_override: own }) =>
      own && { clientId: own.client_id, clientSecret: own.client_secret },
    request: async ({ credentials: { oauth_token, raw } }) => ({
      ok: true,
      tokens: { accessToken: oauth_token, tokenType: 'Bearer', raw },
    }),
    after: (_tokens, { previous }) => previous,
    toWireWithSecret: (credentials) => ({ ...credentials }),
  },
};

type Token = { readonly token: string; readonly secret: string };
type Client = Pick<OAuthClient, 'clientId' | 'clientSecret'>;

function oauth1Section({ name, oauth1: section }: ProviderDefinition) {
  if (section === undefined) throw new TypeError(`the provider "${name}" has no OAuth 1.0a`);
  return section;
}

class Signature extends OAuth {
  /** NetSuite wants 20 characters, X only letters and digits. */
  override getNonce(): string {
    return randomBytes(10).toString('hex');
  }
}

/**
 * The header of a signed request (RFC 5849 §3.5.1). `form` is the body if it is a form, else empty; `own` are further
 * parameters of the protocol. Throws `invalid_proxy_path` or `invalid_body` for a caller's parameter of the protocol.
 */
function authorizationHeader(given: {
  definition: ProviderDefinition;
  client: Client;
  token: Token | undefined;
  method: string;
  url: string;
  form?: string;
  own?: Readonly<Record<string, string>>;
  now?: Date | undefined;
}): string {
  const { definition, client, token, method, url, form = '', own = {}, now = new Date() } = given;
  const { signature_method: name } = oauth1Section(definition);
  const digest = name === 'HMAC-SHA256' ? 'sha256' : 'sha1';
  const signature = new Signature({
    consumer: { key: client.clientId, secret: client.clientSecret },
    signature_method: name,
    ...(name !== 'PLAINTEXT' && {
      hash_function: (text: string, key: string) => createHmac(digest, key).update(text).digest('base64'),
    }),
  });
  signature.getTimeStamp = () => Math.floor(now.getTime() / 1000);
  const [target = '', query = ''] = url.split(/\?(.*)/s);
  const data: Record<string, string | string[]> = { ...own };
  // RFC 5849 §3.4.1.3.1: both are read as forms. The package would not decode names, and would drop what follows a second "=".
  addParameters(data, query, () => new AppError('invalid_proxy_path', `The query ${competes}.`));
  addParameters(data, form, () => new AppError('invalid_body', `The form ${competes}.`));
  const signed = signature.authorize({ method, url: target, data }, token && { key: token.token, ...token });
  return signature.toHeader(signed).Authorization;
}

const competes = 'has a parameter that starts with `oauth_`, which belongs to the signature';

/** A parameter of the protocol is sent once (RFC 5849 §3.1), and a second one could name another token. */
function addParameters(data: Record<string, string | string[]>, form: string, refusal: () => AppError): void {
  for (const [name, value] of new URLSearchParams(form)) {
    if (name.startsWith('oauth_')) throw refusal();
    const before = Object.hasOwn(data, name) ? data[name]! : [];
    data[name] = [before, value].flat();
  }
}

function isForm(headers: readonly string[]): boolean {
  return headers.some(
    (name, index) =>
      index % 2 === 0 &&
      name.toLowerCase() === 'content-type' &&
      /^\s*application\/x-www-form-urlencoded\s*(;|$)/i.test(headers[index + 1] ?? ''),
  );
}

type BeginContext = OAuthContext &
  Network & { redirectUri: string; extraParams?: Readonly<Record<string, string>> };

/** Requests temporary credentials (RFC 5849 §2.1). */
async function begin(context: BeginContext) {
  const { request_url, request_method: method, state_in } = oauth1Section(context.definition);
  // NetSuite wants letters and digits.
  const state = randomBytes(32).toString('hex');
  const isInCallback = state_in === 'callback';
  const callback = isInCallback ? `${context.redirectUri}?state=${state}` : context.redirectUri;
  const answer = await ask(context, {
    url: address(context, request_url),
    method,
    token: undefined,
    refusal: 'client_misconfigured',
    own: { oauth_callback: callback },
  });
  if (!answer.ok) return answer;
  const { token, raw } = answer;
  if (String(raw.oauth_callback_confirmed) !== 'true')
    return { ok: false, fault: protocolFault('callback_not_confirmed') } as const;
  const own = { oauth_token: token.token, ...(!isInCallback && { state }) };
  return { ok: true, url: authorizationUrl(context, own), state, kept: { requestToken: token } } as const;
}

type FinishContext = OAuthContext &
  Network & {
    callbackParams: URLSearchParams;
    expectedState: string;
    kept: { requestToken?: Token | undefined };
  };

/** Exchanges temporary credentials for those of the token (RFC 5849 §2.3). */
async function finish(context: FinishContext): Promise<TokenOutcome> {
  const { definition, callbackParams: params, expectedState, kept } = context;
  const fault = faultOfReturn(params, { expectedState, requestToken: kept.requestToken });
  if (fault !== undefined) return { ok: false, fault };
  const answer = await ask(context, {
    url: address(context, tokenSection(definition).url),
    method: oauth1Section(definition).token_method,
    token: kept.requestToken,
    refusal: 'dead_grant',
    own: { oauth_verifier: params.get('oauth_verifier') ?? '' },
  });
  if (!answer.ok) return answer;
  const { token, secret } = answer.token;
  return {
    ok: true,
    tokens: { accessToken: token, tokenSecret: secret, tokenType: 'Bearer', raw: answer.raw },
  };
}

/** Refusals in `oauth_problem`, of the extension "OAuth Problem Reporting". RFC 5849 itself has no error codes. */
const problems = {
  user_refused: 'denied',
  permission_denied: 'denied',
  consumer_key_unknown: 'client_refused',
  consumer_key_rejected: 'client_refused',
  consumer_key_refused: 'client_refused',
  nonce_used: 'transient',
  timestamp_refused: 'protocol',
  token_expired: 'dead_grant',
  token_rejected: 'dead_grant',
  token_revoked: 'dead_grant',
  token_used: 'dead_grant',
  verifier_invalid: 'dead_grant',
} as const;

/**
 * The fault of a callback; undefined: it may be exchanged. Without a verifier, the user has not agreed: X adds `denied`,
 * NetSuite an empty `oauth_verifier`.
 */
function faultOfReturn(
  params: URLSearchParams,
  { expectedState, requestToken }: { expectedState: string; requestToken: Token | undefined },
): TokenFault | undefined {
  if (params.getAll('state').join() !== expectedState) return protocolFault('state_mismatch');
  const problem = params.get('oauth_problem');
  if (problem && problem !== 'user_refused' && problem !== 'permission_denied')
    return protocolFault(Object.hasOwn(problems, problem) ? problem : 'unknown_error');
  if (problem || params.has('denied') || !params.get('oauth_verifier'))
    return { kind: 'denied', error: problem || 'access_denied' };
  if (requestToken === undefined || params.getAll('oauth_token').join() !== requestToken.token)
    return protocolFault('token_mismatch');
  return undefined;
}

type Ask = {
  url: string;
  method: 'GET' | 'POST';
  token: Token | undefined;
  own: Readonly<Record<string, string>>;
  /** The meaning of a refusal without a known code. */
  refusal: 'client_misconfigured' | 'dead_grant';
};
type Answer =
  | { readonly ok: true; readonly token: Token; readonly raw: JsonObject }
  | { readonly ok: false; readonly fault: TokenFault };

/** Sends a signed request for credentials. The type of a response is not used: providers send forms as `text/html`. */
async function ask(
  context: OAuthContext & Network,
  { url, method, token, own, refusal }: Ask,
): Promise<Answer> {
  const { definition, client, fetch, signal, now } = context;
  const headers = {
    ...tokenParams(context, definition.api.headers),
    authorization: authorizationHeader({ definition, client, token, method, url, own, now }),
  };
  try {
    const { status, text, retryAfterMs } = await readAnswer(
      url,
      { method, headers },
      { fetch, signal, now, timeoutMs: context.timeoutMs ?? tokenSection(definition).timeout_ms },
    );
    const unreadable = (reason: UnreadableAnswerError['reason']) =>
      new UnreadableAnswerError(reason, {
        httpStatus: status,
        ...(retryAfterMs !== undefined && { retryAfterMs }),
      });
    if (status >= 300 && status < 400) throw unreadable('redirect');
    if (status >= 500) throw unreadable('server_error');
    if (isHtml(text, '')) throw unreadable('html');
    const raw = decode(text, '', 'form') ?? {};
    const sent = [client.clientSecret, token?.secret ?? '', ...Object.values(own)];
    const fault = refusalIn({ httpStatus: status, raw, retryAfterMs, sent }, { definition, refusal });
    if (fault !== undefined) return { ok: false, fault };
    const read = tokenSchema.safeParse(raw);
    if (!read.success)
      return { ok: false, fault: { ...protocolFault('invalid_answer'), httpStatus: status } };
    return { ok: true, token: { token: read.data.oauth_token, secret: read.data.oauth_token_secret }, raw };
  } catch (error) {
    if (error instanceof UnreadableAnswerError) return { ok: false, fault: faultOfSilence(error) };
    throw error;
  }
}

const tokenSchema = z.object({ oauth_token: tokenText, oauth_token_secret: tokenText });

type Seen = Parameters<typeof faultOfAnswer>[1];

function refusalIn(
  seen: Omit<Seen, 'error'>,
  { definition, refusal }: { definition: ProviderDefinition; refusal: Ask['refusal'] },
): TokenFault | undefined {
  const { answer, errors } = tokenSection(definition);
  const code =
    seen.raw.oauth_problem ?? (answer.error === undefined ? undefined : at(seen.raw, answer.error));
  const isCode = (typeof code === 'string' && code !== '') || typeof code === 'number';
  if (seen.httpStatus < 400 && !isCode) return undefined;
  const known = { ...problems, ...errors };
  const error = isCode ? String(code) : `status_${seen.httpStatus}`;
  const fault = faultOfAnswer(known, { ...seen, error });
  if (fault.kind !== 'protocol' || Object.hasOwn(known, error)) return fault;
  return [400, 401, 403].includes(seen.httpStatus) ? { ...fault, kind: refusal } : fault;
}
