/** TRELLIS_OUTBOUND_ALLOW: which addresses that are not public may be called, at which port and for what. */
import { BlockList, isIP } from 'node:net';

/**
 * What a call is for. `providers`: the proxy, tokens, whatever else is asked of a provider, and what functions fetch.
 * `endpoints`: deliveries of events. `sign-in`: the OpenID provider of the dashboard.
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
