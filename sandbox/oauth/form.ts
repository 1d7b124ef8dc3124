import type { Incoming, Reply } from '../http.ts';
import { json } from '../http.ts';

/** Headers of every answer of the token and revocation endpoints, as recorded from Google. */
export const NO_STORE = {
  'cache-control': 'no-cache, no-store, max-age=0, must-revalidate',
  pragma: 'no-cache',
  expires: 'Mon, 01 Jan 1990 00:00:00 GMT',
  vary: 'X-Origin, Referer, Origin,Accept-Encoding',
  server: 'scaffolding on HTTPServer2',
  'x-content-type-options': 'nosniff',
};

/** A refusal of the token or revocation endpoint (RFC 6749 §5.2), thrown where it is found and written once. */
export class OAuthRefusal extends Error {
  readonly status: number;
  readonly code: string;
  readonly #more: Record<string, string>;

  /** `more` are further fields of the answer, such as `error_subtype`. */
  constructor(status: number, code: string, description: string, more: Record<string, string> = {}) {
    super(description);
    this.status = status;
    this.code = code;
    this.#more = more;
  }

  toReply(): Reply {
    const body = { error: this.code, error_description: this.message, ...this.#more };
    return json(this.status, body, NO_STORE);
  }
}

/**
 * The parameters of a posted form, or of a JSON object of strings, which Google also takes.
 * Throws `invalid_request` for anything else.
 */
export function readForm(request: Incoming): URLSearchParams {
  const text = request.body.toString();
  const type = (request.headers['content-type'] ?? '').split(';', 1)[0]!.trim().toLowerCase();
  if (type !== 'application/json') return new URLSearchParams(text);
  try {
    const fields = Object.entries(JSON.parse(text) as Record<string, unknown>);
    return new URLSearchParams(fields.map(([name, value]) => [name, String(value)]));
  } catch {
    throw new OAuthRefusal(400, 'invalid_request', 'Could not parse the request body.');
  }
}
