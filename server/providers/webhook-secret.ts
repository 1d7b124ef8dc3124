import { createPublicKey, type KeyObject } from 'node:crypto';
import type { WebhookSignature } from './definition.ts';

/**
 * The secret of a Standard Webhooks sender as bytes: `whsec_` (or nothing) and base64 of at least 16 bytes. Undefined
 * for any other text: a lenient decoder would return a short or empty key, with which anybody can sign. The
 * specification requires 24 to 64 bytes; some senders have fewer.
 *
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#signature-scheme
 */
export function standardKey(secret: string): Buffer | undefined {
  const key = strictBase64(secret.replace(/^whsec_/, ''));
  return key !== undefined && key.length >= minKeyBytes ? key : undefined;
}

const minKeyBytes = 16;

/** The bytes of a text in its canonical encoding (RFC 4648 §4, padded); undefined for any other text. */
export function strictBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  return text !== '' && bytes.toString('base64') === text ? bytes : undefined;
}

/** The key of an HMAC in this encoding; undefined if the secret is not of it. */
export function keyBytes(secret: string, encoding: 'utf8' | 'hex' | 'base64'): Buffer | undefined {
  if (encoding === 'utf8') return Buffer.from(secret);
  const key =
    encoding === 'base64' ? strictBase64(secret) : /^[0-9a-f]+$/i.test(secret) && Buffer.from(secret, 'hex');
  return key && key.length >= minKeyBytes ? key : undefined;
}

/** The provider's public key: 32 bytes in hex for Ed25519, SPKI in base64 for ECDSA. Undefined for any other text. */
export function publicKey(secret: string, algorithm: 'ed25519' | 'ecdsa'): KeyObject | undefined {
  try {
    if (algorithm === 'ed25519') {
      if (!/^[0-9a-f]{64}$/i.test(secret)) return undefined;
      const x = Buffer.from(secret, 'hex').toString('base64url');
      return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
    }
    const der = strictBase64(secret);
    const key = der && createPublicKey({ key: der, format: 'der', type: 'spki' });
    return key?.asymmetricKeyType === 'ec' ? key : undefined;
  } catch {
    return undefined;
  }
}

/** Whether a secret can prove a webhook by this definition. */
export function isUsableSecret(secret: string, proof: WebhookSignature): boolean {
  switch (proof.scheme) {
    case 'standard':
      return standardKey(secret) !== undefined;
    case 'public_key':
      return publicKey(secret, proof.algorithm) !== undefined;
    case 'hmac':
      return keyBytes(secret, proof.key_encoding) !== undefined;
    default:
      return true;
  }
}
