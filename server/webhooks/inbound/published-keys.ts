/**
 * The keys that a provider publishes for its webhooks: certificates, and keys of issuers of tokens.
 *
 * Owns: when they are read, so that forged webhooks cannot cause any number of requests, and their cache. Does not own: the
 * content of a webhook (`signature.ts`).
 */
import { X509Certificate } from 'node:crypto';
import { AppError } from '../../errors.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { readBody } from '../../outbound/read-body.ts';
import type { WebhookSignature } from '../../providers/definition.ts';
import { createIssuerKeys, type IssuerKeys } from '../security-events/issuer-keys.ts';
import type { Published, Sent } from './signature.ts';

export type PublishedKeys = {
  /**
   * What proves this webhook; undefined if nothing does, or if the proof needs no published key. Throws `unavailable` if the
   * key cannot be read now.
   */
  find(proof: WebhookSignature, of: { sent: Sent; isTest: boolean }): Promise<Published | undefined>;
};

const cachedMs = 3600_000;
const timeoutMs = 5_000;
const maxCertificateBytes = 64 * 1024;
const maxCached = 100;
/** The maximum number of certificates that are read in a minute, since any sender can name one. */
const maxReads = 20;

type Certificate = { readAt: number; certificate: X509Certificate | undefined };

export function createPublishedKeys({
  fetchFor,
  now,
}: {
  fetchFor: (of: { isTest: boolean }) => Fetch;
  now: () => Date;
}): PublishedKeys {
  const certificates = new Map<string, Promise<Certificate>>();
  /** When a certificate was missing. Apart from the others, which invented names must not push out. */
  const missing = new Map<string, number>();
  const issuers = new Map<string, IssuerKeys>();
  let reads: number[] = [];

  /**
   * Undefined if the provider has no such certificate. A certificate that was read before is used if it cannot be read
   * again now.
   */
  async function certificateAt(
    url: string,
    { isTest }: { isTest: boolean },
  ): Promise<X509Certificate | undefined> {
    const key = `${isTest} ${url}`;
    const at = now().getTime();
    const missingAt = missing.get(key);
    if (missingAt !== undefined && at - missingAt < cachedMs) return undefined;
    const known = await certificates.get(key)?.catch(() => undefined);
    if (known !== undefined && at - known.readAt < cachedMs) return known.certificate;
    reads = reads.filter((time) => at - time < 60_000);
    if (reads.length >= maxReads) {
      if (known?.certificate !== undefined) return known.certificate;
      throw unavailable();
    }
    reads.push(at);
    const [oldest] = certificates.keys();
    if (certificates.size >= maxCached) certificates.delete(oldest!);
    const reading = read(url, { isTest }).then((certificate) => ({ readAt: at, certificate }));
    certificates.set(key, reading);
    try {
      const { certificate } = await reading;
      if (certificate === undefined) {
        certificates.delete(key);
        if (missing.size >= maxCached) missing.clear();
        missing.set(key, at);
      }
      return certificate;
    } catch (error) {
      certificates.delete(key);
      if (known?.certificate === undefined) throw unavailable(error);
      certificates.set(key, Promise.resolve(known));
      return known.certificate;
    }
  }

  async function read(url: string, { isTest }: { isTest: boolean }): Promise<X509Certificate | undefined> {
    const signal = AbortSignal.timeout(timeoutMs);
    const headers = { accept: 'application/x-pem-file, */*' };
    const answer = await fetchFor({ isTest })(url, { method: 'GET', headers, redirect: 'manual', signal });
    const { bytes, isTooLarge } = await readBody(answer.body, maxCertificateBytes);
    if (answer.status >= 500 || answer.status === 429)
      throw new Error(`the certificate answers ${answer.status}`);
    return answer.status === 200 && !isTooLarge ? certificateIn(bytes) : undefined;
  }

  return {
    async find(proof, { sent, isTest }) {
      if (proof.scheme === 'certificate') {
        const url = headerOf(sent, proof.certificate.header);
        if (!proof.certificate.addresses.some((start) => isBelow(url, start))) return undefined;
        return keyOf(await certificateAt(url, { isTest }), now());
      }
      if (proof.scheme === 'id_token') {
        const held = headerOf(sent, proof.header);
        if (!held.startsWith(proof.prefix)) return undefined;
        const key = `${isTest} ${proof.jwks_url}`;
        const keys =
          issuers.get(key) ?? createIssuerKeys(proof.jwks_url, { fetch: fetchFor({ isTest }), now });
        issuers.set(key, keys);
        return isSigned(keys, held.slice(proof.prefix.length));
      }
      return undefined;
    },
  };
}

/** Whether the address is that of one file directly below `start`. */
function isBelow(url: string, start: string): boolean {
  return url.startsWith(start) && /^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$/.test(url.slice(start.length));
}

/** Undefined for a text that is no certificate in PEM. */
function certificateIn(text: Buffer): X509Certificate | undefined {
  try {
    return new X509Certificate(text);
  } catch {
    return undefined;
  }
}

/** The public key of a certificate that is valid now. */
function keyOf(certificate: X509Certificate | undefined, at: Date): Published | undefined {
  if (certificate === undefined) return undefined;
  const { validFromDate, validToDate, publicKey } = certificate;
  const isValid = validFromDate <= at && at <= validToDate && publicKey.asymmetricKeyType === 'rsa';
  return isValid ? publicKey : undefined;
}

async function isSigned(keys: IssuerKeys, token: string): Promise<'signed' | undefined> {
  try {
    await keys.verify(token);
    return 'signed';
  } catch (error) {
    if (error instanceof AppError) throw error;
    // The codes of jose for a token that the published keys do not prove. Without `kid` it does not tell which of several keys
    // signed it (OpenID Connect Core 1.0, section 10.1).
    const code = (error as { code?: unknown }).code;
    if (typeof code === 'string' && /^ERR_(JWS|JWKS_(NO|MULTIPLE)_MATCHING|JOSE)/.test(code))
      return undefined;
    throw unavailable(error);
  }
}

function headerOf({ headers }: Sent, name: string): string {
  const value = headers[name.toLowerCase()];
  return typeof value === 'string' ? value : '';
}

const unavailable = (cause?: unknown) =>
  new AppError('unavailable', "The provider's keys cannot be read now.", { cause, retryAfterS: 5 });
