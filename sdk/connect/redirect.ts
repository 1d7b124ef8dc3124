import { isConnectError } from './connect-error.ts';
import { askProgress, type Connected, outcomeOf, type Session, unreachable } from './progress.ts';

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
  return outcomeOfKept({ session, kept: JSON.stringify(session) }, signal);
}

let finishing: Promise<Connected | undefined> | undefined;

/**
 * For the page that a redirect comes back to (`return_url` of the session): what came of it, or undefined where nobody went
 * from this tab. Calls at once share an answer; the next one has undefined. A page that is loaded again before the answer is
 * there, or while the service is away, still gets it. Throws `ConnectError`.
 */
export function finishConnect(): Promise<Connected | undefined> {
  finishing ??= finish().finally(() => {
    finishing = undefined;
  });
  return finishing;
}

/** Whether `finishConnect` has something to tell, be it why it cannot. */
export function canFinish(): boolean {
  try {
    return findKept() !== undefined;
  } catch {
    return true;
  }
}

async function finish(): Promise<Connected | undefined> {
  const found = findKept();
  return found && outcomeOfKept(found, new AbortController().signal);
}

type Kept = { session: Session; kept: string };

/** The session that this tab went with. What is none is forgotten. Throws where the browser lets a page keep nothing. */
function findKept(): Kept | undefined {
  const kept = sessionStorage.getItem(storageKey);
  if (kept === null) return undefined;
  const session = sessionIn(kept);
  if (session === undefined) sessionStorage.removeItem(storageKey);
  return session && { session, kept };
}

function sessionIn(kept: string): Session | undefined {
  try {
    const { url, token } = JSON.parse(kept) as Record<string, unknown>;
    return typeof url === 'string' && typeof token === 'string' ? { url, token } : undefined;
  } catch {
    return undefined;
  }
}

/** What came of a session, which is forgotten as soon as that is known. */
async function outcomeOfKept({ session, kept }: Kept, signal: AbortSignal): Promise<Connected> {
  const forget = () => {
    // Somebody may have gone again meanwhile.
    if (sessionStorage.getItem(storageKey) === kept) sessionStorage.removeItem(storageKey);
  };
  try {
    const made = outcomeOf(await askProgress(session, signal), 'abandoned');
    forget();
    return made;
  } catch (error) {
    if (isConnectError(error) && error.reason !== unreachable) forget();
    throw error;
  }
}
