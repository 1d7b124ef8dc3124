import type { Json, JsonObject } from './outcome.ts';

/** Shorter secrets occur in other texts by chance, so they are not replaced. */
const minLength = 6;

const encodings: ((text: string) => string)[] = [
  (text) => text,
  encodeURIComponent,
  (text) => encodeURIComponent(text).replace(/%../g, (byte) => byte.toLowerCase()),
  (text) => new URLSearchParams({ '': text }).toString().slice(1),
  (text) => Buffer.from(text).toString('hex'),
  (text) => Buffer.from(text).toString('hex').toUpperCase(),
  (text) => Buffer.from(text).toString('base64'),
  (text) => Buffer.from(text).toString('base64url'),
  (text) => JSON.stringify(text).slice(1, -1),
];

/** Replaces secrets with placeholders. */
export type Redactor = {
  /** Replaces `secret`, in any of the usual encodings, with `placeholder`. */
  add(placeholder: string, secret: string): void;
  text(text: string): string;
  /** Redacts all strings of a JSON value, including field names. */
  json<T extends Json>(value: T): T;
};

export function createRedactor(): Redactor {
  const secrets = new Map<string, string>();
  const text = (original: string): string => {
    let redacted = original;
    // The longest first, because a secret may be part of another.
    for (const [secret, placeholder] of [...secrets].sort(([a], [b]) => b.length - a.length))
      redacted = redacted.replaceAll(secret, placeholder);
    return redacted;
  };
  const json = <T extends Json>(value: T): T => {
    if (typeof value === 'string') return text(value) as T;
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(json) as unknown as T;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [text(name), json(one)])) as T;
  };
  return {
    add(placeholder, secret) {
      if (secret.length < minLength) return;
      // An encoded secret becomes the placeholder in the same encoding, as in a replay, where the code encodes the placeholder.
      for (const encode of encodings)
        if (!secrets.has(encode(secret))) secrets.set(encode(secret), encode(placeholder));
      for (const inner of innerBase64(secret)) if (!secrets.has(inner)) secrets.set(inner, placeholder);
    },
    text,
    json,
  };
}

/**
 * The base64 of a secret inside other text, such as `user:SECRET`: one for each of the three alignments, without the
 * characters that also encode neighbouring text.
 */
function* innerBase64(secret: string): Iterable<string> {
  for (const before of [0, 1, 2]) {
    const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(secret)]);
    const whole = Math.floor((bytes.length * 8) / 6);
    const from = Math.ceil((before * 8) / 6);
    for (const encoding of ['base64', 'base64url'] as const) {
      const inner = bytes.toString(encoding).slice(from, whole);
      if (inner.length >= minLength) yield inner;
    }
  }
}

/** The strings of a response whose field names are those of credentials, as in the response of a token endpoint. */
export function* credentialsIn(value: Json): Iterable<[name: string, secret: string]> {
  if (typeof value !== 'object' || value === null) return;
  for (const [name, one] of Object.entries(value)) {
    if (typeof one !== 'string') yield* credentialsIn(one as Json);
    else if (credentialName.test(name) && one.length >= minCredentialLength && !/\s/.test(one))
      yield [name, one];
  }
}

const credentialName =
  /^((access|refresh|id|session|auth|bearer)_?token|token|client_?secret|secret|password|api_?key|private_?key)$/i;
/** A shorter value may be an ordinary word, which would then be replaced everywhere. */
const minCredentialLength = 16;

/** All strings in credentials with their paths, except for types, scopes and times. */
export function* secretsIn(value: Json | undefined, path: string): Iterable<[path: string, secret: string]> {
  if (typeof value === 'string') yield [path, value];
  if (typeof value !== 'object' || value === null) return;
  for (const [name, one] of Object.entries(value))
    if (!plainFields.has(name)) yield* secretsIn(one as Json, `${path}.${name}`);
}

const plainFields = new Set(['type', 'token_type', 'scope', 'scopes', 'expires_at', 'expires_in']);

const secretHeader = /auth|cookie|token|secret|key|session|credential/i;
/** Headers of a single transfer, and those that the service adds for browsers. */
const transferHeader = /^(connection|keep-alive|transfer-encoding|content-length|date|access-control-.*)$/i;

/** The headers of a response that contain no credentials and do not change with each transfer. */
export function recordableHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !secretHeader.test(name) && !transferHeader.test(name)),
  );
}

/** Replaces the strings in credentials that are too short for a `Redactor`. */
export function replaceShort(credentials: JsonObject, path: string): JsonObject {
  return Object.fromEntries(
    Object.entries(credentials).map(([name, value]) => {
      if (typeof value === 'string' && value.length < minLength && !plainFields.has(name))
        return [name, placeholderOf(`${path}.${name}`)];
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return [name, value];
      return [name, replaceShort(value, `${path}.${name}`)];
    }),
  );
}

/** The placeholder of a secret. It has no character that needs encoding. */
export function placeholderOf(path: string): string {
  return `SECRET-${path.replace(/[^\w.]/g, '_')}`;
}
