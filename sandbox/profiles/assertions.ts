/**
 * Providers on loopback that take signed assertions (RFC 7519), with the checks and errors of the real ones. They know the
 * keys that a test registers. `https://host/path` of the real provider is `/host/path` here.
 */
import { type KeyObject, randomBytes } from 'node:crypto';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  decodeJwt,
  decodeProtectedHeader,
  errors,
  type JWTPayload,
  type JWTVerifyResult,
  jwtVerify,
} from 'jose';

/** A key that a provider knows, public or secret. */
export type KnownKey = {
  provider: keyof typeof providers;
  issuer?: string;
  keyId?: string;
  key: KeyObject;
  /** Users, installations and enterprises for which the key may be used. */
  subjects?: string[];
  clientSecret?: string;
  suspended?: string[];
};
type Call = { host: string; path: string; headers: IncomingHttpHeaders; body: string };
type Reply = { status: number; body: unknown };
type Rules = {
  host: RegExp;
  algorithm: string;
  audience?: string;
  maxLifeS: number;
  /** Undefined: not a call of the token endpoint. */
  token?: (call: Call, provider: Assertions) => Promise<Reply> | undefined;
  /** The scheme of the API's tokens. */
  scheme: string;
  unauthorized: unknown;
};

const refusal = (status: number, error: string, error_description: string): Reply => ({
  status,
  body: { error, error_description },
});
const ofGithub = (status: number, message: string): Reply => ({
  status,
  body: { message, documentation_url: 'https://docs.github.com/rest', status: String(status) },
});

const providers = {
  google: {
    host: /^(oauth2|www|sheets)\.googleapis\.com$/,
    algorithm: 'RS256',
    audience: 'https://oauth2.googleapis.com/token',
    maxLifeS: 3600,
    scheme: 'Bearer',
    unauthorized: { error: { code: 401, status: 'UNAUTHENTICATED' } },
    token: (call, provider) =>
      grant(call, provider, 'oauth2.googleapis.com/token', {
        unknown: refusal(400, 'invalid_grant', 'Invalid grant: account not found'),
        signature: refusal(400, 'invalid_grant', 'Invalid JWT Signature.'),
        life: refusal(
          400,
          'invalid_grant',
          'Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim.',
        ),
        audience: refusal(400, 'invalid_grant', 'Invalid JWT: Failed audience check.'),
        subject: refusal(
          401,
          'unauthorized_client',
          'Client is unauthorized to retrieve access tokens using this method, or client not authorized for any of the scopes requested.',
        ),
        accept: ({ scope }) =>
          scope === undefined
            ? refusal(400, 'invalid_scope', 'Invalid OAuth scope or ID token audience provided.')
            : { status: 200, body: { expires_in: 3599, token_type: 'Bearer' } },
      }),
  },
  github: {
    host: /^api\.github\.com$/,
    algorithm: 'RS256',
    maxLifeS: 600,
    scheme: 'Bearer',
    unauthorized: { message: 'Bad credentials', status: '401' },
    token: (call, provider) => {
      const [, id] = /^\/app\/installations\/([^/]+)\/access_tokens$/.exec(call.path) ?? [];
      return id === undefined ? undefined : installationToken(call, provider, id);
    },
  },
  salesforce: {
    host: /\.my\.salesforce\.com$/,
    algorithm: 'RS256',
    audience: 'https://login.salesforce.com',
    maxLifeS: 180,
    scheme: 'Bearer',
    unauthorized: [{ errorCode: 'INVALID_SESSION_ID', message: 'Session expired or invalid' }],
    token: (call, provider) =>
      grant(call, provider, `${call.host}/services/oauth2/token`, {
        unknown: refusal(400, 'invalid_client_id', 'client identifier invalid'),
        signature: refusal(400, 'invalid_grant', 'invalid assertion'),
        life: refusal(400, 'invalid_grant', 'expired authorization code'),
        audience: refusal(400, 'invalid_grant', 'audience is invalid'),
        subject: refusal(400, 'invalid_grant', "user hasn't approved this consumer"),
        accept: () => ({
          status: 200,
          body: { scope: 'api', instance_url: 'https://acme.my.salesforce.com', token_type: 'Bearer' },
        }),
      }),
  },
  box: {
    host: /^api\.box\.com$/,
    algorithm: 'RS512',
    audience: 'https://api.box.com/oauth2/token',
    maxLifeS: 60,
    scheme: 'Bearer',
    unauthorized: { code: 'unauthorized' },
    token: (call, provider) =>
      grant(call, provider, 'api.box.com/oauth2/token', {
        unknown: refusal(400, 'invalid_client', 'The client credentials are invalid'),
        signature: refusal(400, 'invalid_grant', "Please check the 'kid' and signature."),
        life: refusal(400, 'invalid_grant', "Please check the 'exp' claim."),
        audience: refusal(400, 'invalid_grant', "Please check the 'aud' claim."),
        subject: refusal(400, 'invalid_grant', "Please check the 'sub' claim."),
        accept: ({ box_sub_type, jti = '' }) =>
          box_sub_type !== 'enterprise' || jti.length < 16
            ? refusal(400, 'invalid_grant', "Please check the 'jti' claim.")
            : { status: 200, body: { expires_in: 4169, restricted_to: [], token_type: 'bearer' } },
      }),
  },
  docusign: {
    host: /^account\.docusign\.com$|\.docusign\.net$/,
    algorithm: 'RS256',
    audience: 'account.docusign.com',
    maxLifeS: 3600,
    scheme: 'Bearer',
    unauthorized: { errorCode: 'AUTHORIZATION_INVALID_TOKEN' },
    token: (call, provider) =>
      grant(call, provider, 'account.docusign.com/oauth/token', {
        unknown: refusal(400, 'invalid_grant', 'issuer_not_found'),
        signature: refusal(400, 'invalid_grant', 'no_valid_keys_or_signatures'),
        life: refusal(400, 'invalid_grant', 'expired_token'),
        audience: refusal(400, 'invalid_grant', 'invalid_audience'),
        subject: { status: 400, body: { error: 'consent_required' } },
        accept: () => ({ status: 200, body: { expires_in: 3600, token_type: 'Bearer', scope: 'signature' } }),
      }),
  },
  snowflake: {
    host: /\.snowflakecomputing\.com$/,
    algorithm: 'RS256',
    maxLifeS: 3600,
    scheme: 'Bearer',
    unauthorized: { code: '390144', message: 'JWT token is invalid.' },
  },
  apple: {
    host: /^api\.appstoreconnect\.apple\.com$/,
    algorithm: 'ES256',
    audience: 'appstoreconnect-v1',
    maxLifeS: 1200,
    scheme: 'Bearer',
    unauthorized: { errors: [{ status: '401', code: 'NOT_AUTHORIZED' }] },
  },
  ghost: {
    host: /\.ghost\.io$/,
    algorithm: 'HS256',
    audience: '/admin/',
    maxLifeS: 300,
    scheme: 'Ghost',
    unauthorized: { errors: [{ message: 'Invalid token', type: 'UnauthorizedError' }] },
  },
} satisfies Record<string, Rules>;

