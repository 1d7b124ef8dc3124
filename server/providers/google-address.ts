/** Which base addresses Google takes: judged alike by the dashboard and by `trellis doctor`. Pure. */

/** Names that no public registry hands out (RFC 2606, RFC 6761, RFC 8375, ICANN's `internal`), and usual private ones. */
const privateNames =
  /\.(?:local|localdomain|internal|intranet|lan|private|corp|home|home\.arpa|test|localhost|example|invalid|onion|svc)$/;

/**
 * Why Google will not register an address as a redirect URI or origin, with what to do; undefined where it fits its rules:
 * https but for localhost, no bare IP address but localhost's, a host below a public suffix, no user name.
 * Source: "Redirect URI validation rules", developers.google.com/identity/protocols/oauth2/web-server.
 */
export function whyNotAtGoogle(baseUrl: string): string | undefined {
  const { protocol, hostname, username } = new URL(baseUrl);
  if (hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d+){3}$/.test(hostname))
    return undefined;
  if (/^[\d.]+$|^\[/.test(hostname))
    return 'It takes no bare IP address. Give the service a host name, and set BASE_URL to it.';
  if (!hostname.includes('.') || privateNames.test(hostname)) {
    return 'Its host has no public top-level domain. Set BASE_URL to a name below one; the name need not lead to the service from outside your network.';
  }
  if (username !== '') return 'It takes no address with a user name. Leave it out of BASE_URL.';
  if (protocol !== 'https:')
    return 'It takes http for localhost alone. Put TLS in front, and set BASE_URL to the https address.';
  return undefined;
}

/** What still works at such an address, but should be known. */
export function adviceAtGoogle(baseUrl: string): string | undefined {
  const { hostname } = new URL(baseUrl);
  const isHere = hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.');
  return isHere
    ? 'Google takes it, but only a browser on this machine comes back to it. Before users connect from elsewhere, set BASE_URL to a public https address and register that one too.'
    : undefined;
}
