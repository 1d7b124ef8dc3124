import { z } from 'zod';

const header = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'is no header name');
/** Where a field of the body lies, a dot for each step inside: `event.type`. */
const path = z.string().regex(/^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/, 'is no path of a field');
/** Which of the integration's secrets proves the sender. */
const key = z.enum(['webhook_secret', 'client_secret']);

const proof = z.discriminatedUnion('scheme', [
  /** A message authentication code (RFC 2104) over the body. */
  z
    .strictObject({
      scheme: z.literal('hmac'),
      key,
      header,
      digest: z.enum(['sha1', 'sha256', 'sha512']).default('sha256'),
      encoding: z.enum(['hex', 'base64']).default('hex'),
      /** What stands before the signature. */
      prefix: z.string().default(''),
      /** Where the header is a list such as `t=1,v1=ab`: the names of its parts. */
      parts: z.strictObject({ timestamp: z.string(), signature: z.string() }).optional(),
      /** The header with the time of sending, in seconds since 1970. */
      timestamp_header: header.optional(),
      /** The field of the body with the time of sending, in milliseconds since 1970. */
      timestamp_body: path.optional(),
      /** What is signed: `{body}`, and `{timestamp}` where there is one. */
      signed: z
        .string()
        .refine((text) => text.split('{body}').length === 2, 'holds {body} once')
        .default('{body}'),
      /** `unset`: an integration without a secret accepts the webhooks of every sender. */
      required: z.enum(['always', 'unset']).default('always'),
    })
    .refine(
      ({ parts, timestamp_header, signed }) =>
        (parts !== undefined || timestamp_header !== undefined) === signed.includes('{timestamp}'),
      { path: ['signed'], message: 'a timestamp is read and signed, or neither' },
    )
    .refine(
      ({ parts, timestamp_header, timestamp_body }) =>
        [parts, timestamp_header, timestamp_body].filter((from) => from !== undefined).length <= 1,
      { path: ['timestamp_body'], message: 'the time of sending is read from one place' },
    ),
  /** https://www.standardwebhooks.com */
  z.strictObject({ scheme: z.literal('standard'), key }),
  /** The secret itself. */
  z.strictObject({ scheme: z.literal('token'), key, header }),
]);

const place = z.union([z.strictObject({ header }), z.strictObject({ body: path })]);

/** The webhooks that a provider sends to an integration of its own accord, and how they are verified. */
export const webhookSchema = z.strictObject({
  proof,
  /** What kind it is of: what a function subscribes to. */
  type: place,
  /** Whom it is for: a connection by its ID, by its account's, or by a tag that the application gave it. */
  connection: z
    .union([
      z.strictObject({ by: z.enum(['connection_id', 'account']), from: place }),
      z.strictObject({ by: z.literal('tag'), tag: z.string(), from: place }),
    ])
    .optional(),
  /** A question that only tries the address: the field is sent back. */
  challenge: path.optional(),
});

export type WebhookRules = z.output<typeof webhookSchema>;
export type WebhookSignature = z.output<typeof proof>;
export type WebhookPlace = z.output<typeof place>;
