import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Brand } from '../brand.ts';
import { hashOf } from './sessions.ts';

/** The lifetime of a cookie: a session that is begun just before it expires, and the authorization. */
const lifeS = 60 * 60;
/** The limit of cookies in a browser. A further session removes the oldest. */
const max = 20;

/**
 * The identity of a browser between the beginning of an authorization and its callback: a secret in a cookie, one for
 * each session that it begins.
 *
 * Owns: the cookies and their names. Does not own: the session of a secret (`sessions.ts`, `attempts.ts`).
 *
 * A secret is created for a session and never accepted from a browser, since an attacker may have set it: an attacker
 * with the secret of another browser could end its attempts, or have an attempt of the attacker end in it. With
 * https, no other site can set the cookie: a browser accepts a cookie with the prefix `__Host-` only from that host,
 * over a secure connection (RFC 6265bis §4.1.3.2). With plain http, meant for loopback, any program on that host can.
 */
export function createBrowserCookies({ brand, baseUrl }: { brand: Brand; baseUrl: string }) {
  const isSecure = new URL(baseUrl).protocol === 'https:';
  const prefix = `${isSecure ? '__Host-' : ''}${brand.word}_connect_`;
  const settings = { path: '/', httpOnly: true, sameSite: 'lax', secure: isSecure } as const;
  const nameOf = (secret: string) => prefix + hashOf(`name of ${secret}`).toString('hex').slice(0, 16);
  const isId = (text: string) => /^[0-9a-f]{16}$/.test(text);
  /** Our cookies, the oldest first, as browsers send them (RFC 6265 §5.4). */
  const shown = ({ cookies }: FastifyRequest) =>
    Object.entries(cookies).filter(([name]) => name.startsWith(prefix) && isId(name.slice(prefix.length)));

  return {
    /** The secrets that the browser presents. Any of them may be forged. */
    read(request: FastifyRequest): string[] {
      return shown(request).flatMap(([, secret]) => (secret === undefined ? [] : [secret]));
    },

    /** Sets the cookie of another secret. */
    set(reply: FastifyReply, secret: string): void {
      const name = nameOf(secret);
      reply.setCookie(name, secret, { ...settings, maxAge: lifeS });
      const others = shown(reply.request).filter(([other]) => other !== name);
      for (const [other] of others.slice(0, Math.max(0, others.length - (max - 1)))) {
        reply.clearCookie(other, settings);
      }
    },
  };
}

/** 256 bits of randomness. */
export function newBrowserSecret(): string {
  return randomBytes(32).toString('base64url');
}

/** The presented secret with this hash, if there is one. */
export function findSecret(secrets: readonly string[], hash: Buffer): string | undefined {
  return secrets.find((secret) => timingSafeEqual(hashOf(secret), hash));
}
