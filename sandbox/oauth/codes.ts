import { randomBytes } from 'node:crypto';
import type { Client } from '../clients.ts';
import type { Clock } from '../clock.ts';

/** The data of a code. Codes are in memory only, and a restart of the sandbox loses them. */
export interface Code {
  client: Client;
  sub: string;
  redirectUri: string;
  scopes: string[];
  offline: boolean;
  /** Whether the consent page was shown: only then may the exchange return a refresh token. */
  consentShown: boolean;
  /** Time-based access: the lifetime of the refresh token. */
  forSeconds?: number;
  nonce?: string;
  challenge?: { value: string; method: 'S256' | 'plain' };
}

type Entry = { code: Code; expiresAt: number; isUsed: boolean };

const lifeMs = 10 * 60_000;
const maxRemembered = 10_000;

/**
 * Authorization codes for single use within ten minutes. Used codes are kept, since Google distinguishes them from unknown
 * codes.
 */
export class Codes {
  #clock: Clock;
  #codes = new Map<string, Entry>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A new code of at most 256 bytes. It contains a slash, like Google's, so that clients have to decode it. */
  issue(code: Code): string {
    const text = `4/0A${randomBytes(54).toString('base64url')}`;
    this.#codes.set(text, { code, expiresAt: this.#clock.now() + lifeMs, isUsed: false });
    if (this.#codes.size > maxRemembered) this.#codes.delete(this.#codes.keys().next().value!);
    return text;
  }

  /** Looks up a code: `spent` if it was used or has expired, undefined if it was never issued. */
  find(text: string): Code | 'spent' | undefined {
    const entry = this.#codes.get(text);
    if (entry === undefined) return undefined;
    return entry.isUsed || entry.expiresAt <= this.#clock.now() ? 'spent' : entry.code;
  }

  /** Marks a code as used. */
  spend(text: string): void {
    const entry = this.#codes.get(text);
    if (entry !== undefined) entry.isUsed = true;
  }
}
