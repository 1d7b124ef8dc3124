import { isConnectError } from './connect-error.ts';
import { askProgress, type Connected, outcomeOf, type Session, unreachable } from './progress.ts';

/** Where the page keeps its session, and who went with it, while the browser is away: in this tab alone. */
const storageKey = 'trellis-client:connect';

/** Which of a page's connects it is: its `id`, or else its integration. */
export type Who = string | undefined;
export const whoOf = ({ id, integration }: { id?: Who; integration?: Who }): Who => id ?? integration;

/** What this page is leaving with: nobody has come back with it yet. */
let leaving: string | undefined;

/** Leaves this page for the connect page. Settles only where the browser's button leads back to the page as it was left. */
export async function leaveFor(
  address: string,
  { session, who, signal }: { session: Session; who: Who; signal: AbortSignal },
): Promise<Connected> {
  const kept = JSON.stringify({ ...session, who });
  sessionStorage.setItem(storageKey, kept);
  leaving = kept;
  const isBack = new Promise<void>((resolve, reject) => {
    window.addEventListener('pageshow', ({ persisted }) => {
      if (!persisted) return;
      leaving = undefined;
      resolve();
    });
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  location.assign(address);
  await isBack;
  return finish({ session, who, kept });
}

export type FinishOptions = {
  /** Only what `connect` began with this `id`, or with this `integration` and no `id`; whatever it was without it. */
  id?: string | undefined;
};

/**
 * For the page that a redirect comes back to (`return_url` of the session): what came of it, or undefined where nobody went
 * from this tab. Calls at once share an answer; the next one has undefined. A page that is loaded again before the answer is
 * there, or while the service is away, still gets it. Throws `ConnectError`.
 */
export async function finishConnect(options?: FinishOptions): Promise<Connected | undefined> {
  const found = findKept();
  if (found === undefined || (options?.id !== undefined && options.id !== found.who)) return undefined;
  return finish(found);
}

/** What a page has come back with. */
export type Return = {
  /** Throws `ConnectError`. Those who ask share an answer, which stays there to ask for until it is forgotten. */
  outcome(): Promise<Connected>;
  forget(): void;
};

/** What the one went for that asks; undefined where nobody went, or another. */
export function findReturn(who: Who): Return | undefined {
  try {
    const found = findKept();
    if (found === undefined || found.who !== who) return undefined;
    return { outcome: () => outcomeOfKept(found), forget: () => forget(found) };
  } catch (error) {
    return { outcome: () => Promise.reject(error), forget: () => {} };
  }
}

/** Whether what came of it is known, so that it need not be asked for again. */
export function isFinal(error: unknown): boolean {
  return isConnectError(error) && error.reason !== unreachable;
}

type Kept = { session: Session; who: Who; kept: string };

/** The session that this tab went with. What is none is forgotten. Throws where the browser lets a page keep nothing. */
function findKept(): Kept | undefined {
  const kept = sessionStorage.getItem(storageKey);
  if (kept === null || kept === leaving) return undefined;
  const read = readKept(kept);
  if (read === undefined) sessionStorage.removeItem(storageKey);
  return read && { ...read, kept };
}

function readKept(kept: string): Omit<Kept, 'kept'> | undefined {
  try {
    const { url, token, who } = JSON.parse(kept) as Record<string, unknown>;
    if (typeof url !== 'string' || typeof token !== 'string') return undefined;
    return { session: { url, token }, who: typeof who === 'string' ? who : undefined };
  } catch {
    return undefined;
  }
}

/** What came of a session, which is forgotten as soon as that is known. */
async function finish(found: Kept): Promise<Connected> {
  try {
    const made = await outcomeOfKept(found);
    forget(found);
    return made;
  } catch (error) {
    if (isFinal(error)) forget(found);
    throw error;
  }
}

/** What was asked for last, and the answer unless it may be another the next time. */
let asked: { kept: string; outcome: Promise<Connected> } | undefined;

function outcomeOfKept({ session, kept }: Kept): Promise<Connected> {
  if (asked?.kept === kept) return asked.outcome;
  const ask = async () => outcomeOf(await askProgress(session, new AbortController().signal), 'abandoned');
  const outcome = ask();
  const own = { kept, outcome };
  asked = own;
  outcome.catch((error: unknown) => {
    if (!isFinal(error) && asked === own) asked = undefined;
  });
  return outcome;
}

function forget({ kept }: Kept): void {
  if (asked?.kept === kept) asked = undefined;
  // Somebody may have gone again meanwhile.
  if (sessionStorage.getItem(storageKey) === kept) sessionStorage.removeItem(storageKey);
}
