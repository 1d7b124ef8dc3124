import { type Language, languages } from './texts.ts';

/**
 * What the address, the tab and the document say before anything is asked of the service.
 *
 * The token comes by the address of a link, by the page around a frame (`host.ts`), or by this tab's storage, where it
 * outlives a reload and a trip to the provider. It is taken out of the address before anything is painted.
 */
export type Launch = {
  token: string | undefined;
  /** An integration that the link chooses. */
  integration: string | undefined;
  /** What the link says, against what the application has set. */
  language: Language | undefined;
  theme: 'light' | 'dark' | 'system' | undefined;
  /** Whether the page around the frame counts a closed window as a failure. */
  detectsClosedWindow: boolean;
  isFramed: boolean;
  /** Of the service, as the provider knows it; without a trailing slash. */
  baseUrl: string;
  /** The word in interface names. */
  brand: string;
  nonce: string;
  /** How a trip in this very tab ended, where it has just come back. */
  returned: Told | undefined;
};

/** What the callback page says. */
export type Told = { type: string; payload?: { message: string; errorType: string } };

export function readLaunch(): Launch {
  const { searchParams } = new URL(location.href);
  const { brand = 'trellis', baseUrl = location.origin } = document.documentElement.dataset;
  const given = (globalThis as { connectToken?: string }).connectToken;
  const theme = searchParams.get('theme');
  const lang = searchParams.get('lang');
  const isFramed = window.parent !== window;
  // A frame gets its token from the page around it, which may show another session by now.
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

/** The first of these that the page speaks, whatever the region. */
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

/** What was chosen here, as a link would have said it: a reload and a trip in this very tab keep it. */
export function keepInAddress(name: 'integration' | 'lang', value: string | undefined): void {
  const address = new URL(location.href);
  if (value === undefined) address.searchParams.delete(name);
  else address.searchParams.set(name, value);
  history.replaceState(null, '', address);
}

/** Has the callback page lead back here, as the address stands; it leaves how it went in the same place. */
export function expectReturn(brand: string): void {
  write(returnKey(brand), JSON.stringify({ search: location.search }));
}

/** A window that is opened from here starts with a copy of this tab's storage, and is not to be led here. */
export function expectNoReturn(brand: string): void {
  try {
    sessionStorage.removeItem(returnKey(brand));
  } catch {
    // Without storage nothing is kept.
  }
}

function takeReturned(brand: string): Told | undefined {
  const kept = read(returnKey(brand));
  expectNoReturn(brand);
  return kept === undefined ? undefined : (JSON.parse(kept) as { told?: Told }).told;
}

const tokenKey = (brand: string) => `${brand}_connect_token`;
const returnKey = (brand: string) => `${brand}_connect_return`;

/** A browser may keep storage from a frame. */
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
    // The page works without; it only forgets with a reload.
  }
}
