/** The settings of the HTTP proxy for outgoing calls. No fault repeats the address, which may hold a password. */
import { BlockList, isIP } from 'node:net';
import type { Settings } from './setting-values.ts';

export type OutboundProxyConfig = {
  isTls: boolean;
  /** A name, or an address without brackets. */
  host: string;
  port: number;
  /** The value of `Proxy-Authorization`. */
  authorization: string | undefined;
  /** Calls that do not use the proxy. */
  bypass: BypassRule[];
};

/** `name`: this name and those below it; `any`: each name. */
export type BypassRule = ({ name: string } | { addresses: BlockList } | { any: true }) & {
  /** Undefined: each port. */
  port: number | undefined;
};

/** NO_PROXY has no effect without a proxy: it may be meant for other programs. */
export function readOutboundProxy(settings: Settings): OutboundProxyConfig | undefined {
  const text = settings.secret('TRELLIS_OUTBOUND_PROXY');
  if (text === undefined) return undefined;
  const noProxy = settings.read('NO_PROXY');
  const url = URL.parse(text);
  if (url === null || !isProxyUrl(url)) {
    settings.faults.push(
      'TRELLIS_OUTBOUND_PROXY must be http://HOST:PORT or https://HOST:PORT, with USER:PASSWORD@ before the host if the proxy ' +
        'requires them, percent-encoded',
    );
    return undefined;
  }
  return {
    isTls: url.protocol === 'https:',
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: Number(url.port) || (url.protocol === 'https:' ? 443 : 80),
    authorization: basic(url),
    bypass: (noProxy?.split(/[\s,]+/) ?? []).flatMap((entry) => readBypass(entry, settings.faults)),
  };
}

function isProxyUrl({ protocol, pathname, search, hash, username, password }: URL): boolean {
  const isAddress = ['http:', 'https:'].includes(protocol) && pathname === '/' && search + hash === '';
  return isAddress && decoded(username) !== undefined && decoded(password) !== undefined;
}

function basic({ username, password }: URL): string | undefined {
  if (username === '' && password === '') return undefined;
  return `Basic ${Buffer.from(`${decoded(username)}:${decoded(password)}`).toString('base64')}`;
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** `*`, `NAME[:PORT]`, `.NAME`, `*.NAME`, `ADDRESS[/BITS]`, `[IPv6][:PORT]`. */
function readBypass(entry: string, faults: string[]): BypassRule[] {
  if (entry === '') return [];
  if (entry === '*') return [{ any: true, port: undefined }];
  const rule = addressRule(entry) ?? nameRule(entry);
  if (rule !== undefined) return [rule];
  faults.push(
    `NO_PROXY: "${entry}" is not a name such as example.com or .internal, an address, a CIDR range, or *`,
  );
  return [];
}

function nameRule(entry: string): BypassRule | undefined {
  const [, name, port] = /^(?:\*?\.)?([a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::(\d{1,5}))?$/i.exec(entry) ?? [];
  if (name === undefined) return undefined;
  return { name: name.toLowerCase(), port: port === undefined ? undefined : Number(port) };
}

function addressRule(entry: string): BypassRule | undefined {
  const found =
    /^\[([\da-f:.]+)\](?:\/(\d{1,3}))?(?::(\d{1,5}))?$/i.exec(entry) ??
    /^([\d.]+)(?:\/(\d{1,2}))?(?::(\d{1,5}))?$/.exec(entry) ??
    /^([\da-f:.]+)(?:\/(\d{1,3}))?$/i.exec(entry);
  const [, address = '', bits, port] = found ?? [];
  const version = isIP(address);
  const max = version === 6 ? 128 : 32;
  if (version === 0 || Number(bits ?? max) > max) return undefined;
  const addresses = new BlockList();
  addresses.addSubnet(address, Number(bits ?? max), version === 6 ? 'ipv6' : 'ipv4');
  return { addresses, port: port === undefined ? undefined : Number(port) };
}
