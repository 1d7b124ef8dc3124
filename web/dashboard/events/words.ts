import type { Endpoint } from './queries.ts';

/** In one word and one colour how an endpoint is, and in a sentence why and what helps. */
type EndpointState = { color: string; word: string; why?: string };

const causes: Record<string, string> = {
  operator: 'Somebody switched it off.',
  gone: 'It answered 410 Gone, which says that nobody is there any more.',
  failing: 'Nothing has arrived there for five days.',
};

export function stateOf(endpoint: Endpoint): EndpointState {
  const { disabled, breaker, last_failure: failure } = endpoint;
  if (disabled !== null) {
    return {
      color: disabled.cause === 'operator' ? 'gray' : 'red',
      word: disabled.cause === 'operator' ? 'Switched off' : 'Disabled',
      why: `${causes[disabled.cause] ?? ''} Nothing is queued for it. Switch it on again, then replay what it missed.`,
    };
  }
  if (breaker.state !== 'closed') {
    return {
      color: 'orange',
      word: breaker.state === 'open' ? 'Left alone' : 'Being probed',
      why: `${breaker.failures} attempts in a row failed, so it gets one probe at a time. A single success ends that.`,
    };
  }
  if (endpoint.paused_until !== null) {
    return { color: 'yellow', word: 'Paused', why: 'The receiver asked for silence with Retry-After.' };
  }
  if (breaker.failures > 0) {
    return { color: 'yellow', word: 'Failing', why: failure === null ? '' : failureOf(failure) };
  }
  if (endpoint.last_success_at === null) return { color: 'gray', word: 'Nothing sent yet' };
  return { color: 'green', word: 'Healthy' };
}

const errors: Record<string, string> = {
  redirect: 'It answered with a redirect, which is not followed. Give the address that it leads to.',
  timeout: 'It did not answer within 20 seconds. Take the event first, and act on it afterwards.',
  no_answer: 'No connection, or no answer to it.',
  address_not_allowed: 'Its address is in a range that may not be called (TRELLIS_OUTBOUND_ALLOW).',
  internal: 'The service could not write or sign the event. Its log says why.',
};

/** What an attempt ran into, in a sentence. */
export function failureOf(attempt: Record<string, unknown>): string {
  const { error, http_status: status, code } = attempt;
  if (error === 'status' || (error === undefined && status !== undefined)) {
    return `It answered ${status}. Anything but 2xx counts as not taken.`;
  }
  const told = errors[String(error)] ?? 'The attempt failed.';
  return typeof code === 'string' ? `${told} (${code})` : told;
}

const kinds: Record<string, string> = {
  primary: 'webhook_url',
  secondary: 'webhook_url_secondary',
  override: 'address of connections',
};

/** What an endpoint stands for, where it stands for a setting. */
export const kindOf = (kind: string): string | undefined => kinds[kind];

/** The part of an address that tells it from others in a narrow column. */
export function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return url;
  }
}
