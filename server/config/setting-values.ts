/**
 * The forms that settings have: what is wrong with one is added to `faults`, by its name, and something harmless answered.
 *
 * Does not own which settings there are (`config.ts`).
 */
import { isIP } from 'node:net';

type Rule = { name: string; faults: string[] };

/** A port; `fallback` where there is none, or where what is there is told as a fault. */
export function readPort(
  text: string | undefined,
  { name, fallback, faults }: Rule & { fallback: number },
): number {
  if (text === undefined) return fallback;
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65535) return port;
  faults.push(`${name} must be a port from 0 to 65535, it is "${text}"`);
  return fallback;
}

/** An address without a trailing slash. */
export function readUrl(
  text: string | undefined,
  { name, fallback, faults }: Rule & { fallback: string },
): string {
  if (text === undefined) return fallback;
  const url = URL.parse(text);
  if (url === null || !['http:', 'https:'].includes(url.protocol))
    faults.push(`${name} must be an http or https address`);
  else if (url.username || url.password || url.search || url.hash) {
    faults.push(`${name} must hold no user, query or fragment`);
  } else return text.replace(/\/+$/, '');
  return fallback;
}

/** Origins as a Content-Security-Policy names them; `https://*.example.com` stands for every host below it. */
export function readOrigins(text: string | undefined, { name, faults }: Rule): string[] {
  const origins = text?.split(/[\s,]+/).filter((part) => part !== '') ?? [];
  for (const origin of origins) {
    if (!/^https?:\/\/(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:\d{1,5})?$/.test(origin))
      faults.push(`${name}: "${origin}" is not an origin such as https://app.example.com`);
  }
  return origins;
}

/** One of the words that are allowed. */
export function oneOf<const T extends string>(
  text: string | undefined,
  { name, allowed, fallback, faults }: Rule & { allowed: readonly T[]; fallback: T },
): T {
  if (text === undefined) return fallback;
  const found = allowed.find((word) => word === text);
  if (found === undefined) faults.push(`${name} must be one of ${allowed.join(', ')}, it is "${text}"`);
  return found ?? fallback;
}

/** Ranges of addresses, separated by commas. */
export function readRanges(text: string | undefined, name: string, faults: string[]): string[] {
  const ranges: string[] = [];
  for (const part of text?.split(',') ?? []) {
    const range = part.trim();
    const [address = '', bits = '', rest] = range.split('/');
    const version = isIP(address);
    const isRange =
      version !== 0 &&
      rest === undefined &&
      /^\d{1,3}$/.test(bits) &&
      Number(bits) <= (version === 4 ? 32 : 128);
    if (isRange) ranges.push(range);
    else faults.push(`${name}: "${range}" is not a CIDR range such as 10.0.0.0/8 or fd00::/8`);
  }
  return ranges;
}

/** Whether a host name or address can only mean this machine. */
export function isLoopback(host: string): boolean {
  const name = host.replace(/^\[|\]$/g, '').toLowerCase();
  return name === 'localhost' || name === '::1' || (isIP(name) === 4 && name.startsWith('127.'));
}
