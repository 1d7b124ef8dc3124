import { type Language, languages } from './texts.ts';

/**
 * The input of the page from its address, the tab and the document. The token comes from the address of a link, from
 * the host page of a frame (`host.ts`), or from the storage of this tab, which keeps it for a reload and a flow in this
 * tab. It is removed from the address before the first paint.
 */
export type Launch = {
  token: string | undefined;
  /** The integration that the link selects. */
  integration: string | undefined;
  /** The language of the link, which takes precedence over the settings. */
  language: Language | undefined;
  theme: 'light' | 'dark' | 'system' | undefined;
  /** Whether the host page treats a closed window as a failure. */
  detectsClosedWindow: boolean;
  isFramed: boolean;
  /** The base URL of the service as registered at the provider, without a trailing slash. */
  baseUrl: string;
  /** The brand in the names of messages and storage keys. */
  brand: string;
  nonce: string;
  /** The result of a flow in this tab from which the user has just returned. */
  returned: CallbackMessage | undefined;
};

/** The message of the callback page. */
export type CallbackMessage = { type: string; payload?: { message: string; errorType: string } };

export function readLaunch(): Launch {
  const { searchParams } = new URL(location.href);
  const { brand = 'trellis', baseUrl = location.origin } = document.documentElement.dataset;
  const given = (globalThis as { connectToken?: string }).connectToken;
  const theme = searchParams.get('theme');
  const lang = searchParams.get('lang');
  const isFramed = window.parent !== window;
  // A frame receives its token from the host page, which may show another session now.
  const kept = isFramed ? undefined : read(tokenKey(brand));
  if (given !== undefined) keepToken(brand, given);
  return {
    token: given ?? kept,
    integration: searchParams.get('integration') ?? undefined,
    language: lang === null ? undefined : spoken([lang]),
    theme: theme === 'light' || theme === 'dark' || theme === 'system' ? theme : undefined,
    detectsClosedWindow: searchParams.get('detectClosedAuthWindow') === 'true',
    isFramed,
    baseUrl,
    brand,
    nonce: document.querySelector<HTMLScriptElement>('script[nonce]')?.nonce ?? '',
    returned: takeReturned(brand),
  };
}

/** The first of these languages that the page supports, whatever the region. */
export function spoken(wanted: readonly string[]): Language | undefined {
  for (const one of wanted) {
    const [primary = ''] = one.toLowerCase().split('-');
    const found = languages.find((language) => language === primary);
    if (found !== undefined) return found;
  }
  return undefined;
}

export function keepToken(brand: string, token: string): void {
  write(tokenKey(brand), token);
}

/** Keeps a choice in the address, for a reload and for a flow in this tab. */
export function keepInAddress(name: 'integration' | 'lang', value: string | undefined): void {
  const address = new URL(location.href);
  if (value === undefined) address.searchParams.delete(name);
  else address.searchParams.set(name, value);
  history.replaceState(null, '', address);
}

/** Makes the callback page return to this address, with the result in the same storage entry. */
export function expectReturn(brand: string): void {
  write(returnKey(brand), JSON.stringify({ search: location.search }));
}

/** A window opened from here copies the storage of this tab, but must not return here. */
export function expectNoReturn(brand: string): void {
  try {
    sessionStorage.removeItem(returnKey(brand));
  } catch {
    // Without storage, nothing is kept.
  }
}

function takeReturned(brand: string): CallbackMessage | undefined {
  const kept = read(returnKey(brand));
  expectNoReturn(brand);
  return kept === undefined ? undefined : (JSON.parse(kept) as { told?: CallbackMessage }).told;
}

const tokenKey = (brand: string) => `${brand}_connect_token`;
const returnKey = (brand: string) => `${brand}_connect_return`;

/** A browser may deny storage to a frame. */
function read(key: string): string | undefined {
  try {
    return sessionStorage.getItem(key) ?? undefined;
  } catch {
    return undefined;
  }
}

function write(key: string, value: string): void {
  try {
    sessionStorage.setItem(key, value);
  } catch {
    // The page works without storage, but loses the token on a reload.
  }
}
