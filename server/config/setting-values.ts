/**
 * Parsers of settings. A fault is added to `faults`, with the name of the setting, and a harmless value is returned.
 * `config.ts` lists the settings.
 */
import { readFileSync } from 'node:fs';
import { BlockList, isIP } from 'node:net';

export type Env = Readonly<Record<string, string | undefined>>;

/** Reads settings, by name. Those without a value get a fallback. */
export class Settings {
  readonly #env: Env;
  readonly faults: string[] = [];
  /** Names; at first those of single commands. */
  readonly #secrets = new Set(['TRELLIS_PEER_KEY', 'TRELLIS_EXPORT_PASSPHRASE']);

  constructor(env: Env) {
    this.#env = env;
  }

  /** Without surrounding spaces; undefined if it is empty. */
  read(name: string): string | undefined {
    return this.#env[name]?.trim() || undefined;
  }

  /** A secret: as `read`, or from the file whose path is in NAME_FILE, without the newline at its end. */
  secret(name: string): string | undefined {
    this.#secrets.add(name);
    const path = this.read(`${name}_FILE`);
    if (path === undefined) return this.read(name);
    if (this.read(name) !== undefined)
      this.faults.push(`${name} and ${name}_FILE must not both be set: each gives the same secret`);
    return this.#contentOf(`${name}_FILE`, path);
  }

