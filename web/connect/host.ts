/**
 * The protocol with the host page of a frame, as official browser clients implement it: the frame sends `ready`,
 * receives a `session_token`, and sends `connect`, `error` and `close`. The messages are not secret, so every origin
 * may receive them; the service restricts the pages that may frame this one (`frame-ancestors`). A page that opened
 * this one in a window receives the same messages; the token is then in the address.
 */
type Event =
  | { type: 'ready' | 'close' }
  | { type: 'connect'; payload: { providerConfigKey: string; connectionId: string } }
  | { type: 'error'; payload: { errorType: string; errorMessage: string } };

/** Does nothing if the page has no host. A provider's page may have cut the link to the window's opener. */
export function notifyHost(event: Event): void {
  if (window.parent !== window) window.parent.postMessage(event, '*');
  else (window.opener as Window | null)?.postMessage(event, '*');
}

/** Reports that the frame is ready, and passes on each token of the host page. Returns a function that stops this. */
export function onSessionToken(take: (token: string) => void): () => void {
  const listen = ({ source, data }: MessageEvent) => {
    if (source !== window.parent || data?.type !== 'session_token') return;
    if (typeof data.sessionToken === 'string') take(data.sessionToken);
  };
  window.addEventListener('message', listen);
  notifyHost({ type: 'ready' });
  return () => window.removeEventListener('message', listen);
}
