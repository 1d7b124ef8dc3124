import { BlockList, isIP } from 'node:net';
import type { AllowedRange, OutboundPurpose } from '../config/setting-values.ts';

// IANA IPv4 Special-Purpose Address Registry (RFC 6890), with multicast and class E.
const refusedIpv4 = ranges('ipv4', [
  '0.0.0.0/8', // this network, the unspecified address
  '10.0.0.0/8', // private
  '100.64.0.0/10', // carrier-grade NAT (RFC 6598), some clouds' metadata
  '127.0.0.0/8', // loopback
  '168.63.129.16/32', // Azure's metadata and DNS service
  '169.254.0.0/16', // link-local, most clouds' metadata
  '172.16.0.0/12', // private
  '192.0.0.0/24', // protocol assignments, Oracle's metadata
  '192.0.2.0/24', // documentation
  '192.88.99.0/24', // 6to4 relays
  '192.168.0.0/16', // private
  '198.18.0.0/15', // benchmarks
  '198.51.100.0/24', // documentation
  '203.0.113.0/24', // documentation
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, broadcast
]);

// Everything outside 2000::/3 is refused: loopback, unspecified, IPv4-mapped, NAT64 (64:ff9b::/96 and
// 64:ff9b:1::/48, whose last bits are an IPv4 address of anybody's choice), ULA, link-local, multicast.
const globalIpv6 = ranges('ipv6', ['2000::/3']);
const refusedIpv6 = ranges('ipv6', [
  '2001::/23', // protocol assignments: Teredo, benchmarks, ORCHID
  '2001:db8::/32', // documentation
  '2002::/16', // 6to4, which carries an IPv4 address
  '3fff::/20', // documentation
]);

/** Whether an address belongs to the public internet; false for an invalid address. */
export function isPublicAddress(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !refusedIpv4.check(address, 'ipv4');
    case 6:
      return isInIpv6(globalIpv6, address) && !isInIpv6(refusedIpv6, address);
    default:
      return false;
  }
}

type Target = { address: string; port: number; purpose: OutboundPurpose };

/** Whether one of the operator's ranges covers a call. An IPv4-mapped address counts as its IPv4 address. */
export function isCovered(allow: readonly AllowedRange[], { address, port, purpose }: Target): boolean {
  const version = isIP(address);
  return allow.some(
    (range) =>
      (range.port ?? port) === port &&
      (range.purpose ?? purpose) === purpose &&
      (version === 6
        ? isInIpv6(range.addresses, address)
        : version === 4 && range.addresses.check(address, 'ipv4')),
  );
}

function isInIpv6(list: BlockList, address: string): boolean {
  const [plain = address] = address.split('%', 1); // without its zone
  return list.check(plain, 'ipv6');
}

function ranges(family: 'ipv4' | 'ipv6', subnets: readonly string[]): BlockList {
  const list = new BlockList();
  for (const subnet of subnets) {
    const [address = '', bits] = subnet.split('/');
    list.addSubnet(address, Number(bits), family);
  }
  return list;
}
