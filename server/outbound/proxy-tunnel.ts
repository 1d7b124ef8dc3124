/**
 * Connections through the operator's HTTP proxy (CONNECT, RFC 9110 §9.3.6).
 *
 * The proxy gets an address, never a name: the service resolves the name and checks all its addresses first, and a proxy that
 * resolved the name again could reach another one. Inside the tunnel, TLS and `Host` have the name.
 */
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { BypassRule, OutboundProxyConfig } from '../config/outbound-proxy.ts';

/** The proxy cannot be reached, or opens no connection. The message contains no credentials. */
export class OutboundProxyError extends Error {
  readonly code: 'OUTBOUND_PROXY_UNREACHABLE' | 'OUTBOUND_PROXY_REFUSED';
  /** Whether another address of the same name may be reachable. */
  readonly isOfAddress: boolean;
  constructor(
    message: string,
    {
      code,
      isOfAddress = false,
      cause,
    }: Pick<OutboundProxyError, 'code'> & {
      isOfAddress?: boolean;
      cause?: unknown;
    },
  ) {
    super(message, { cause });
    this.name = 'OutboundProxyError';
    this.code = code;
    this.isOfAddress = isOfAddress;
  }
}

/** More would only delay the error. */
const maxAddresses = 4;

/**
 * A tunnel to the first address for which the proxy opens one, IPv4 first: many proxies have no IPv6. Nothing was written to
 * it. Throws OutboundProxyError, or the reason of the signal.
 */
export async function openTunnel(
  proxy: OutboundProxyConfig,
  { addresses, port, signal }: { addresses: readonly string[]; port: number; signal: AbortSignal },
): Promise<Socket> {
  const sorted = addresses.toSorted((a, b) => isIP(a) - isIP(b)).slice(0, maxAddresses);
  let last: unknown;
  for (const address of sorted) {
    try {
      return await tunnelTo(proxy, { address, port, signal });
    } catch (error) {
      if (!(error instanceof OutboundProxyError && error.isOfAddress)) throw error;
      last = error;
    }
  }
  throw last;
}

function tunnelTo(
  proxy: OutboundProxyConfig,
  { address, port, signal }: { address: string; port: number; signal: AbortSignal },
): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const authority = isIP(address) === 6 ? `[${address}]:${port}` : `${address}:${port}`;
  const name = `The outbound proxy ${proxy.host}:${proxy.port}`;
  const request = (proxy.isTls ? requestHttps : requestHttp)({
    host: proxy.host,
    port: proxy.port,
    method: 'CONNECT',
    path: authority,
    agent: false,
    // Otherwise Node takes it from Host, which names the target.
    ...(proxy.isTls && { servername: isIP(proxy.host) === 0 ? proxy.host : '' }),
    headers: {
      host: authority,
      ...(proxy.authorization !== undefined && { 'proxy-authorization': proxy.authorization }),
    },
  });
  const abort = () => request.destroy();
  const end = () => signal.removeEventListener('abort', abort);
  signal.addEventListener('abort', abort);
  request.on('connect', ({ statusCode = 0 }, socket: Socket, head) => {
    end();
    // The user of the tunnel listens for its errors. Without a listener, the error of an unused socket would end the process.
    socket.on('error', () => {});
    if (statusCode >= 200 && statusCode < 300) {
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
      return;
    }
    socket.destroy();
    const why = statusCode === 407 ? ': it requires a user and a password, or other ones' : '';
    const message = `${name} answered ${statusCode} to CONNECT ${authority}${why}`;
    // RFC 9110 §15.6: the proxy could not reach the address.
    const isOfAddress = statusCode >= 500;
    reject(new OutboundProxyError(message, { code: 'OUTBOUND_PROXY_REFUSED', isOfAddress }));
  });
  request.on('error', (cause: NodeJS.ErrnoException) => {
    end();
    if (signal.aborted) return reject(signal.reason);
    const message = `${name} cannot be reached (${cause.code ?? cause.name})`;
    reject(new OutboundProxyError(message, { code: 'OUTBOUND_PROXY_UNREACHABLE', cause }));
  });
  request.end();
  return promise;
}

/** Whether a call to this name, or an address in its place, does not use the proxy, whatever the addresses of the name. */
export function bypassesByName(
  bypass: readonly BypassRule[],
  { hostname, port }: { hostname: string; port: number },
): boolean {
  const host = hostname.replace(/\.$/, '').toLowerCase();
  return bypass.some(
    (rule) =>
      (rule.port ?? port) === port &&
      ('any' in rule || ('name' in rule && (host === rule.name || host.endsWith(`.${rule.name}`)))),
  );
}

/** Whether all addresses of a call are in ranges that do not use the proxy. */
export function bypassesByAddress(
  bypass: readonly BypassRule[],
  { addresses, port }: { addresses: readonly string[]; port: number },
): boolean {
  const ranges = bypass.filter((rule) => (rule.port ?? port) === port && 'addresses' in rule);
  return addresses.every((address) =>
    ranges.some(
      (rule) => 'addresses' in rule && rule.addresses.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4'),
    ),
  );
}
