import { askProgress, type Connected, outcomeOf, type Session } from './progress.ts';

/** Where the page keeps its session while the browser is away: in this tab alone. */
const storageKey = 'trellis-client:connect';

/** Leaves this page for the connect page. Settles only where the browser's button leads back to the page as it was left. */
export async function leaveFor(
  address: string,
  { session, signal }: { session: Session; signal: AbortSignal },
): Promise<Connected> {
  sessionStorage.setItem(storageKey, JSON.stringify(session));
  const isBack = new Promise<void>((resolve, reject) => {
    window.addEventListener('pageshow', ({ persisted }) => persisted && resolve());
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  location.assign(address);
  await isBack;
  sessionStorage.removeItem(storageKey);
  return outcomeOf(await askProgress(session, signal), 'abandoned');
}

let finishing: Promise<Connected | undefined> | undefined;

/**
 * For the page that a redirect comes back to (`return_url` of the session): what came of it, or undefined where nobody went
 * from this tab. Calls at once share an answer; the next one has undefined. Throws `ConnectError`.
 */
export function finishConnect(): Promise<Connected | undefined> {
  finishing ??= finish().finally(() => {
    finishing = undefined;
  });
  return finishing;
}

async function finish(): Promise<Connected | undefined> {
  const kept = sessionStorage.getItem(storageKey);
  if (kept === null) return undefined;
  sessionStorage.removeItem(storageKey);
  const session = JSON.parse(kept) as Session;
  return outcomeOf(await askProgress(session, new AbortController().signal), 'abandoned');
}
