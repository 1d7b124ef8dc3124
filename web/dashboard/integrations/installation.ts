/** How the service is called from outside, as its answers carry it (BASE_URL), wherever the browser found it. */
type Installation = {
  baseUrl: string;
  /** Where a provider sends users back to. */
  redirectUri: string;
  /** What Google calls an authorized JavaScript origin. */
  origin: string;
};

/** Read from the address of a logo, which every provider and integration has. */
export function installationOf(logoUrl: string): Installation {
  const baseUrl = logoUrl.replace(/\/providers\/logos\/.*$/, '');
  return { baseUrl, redirectUri: `${baseUrl}/oauth/callback`, origin: new URL(baseUrl).origin };
}