  /** The environment for a program of the operator. Call it after all secrets were read. */
  envWithoutSecrets(): Record<string, string> {
    const isGiven = (entry: [string, string | undefined]): entry is [string, string] =>
      entry[1] !== undefined && !this.#secrets.has(entry[0]);
    return Object.fromEntries(Object.entries(this.#env).filter(isGiven));
  }

  /** No fault contains anything of the file's content. */
  #contentOf(name: string, path: string): string | undefined {
    try {
      const text = readFileSync(path, 'utf8').replace(/\r?\n$/, '');
      // Without this, an empty file would count as a setting without a value: no DATABASE_URL is another database.
      if (text.trim() === '') this.faults.push(`${name}: the file ${path} is empty`);
      return text.trim() === '' ? undefined : text;
    } catch (error) {
      this.faults.push(`${name}: the file ${path} cannot be read (${(error as NodeJS.ErrnoException).code})`);
      return undefined;
    }
  }

  port(name: string, fallback: number): number {
    const text = this.read(name);
    if (text === undefined) return fallback;
    const port = Number(text);
    if (/^\d{1,5}$/.test(text) && port <= 65535) return port;
    this.faults.push(`${name} must be a port from 0 to 65535, it is "${text}"`);
    return fallback;
  }

  /** An address without a trailing slash. */
  url(name: string, fallback: string): string {
    const text = this.read(name);
    if (text === undefined) return fallback;
    const url = URL.parse(text);
    if (url === null || !['http:', 'https:'].includes(url.protocol))
      this.faults.push(`${name} must be an http or https address`);
    else if (url.username || url.password || url.search || url.hash) {
      this.faults.push(`${name} must not contain a user, query or fragment`);
    } else return text.replace(/\/+$/, '');
    return fallback;
  }

  optionalUrl(name: string): string | undefined {
    return this.url(name, '') || undefined;
  }

  /** Origins in the form of a Content-Security-Policy; `https://*.example.com` means every host below it. */
  origins(name: string): string[] {
    const origins =
      this.read(name)
        ?.split(/[\s,]+/)
        .filter((part) => part !== '') ?? [];
    for (const origin of origins) {
      if (!/^https?:\/\/(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:\d{1,5})?$/.test(origin))
        this.faults.push(`${name}: "${origin}" is not an origin such as https://app.example.com`);
    }
    return origins;
  }

  oneOf<const T extends string>(name: string, allowed: readonly T[], fallback: NoInfer<T>): T {
    const text = this.read(name);
    if (text === undefined) return fallback;
    const found = allowed.find((word) => word === text);
    if (found === undefined)
      this.faults.push(`${name} must be one of ${allowed.join(', ')}, it is "${text}"`);
    return found ?? fallback;
  }

  isOn(name: string, fallback: 'on' | 'off' = 'on'): boolean {
    return this.oneOf(name, ['on', 'off'], fallback) === 'on';
  }

  /** A share from 0 to 1; 1 if it is not set. */
  share(name: string): number {
    const text = this.read(name) ?? '1';
    if (!/^(0(\.\d+)?|1(\.0+)?)$/.test(text))
      this.faults.push(`${name} must be a share from 0 to 1, it is "${text}"`);
    return Number(text);
  }

  days(name: string, { fallback, min = 1 }: { fallback: number; min?: number }): number {
    const text = this.read(name) ?? String(fallback);
    if (!/^[1-9]\d{0,2}$/.test(text) || Number(text) < min)
      this.faults.push(`${name} must be a number of days from ${min} to 999, it is "${text}"`);
    return Number(text);
  }

  /** A time in seconds; returns milliseconds. */
  secondsMs(name: string, fallback: number): number {
    const text = this.read(name) ?? String(fallback);
    if (!/^\d{1,3}$/.test(text))
      this.faults.push(`${name} must be a number of seconds from 0 to 999, it is "${text}"`);
    return Number(text) * 1000;
  }

  /** Ranges of addresses, separated by commas. */
  ranges(name: string): string[] {
    const ranges: string[] = [];
    for (const part of this.read(name)?.split(',') ?? []) {
      const range = part.trim();
      const [address = '', bits = '', rest] = range.split('/');
      const version = isIP(address);
      const isRange =
        version !== 0 &&
        rest === undefined &&
        /^\d{1,3}$/.test(bits) &&
        Number(bits) <= (version === 4 ? 32 : 128);
      if (isRange) ranges.push(range);
      else this.faults.push(`${name}: "${range}" is not a CIDR range such as 10.0.0.0/8 or fd00::/8`);
    }
    return ranges;
  }
}

/** Whether a host name or address can only mean this machine. */
export function isLoopback(host: string): boolean {
  const name = host.replace(/^\[|\]$/g, '').toLowerCase();
  return name === 'localhost' || name === '::1' || (isIP(name) === 4 && name.startsWith('127.'));
}

/**
 * Purposes of calls in TRELLIS_OUTBOUND_ALLOW, which lists addresses that are not public and may be called. `providers`: the
 * proxy, tokens, all other calls of providers, and fetches of functions. `endpoints`: deliveries of events. `sign-in`: the
 * OpenID provider of the dashboard.
 */
export const outboundPurposes = ['providers', 'endpoints', 'sign-in'] as const;
export type OutboundPurpose = (typeof outboundPurposes)[number];

export type AllowedRange = {
  addresses: BlockList;
  /** Undefined: each port. */
  port?: number | undefined;
  /** Undefined: each purpose. */
  purpose?: OutboundPurpose | undefined;
};

/** `[PURPOSE=]ADDRESS[/BITS][:PORT]`, separated by commas; an IPv6 range with a port is in brackets. */
export function readOutboundAllow(text: string | undefined, faults: string[]): AllowedRange[] {
  return (text?.split(',') ?? []).flatMap((part) => {
    const entry = part.trim();
    const range = rangeOf(entry);
    if (range !== undefined) return [range];
    faults.push(
      `TRELLIS_OUTBOUND_ALLOW: "${entry}" is not an address or a CIDR range such as 10.0.0.0/8, fd00::/8, 127.0.0.1:9000 or ` +
        `[::1]:9000, for one purpose with ${outboundPurposes.map((name) => `${name}=`).join(', ')} before it`,
    );
    return [];
  });
}

function rangeOf(entry: string): AllowedRange | undefined {
  const [, word, rest = ''] = /^(?:([^=]*)=)?(.*)$/s.exec(entry)!;
  const purpose = outboundPurposes.find((name) => name === word);
  if (word !== undefined && purpose === undefined) return undefined;
  const found =
    /^\[([\da-f:.]+)(?:\/(\d{1,3}))?\](?::(\d{1,5}))?$/i.exec(rest) ??
    /^([\d.]+)(?:\/(\d{1,2}))?(?::(\d{1,5}))?$/.exec(rest) ??
    /^([\da-f:.]+)(?:\/(\d{1,3}))?$/i.exec(rest);
  const [, address = '', bits, digits] = found ?? [];
  const version = isIP(address);
  const max = version === 6 ? 128 : 32;
  const port = digits === undefined ? undefined : Number(digits);
  const isBracketed = rest.startsWith('[');
  if (version === 0 || (isBracketed && version !== 6) || Number(bits ?? max) > max) return undefined;
  if (port !== undefined && (port < 1 || port > 65_535)) return undefined;
  const addresses = new BlockList();
  addresses.addSubnet(address, Number(bits ?? max), version === 6 ? 'ipv6' : 'ipv4');
  return { addresses, port, purpose };
}
