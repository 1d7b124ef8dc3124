/**
 * The secret of a Standard Webhooks sender as bytes: `whsec_` (or nothing) and base64, at least 16 bytes of it. Undefined
 * for any other text: what a lenient decoder makes of that is a short key or an empty one, under which anybody can sign.
 * The specification asks for 24 to 64 bytes; some senders give fewer.
 *
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#signature-scheme
 */
export function standardKey(secret: string): Buffer | undefined {
  const key = strictBase64(secret.replace(/^whsec_/, ''));
  return key !== undefined && key.length >= minKeyBytes ? key : undefined;
}

const minKeyBytes = 16;

/** Bytes that have this one spelling (RFC 4648 §4, padded); undefined for another. */
export function strictBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  return text !== '' && bytes.toString('base64') === text ? bytes : undefined;
}
