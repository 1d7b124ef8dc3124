import type { Json, JsonObject } from './outcome.ts';

/** Shorter ones stand in other texts by chance. */
const minLength = 6;

const spellings: ((text: string) => string)[] = [
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

/** Puts names in the place of secrets. */
export type Redactor = {
  /** `title` is what stands in the secret's place, wherever and however encoded it comes up. */
  add(title: string, secret: string): void;
  text(text: string): string;
  /** Of a JSON value all texts, names of fields too. */
  json<T extends Json>(value: T): T;
};

export function createRedactor(): Redactor {
  const secrets = new Map<string, string>();
  const text = (given: string): string => {
    let redacted = given;
    // The longest first: one may be part of another.
    for (const [secret, title] of [...secrets].sort(([a], [b]) => b.length - a.length))
      redacted = redacted.replaceAll(secret, title);
    return redacted;
  };
  const json = <T extends Json>(value: T): T => {
    if (typeof value === 'string') return text(value) as T;
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(json) as unknown as T;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [text(name), json(one)])) as T;
  };
  return {
    add(title, secret) {
      if (secret.length < minLength) return;
      // An encoded secret becomes the name, encoded alike: so does what code makes of the name in a replay.
      for (const spell of spellings)
        if (!secrets.has(spell(secret))) secrets.set(spell(secret), spell(title));
      for (const inner of innerBase64(secret)) if (!secrets.has(inner)) secrets.set(inner, title);
    },
    text,
    json,
  };
}

/**
 * What base64 has of a secret with other text around it, such as `user:SECRET`: it begins at one of three bits, and the
 * characters that it shares with its neighbours are left out.
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

/** Texts in an answer whose names say that they are credentials, as of an address that gives tokens. */
export function* credentialsIn(value: Json): Iterable<[name: string, secret: string]> {
  if (typeof value !== 'object' || value === null) return;
  for (const [name, one] of Object.entries(value)) {
    if (typeof one !== 'string') yield* credentialsIn(one as Json);
    else if (credentialName.test(name) && one.length >= minTold && !/\s/.test(one)) yield [name, one];
  }
}

const credentialName =
  /^((access|refresh|id|session|auth|bearer)_?token|token|client_?secret|secret|password|api_?key|private_?key)$/i;
/** A shorter one may be any word, which would be replaced wherever it stands. */
const minTold = 16;

/** Every text in credentials, with where it stands, but for what only says their kind or their time. */
export function* secretsIn(value: Json | undefined, path: string): Iterable<[path: string, secret: string]> {
  if (typeof value === 'string') yield [path, value];
  if (typeof value !== 'object' || value === null) return;
  for (const [name, one] of Object.entries(value))
    if (!plainFields.has(name)) yield* secretsIn(one as Json, `${path}.${name}`);
}

const plainFields = new Set(['type', 'token_type', 'scope', 'scopes', 'expires_at', 'expires_in']);

const secretHeader = /auth|cookie|token|secret|key|session|credential/i;
/** Of this one transfer, and what the service adds for pages. */
const passingHeader = /^(connection|keep-alive|transfer-encoding|content-length|date|access-control-.*)$/i;

/** Headers of an answer that hold no right to anything, and would be the same the next time. */
export function lastingHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !secretHeader.test(name) && !passingHeader.test(name)),
  );
}

/** The same credentials, with names for the texts that are too short to be looked for. */
export function withoutShort(credentials: JsonObject, path: string): JsonObject {
  return Object.fromEntries(
    Object.entries(credentials).map(([name, value]) => {
      if (typeof value === 'string' && value.length < minLength && !plainFields.has(name))
        return [name, titleOf(`${path}.${name}`)];
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return [name, value];
      return [name, withoutShort(value, `${path}.${name}`)];
    }),
  );
}

/** What stands in the place of a secret; it needs no encoding anywhere. */
export function titleOf(path: string): string {
  return `SECRET-${path.replace(/[^\w.]/g, '_')}`;
}
