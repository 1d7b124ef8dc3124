/**
 * Tickets: a text with the right to make some calls of one connection through the proxy, for an hour at most.
 *
 * Owns: the text, and the key that signs it. A ticket is not stored: it names the key that made it, and is valid as long as
 * that key (`key-reader.ts`). Does not own: the rights of a call (`proxy/rules.ts`), which callers may make one
 * (`proxy/routes.ts`).
 *
 * `trt_<key id>_<claims>.<HMAC-SHA-256 of all before the dot>`, claims and signature in base64url.
 */
import { createHmac, createSecretKey, type KeyObject, randomBytes, timingSafeEqual } from 'node:crypto';
import { type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type KeyCaller, type TicketCaller, type TicketRights, ticketPrefix } from '../http/auth/caller.ts';
import type { DataKey, Vault } from '../vault.ts';

/** Signs the tickets of one secret key. */
export type TicketKey = KeyObject;

/**
 * Derived from the hash of the secret key and the environment's data key. So a key that gets the ID of another key, as after a
 * restored backup, does not validate the tickets of that key.
 */
export function signingKeyOf(environment: DataKey, keyHash: Buffer): TicketKey {
  return createSecretKey(createHmac('sha256', environment.subkey('tickets')).update(keyHash).digest());
}

/** The key that signs the tickets of a stored key. Throws `unknown_account` if it was revoked. */
export async function getSigningKey(
  db: Queryable,
  { keyId, environmentId, vault }: { keyId: number; environmentId: number; vault: Vault },
): Promise<TicketKey> {
  const [row] = await db.run(
    tables
      .selectFrom('api_key')
      .innerJoin('environment', 'environment.id', 'api_key.environment_id')
      .innerJoin('data_key', 'data_key.id', 'environment.data_key')
      .select(['api_key.hash', 'data_key.wrapped'])
      .where('api_key.id', '=', keyId)
      .where('api_key.environment_id', '=', environmentId)
      .where('api_key.revoked_at', 'is', null),
  );
  if (row === undefined) throw new AppError('unknown_account');
  return signingKeyOf(vault.unwrap(row.wrapped), row.hash);
}

/** The requested rights of a ticket. */
type TicketGrant = Omit<TicketRights, 'id' | 'rules'> & {
  methods: readonly string[];
  /** As `proxyRule` has them. */
  paths: readonly string[];
};

/** Short names, since the text is sent in a header. */
type Claims = {
  i: string;
  c: [integrationKey: string, connectionId: string, connectionRow: number, connectionMadeAt: number];
  m: readonly string[];
  p: readonly string[];
  b?: number;
  a?: readonly string[];
  /** Milliseconds since 1970. */
  x: number;
};

/** The text of a new ticket. */
export function makeTicket(
  signing: TicketKey,
  { keyId, grant, expiresAt }: { keyId: number; grant: TicketGrant; expiresAt: Date },
): { id: string; token: string } {
  const id = randomBytes(9).toString('base64url');
  const claims: Claims = {
    i: id,
    c: [grant.integrationKey, grant.connectionId, grant.connectionRow, grant.connectionMadeAt],
    m: grant.methods,
    p: grant.paths,
    ...(grant.maxBytes !== undefined && { b: grant.maxBytes }),
    ...(grant.actions !== undefined && { a: grant.actions }),
    x: expiresAt.getTime(),
  };
  const signed = `${ticketPrefix}${keyId}_${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
  return { id, token: `${signed}.${signatureOf(signing, signed).toString('base64url')}` };
}

/** The key that a ticket names; nothing is verified yet. Throws `invalid_ticket`. */
export function keyIdIn(token: string): number {
  const [, id] = /^[a-z]+_([1-9]\d{0,14})_/.exec(token) ?? [];
  if (id === undefined) throw new AppError('invalid_ticket');
  return Number(id);
}

/**
 * The rights of a ticket of this key, and its expiry in ms. Throws `invalid_ticket` if the key did not make it. Each ticket has
 * one spelling: another encoding of the same signature is refused.
 */
export function openTicket(
  token: string,
  { key, signing }: { key: KeyCaller; signing: TicketKey },
): { caller: TicketCaller; expiresAt: number } {
  const dot = token.indexOf('.');
  const signed = token.slice(0, dot);
  const right = Buffer.from(signatureOf(signing, signed).toString('base64url'));
  const given = Buffer.from(token.slice(dot + 1));
  if (given.length !== right.length || !timingSafeEqual(given, right)) throw new AppError('invalid_ticket');
  const encoded = signed.slice(`${ticketPrefix}${key.keyId}_`.length);
  const claims = JSON.parse(Buffer.from(encoded, 'base64url').toString('utf8')) as Claims;
  const [integrationKey, connectionId, connectionRow, connectionMadeAt] = claims.c;
  const ticket = {
    id: claims.i,
    integrationKey,
    connectionId,
    connectionRow,
    connectionMadeAt,
    rules: claims.p.map((path) => ({ effect: 'allow' as const, methods: [...claims.m], path })),
    maxBytes: claims.b,
    actions: claims.a,
  };
  return { caller: { ...key, kind: 'ticket', ticket }, expiresAt: claims.x };
}

function signatureOf(signing: TicketKey, signed: string): Buffer {
  return createHmac('sha256', signing).update(signed).digest();
}
