/**
 * Security events (Cross-Account Protection): signed tokens (RFC 8417) that notify receivers of changes of an account, and
 * their delivery by push (RFC 8935). Unlike Google, the sandbox does not retry a delivery.
 */
import { randomUUID } from 'node:crypto';
import { SignJWT } from 'jose';
import type { Clock } from './clock.ts';
import { generateSigningKey, loadSigningKey, type SigningKey } from './oauth/id-token.ts';

const riscPrefix = 'https://schemas.openid.net/secevent/risc/event-type';
const oauthPrefix = 'https://schemas.openid.net/secevent/oauth/event-type';

/** The event types by short name. Source: https://developers.google.com/identity/protocols/risc. */
export const eventTypes = {
  'sessions-revoked': `${riscPrefix}/sessions-revoked`,
  'tokens-revoked': `${oauthPrefix}/tokens-revoked`,
  'token-revoked': `${oauthPrefix}/token-revoked`,
  'account-disabled': `${riscPrefix}/account-disabled`,
  'account-enabled': `${riscPrefix}/account-enabled`,
  'account-purged': `${riscPrefix}/account-purged`,
  'account-credential-change-required': `${riscPrefix}/account-credential-change-required`,
  verification: `${riscPrefix}/verification`,
} as const;

/** The short name of a security event. */
export type EventType = keyof typeof eventTypes;

/** The delivery of a token, with the status of the receiver's response. */
export interface Delivery {
  receiver: string;
  type: EventType;
  jti: string;
  status: number | 'unreachable';
  /** Milliseconds of the sandbox's clock. */
  at: number;
}

/** The content of a token. `audience` and `jti` have defaults; `fields` are added beside the subject. */
interface SecurityEvent {
  type: EventType;
  sub: string;
  clientId: string;
  audience?: string | undefined;
  jti?: string | undefined;
  fields?: Record<string, unknown> | undefined;
}

const maxRememberedDeliveries = 50;
const deliveryMs = 10_000;

/** The parts of the sandbox that security events use. */
type SecurityEventsParts = {
  signingKey: SigningKey;
  issuer: string;
  clock: Clock;
  closing: AbortSignal;
};

/** Signs security event tokens and posts them. */
export class SecurityEvents {
  readonly #parts: SecurityEventsParts;
  #deliveries: Delivery[] = [];
  #foreignKey: Promise<SigningKey> | undefined;

  constructor(parts: SecurityEventsParts) {
    this.#parts = parts;
  }

  /** The last deliveries, newest first. */
  listDeliveries(): Delivery[] {
    return [...this.#deliveries];
  }

  /** Posts a token signed with the key in /oauth2/v3/certs. Never rejects. */
  send(event: SecurityEvent, receiver: string): Promise<Delivery> {
    return this.#deliver(event, { receiver, key: Promise.resolve(this.#parts.signingKey) });
  }

  /** Posts a token with the key ID of the provider and a signature by another key. */
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
        signal: AbortSignal.any([this.#parts.closing, AbortSignal.timeout(deliveryMs)]),
      });
      status = response.status;
      await response.body?.cancel();
    } catch {
      status = 'unreachable';
    }
    const delivery: Delivery = { receiver: to.receiver, type, jti, status, at: this.#parts.clock.now() };
    this.#deliveries = [delivery, ...this.#deliveries].slice(0, maxRememberedDeliveries);
    return delivery;
  }

  #sign(event: SecurityEvent & { jti: string }, key: SigningKey): Promise<string> {
    const subject =
      event.type === 'verification'
        ? {}
        : { subject: { subject_type: 'iss-sub', iss: this.#parts.issuer, sub: event.sub } };
    return new SignJWT({ events: { [eventTypes[event.type]]: { ...subject, ...event.fields } } })
      .setProtectedHeader({ alg: 'RS256', kid: this.#parts.signingKey.jwk.kid!, typ: 'secevent+jwt' })
      .setIssuer(this.#parts.issuer)
      .setAudience(event.audience ?? event.clientId)
      .setIssuedAt(Math.floor(this.#parts.clock.now() / 1000))
      .setJti(event.jti)
      .sign(key.privateKey);
  }
}

/** Whether an address is on this machine. The sandbox posts to no other addresses. */
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

/** A registered receiver of the events of accounts that have granted their address or profile to the client. */
export interface Receiver {
  clientId: string;
  url: string;
}

/** The limit of registered receivers. */
export const receiverLimit = 50;

/** The receivers that get security events automatically, in the order of registration. */
export class Receivers {
  #receivers: Receiver[];

  constructor(receivers: Receiver[]) {
    this.#receivers = [...receivers];
  }

  list(): Receiver[] {
    return [...this.#receivers];
  }

  /** Registers a receiver. A repeated registration replaces the first. */
  add(receiver: Receiver): void {
    this.remove(receiver);
    this.#receivers.push(receiver);
  }

  /** Returns whether the receiver was registered. */
  remove({ clientId, url }: Receiver): boolean {
    const before = this.#receivers.length;
    this.#receivers = this.#receivers.filter((other) => other.clientId !== clientId || other.url !== url);
    return this.#receivers.length < before;
  }
}
