import { isConnectError } from './connect-error.ts';
import { type Connected, resultOf, retryProgress, type Session, unreachable } from './progress.ts';

/** The item of `sessionStorage`, so of this tab only, that stores the session and the flow ID during a redirect. */
const storageKey = 'trellis-client:connect';

/** Identifies a flow among those of a page: its `id`, or else its integration. */
export type FlowId = string | undefined;
export const flowIdOf = ({ id, integration }: { id?: FlowId; integration?: FlowId }): FlowId =>
  id ?? integration;

/** The stored item of the redirect that this page has started; its result is not known yet. */
let outgoing: string | undefined;

/**
 * Redirects this page to the connect page. Settles only if the browser's back button restores this page from the
 * back/forward cache, or if the signal aborts.
 */
export async function redirectTo(
  address: string,
  { session, flowId, signal }: { session: Session; flowId: FlowId; signal: AbortSignal },
): Promise<Connected> {
  const item = JSON.stringify({ ...session, who: flowId });
  sessionStorage.setItem(storageKey, item);
  outgoing = item;
  const restored = new Promise<void>((resolve, reject) => {
    window.addEventListener('pageshow', ({ persisted }) => {
      if (!persisted) return;
      outgoing = undefined;
      resolve();
    });
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  location.assign(address);
  await restored;
  return finish({ session, flowId, item });
}

export type FinishOptions = {
  /** Finishes only the flow that `connect` started with this `id`, or with this `integration` and no `id`. By default, any. */
  id?: string | undefined;
};

/**
 * Returns the result of a redirect; call it in the page at the `return_url` of the session. Returns undefined if no
 * redirect started in this tab.
 *
 * Concurrent calls share a result; the next call returns undefined. If the page is reloaded before the result is known or
 * while the service cannot be reached, a later call still returns it. Throws `ConnectError`.
 */
export async function finishConnect(options?: FinishOptions): Promise<Connected | undefined> {
  const flow = findFlow();
  if (flow === undefined || (options?.id !== undefined && options.id !== flow.flowId)) return undefined;
  return finish(flow);
}

/** A flow whose redirect has returned to this page. */
export type ReturnedFlow = {
  /** Throws `ConnectError`. All callers share one result, which stays available until `remove`. */
  result(): Promise<Connected>;
  remove(): void;
};

/** The flow with this ID that returned to this page; undefined if there is none or if it has another ID. */
export function findReturnedFlow(flowId: FlowId): ReturnedFlow | undefined {
  try {
    const flow = findFlow();
    if (flow === undefined || flow.flowId !== flowId) return undefined;
    return { result: () => fetchResult(flow), remove: () => remove(flow) };
  } catch (error) {
    return { result: () => Promise.reject(error), remove: () => {} };
  }
}

/** Whether a further request would return the same error. */
export function isFinal(error: unknown): boolean {
  return isConnectError(error) && error.reason !== unreachable;
}

type StoredFlow = { session: Session; flowId: FlowId; item: string };

/** The flow stored in this tab. Removes an invalid item. Throws if the browser denies access to `sessionStorage`. */
function findFlow(): StoredFlow | undefined {
  const item = sessionStorage.getItem(storageKey);
  if (item === null || item === outgoing) return undefined;
  const flow = parseFlow(item);
  if (flow === undefined) sessionStorage.removeItem(storageKey);
  return flow;
}

function parseFlow(item: string): StoredFlow | undefined {
  try {
    const { url, token, who } = JSON.parse(item) as Record<string, unknown>;
    if (typeof url !== 'string' || typeof token !== 'string') return undefined;
    return { session: { url, token }, flowId: typeof who === 'string' ? who : undefined, item };
  } catch {
    return undefined;
  }
}

/** Returns the result of a flow, and removes the flow once its result is final. */
async function finish(flow: StoredFlow): Promise<Connected> {
  try {
    const connected = await fetchResult(flow);
    remove(flow);
    return connected;
  } catch (error) {
    if (isFinal(error)) remove(flow);
    throw error;
  }
}

/** The last result requested; unset if a further request may return another result. */
let cached: { item: string; result: Promise<Connected> } | undefined;

function fetchResult({ session, item }: StoredFlow): Promise<Connected> {
  if (cached?.item === item) return cached.result;
  const result = retryProgress(session, new AbortController().signal).then((progress) =>
    resultOf(progress, 'abandoned'),
  );
  const entry = { item, result };
  cached = entry;
  result.catch((error: unknown) => {
    if (!isFinal(error) && cached === entry) cached = undefined;
  });
  return result;
}

function remove({ item }: StoredFlow): void {
  if (cached?.item === item) cached = undefined;
  // The item may belong to a later redirect.
  if (sessionStorage.getItem(storageKey) === item) sessionStorage.removeItem(storageKey);
}
