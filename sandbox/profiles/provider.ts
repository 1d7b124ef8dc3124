/**
 * A provider on loopback that behaves like a profile: authorization, token, revocation and userinfo endpoint, and an
 * API. It has one account, `77`, which grants access. `https://host/path` of the real provider is
 * `/host/path` here.
 */
import { hash, type KeyObject } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { decodeProtectedHeader, jwtVerify } from 'jose';
import type { Profile } from './profile.ts';

type Endpoints = {
  authorization: string;
  token: string;
  refresh: string;
  revocation?: string | undefined;
  userinfo?: string | undefined;
  api: string;
};
type ProfileClient = {
  id: string;
  secret: string;
  redirectUri: string;
  /** The public key of `private_key_jwt`, with its ID and the accepted audience. */
  key?: { public: KeyObject; id: string; audience: string };
  /** The SHA-256 of the certificate of `tls_client_auth`, as Node writes it. */
  fingerprint?: string;
};
type Grant = {
  scopes: string[];
  access: Set<string>;
  refresh: string | undefined;
  /** The predecessor of `refresh`, if both are valid. */
  before?: string | undefined;
  isOffline: boolean;
};
type Call = { url: URL; request: IncomingMessage; form: URLSearchParams };
type Reply = { status: number; headers: Record<string, string>; text: string };

/** The lifetime of access tokens that expire, in seconds. */
const lifeS = 4321;
export const refreshLifeS = 98765;

