const key = 'trellis-playground-body';

/**
 * Keeps the body of a call for a reload of this tab. Bodies hold what belongs to customers: they stay out of addresses,
 * which logs, histories and chats keep.
 */
export function keepBody(call: string, body: string): void {
  try {
    sessionStorage.setItem(key, JSON.stringify({ call, body }));
  } catch {
    // A browser that keeps nothing begins with an empty body.
  }
}

/** The body that was kept for this call; empty where there is none. */
export function keptBody(call: string): string {
  try {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? '{}') as { call?: string; body?: string };
    return kept.call === call && typeof kept.body === 'string' ? kept.body : '';
  } catch {
    return '';
  }
}
