/**
 * Verifies a security event token (RFC 8417).
 *
 * Owns: issuer, audience, age, and the subject. Does not own: the issuer's keys (`issuer-keys.ts`), whether the token is a
 * repetition, and its effects (`security-events.ts`).
 */
import { decodeJwt, errors, type JWTPayload } from 'jose';
import { z } from 'zod';
import { halfOf, prefixDigest, prefixLength, twiceHashed } from '../../connections/store/save.ts';
import { AppError } from '../../errors.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { createIssuerKeys, type IssuerKeys, retryAfterMs } from './issuer-keys.ts';

export type Rules = NonNullable<ProviderDefinition['security_events']>;

/** The subject of an event: an account, or one refresh token, of which the event has a prefix or a digest. */
export type Subject =
  | { kind: 'account'; id: string }
  | {
      kind: 'token';
      /** Finds candidates; `matches` decides. */
      digest: { of: 'prefix' | 'token'; value: Buffer };
      matches: (refreshToken: string) => boolean;
    };

export type SecurityEventToken = {
  issuer: string;
  jti: string;
  /** The event may have happened a little before. */
  issuedAt: Date;
  audience: string[];
  /** `type` without the common prefix. An event has no subject if its subject is of another issuer or an unknown kind. */
  events: { type: string; reason: string | undefined; subject: Subject | undefined }[];
};

/** The codes of RFC 8935 §2.4. */
type TokenError =
  | 'invalid_request'
  | 'invalid_key'
  | 'invalid_issuer'
  | 'invalid_audience'
  | 'authentication_failed';
type RefusedToken = { ok: false; err: TokenError; description: string };

/** The prefix of all event types of OpenID RISC and of OAuth. */
const typePrefix = 'https://schemas.openid.net/secevent/';

/** Clocks may differ. Senders give up long before a token is too old. */
const earlyMs = 5 * 60_000;
export const oldestMs = 7 * 24 * 3600_000;

const text = z.string().min(1).max(512);
const subject = z.looseObject({
  iss: text.optional(),
  sub: text.optional(),
  token_identifier_alg: text.optional(),
  token: text.optional(),
});
const claims = z.looseObject({
  iss: text,
  jti: text,
  iat: z.number(),
  aud: z.union([text, z.array(text).min(1).max(100)]),
  sub_id: subject.optional(),
  events: z.record(
    z.string(),
    z.looseObject({ subject: subject.optional(), sub_id: subject.optional(), reason: text.optional() }),
  ),
});

/** Caches the issuers' keys for an hour. */
export function createVerifier(by: { fetchFor: (of: { isTest: boolean }) => Fetch; now?: () => Date }) {
  const { fetchFor, now = () => new Date() } = by;
  const keySets = new Map<string, IssuerKeys>();

  return {
    /**
     * Throws `unavailable` (503 with Retry-After, so that the sender repeats the request) if the issuer's keys cannot be read,
     * or if the token names an unknown key and the keys may not be read again yet. `clientId` must be in the audience.
     */
    async verify(
      token: string,
      { rules, clientId, isTest }: { rules: Rules; clientId: string; isTest: boolean },
    ): Promise<{ ok: true; token: SecurityEventToken } | RefusedToken> {
      const read = readClaims(token);
      if (read === undefined) return refused('invalid_request', 'Not a security event token (RFC 8417).');
      const audience = [read.aud].flat();
      // Cheapest checks first: a token for another audience causes no request for keys.
      if (!rules.issuers.includes(read.iss)) return refused('invalid_issuer', 'Another issuer is expected.');
      if (!audience.includes(clientId)) {
        return refused('invalid_audience', 'The client ID of this integration is not in the audience.');
      }
      const issuedAt = new Date(read.iat * 1000);
      const ageMs = now().getTime() - issuedAt.getTime();
      if (!(ageMs <= oldestMs && ageMs >= -earlyMs)) {
        return refused('invalid_request', 'The token was issued too long ago, or in the future.');
      }
      const keys = keySets.getOrInsertComputed(rules.jwks_url, (url) =>
        createIssuerKeys(url, { fetch: fetchFor({ isTest }), now }),
      );
      const fault = await faultOfSignature(token, keys);
      if (fault !== undefined) return fault;
      const { iss: issuer, jti } = read;
      return { ok: true, token: { issuer, jti, issuedAt, audience, events: eventsOf(read, rules) } };
    },
  };
}

/** `exp` is ignored: the token reports a past event (developers.google.com/identity/protocols/risc). */
function readClaims(token: string): z.output<typeof claims> | undefined {
  let payload: JWTPayload;
  try {
    payload = decodeJwt(token);
  } catch (error) {
    if (error instanceof errors.JOSEError) return undefined;
    throw error;
  }
  const read = claims.safeParse(payload);
  return read.success ? read.data : undefined;
}

async function faultOfSignature(token: string, keys: IssuerKeys): Promise<RefusedToken | undefined> {
  try {
    await keys.verify(token);
    return undefined;
  } catch (error) {
    if (error instanceof AppError) throw error;
    if (error instanceof errors.JWKSNoMatchingKey || error instanceof errors.JWKSMultipleMatchingKeys) {
      return refused('invalid_key', 'The issuer has no such key.');
    }
    if (
      error instanceof errors.JWSSignatureVerificationFailed ||
      error instanceof errors.JOSEAlgNotAllowed ||
      error instanceof errors.JOSENotSupported ||
      error instanceof errors.JWSInvalid
    ) {
      return refused('authentication_failed', "The signature is not the issuer's.");
    }
    throw new AppError('unavailable', "The issuer's keys cannot be read at the moment.", {
      cause: error,
      retryAfterS: retryAfterMs / 1000,
    });
  }
}

function eventsOf(read: z.output<typeof claims>, rules: Rules): SecurityEventToken['events'] {
  return Object.entries(read.events).map(([type, event]) => ({
    type: type.startsWith(typePrefix) ? type.slice(typePrefix.length) : type,
    reason: event.reason,
    subject: subjectOf(event.subject ?? event.sub_id ?? read.sub_id, rules),
  }));
}

/** Reads a subject in Google's form or in the form of RFC 9493. */
function subjectOf(given: z.output<typeof subject> | undefined, rules: Rules): Subject | undefined {
  if (given?.sub !== undefined) {
    const isOurs = given.iss === undefined || rules.issuers.includes(given.iss);
    return isOurs ? { kind: 'account', id: given.sub } : undefined;
  }
  const { token_identifier_alg: algorithm, token } = given ?? {};
  if (token === undefined) return undefined;
  if (algorithm === 'prefix' && token.length >= prefixLength) {
    const digest = { of: 'prefix' as const, value: prefixDigest(token) };
    return { kind: 'token', digest, matches: (refreshToken) => refreshToken.startsWith(token) };
  }
  if (algorithm !== 'hash_base64_sha512_sha512') return undefined;
  const hash = Buffer.from(token, 'base64');
  const digest = { of: 'token' as const, value: halfOf(hash) };
  return { kind: 'token', digest, matches: (refreshToken) => twiceHashed(refreshToken).equals(hash) };
}

function refused(err: TokenError, description: string): RefusedToken {
  return { ok: false, err, description };
}