/** Starts the provider. `now` is its clock. */
export async function startProfile(profile: Profile, given: Setting) {
  const provider = new ProfileProvider(profile, given);
  const { tls } = given;
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>)).toString();
    const url = new URL(`https:/${request.url}`);
    const isJson = request.headers['content-type']?.startsWith('application/json') === true;
    const fields = isJson ? (JSON.parse(body) as Record<string, unknown>) : undefined;
    const form = new URLSearchParams((fields as Record<string, string> | undefined) ?? body);
    const { status, headers, text } = await provider.answer({ url, request, form }, { fields });
    response.writeHead(status, headers).end(text);
  };
  const server = tls
    ? createTlsServer({ ...tls, requestCert: true, rejectUnauthorized: false }, serve)
    : createServer(serve);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    origin: `${tls ? 'https' : 'http'}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lifeS,
    /** Ends all grants, as a user does who withdraws the access. */
    endGrants: () => provider.endGrants(),
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
type Setting = {
  client: ProfileClient;
  endpoints: Endpoints;
  now: Date;
  /** The server's key and certificate; undefined: plain http. */
  tls?: { key: string; cert: string };
};

class ProfileProvider {
  readonly #profile: Profile;
  readonly #setting: Setting;
  readonly #codes = new Map<string, { grant: Grant; challenge: string | null }>();
  readonly #grants: Grant[] = [];
  readonly #assertions = new Set<string>();
  #made = 0;

  constructor(profile: Profile, setting: Setting) {
    this.#profile = profile;
    this.#setting = setting;
  }

  /** `fields` is a JSON body. */
  async answer(call: Call, { fields }: { fields: Record<string, unknown> | undefined }): Promise<Reply> {
    const { endpoints } = this.#setting;
    const isPost = call.request.method === 'POST';
    if (isAt(call, endpoints.authorization) && !isPost) return this.#authorize(call.url.searchParams);
    const isOfToken = [endpoints.token, endpoints.refresh, endpoints.revocation].some((one) =>
      isAt(call, one),
    );
    if (isPost && isOfToken) return this.#answerClient(call, fields);
    if (isAt(call, endpoints.userinfo)) {
      const bearer = call.request.headers.authorization?.replace(/^Bearer /, '');
      return this.#isLive(bearer) ? json(200, this.#profile.userinfo) : json(401, { error: 'invalid_token' });
    }
    const api = new URL(endpoints.api);
    if (call.url.host === api.host && call.url.pathname.startsWith(api.pathname)) {
      return this.#isLive(this.#placed(call))
        ? json(200, { account: '77' })
        : json(401, { error: 'no token' });
    }
    return json(404, { error: 'not_found' });
  }

  /** A request of the client at the endpoints for tokens, refreshes and revocation. */
  async #answerClient(call: Call, fields: Record<string, unknown> | undefined): Promise<Reply> {
    const { endpoints } = this.#setting;
    const { tokenRequest, endsBy, revocationAuth } = this.#profile;
    const isRevocation = isAt(call, endpoints.revocation);
    const isJson = fields !== undefined;
    if (isJson !== (tokenRequest === 'json')) return this.#refuse('invalid_request');
    // In JSON the parameter is a number.
    if (endsBy !== undefined && typeof fields?.[endsBy.param] === 'string')
      return this.#refuse('invalid_request');
    const needsClient = !(isRevocation && revocationAuth === 'none');
    if (needsClient && !(await this.#isClient(call))) return this.#refuse('invalid_client');
    if (isRevocation) return this.#revoke(call.form);
    if (call.form.get('grant_type') === 'refresh_token')
      return isAt(call, endpoints.refresh)
        ? this.#refresh(call.form)
        : this.#refuse('unsupported_grant_type');
    if (call.form.get('grant_type') === 'client_credentials') return this.#grantToClient(call.form);
    return isAt(call, endpoints.token) ? this.#exchange(call.form) : this.#refuse('unsupported_grant_type');
  }

  #authorize(query: URLSearchParams): Reply {
    const { clientIdIn, needs, needsChallenge, requestedScopes, offline, issuer, codeIn } = this.#profile;
    const { client } = this.#setting;
    const isOwn = query.get(clientIdIn) === client.id && query.get('redirect_uri') === client.redirectUri;
    if (!isOwn || query.get('response_type') !== 'code') return json(400, { error: 'invalid_request' });
    const back = new URL(client.redirectUri);
    back.searchParams.set('state', query.get('state') ?? '');
    if (issuer !== undefined) back.searchParams.set('iss', issuer);
    const challenge = query.get('code_challenge_method') === 'S256' ? query.get('code_challenge') : null;
    const refused = !holds(query, needs.authorization) || (needsChallenge && challenge === null);
    if (refused) back.searchParams.set('error', 'invalid_request');
    else {
      const scopes = (query.get(requestedScopes.param) ?? '')
        .split(requestedScopes.separator)
        .filter(Boolean);
      const isOffline =
        holds(query, offline.params) && (offline.scope === undefined || scopes.includes(offline.scope));
      const grant: Grant = { scopes, access: new Set(), refresh: undefined, isOffline };
      const code = this.#make('code');
      this.#codes.set(code, { grant, challenge });
      back.searchParams.set(codeIn, code);
    }
    return { status: 302, headers: { location: back.href }, text: '' };
  }

  #exchange(form: URLSearchParams): Reply {
    const pending = this.#codes.get(form.get('code') ?? '');
    this.#codes.delete(form.get('code') ?? '');
    const isSame =
      pending !== undefined &&
      form.get('redirect_uri') === this.#setting.client.redirectUri &&
      (pending.challenge === null || pending.challenge === challengeOf(form.get('code_verifier') ?? ''));
    if (form.get('grant_type') !== 'authorization_code' || !holds(form, this.#profile.needs.exchange))
      return this.#refuse('invalid_request');
    if (!isSame) return this.#refuse('invalid_grant');
    const { grant } = pending;
    this.#grants.push(grant);
    const hasEnd = this.#hasEnd(form, 'exchange');
    if (this.#profile.refresh !== 'none' && grant.isOffline && hasEnd) grant.refresh = this.#make('refresh');
    return this.#give(grant, { refreshToken: grant.refresh, isExchange: true, hasEnd });
  }

  /** RFC 6749 §4.4: a token without a refresh token. */
  #grantToClient(form: URLSearchParams): Reply {
    const scopes = (form.get('scope') ?? '').split(' ').filter(Boolean);
    const grant: Grant = { scopes, access: new Set(), refresh: undefined, isOffline: false };
    this.#grants.push(grant);
    return this.#give(grant, { refreshToken: undefined, isExchange: false, hasEnd: true });
  }

  #refresh(form: URLSearchParams): Reply {
    const used = form.get('refresh_token');
    const grant = this.#grants.find(
      ({ refresh, before }) => used !== null && (refresh === used || before === used),
    );
    if (!holds(form, this.#profile.needs.refresh)) return this.#refuse('invalid_request');
    if (grant === undefined) return this.#refuse(this.#profile.deadGrant);
    const hasEnd = this.#hasEnd(form, 'refresh');
    if (this.#profile.refresh === 'overlaps') grant.before = used ?? undefined;
    if (this.#profile.refresh === 'rotates' || this.#profile.refresh === 'overlaps')
      grant.refresh = hasEnd ? this.#make('refresh') : undefined;
    const refreshToken = this.#profile.refresh === 'silent' ? undefined : grant.refresh;
    return this.#give(grant, { refreshToken, isExchange: false, hasEnd });
  }

  #hasEnd(form: URLSearchParams, kind: 'exchange' | 'refresh'): boolean {
    const { endsBy } = this.#profile;
    return endsBy === undefined || !endsBy.in.includes(kind) || form.has(endsBy.param);
  }

  #give(
    grant: Grant,
    { hasEnd, ...given }: { refreshToken: string | undefined; isExchange: boolean; hasEnd: boolean },
  ): Reply {
    const accessToken = this.#make('access');
    grant.access = new Set([accessToken]);
    const { now } = this.#setting;
    const profile: Profile = hasEnd ? this.#profile : { ...this.#profile, life: 'absent' };
    return tokenReply(profile, { ...given, accessToken, scopes: grant.scopes, now });
  }

  #revoke(form: URLSearchParams): Reply {
    const token = form.get('token') ?? '';
    this.endGrants(({ refresh, access }) => refresh === token || access.has(token));
    return { status: 200, headers: {}, text: '' };
  }

  #refuse(error: string): Reply {
    return refusal(this.#profile, error);
  }

  endGrants(isEnded: (grant: Grant) => boolean = () => true): void {
    for (const grant of this.#grants.filter(isEnded)) {
      grant.access.clear();
      grant.refresh = undefined;
      grant.before = undefined;
    }
  }

  /** RFC 7523 §3: each assertion is accepted once. */
  async #isAsserted(form: URLSearchParams): Promise<boolean> {
    const { id, key } = this.#setting.client;
    const assertion = form.get('client_assertion') ?? '';
    const type = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';
    if (key === undefined || form.get('client_assertion_type') !== type || form.has('client_secret'))
      return false;
    try {
      const claims = { issuer: id, subject: id, audience: key.audience, maxTokenAge: 300 };
      const { payload } = await jwtVerify(assertion, key.public, {
        ...claims,
        requiredClaims: ['exp', 'jti'],
      });
      const isNew = !this.#assertions.has(payload.jti ?? '');
      this.#assertions.add(payload.jti ?? '');
      return isNew && decodeProtectedHeader(assertion).kid === key.id;
    } catch {
      return false;
    }
  }

  #isCertified({ request, form }: Call): boolean {
    const { id, fingerprint } = this.#setting.client;
    const certificate = (request.socket as TLSSocket).getPeerCertificate?.();
    return (
      fingerprint !== undefined &&
      certificate?.fingerprint256 === fingerprint &&
      form.get('client_id') === id &&
      !form.has('client_secret')
    );
  }

  async #isClient({ request, form, url }: Call): Promise<boolean> {
    const { clientAuth, clientIdIn } = this.#profile;
    const { id, secret } = this.#setting.client;
    const { authorization } = request.headers;
    if (clientAuth === 'private_key_jwt') return authorization === undefined && this.#isAsserted(form);
    if (clientAuth === 'tls_client_auth')
      return authorization === undefined && this.#isCertified({ request, form, url });
    if (clientAuth !== 'basic') {
      const isSecret =
        clientAuth === 'public' ? form.get('client_secret') === null : form.get('client_secret') === secret;
      return authorization === undefined && form.get(clientIdIn) === id && isSecret;
    }
    const [name = '', ...rest] = Buffer.from(authorization?.replace(/^Basic /, '') ?? '', 'base64')
      .toString()
      .split(':');
    // The ID is not decoded: many providers do not.
    return (
      name === id &&
      new URLSearchParams(`x=${rest.join(':')}`).get('x') === secret &&
      !form.has('client_secret')
    );
  }

  #placed({ url, request }: Call): string | undefined {
    const { token } = this.#profile;
    if ('query' in token) return url.searchParams.get(token.query) ?? undefined;
    if ('header' in token) return request.headers[token.header]?.toString();
    const { authorization = '' } = request.headers;
    return authorization.startsWith(`${token.scheme} `)
      ? authorization.slice(token.scheme.length + 1)
      : undefined;
  }

  #isLive(token: string | undefined): boolean {
    return token !== undefined && this.#grants.some(({ access }) => access.has(token));
  }

  #make(kind: string): string {
    this.#made += 1;
    return `${kind}-${this.#made}`;
  }
}

