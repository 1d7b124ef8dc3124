type Cookie = {
  name: string;
  value: string;
  host: string;
  isHostOnly: boolean;
  path: string;
  isSecure: boolean;
};

/**
 * The cookies of one browser, without a browser: which it takes and which it shows, by RFC 6265bis §5.6 to §5.8. It
 * knows hosts, paths, `Secure` and the two prefixes; every visit is one to a whole page, and no time passes.
 */
export function openCookieJar() {
  let cookies: Cookie[] = [];
  const isSame = (one: Cookie, other: Cookie) =>
    one.name === other.name && one.host === other.host && one.path === other.path;

  return {
    /** Keeps what an answer of `url` sets. As in a browser, what is not allowed there is passed over in silence. */
    receive(url: string, lines: readonly string[]): void {
      const { hostname, protocol } = new URL(url);
      for (const line of lines) {
        const [pair = '', ...rest] = line.split(';').map((part) => part.trim());
        const settings = new Map(rest.map((part) => [part.split('=', 1)[0]!.toLowerCase(), textAfter(part)]));
        const domain = settings.get('domain')?.replace(/^\./, '');
        const cookie = {
          name: pair.slice(0, pair.indexOf('=')),
          value: textAfter(pair),
          host: domain ?? hostname,
          isHostOnly: domain === undefined,
          path: settings.get('path') ?? '/',
          isSecure: settings.has('secure'),
        };
        if (!isWithin(hostname, cookie.host) || !isAllowed(cookie, protocol)) continue;
        // One that came safely is not replaced by one that did not.
        if (protocol !== 'https:' && cookies.some((old) => old.isSecure && old.name === cookie.name))
          continue;
        const at = cookies.findIndex((old) => isSame(old, cookie));
        if (settings.get('max-age') === '0') cookies = cookies.filter((old) => !isSame(old, cookie));
        else if (at >= 0) cookies[at] = cookie;
        else cookies.push(cookie);
      }
    },

    /** What is shown at `url`: longer paths first, then the oldest first. */
    shownAt(url: string): { name: string; value: string }[] {
      const { hostname, protocol, pathname } = new URL(url);
      return cookies
        .filter(({ host, isHostOnly }) => (isHostOnly ? hostname === host : isWithin(hostname, host)))
        .filter(({ path }) => pathname === path || pathname.startsWith(path.replace(/\/?$/, '/')))
        .filter(({ isSecure }) => !isSecure || protocol === 'https:')
        .toSorted((one, other) => other.path.length - one.path.length)
        .map(({ name, value }) => ({ name, value }));
    },

    /** The same as a header; empty where there is nothing to show. */
    headerFor(url: string): string {
      return this.shownAt(url)
        .map(({ name, value }) => `${name}=${value}`)
        .join('; ');
    },
  };
}

function textAfter(part: string): string {
  const at = part.indexOf('=');
  return at < 0 ? '' : part.slice(at + 1);
}

function isWithin(hostname: string, domain: string): boolean {
  return hostname === domain || hostname.endsWith(`.${domain}`);
}

function isAllowed({ name, isSecure, isHostOnly, path }: Cookie, protocol: string): boolean {
  const isSafe = isSecure && protocol === 'https:';
  if (/^__host-/i.test(name)) return isSafe && isHostOnly && path === '/';
  return isSafe || (!isSecure && !/^__secure-/i.test(name));
}
