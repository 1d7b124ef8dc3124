/**
 * A provider of OAuth 1.0a on loopback: temporary credentials, a page that decides at once, token credentials, and an API.
 * It verifies each signature by RFC 5849 §3.4, with code of its own. `https://host/path` of a real provider is
 * `/host/path` here. It has one account, `77`.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

/** How providers differ. */
export type Habits = {
  signatureMethod: 'HMAC-SHA1' | 'HMAC-SHA256' | 'PLAINTEXT';
  /** The method of the requests for temporary and for token credentials. */
  methods: { request: 'GET' | 'POST'; token: 'GET' | 'POST' };
  /** The form of a refusal: that of "OAuth Problem Reporting", the JSON of X, or a text. */
  refusals: 'problem' | 'json' | 'text';
  /** What the callback has if the user refuses. */
  denial: 'denied' | 'empty verifier' | 'problem';
};
export const usual: Habits = {
  signatureMethod: 'HMAC-SHA1',
  methods: { request: 'POST', token: 'POST' },
  refusals: 'problem',
  denial: 'denied',
};

type Setting = {
  client: { key: string; secret: string };
  /** The start of each callback address that the client may use. */
  callback: string;
  /** Addresses, such as `https://host/path`; those of the server itself as paths. */
  endpoints: { request: string; authorization: string; token: string };
  now: () => Date;
  habits?: Partial<Habits>;
  /** Called with each secret before it is issued. */
  onSecret?: (secret: string) => void;
};
/** An answer of the endpoints for credentials that is no answer. */
type Damage = 'html' | 'error 500' | 'silence' | 'too large' | 'no confirmation' | 'no secret';
type Parameter = readonly [name: string, value: string];
type Signed = { method: string; url: string; parameters: readonly Parameter[] };
type Reply = { status: number; text: string; location?: string; isJson?: true };
type Temporary = { secret: string; callback: string; expiresAt: number; verifier?: string };

const temporaryLifeMs = 5 * 60_000;
const maxSkewS = 300;
const usedSecret = 'of-a-request-that-has-none';

/** A signature (RFC 5849 §3.4). `secrets` are those of client and token. */
export function signatureOf(
  { method, url, parameters }: Signed,
  { name, secrets }: { name: Habits['signatureMethod']; secrets: readonly [string, string] },
): string {
  const key = secrets.map(encoded).join('&');
  if (name === 'PLAINTEXT') return key;
  const normalized = parameters
    .map(([field, value]) => [encoded(field), encoded(value)] as const)
    .sort(([a, b], [c, d]) => (a === c ? order(b, d) : order(a, c)))
    .map((pair) => pair.join('='))
    .join('&');
  const { origin, pathname } = new URL(url);
  const base = [method.toUpperCase(), origin + pathname, normalized].map(encoded).join('&');
  return createHmac(name === 'HMAC-SHA1' ? 'sha1' : 'sha256', key)
    .update(base)
    .digest('base64');
}

const order = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);
/** RFC 5849 §3.6. */
const encoded = (text: string) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);

