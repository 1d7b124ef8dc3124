/** The client of a request: its address, and whether a proxy forwarded the request. */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { AppError } from '../errors.ts';

/**
 * Returns the network of a client, as `request.ip` of the routes, but for requests that reach no route: an address in
 * `X-Forwarded-For` counts if the proxies that report it are trusted (ranges as in TRELLIS_TRUSTED_PROXIES).
 *
 * A network is an IPv4 address, or the first 64 bits of an IPv6 address, since a single subscriber has all addresses below
 * them (RFC 6177).
 */
export function createNetworkReader(
  trustedProxies: readonly string[],
): (request: Pick<IncomingMessage, 'headers' | 'socket'>) => string {
  const trusted = new BlockList();
  for (const range of trustedProxies) {
    const [address = '', bits] = range.split('/');
    trusted.addSubnet(address, Number(bits), isIP(address) === 6 ? 'ipv6' : 'ipv4');
  }
  const isTrusted = (address: string) => trusted.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');

  return ({ headers, socket }) => {
    const forwarded = [headers['x-forwarded-for'] ?? []].flat().join(',').split(',');
    let from = plain(socket.remoteAddress ?? '');
    for (const hop of forwarded.reverse()) {
      const before = plain(hop.trim());
      if (isIP(before) === 0 || !isTrusted(from)) break;
      from = before;
    }
    return networkOf(from);
  };
}

/** Whether a request has a forwarded address although its peer is not a trusted proxy. */
export function isForwardedInVain({ headers, ip, socket }: FastifyRequest): boolean {
  return headers['x-forwarded-for'] !== undefined && ip === socket.remoteAddress;
}

/** An IPv4 address without the prefix that an IPv6 socket adds. */
function plain(address: string): string {
  return address.replace(/^::ffff:(?=[\d.]+$)/i, '');
}

function networkOf(address: string): string {
  if (isIP(address) !== 6) return address;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array<string>(Math.max(0, 8 - groups.length - after.length)).fill('0');
  return `${[...groups, ...zeros, ...after]
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}

const proxyHeaders = /^(forwarded|x-forwarded-.*|x-real-ip|via)$/;

/** Whether a request has a header of a proxy that forwarded it. */
export function isForwarded(headers: IncomingHttpHeaders): boolean {
  return Object.keys(headers).some((name) => proxyHeaders.test(name));
}

/**
 * If the sign-in is off, every client is an owner. So only programs of this machine are served, which use a name of this
 * machine: a web page whose name was made to resolve to this machine sends its own name (DNS rebinding), and a proxy that
 * forwards requests from other machines adds its headers. Returns the refusal; undefined: the request is allowed.
 */
export function createLoopbackGuard(baseUrl: string): (request: IncomingMessage) => AppError | undefined {
  const { port } = new URL(baseUrl);
  const names = ['localhost', '127.0.0.1', '[::1]', new URL(baseUrl).hostname];
  const hosts = new Set(names.map((name) => (port === '' ? name : `${name}:${port}`)));
  return ({ headers }) => {
    if (!hosts.has((headers.host ?? '').toLowerCase())) {
      return new AppError(
        'forbidden',
        'The sign-in is off: this service serves only requests to a name of this machine.',
      );
    }
    if (isForwarded(headers)) {
      return new AppError('forbidden', 'The sign-in is off: this service serves no forwarded requests.');
    }
    return undefined;
  };
}
