import type { IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';
import type { FastifyRequest } from 'fastify';

/**
 * Where requests come from, read as the routes do (`request.ip`), for those that reach no route: an address counts from
 * `X-Forwarded-For` as far as the proxies that name it are trusted (ranges as in TRELLIS_TRUSTED_PROXIES).
 *
 * The answer stands for the holder of the address: an IPv4 address, or the first 64 bits of an IPv6 address, since a
 * single subscriber is given as many addresses as there are below them (RFC 6177).
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

/** Whether a request carries a forwarded address although its peer is none of the trusted proxies. */
export function isForwardedInVain({ headers, ip, socket }: FastifyRequest): boolean {
  return headers['x-forwarded-for'] !== undefined && ip === socket.remoteAddress;
}

/** An IPv4 address as itself, also where the socket is one of IPv6. */
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
