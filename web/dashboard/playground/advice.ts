import type { ProxiedAnswer } from './queries.ts';

export type Advice = {
  /** Who refused. */
  by: 'Trellis' | 'provider';
  title: string;
  text: string;
  /** Where to go next. */
  leadsTo?: 'connection' | 'integration' | 'activity';
};

/** What to do about an error of the service's own, by its code. docs/errors.md has all of them. */
const ofCode: Record<string, Omit<Advice, 'by'>> = {
  connection_needs_reauth: {
    title: 'The connection is dead',
    text: 'The provider no longer accepts it. Its user has to connect once more; the page of the connection has the link.',
    leadsTo: 'connection',
  },
  connection_blocked: {
    title: 'The connection is blocked',
    text: 'An administrator of the account does not allow the application, or the client may no longer be used.',
    leadsTo: 'connection',
  },
  connection_refresh_failed: {
    title: 'No new access token at the moment',
    text: 'The token has expired and the provider does not give another one right now. Try again a little later.',
    leadsTo: 'connection',
  },
  integration_misconfigured: {
    title: 'The integration has wrong settings',
    text: 'The provider refused the OAuth client. Check its ID and secret.',
    leadsTo: 'integration',
  },
  test_credentials_unavailable: {
    title: 'The sandbox is off',
    text: 'This is a test connection, and its provider does not run. Start the service with the sandbox.',
  },
  unknown_connection: {
    title: 'There is no such connection',
    text: 'It may have been deleted. Choose another one above.',
  },
  invalid_headers: {
    title: 'A header does not fit',
    text: 'The answer below names it. Retries is 0 to 10, Timeouts and Quota-Wait are seconds.',
  },
  invalid_proxy_path: {
    title: 'The path cannot be sent',
    text: 'It has a dot segment, a backslash, two slashes at its start, or a character that must be encoded.',
  },
  proxy_rule_denied: {
    title: 'A rule refuses the call',
    text: 'The rules of the integration do not let it pass. The provider was not asked.',
    leadsTo: 'integration',
  },
  quota_exhausted: {
    title: 'The quota is used up',
    text: 'The call was not sent, because the provider would refuse it. Retry-After below says when to try again.',
    leadsTo: 'integration',
  },
  upstream_timeout: {
    title: 'The provider did not answer in time',
    text: 'Reading again does no harm. What was to be written may have been done: look before you repeat it.',
    leadsTo: 'activity',
  },
  upstream_unreachable: {
    title: 'The provider could not be reached',
    text: 'Nothing was done. Try again; with the header Retries the proxy does so by itself.',
  },
  upstream_unknown_outcome: {
    title: 'The connection broke in the middle',
    text: 'The provider may have done the work. Look before you repeat it.',
  },
  upstream_unreadable: {
    title: 'The answer could not be read',
    text: 'Something else than an API answers at this address, or the fault is at the provider.',
  },
  address_not_allowed: {
    title: 'This address is not called',
    text: 'It is private, on this machine or reserved. TRELLIS_OUTBOUND_ALLOW opens ranges.',
  },
  forbidden: { title: 'Your role does not allow it', text: 'Ask an owner for the role of a developer.' },
  not_signed_in: { title: 'You are signed out', text: 'Sign in again; the call stays in the address.' },
};

/** What an error means and what to do next; undefined for an answer that is none. */
export function adviceOn({
  status,
  ownError,
}: Pick<ProxiedAnswer, 'status' | 'ownError'>): Advice | undefined {
  if (ownError !== undefined) {
    const known = ofCode[ownError];
    return known !== undefined
      ? { by: 'Trellis', ...known }
      : { by: 'Trellis', title: 'Trellis did not make the call', text: 'The answer below says why.' };
  }
  if (status < 400) return undefined;
  return { by: 'provider', ...ofStatus(status) };
}

function ofStatus(status: number): Omit<Advice, 'by'> {
  switch (status) {
    case 400:
      return {
        title: 'The provider does not understand the call',
        text: 'Its answer mostly names the field or parameter that is wrong.',
      };
    case 401:
      return {
        title: 'The provider does not accept the credentials',
        text: 'A new token was asked for and did not help. The page of the connection says how it is.',
        leadsTo: 'connection',
      };
    case 403:
      return {
        title: 'The provider forbids it',
        text: 'The account may not do this, a scope was not granted, or the API is not enabled in your project.',
        leadsTo: 'connection',
      };
    case 404:
      return {
        title: 'The provider does not find it',
        text: 'Check the path and the IDs in it. What the account may not see is often not found, either.',
      };
    case 429:
      return {
        title: 'The provider wants fewer calls',
        text: 'Wait as long as Retry-After says. With the header Retries the proxy waits and tries again by itself.',
      };
    default:
      return status >= 500
        ? {
            title: 'The provider is in trouble',
            text: 'Try again; with the header Retries the proxy does so by itself where it does no harm.',
          }
        : { title: 'The provider refuses the call', text: 'Its answer below says why.' };
  }
}
