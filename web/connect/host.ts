/**
 * The page around the frame, as official browser clients speak with it: the frame says `ready`, is given a
 * `session_token`, and tells `connect`, `error` and `close`. What it tells is no secret, so any origin may hear it;
 * who may frame the page at all is the service's to say (`frame-ancestors`). The page that opened this one in a window of
 * its own is told the same; the token comes by the address then.
 */
type Event =
  | { type: 'ready' | 'close' }
  | { type: 'connect'; payload: { providerConfigKey: string; connectionId: string } }
  | { type: 'error'; payload: { errorType: string; errorMessage: string } };

/** Does nothing if the page has no host. A provider's page may have cut the link to the window's opener. */
export function tellHost(event: Event): void {
  if (window.parent !== window) window.parent.postMessage(event, '*');
  else (window.opener as Window | null)?.postMessage(event, '*');
}

/** Says that the frame is ready, and calls back with each token that the page around it gives. Returns how to stop. */
export function onSessionToken(take: (token: string) => void): () => void {
  const listen = ({ source, data }: MessageEvent) => {
    if (source !== window.parent || data?.type !== 'session_token') return;
    if (typeof data.sessionToken === 'string') take(data.sessionToken);
  };
  window.addEventListener('message', listen);
  tellHost({ type: 'ready' });
  return () => window.removeEventListener('message', listen);
}
