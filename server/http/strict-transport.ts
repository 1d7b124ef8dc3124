/**
 * The header by which a browser calls this host over https alone for a year (RFC 6797), under an https BASE_URL; else
 * none, since over http browsers pass it over and the service may be on loopback.
 *
 * For our own answers. An answer of a provider passes the proxy unchanged.
 */
export function strictTransport(baseUrl: string): Record<string, string> {
  return new URL(baseUrl).protocol === 'https:' ? { 'strict-transport-security': 'max-age=31536000' } : {};
}