/** Starts the providers. `now` is their clock. */
export async function startAssertions({ now }: { now: () => Date }) {
  const assertions = new Assertions(now);
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>)).toString();
    const [, host = '', path = ''] = /^\/([^/]+)([^?]*)/.exec(request.url ?? '') ?? [];
    const reply = await assertions.answer({ host, path, headers: request.headers, body });
    response.writeHead(reply.status, { 'content-type': 'application/json' }).end(JSON.stringify(reply.body));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    assertions,
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export class Assertions {
  /** The keys that the providers know; a test adds and removes them. */
  readonly keys: KnownKey[] = [];
  /** The claims of each accepted assertion of a token request, the newest last. */
  readonly granted: JWTPayload[] = [];
  /** The bodies of the requests for a GitHub token, the newest last. */
  readonly wanted: unknown[] = [];
  readonly #tokens = new Map<string, { provider: string; expiresAt: number }>();
  readonly #now: () => Date;
  running = 0;
  mostAtOnce = 0;

  constructor(now: () => Date) {
    this.#now = now;
  }

  async answer(call: Call): Promise<Reply> {
    const found = Object.entries(providers).find(([, { host }]) => host.test(call.host.toLowerCase()));
    if (found === undefined) return { status: 404, body: { error: 'no provider' } };
    const [provider, rules] = found as [KnownKey['provider'], Rules];
    const reply = rules.token?.(call, this);
    if (reply !== undefined) return this.#counted(reply);
    const [scheme, token = ''] = (call.headers.authorization ?? '').split(' ');
    const isOpen = scheme === rules.scheme && (await this.#opens(call, { provider, rules, token }));
    if (!isOpen) return { status: 401, body: rules.unauthorized };
    return { status: 200, body: { provider, path: call.path, at: this.#now().toISOString() } };
  }

  async #counted(reply: Promise<Reply>): Promise<Reply> {
    this.running += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.running);
    const settled = await reply;
    this.running -= 1;
    return settled;
  }

  async #opens(
    { headers }: Call,
    { provider, rules, token }: { provider: KnownKey['provider']; rules: Rules; token: string },
  ): Promise<boolean> {
    if (rules.token !== undefined) {
      const known = this.#tokens.get(token);
      return known?.provider === provider && known.expiresAt > this.#now().getTime();
    }
    if (provider === 'snowflake' && headers['x-snowflake-authorization-token-type'] !== 'KEYPAIR_JWT')
      return false;
    const verdict = await this.verify(provider, token);
    return verdict.kind === 'accepted';
  }

  /** Ends all tokens of a provider, as when a key or an app is removed there. */
  endTokens(provider: KnownKey['provider']): void {
    for (const [token, of] of this.#tokens) if (of.provider === provider) this.#tokens.delete(token);
  }

  issue(provider: KnownKey['provider'], lifeS: number): { token: string; expiresAt: Date } {
    const token = `${provider}-${randomBytes(24).toString('hex')}`;
    const expiresAt = new Date(this.#now().getTime() + lifeS * 1000);
    this.#tokens.set(token, { provider, expiresAt: expiresAt.getTime() });
    return { token, expiresAt };
  }

  /** Finds the key of an assertion by its `kid`, else its `iss`, and checks signature, audience and life. */
  async verify(provider: KnownKey['provider'], assertion: string): Promise<Verdict> {
    const { algorithm, audience, maxLifeS }: Rules = providers[provider];
    let named: { iss?: string | undefined; kid?: string | undefined };
    try {
      named = { iss: decodeJwt(assertion).iss, kid: decodeProtectedHeader(assertion).kid };
    } catch {
      return { kind: 'malformed' };
    }
    const known = this.keys.find(
      (key) =>
        key.provider === provider &&
        (key.issuer === undefined || key.issuer === named.iss) &&
        (key.keyId === undefined || key.keyId === named.kid),
    );
    if (known === undefined) return { kind: 'unknown' };
    let verified: JWTVerifyResult;
    try {
      verified = await jwtVerify(assertion, known.key, {
        algorithms: [algorithm],
        currentDate: this.#now(),
        ...(audience !== undefined && { audience }),
      });
    } catch (error) {
      if (error instanceof errors.JWTExpired) return { kind: 'life' };
      return { kind: error instanceof errors.JWTClaimValidationFailed ? 'audience' : 'signature' };
    }
    const { iat, exp } = verified.payload;
    const isShort = iat !== undefined && exp !== undefined && exp - iat <= maxLifeS;
    // The clocks of the test and of the service are one.
    const isNow = iat !== undefined && iat <= this.#now().getTime() / 1000 + 5;
    return isShort && isNow ? { kind: 'accepted', claims: verified.payload, known } : { kind: 'life' };
  }
}

type Verdict =
  | { kind: 'accepted'; claims: JWTPayload; known: KnownKey }
  | { kind: 'malformed' | 'unknown' | 'signature' | 'audience' | 'life' };

type Answers = Record<'unknown' | 'signature' | 'life' | 'audience' | 'subject', Reply> & {
  accept: (
    claims: JWTPayload & Record<string, string>,
  ) => { status: number; body: Record<string, unknown> } | Reply;
};

/** RFC 7523 §2.1; undefined for another address. */
function grant(
  { host, path, body, headers }: Call,
  provider: Assertions,
  endpoint: string,
  answers: Answers,
): Promise<Reply> | undefined {
  if (`${host}${path}` !== endpoint) return undefined;
  const answer = async (): Promise<Reply> => {
    const form = new URLSearchParams(body);
    const isForm = headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
    if (!isForm || form.get('grant_type') !== 'urn:ietf:params:oauth:grant-type:jwt-bearer')
      return refusal(400, 'unsupported_grant_type', `Invalid grant_type: ${form.get('grant_type')}`);
    const [name] = Object.entries(providers).find(([, rules]) => rules.host.test(host.toLowerCase()))!;
    const verdict = await provider.verify(name as KnownKey['provider'], form.get('assertion') ?? '');
    if (verdict.kind === 'malformed') return answers.signature;
    if (verdict.kind !== 'accepted') return answers[verdict.kind];
    const { claims, known } = verdict;
    if (known.clientSecret !== undefined) {
      const isClient =
        form.get('client_id') === known.issuer && form.get('client_secret') === known.clientSecret;
      if (!isClient) return answers.unknown;
    }
    if (claims.sub !== undefined && known.subjects?.includes(claims.sub) !== true) return answers.subject;
    const accepted = answers.accept(claims as JWTPayload & Record<string, string>);
    if (accepted.status !== 200) return accepted;
    provider.granted.push(claims);
    const fields = accepted.body as { expires_in?: number };
    const { token } = provider.issue(name as KnownKey['provider'], fields.expires_in ?? 7200);
    return { status: 200, body: { access_token: token, ...fields } };
  };
  return answer();
}

async function installationToken({ headers, body }: Call, provider: Assertions, id: string): Promise<Reply> {
  const assertion = /^Bearer (.+)$/.exec(headers.authorization ?? '')?.[1] ?? '';
  const verdict = await provider.verify('github', assertion);
  if (verdict.kind === 'unknown') return ofGithub(404, 'Integration not found');
  if (verdict.kind === 'life')
    return ofGithub(401, "'Expiration time' claim ('exp') is too far in the future");
  if (verdict.kind !== 'accepted') return ofGithub(401, 'A JSON web token could not be decoded');
  const { known, claims } = verdict;
  if (known.suspended?.includes(id)) return ofGithub(403, 'This installation has been suspended');
  if (!known.subjects?.includes(id)) return ofGithub(404, 'Not Found');
  provider.granted.push(claims);
  provider.wanted.push(body === '' ? {} : JSON.parse(body));
  const { token, expiresAt } = provider.issue('github', 3600);
  return {
    status: 201,
    body: {
      token,
      expires_at: expiresAt.toISOString().replace(/\.\d+/, ''),
      permissions: { metadata: 'read' },
      repository_selection: 'all',
    },
  };
}
