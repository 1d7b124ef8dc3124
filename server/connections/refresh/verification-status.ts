import { type PlacedRequest, signedHeaders } from '../../auth-modes/place.ts';
import { refusalBehind } from '../../auth-modes/token-response.ts';
import type { Fetch } from '../../outbound/outbound.ts';

/**
 * The status of the response to the call that verifies credentials; undefined without a response. Does not wait for the body.
 * Throws AppError if the address is not allowed, because the operator must see that.
 */
export async function verificationStatus(
  request: PlacedRequest,
  { fetch, signal }: { fetch: Fetch; signal: AbortSignal },
): Promise<number | undefined> {
  const body = new AbortController();
  try {
    const { method, url, clientCertificate } = request;
    const response = await fetch(url, {
      method,
      clientCertificate,
      headers: await signedHeaders(request),
      redirect: 'manual',
      signal: AbortSignal.any([body.signal, signal]),
    });
    return response.status;
  } catch (error) {
    const refusal = refusalBehind(error);
    if (refusal !== undefined) throw refusal;
    return undefined;
  } finally {
    // The body is not used, and it may never end.
    body.abort();
  }
}
