/**
 * Security events (Cross-Account Protection): what the provider tells receivers when something happens to an account.
 *
 * Owns the signing of security event tokens (RFC 8417) and their delivery by push (RFC 8935). When one
 * is due is decided in account-acts.ts, who gets it is in receivers.ts. Delivered once: unlike the provider, the
 * sandbox does not try again.
 */
import { randomUUID } from 'node:crypto';
import { SignJWT } from 'jose';
import type { Clock } from './clock.ts';
import { generateSigningKey, loadSigningKey, type SigningKey } from './oauth/id-token.ts';

const RISC = 'https://schemas.openid.net/secevent/risc/event-type';
const OAUTH = 'https://schemas.openid.net/secevent/oauth/event-type';

/** The events there are, by short name. Source: https://developers.google.com/identity/protocols/risc. */
export const EVENT_TYPES = {
  'sessions-revoked': `${RISC}/sessions-revoked`,
  'tokens-revoked': `${OAUTH}/tokens-revoked`,
  'token-revoked': `${OAUTH}/token-revoked`,
  'account-disabled': `${RISC}/account-disabled`,
  'account-enabled': `${RISC}/account-enabled`,
  'account-purged': `${RISC}/account-purged`,
  'account-credential-change-required': `${RISC}/account-credential-change-required`,
  verification: `${RISC}/verification`,
} as const;

/** The short name of a security event. */
export type EventType = keyof typeof EVENT_TYPES;

/** What became of a token: the receiver's status, or why there is none. */
export interface Delivery {
  receiver: string;
  type: EventType;
  jti: string;
  status: number | 'unreachable';
  /** Milliseconds of the sandbox's clock. */
  at: number;
}

/** What a token says. `audience` and `jti` are made up where absent; `fields` go beside the subject. */
interface SecurityEvent {
  type: EventType;
  sub: string;
  clientId: string;
  audience?: string | undefined;
  jti?: string | undefined;
  fields?: Record<string, unknown> | undefined;
}

const REMEMBERED_DELIVERIES = 50;
const DELIVERY_MS = 10_000;

/** Signs security event tokens and posts them. */
export class SecurityEvents {
  #signingKey: SigningKey;
  #issuer: string;
  #clock: Clock;
  #closing: AbortSignal;
  #deliveries: Delivery[] = [];
  #foreignKey: Promise<SigningKey> | undefined;

  constructor(parts: {
    signingKey: SigningKey;
    issuer: string;
    clock: Clock;
    closing: AbortSignal;
  }) {
    this.#signingKey = parts.signingKey;
    this.#issuer = parts.issuer;
    this.#clock = parts.clock;
    this.#closing = parts.closing;
  }

  /** The last deliveries, newest first. */
  listDeliveries(): Delivery[] {
    return [...this.#deliveries];
  }

  /** Posts a token signed with the key that /oauth2/v3/certs shows. Resolves with the outcome, never rejects. */
  send(event: SecurityEvent, receiver: string): Promise<Delivery> {
    return this.#deliver(event, { receiver, key: Promise.resolve(this.#signingKey) });
  }

  /** Posts a token whose signature is not the provider's, though its header names the provider's key. */
  sendForged(event: SecurityEvent, receiver: string): Promise<Delivery> {
    this.#foreignKey ??= generateSigningKey().then(loadSigningKey);
    return this.#deliver(event, { receiver, key: this.#foreignKey });
  }

  async #deliver(
    event: SecurityEvent,
    to: { receiver: string; key: Promise<SigningKey> },
  ): Promise<Delivery> {
    const { type, jti = randomUUID() } = event;
    const body = await this.#sign({ ...event, jti }, await to.key);
    let status: Delivery['status'];
    try {
      const response = await fetch(to.receiver, {
        method: 'POST',
        headers: { 'content-type': 'application/secevent+jwt', accept: 'application/json' },
        body,
        redirect: 'manual',
        signal: AbortSignal.any([this.#closing, AbortSignal.timeout(DELIVERY_MS)]),
      });
      status = response.status;
      await response.body?.cancel();
    } catch {
      status = 'unreachable';
    }
    const delivery: Delivery = { receiver: to.receiver, type, jti, status, at: this.#clock.now() };
    this.#deliveries = [delivery, ...this.#deliveries].slice(0, REMEMBERED_DELIVERIES);
    return delivery;
  }

  #sign(event: SecurityEvent & { jti: string }, key: SigningKey): Promise<string> {
    const subject =
      event.type === 'verification'
        ? {}
        : { subject: { subject_type: 'iss-sub', iss: this.#issuer, sub: event.sub } };
    return new SignJWT({ events: { [EVENT_TYPES[event.type]]: { ...subject, ...event.fields } } })
      .setProtectedHeader({ alg: 'RS256', kid: this.#signingKey.jwk.kid!, typ: 'secevent+jwt' })
      .setIssuer(this.#issuer)
      .setAudience(event.audience ?? event.clientId)
      .setIssuedAt(Math.floor(this.#clock.now() / 1000))
      .setJti(event.jti)
      .sign(key.privateKey);
  }
}

/** Whether an address leads to this machine: the sandbox posts to no other. */
export function isLoopback(address: string): boolean {
  if (!URL.canParse(address)) return false;
  const { protocol, hostname } = new URL(address);
  return /^https?:$/.test(protocol) && ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
}

/** The metadata at /.well-known/risc-configuration. */
export function riscDocument(issuer: string): Record<string, unknown> {
  return {
    issuer,
    jwks_uri: `${issuer}/oauth2/v3/certs`,
    delivery_methods_supported: ['https://schemas.openid.net/secevent/risc/delivery-method/push'],
  };
}
