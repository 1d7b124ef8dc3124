/**
 * Tickets: the right to make some calls of one connection through the proxy, for an hour at most, in a text that its
 * holder can be given.
 *
 * Owns: the text, and what signs it. Nothing of a ticket is stored: it says which key made it, and counts as long as
 * that key does (`key-reader.ts`). Does not own: what a call may do (`proxy/rules.ts`), who may make one
 * (`proxy/ticket-routes.ts`).
 *
 * `trt_<key id>_<claims>.<HMAC-SHA-256 of all before the dot>`, claims and signature in base64url.
 */
import { createHmac, type KeyObject, randomBytes, timingSafeEqual } from 'node:crypto';
import { AppError } from '../errors.ts';
import { ticketPrefix } from '../http/authorize.ts';
import type { KeyCaller, TicketCaller, TicketRights } from '../http/caller.ts';
import type { DataKey } from '../vault.ts';

/** Signs the tickets of one environment. */
export type TicketKey = KeyObject;

/** One for each environment, derived from its data key. */
export function signingKeyOf(environment: DataKey): TicketKey {
  return environment.subkey('tickets');
}

/** What a ticket allows, as it is asked for. */
export type TicketGrant = Omit<TicketRights, 'id' | 'rules'> & {
  methods: readonly string[];
  /** As `proxyRule` has them. */
  paths: readonly string[];
};

/** Short names, since the text travels in a header. */
type Claims = {
  i: string;
  c: [integrationKey: string, connectionId: string, connectionRow: number];
  m: readonly string[];
  p: readonly string[];
  b?: number;
  /** Seconds since 1970. */
  x: number;
};

/** The text of a new ticket; it ends with the second that `expiresAt` is in. */
export function makeTicket(
  signing: TicketKey,
  { keyId, grant, expiresAt }: { keyId: number; grant: TicketGrant; expiresAt: Date },
): { id: string; token: string; expiresAt: Date } {
  const id = randomBytes(9).toString('base64url');
  const endsAt = Math.floor(expiresAt.getTime() / 1000);
  const claims: Claims = {
    i: id,
    c: [grant.integrationKey, grant.connectionId, grant.connectionRow],
    m: grant.methods,
    p: grant.paths,
    ...(grant.mostBytes !== undefined && { b: grant.mostBytes }),
    x: endsAt,
  };
  const signed = `${ticketPrefix}${keyId}_${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
  return {
    id,
    token: `${signed}.${signatureOf(signing, signed).toString('base64url')}`,
    expiresAt: new Date(endsAt * 1000),
  };
}

/** The key that a ticket says it was made with; nothing of it is proved yet. Throws `invalid_ticket`. */
export function keyIdIn(token: string): number {
  const [, id] = /^[a-z]+_([1-9]\d{0,14})_/.exec(token) ?? [];
  if (id === undefined) throw new AppError('invalid_ticket');
  return Number(id);
}

/**
 * What a ticket of this key allows, and until when in ms. Throws `invalid_ticket` where the key did not make it. Every
 * ticket has one spelling: that of the signature counts too.
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
  const [integrationKey, connectionId, connectionRow] = claims.c;
  const ticket = {
    id: claims.i,
    ...{ integrationKey, connectionId, connectionRow },
    rules: claims.p.map((path) => ({ effect: 'allow' as const, methods: [...claims.m], path })),
    mostBytes: claims.b,
  };
  return { caller: { ...key, kind: 'ticket', ticket }, expiresAt: claims.x * 1000 };
}

function signatureOf(signing: TicketKey, signed: string): Buffer {
  return createHmac('sha256', signing).update(signed).digest();
}
