import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Brand } from '../brand.ts';
import { hashOf } from './sessions.ts';

/** How long a browser may be on its way: a session that is begun at its end, and the trip. */
const lifeS = 60 * 60;
/** How many sessions a browser may have begun. One more, and the oldest is forgotten. */
const max = 20;

/**
 * What a browser is known by between the beginning of a trip and its end: a secret in a cookie, one for each session
 * that it begins.
 *
 * Owns: the cookies and their names. Does not own: which session a secret belongs to (`sessions.ts`, `attempts.ts`).
 *
 * A secret is made for a session and never taken over from a browser, since an attacker may have put it there: an attacker
 * who knows the secret of another browser could end its attempts, or have his own attempt ended in it. With https no
 * other site can set the cookie: a browser takes a cookie called `__Host-` only from that host, over a secure connection
 * (RFC 6265bis §4.1.3.2). With plain http, meant for loopback, any program on that host can.
 */
export function createBrowserCookies({ brand, baseUrl }: { brand: Brand; baseUrl: string }) {
  const isSecure = new URL(baseUrl).protocol === 'https:';
  const prefix = `${isSecure ? '__Host-' : ''}${brand.word}_connect_`;
  const settings = { path: '/', httpOnly: true, sameSite: 'lax', secure: isSecure } as const;
  const nameOf = (secret: string) => prefix + hashOf(`name of ${secret}`).toString('hex').slice(0, 16);
  const isId = (text: string) => /^[0-9a-f]{16}$/.test(text);
  /** Of ours, the oldest first, as browsers send them (RFC 6265 §5.4). */
  const shown = ({ cookies }: FastifyRequest) =>
    Object.entries(cookies).filter(([name]) => name.startsWith(prefix) && isId(name.slice(prefix.length)));

  return {
    /** The secrets that the browser shows. Any of them may be a stranger's invention. */
    read(request: FastifyRequest): string[] {
      return shown(request).flatMap(([, secret]) => (secret === undefined ? [] : [secret]));
    },

    /** Has the browser keep a secret beside those that it shows. */
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

/** The secret that has this hash, if the browser shows it. */
export function findSecret(secrets: readonly string[], hash: Buffer): string | undefined {
  return secrets.find((secret) => timingSafeEqual(hashOf(secret), hash));
}
