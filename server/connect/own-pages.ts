/**
 * Whether an address leads to the pages of this service that connect accounts. Throws where `address` is no URL.
 *
 * A link of the connect page must lead to none of them: who comes from a page of ours is not asked again before a trip
 * begins (`page-routes.ts`), so an application could have a stranger begin with a session of its own. Other paths of
 * the same origin are free: the application may be there.
 */
export function leadsToOwnPages(address: string, baseUrl: string): boolean {
  const [url, base] = [new URL(address), new URL(baseUrl)];
  // Of a host known by HSTS a browser asks nothing by http, and sees one origin (RFC 6797 §8.3).
  if (base.protocol === 'https:') url.protocol = base.protocol;
  if (url.origin !== base.origin) return false;
  const [path, own] = [routedPath(url), routedPath(base).replace(/\/$/, '')];
  return path.startsWith(`${own}/`) && /^\/(oauth|connect)(\/|$)/.test(path.slice(own.length));
}

/** The exit address of a connect page; null if it leads to a page of this service, or is not set. */
export function wayOut(address: string | undefined, baseUrl: string): string | null {
  return address === undefined || leadsToOwnPages(address, baseUrl) ? null : address;
}

/**
 * The path as a router or a proxy may understand it: percent-encoded ASCII decoded until nothing changes, slashes
 * merged, no `.` and `..`.
 */
function routedPath({ pathname }: URL): string {
  const routed = new URL('http://routed');
  let path = pathname;
  for (;;) {
    const decoded = path.replaceAll(/%([0-7][0-9a-f])/gi, (_, hex) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
    routed.pathname = decoded.replaceAll(/[/\\]+/g, '/');
    if (routed.pathname === path) return path;
    path = routed.pathname;
  }
}