function holds(params: URLSearchParams, needed: Record<string, string> = {}): boolean {
  return Object.entries(needed).every(([name, value]) => params.get(name) === value);
}

function challengeOf(verifier: string): string {
  return hash('sha256', verifier, 'base64url');
}

function json(status: number, body: unknown): Reply {
  return { status, headers: { 'content-type': 'application/json' }, text: JSON.stringify(body) };
}

/** A response of the token endpoint in the provider's format. */
function tokenReply(
  profile: Profile,
  given: {
    accessToken: string;
    refreshToken: string | undefined;
    scopes: readonly string[];
    isExchange: boolean;
    now: Date;
  },
): Reply {
  const token = {
    access_token: given.accessToken,
    ...(profile.tokenType !== '' && { token_type: profile.tokenType }),
    ...(given.refreshToken !== undefined && {
      refresh_token: given.refreshToken,
      ...(profile.refreshLifeIn !== undefined && { [profile.refreshLifeIn]: refreshLifeS }),
    }),
    ...lifeOf(profile, given.now),
    ...scopesOf(
      profile,
      allowed(given.scopes).filter((scope) => scope !== profile.unnamedScope),
    ),
  };
  const isInside = profile.tokenIn !== undefined && given.isExchange;
  const body = {
    ...(profile.faults === 'in_200' && { ok: true }),
    ...(isInside ? { team: { id: 'T1' }, [profile.tokenIn ?? '']: { id: '77', ...token } } : token),
  };
  if (profile.answer === 'json') return json(200, body);
  const text = new URLSearchParams(body as unknown as Record<string, string>).toString();
  return { status: 200, headers: { 'content-type': 'text/plain' }, text };
}