export async function startOAuth1(setting: Setting) {
  const provider = new OAuth1Provider(setting);
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>)).toString();
    const reply = provider.answer(request, body);
    // The client gives up.
    if (reply === undefined) return;
    const { status, text, location, isJson } = reply;
    const headers = {
      // As X and others label their forms.
      'content-type': isJson ? 'application/json' : 'text/html; charset=utf-8',
      ...(location !== undefined && { location }),
    };
    response.writeHead(status, headers).end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    provider,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export class OAuth1Provider {
  /** What the user decides. */
  decision: 'allows' | 'refuses' = 'allows';
  /** For the next request for credentials. */
  damage: Damage | undefined;
  readonly #setting: Setting;
  readonly #habits: Habits;
  readonly #nonces = new Set<string>();
  readonly #temporary = new Map<string, Temporary>();
  readonly #tokens = new Map<string, string>();

  constructor(setting: Setting) {
    this.#setting = setting;
    this.#habits = { ...usual, ...setting.habits };
  }

  /** A token as if a user had granted it. */
  issue(): { token: string; secret: string } {
    const token = randomBytes(12).toString('hex');
    const secret = randomBytes(16).toString('base64');
    this.#setting.onSecret?.(secret);
    this.#tokens.set(token, secret);
    return { token, secret };
  }

  /** As a user does who withdraws the access. */
  revokeAll(): void {
    this.#tokens.clear();
  }

  /** Undefined: there is none. */
  answer(request: IncomingMessage, body: string): Reply | undefined {
    const url = addressOf(request);
    const { request: forTemporary, authorization, token: forToken } = this.#setting.endpoints;
    const isAt = (endpoint: string) => url.href.split('?', 1)[0]?.endsWith(endpoint.replace(/^https?:/, ''));
    if (isAt(authorization)) return this.#authorize(url);
    const { methods } = this.#habits;
    if (isAt(forTemporary))
      return this.#damaged(this.#request(request, { url, body, method: methods.request }));
    if (isAt(forToken)) return this.#damaged(this.#exchange(request, { url, body, method: methods.token }));
    return this.#call(request, { url, body });
  }

  #request(request: IncomingMessage, call: { url: URL; body: string; method: string }): Reply {
    const own = this.#verify(request, { ...call, secretOf: (token) => (token === '' ? '' : undefined) });
    if (!(own instanceof Map)) return own;
    const callback = own.get('oauth_callback') ?? '';
    if (!callback.startsWith(this.#setting.callback)) return this.#refuse('parameter_rejected', 400);
    const token = randomBytes(12).toString('hex');
    const secret = randomBytes(16).toString('base64');
    this.#setting.onSecret?.(secret);
    this.#temporary.set(token, { secret, callback, expiresAt: this.#now() + temporaryLifeMs });
    return form({ oauth_token: token, oauth_token_secret: secret, oauth_callback_confirmed: 'true' });
  }

  #authorize(url: URL): Reply {
    const token = url.searchParams.get('oauth_token') ?? '';
    const temporary = this.#temporary.get(token);
    if (temporary === undefined || temporary.expiresAt <= this.#now() || temporary.verifier !== undefined)
      return { status: 401, text: '<html><p>This request is not valid.</p></html>' };
    const back = new URL(temporary.callback);
    const state = url.searchParams.get('state');
    if (state !== null) back.searchParams.set('state', state);
    temporary.verifier = randomBytes(10).toString('hex');
    const { denial } = this.#habits;
    if (this.decision === 'allows') {
      back.searchParams.set('oauth_token', token);
      back.searchParams.set('oauth_verifier', temporary.verifier);
    } else if (denial === 'denied') back.searchParams.set('denied', token);
    else if (denial === 'problem') back.searchParams.set('oauth_problem', 'user_refused');
    else {
      back.searchParams.set('oauth_token', token);
      back.searchParams.set('oauth_verifier', '');
    }
    if (this.decision === 'refuses') this.#temporary.delete(token);
    return { status: 302, text: '', location: back.href };
  }

  #exchange(request: IncomingMessage, call: { url: URL; body: string; method: string }): Reply {
    const own = this.#verify(request, { ...call, secretOf: (token) => this.#temporary.get(token)?.secret });
    if (!(own instanceof Map)) return own;
    const token = own.get('oauth_token') ?? '';
    const { expiresAt = 0, verifier } = this.#temporary.get(token) ?? {};
    // Single use, whatever the verifier.
    this.#temporary.delete(token);
    if (expiresAt <= this.#now()) return this.#refuse('token_expired');
    if (own.get('oauth_verifier') !== verifier) return this.#refuse('verifier_invalid');
    const issued = this.issue();
    return form({ oauth_token: issued.token, oauth_token_secret: issued.secret, user_id: '77' });
  }

  #call(request: IncomingMessage, { url, body }: { url: URL; body: string }): Reply {
    const method = request.method ?? '';
    const own = this.#verify(request, { url, body, method, secretOf: (token) => this.#tokens.get(token) });
    if (!(own instanceof Map)) return own;
    const account = { id: '77', id_str: '77', email: 'account-77@example.com', fullName: 'Account 77' };
    return {
      status: 200,
      isJson: true,
      text: JSON.stringify({
        ...account,
        method,
        path: url.pathname + url.search,
        bytes: Buffer.byteLength(body),
        nonce: own.get('oauth_nonce'),
        response: { user: { name: '77' } },
        Response: { User: { NickName: '77', Name: 'Account 77' } },
      }),
    };
  }

  /** The parameters of the protocol if the request is signed by the client, and by the token that it names. */
  #verify(
    request: IncomingMessage,
    given: { url: URL; body: string; method: string; secretOf: (token: string) => string | undefined },
  ): Map<string, string> | Reply {
    const { url, body, method, secretOf } = given;
    const { client } = this.#setting;
    if (request.method !== method) return { status: 405, text: 'Method not allowed' };
    const [, fields = ''] = /^OAuth (.*)$/.exec(request.headers.authorization ?? '') ?? [];
    const own = fields.split(/, ?/).map((field): Parameter => {
      const [, name = '', value = ''] = /^([^=]+)="([^"]*)"$/.exec(field) ?? [];
      return [decodeURIComponent(name), decodeURIComponent(value)];
    });
    const protocol = new Map(own);
    const text = (name: string) => protocol.get(name) ?? '';
    const isForm = /^application\/x-www-form-urlencoded/.test(request.headers['content-type'] ?? '');
    const parameters = [...own, ...url.searchParams, ...(isForm ? new URLSearchParams(body) : [])].filter(
      ([name]) => name !== 'oauth_signature' && name !== 'realm',
    );
    const names = parameters.map(([name]) => name).filter((name) => name.startsWith('oauth_'));
    if (new Set(names).size < names.length || protocol.size < own.length)
      return this.#refuse('parameter_rejected', 400);
    const { signatureMethod: name } = this.#habits;
    if (text('oauth_signature_method') !== name) return this.#refuse('signature_method_rejected', 400);
    if (text('oauth_consumer_key') !== client.key) return this.#refuse('consumer_key_unknown');
    const secret = secretOf(text('oauth_token'));
    const secrets = [client.secret, secret ?? usedSecret] as const;
    const expected = signatureOf({ method, url: url.href, parameters }, { name, secrets });
    if (secret === undefined) return this.#refuse('token_rejected');
    if (!isSame(expected, text('oauth_signature'))) return this.#refuse('signature_invalid');
    const timestamp = Number(text('oauth_timestamp'));
    if (!(Math.abs(this.#now() / 1000 - timestamp) <= maxSkewS)) return this.#refuse('timestamp_refused');
    const use = ['oauth_timestamp', 'oauth_nonce', 'oauth_token'].map(text).join(' ');
    if (text('oauth_nonce') === '' || this.#nonces.has(use)) return this.#refuse('nonce_used');
    this.#nonces.add(use);
    return protocol;
  }

  #refuse(problem: string, status = 401): Reply {
    switch (this.#habits.refusals) {
      case 'problem':
        return { ...form({ oauth_problem: problem }), status };
      case 'json': {
        const text = JSON.stringify({ errors: [{ code: 32, message: 'Could not authenticate you.' }] });
        return { status, isJson: true, text };
      }
      case 'text':
        return { status, text: 'invalid token' };
    }
  }

  #damaged(reply: Reply): Reply | undefined {
    const { damage } = this;
    this.damage = undefined;
    switch (damage) {
      case undefined:
        return reply;
      case 'html':
        return { status: 200, text: '<!doctype html><html><p>Down for maintenance</p></html>' };
      case 'error 500':
        return { status: 500, text: 'oauth_problem=internal' };
      case 'silence':
        return undefined;
      case 'too large':
        return { status: 200, text: `oauth_token=${'x'.repeat(2 * 1024 * 1024)}` };
      case 'no confirmation':
        return {
          ...reply,
          text: reply.text.replace('oauth_callback_confirmed=true', 'oauth_callback_confirmed=false'),
        };
      case 'no secret':
        return { ...reply, text: reply.text.replace('oauth_token_secret', 'secret') };
    }
  }

  #now(): number {
    return this.#setting.now().getTime();
  }
}

/** The address as the client wrote it: one of a real provider stands in the path. */
function addressOf({ url = '', headers }: IncomingMessage): URL {
  return new URL(/^\/[\w-]+(\.[\w-]+)+\//.test(url) ? `https:/${url}` : `http://${headers.host}${url}`);
}

function form(fields: Record<string, string>): Reply {
  return { status: 200, text: new URLSearchParams(fields).toString() };
}

function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
