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