/** An error response in the provider's format. */
function refusal(profile: Profile, error: string): Reply {
  if (profile.faults === 'in_200') return json(200, { ok: false, error });
  if (profile.faults === 'message') return json(400, { error: 'Bad Request', status: 400, message: error });
  return json(error === 'invalid_client' ? 401 : 400, { error });
}

function lifeOf({ life }: Profile, now: Date): Record<string, unknown> {
  const end = new Date(now.getTime() + lifeS * 1000);
  switch (life) {
    case 'expires_in':
      return { expires_in: lifeS };
    case 'text':
      return { expires_in: String(lifeS) };
    case 'expires':
      return { expires: lifeS };
    case 'date':
      return { expires_at: end.toISOString() };
    case 'unix':
      return { expires_at: end.getTime() / 1000 };
    case 'zero':
      return { expires_in: 0 };
    case 'absent':
      return {};
  }
}

function isAt({ url }: Call, endpoint: string | undefined): boolean {
  if (endpoint === undefined) return false;
  const { host, pathname, search } = new URL(endpoint);
  return host === url.host && pathname === url.pathname && url.search.startsWith(search);
}

/** The granted scopes: all requested ones except the last, if there are several. */
export function allowed(scopes: readonly string[]): readonly string[] {
  return scopes.length > 1 ? scopes.slice(0, -1) : scopes;
}

function scopesOf({ grantedScopes, grantedIn }: Profile, scopes: readonly string[]): Record<string, unknown> {
  switch (grantedScopes) {
    case 'space':
      return { [grantedIn]: scopes.join(' ') };
    case 'comma':
      return { [grantedIn]: scopes.join(',') };
    case 'list':
      return { [grantedIn]: scopes };
    case 'null':
      return { [grantedIn]: null };
    case 'empty':
      return { [grantedIn]: '' };
    case 'absent':
      return {};
  }
}
