import type { Endpoint } from './queries.ts';

/** The state of an endpoint as a word and a color, with the reason and the next step. */
type EndpointState = { color: string; word: string; why?: string };

const causes: Record<string, string> = {
  operator: 'A user or key turned it off.',
  gone: 'It responded with 410 Gone.',
  failing: 'All deliveries failed for five days.',
};

export function stateOf(endpoint: Endpoint): EndpointState {
  const { disabled, breaker, last_failure: failure } = endpoint;
  if (disabled !== null) {
    return {
      color: disabled.cause === 'operator' ? 'gray' : 'red',
      word: disabled.cause === 'operator' ? 'Turned off' : 'Disabled',
      why: `${causes[disabled.cause] ?? ''} No events are queued for it. Turn it on again, then replay the missed range.`,
    };
  }
  if (breaker.state !== 'closed') {
    return {
      color: 'orange',
      word: breaker.state === 'open' ? 'Suspended' : 'Probing',
      why: `${breaker.failures} consecutive attempts failed, so only one probe at a time is sent. One success ends this.`,
    };
  }
  if (endpoint.paused_until !== null) {
    return { color: 'yellow', word: 'Paused', why: 'The receiver requested a pause with Retry-After.' };
  }
  if (breaker.failures > 0) {
    return { color: 'yellow', word: 'Failing', why: failure === null ? '' : failureOf(failure) };
  }
  if (endpoint.last_success_at === null) return { color: 'gray', word: 'No deliveries yet' };
  return { color: 'green', word: 'Healthy' };
}

/** Whether it is disabled by failures, or its breaker is not closed. */
export function isFailing({ disabled, breaker }: Endpoint): boolean {
  return disabled === null ? breaker.state !== 'closed' : disabled.cause !== 'operator';
}

const errors: Record<string, string> = {
  redirect: 'It responded with a redirect, which is not followed. Use the address of the redirect instead.',
  timeout: 'It did not respond within 20 seconds. Accept the event first, and process it afterwards.',
  no_answer: 'The connection failed, or there was no response.',
  address_not_allowed: 'Its address is in a range that is not allowed (TRELLIS_OUTBOUND_ALLOW).',
  mail_refused: 'The mail server did not accept the mail.',
  mail_not_configured: 'The service has no mail server. Set SMTP_URL and SMTP_FROM.',
  internal: 'The service could not build or sign the event. The log of the service has the reason.',
};

/** The failure of an attempt as a sentence. */
export function failureOf(attempt: Record<string, unknown>): string {
  const { error, http_status: status, code } = attempt;
  if (error === 'status' || (error === undefined && status !== undefined)) {
    return `It answered ${status}. Every status other than 2xx is a failure.`;
  }
  const text = errors[String(error)] ?? 'The attempt failed.';
  return typeof code === 'string' ? `${text} (${code})` : text;
}

const kinds: Record<string, string> = {
  primary: 'webhook_url',
  secondary: 'webhook_url_secondary',
  override: 'address of connections',
};

/** The setting that an endpoint represents, if any. */
export const kindOf = (kind: string): string | undefined => kinds[kind];

/** What an endpoint gets. */
export const formats: Record<Endpoint['format'], string> = {
  standard: 'Webhook',
  slack: 'Slack-compatible',
  email: 'E-mail',
};

/** The address as people write it. */
export const addressOf = (url: string): string => url.replace(/^mailto:/i, '');

/** The host of an address or the mail address, for a narrow column. */
export function hostOf(url: string): string {
  try {
    return new URL(url).host || addressOf(url);
  } catch {
    return url;
  }
}
