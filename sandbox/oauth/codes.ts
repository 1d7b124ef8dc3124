import { randomBytes } from 'node:crypto';
import type { Client } from '../clients.ts';
import type { Clock } from '../clock.ts';

/** What a code stands for. Codes live in memory: no connection outlives a restart of the sandbox by a code. */
export interface Code {
  client: Client;
  sub: string;
  redirectUri: string;
  scopes: string[];
  offline: boolean;
  /** Whether the person saw the consent page: only then may the exchange bring a refresh token. */
  consentShown: boolean;
  /** Time-based access: how long the refresh token lives. */
  forSeconds?: number;
  nonce?: string;
  challenge?: { value: string; method: 'S256' | 'plain' };
}

type Entry = { code: Code; expiresAt: number; isUsed: boolean };

const LIFE_MS = 10 * 60_000;
const REMEMBERED = 10_000;

/** Authorization codes: single use, ten minutes. Used ones are remembered, since Google tells them from unknown ones. */
export class Codes {
  #clock: Clock;
  #codes = new Map<string, Entry>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A new code of at most 256 bytes, with the slash that makes clients prove that they decode it. */
  issue(code: Code): string {
    const text = `4/0A${randomBytes(54).toString('base64url')}`;
    this.#codes.set(text, { code, expiresAt: this.#clock.now() + LIFE_MS, isUsed: false });
    if (this.#codes.size > REMEMBERED) this.#codes.delete(this.#codes.keys().next().value!);
    return text;
  }

  /** Looks without using it up: `spent` for a code that was used or has expired, undefined for one never issued. */
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
