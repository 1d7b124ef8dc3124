import { createHmac } from 'node:crypto';
import { scopesOfRole } from '../../server/http/auth/caller.ts';
import { openCookieJar } from './cookie-jar.ts';
import type { Answer, TestTrellis } from './trellis.ts';

type Asked = {
  body?: unknown;
  /** The header that lets a cookie count; `*` unless given, undefined for none. */
  environment?: string | undefined;
  headers?: Record<string, string | undefined>;
};

/** Somebody at a browser of their own, on a page of the service. */
export type TestPerson = {
  /** What the page sends: with the cookies, Origin and Sec-Fetch-Site as a browser has them. */
  call(method: string, path: string, asked?: Asked): Promise<Answer>;
  /** As `call`, below /api/auth. */
  auth(method: string, path: string, body?: unknown): Promise<Answer>;
  signIn(email: string, password: string): Promise<Answer>;
  /** The header Cookie as it would be sent. */
  cookie(): string;
};

export const password = 'correct horse battery';
/** What the watch for secrets goes by: nobody's role lets do more. */
const scopes = [...scopesOfRole('owner')];
let people = 0;

/**
 * A browser without cookies. Each has an address of its own, so that limits on one do not meet another, where the service
 * was opened with `fromAnywhere`.
 */
export function openPerson({ baseUrl, watch }: Pick<TestTrellis, 'baseUrl' | 'watch'>): TestPerson {
  const jar = openCookieJar();
  people += 1;
  const address = `203.0.113.${people % 250}`;

  async function call(method: string, path: string, asked: Asked = {}): Promise<Answer> {
    const { body, headers = {} } = asked;
    const environment = 'environment' in asked ? asked.environment : '*';
    const url = baseUrl + path;
    const sent: Record<string, string | undefined> = {
      cookie: jar.headerFor(url) || undefined,
      'x-forwarded-for': address,
      'x-trellis-environment': environment,
      'sec-fetch-site': 'same-origin',
      origin: method === 'GET' ? undefined : baseUrl,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    };
    const response = await fetch(url, {
      method,
      redirect: 'manual',
      headers: Object.entries(sent).filter((pair): pair is [string, string] => pair[1] !== undefined),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    jar.receive(url, response.headers.getSetCookie());
    watch.answered(`${method} ${path}`, {
      status: response.status,
      text,
      headers: response.headers,
      sent: body,
      scopes,
    });
    const isJson = response.headers.get('content-type')?.startsWith('application/json') && text !== '';
    const { status, headers: answered } = response;
    return { status, headers: answered, text, body: (isJson && JSON.parse(text)) || {} };
  }
  const auth: TestPerson['auth'] = (method, path, body) =>
    call(method, `/api/auth${path}`, { ...(body !== undefined && { body }), environment: undefined });
  return {
    call,
    auth,
    signIn: (email, password) => auth('POST', '/sign-in/email', { email, password }),
    cookie: () => jar.headerFor(`${baseUrl}/`),
  };
}

/** Settings under which every test browser has an address of its own. */
export const fromAnywhere = { TRELLIS_TRUSTED_PROXIES: '127.0.0.0/8' };

/** What stands behind the # of a link. */
export function tokenIn(link: string): string {
  return new URL(link).hash.slice(1);
}

/** The code that an authenticator shows (RFC 6238, SHA-1, 30 s, 6 digits); `secret` in Base32 as in the otpauth address. */
export function totpCode(secret: string, at: Date): string {
  const bits = Array.from(secret.replace(/=+$/, ''), (letter) =>
    'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0'),
  ).join('');
  const key = Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(at.getTime() / 30_000)));
  const digest = createHmac('sha1', key).update(counter).digest();
  const offset = digest[19]! & 15;
  return String((digest.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, '0');
}
