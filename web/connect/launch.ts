import type { readFieldErrors } from './queries.ts';
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
  /** The result of a flow in this tab from which the user has just returned, and what the user had entered before. */
  returned: { message: CallbackMessage; draft: Draft } | undefined;
};

/** What the user has entered for each integration, without secrets. */
export type Draft = Record<string, Record<string, string>>;

/** The message of the callback page. */
export type CallbackMessage = {
  type: string;
  payload?: { message: string; errorType: string; errors?: Parameters<typeof readFieldErrors>[0] };
};

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

/** Makes the callback page return to this address, with the result in the same storage entry, which keeps the draft. */
export function expectReturn(brand: string, draft: Draft): void {
  write(returnKey(brand), JSON.stringify({ search: location.search, draft }));
}

/** A window opened from here copies the storage of this tab, but must not return here. */
export function expectNoReturn(brand: string): void {
  try {
    sessionStorage.removeItem(returnKey(brand));
  } catch {
    // Without storage, nothing is kept.
  }
}

function takeReturned(brand: string): Launch['returned'] {
  const kept = read(returnKey(brand));
  expectNoReturn(brand);
  if (kept === undefined) return undefined;
  const { told, draft = {} } = JSON.parse(kept) as { told?: CallbackMessage; draft?: Draft };
  return told && { message: told, draft };
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
