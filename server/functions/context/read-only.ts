/**
 * What an action that is authored `readOnly: true` may do: it reads, whatever its input talks it into. Callers that may not
 * write are let in by that word, so the service holds the code to it.
 */
import { AppError } from '../../errors.ts';
import { type Overrides, overrideIn } from '../../proxy/overrides.ts';

type OutgoingCall = {
  method: string;
  /** With or without a query. */
  address: string;
  query?: string | undefined;
  headers: Record<string, string>;
};

/** Asks that change something of ours which outlives the run. */
const writingAsks: ReadonlySet<string> = new Set(['setMetadata', 'updateMetadata', 'saveState']);

/** Throws `action_is_read_only` unless the call can be nothing but a GET or a HEAD. `also` are the API's own ways to say another method. */
export function requireReading(
  { method, address, query = '', headers }: OutgoingCall,
  also?: Overrides | undefined,
): void {
  if (method !== 'GET' && method !== 'HEAD') throw refusal(`${method.slice(0, 20)} is refused`);
  const asked = [address.split('?').slice(1).join('?'), query].filter((part) => part !== '').join('&');
  const override = overrideIn(Object.entries(headers).flat(), { query: asked, also });
  if (override !== undefined) throw refusal(`"${override.slice(0, 100)}" could make the call another one`);
}

/** Throws `action_is_read_only` where the ask writes. */
export function requireReadingAsk(name: string): void {
  if (writingAsks.has(name)) throw refusal(`${name} is refused`);
}

function refusal(why: string): AppError {
  return new AppError('action_is_read_only', `The action is read-only: ${why}.`);
}
