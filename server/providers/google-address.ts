/** The base addresses that Google accepts: the same check for the dashboard and for `trellis doctor`. Pure. */

const loopback = /^(?:localhost|\[::1\]|127(?:\.\d+){3})$/;
/**
 * Names that no public registry assigns (RFC 2606, RFC 6761, RFC 8375, ICANN's `internal`), and usual private ones.
 */
const privateNames =
  /\.(?:local|localdomain|internal|intranet|lan|private|corp|home|home\.arpa|test|localhost|example|invalid|onion|svc)$/;

/**
 * Why Google does not register an address as a redirect URI or origin, with a remedy; undefined if the address follows
 * its rules: https except for localhost, no bare IP address except localhost's, a host below a public suffix, no user
 * name. Source: "Redirect URI validation rules", developers.google.com/identity/protocols/oauth2/web-server.
 */
export function whyNotAtGoogle(baseUrl: string): string | undefined {
  const { protocol, hostname, username } = new URL(baseUrl);
  if (loopback.test(hostname)) return undefined;
  if (/^[\d.]+$|^\[/.test(hostname))
    return 'Google does not accept IP addresses. Give the service a host name, and set BASE_URL to it.';
  if (!hostname.includes('.') || privateNames.test(hostname)) {
    return 'Its host has no public top-level domain. Set BASE_URL to a name below a public top-level domain; the name need not lead to the service from outside your network.';
  }
  if (username !== '')
    return 'Google accepts no address with a user name. Remove the user name from BASE_URL.';
  if (protocol !== 'https:')
    return 'Google accepts http only for localhost. Put TLS in front, and set BASE_URL to the https address.';
  return undefined;
}

/** A limitation of an address that Google accepts. */
export function adviceAtGoogle(baseUrl: string): string | undefined {
  return loopback.test(new URL(baseUrl).hostname)
    ? 'Google accepts this address, but it works only in a browser on this machine. Before users connect from elsewhere, set BASE_URL to a public https address and register that address too.'
    : undefined;
}
