import type { ProxiedAnswer } from './queries.ts';

export type Advice = {
  /** The source of the error. */
  by: 'Trellis' | 'provider';
  title: string;
  text: string;
  /** The page to open next. */
  leadsTo?: 'connection' | 'integration' | 'activity';
};

/** The advice for the error codes of the service. docs/reference/errors.md lists all of them. */
const ofCode: Record<string, Omit<Advice, 'by'>> = {
  connection_needs_reauth: {
    title: 'Reconnect needed',
    text: 'The provider no longer accepts it. The user must reconnect it; the page of the connection has the link.',
    leadsTo: 'connection',
  },
  connection_blocked: {
    title: 'The connection is blocked',
    text: 'An administrator of the account blocked the application, or the OAuth client is disabled.',
    leadsTo: 'connection',
  },
  connection_refresh_failed: {
    title: 'The access token could not be refreshed',
    text: 'The token has expired, and the provider did not issue a new one. Try again later.',
    leadsTo: 'connection',
  },
  integration_misconfigured: {
    title: 'The integration has wrong settings',
    text: 'The provider refused the OAuth client. Check its ID and secret.',
    leadsTo: 'integration',
  },
  test_credentials_unavailable: {
    title: 'The sandbox is off',
    text: 'This is a test connection, and the sandbox is not running. Start the service with the sandbox.',
  },
  unknown_connection: {
    title: 'Unknown connection',
    text: 'It may have been deleted. Choose another one above.',
  },
  invalid_headers: {
    title: 'A header is not valid',
    text: 'The response below names it. Retries is 0 to 10; Timeouts and Quota-Wait are in seconds.',
  },
  invalid_proxy_path: {
    title: 'The path is not valid',
    text: 'It has a dot segment, a backslash, two slashes at its start, or a character that must be encoded.',
  },
  proxy_rule_denied: {
    title: 'A proxy rule denies the call',
    text: 'The rules of the integration deny this call. It was not sent.',
    leadsTo: 'integration',
  },
  quota_exhausted: {
    title: 'The quota is used up',
    text: 'The call was not sent, because the provider would refuse it. The Retry-After header below gives the time to wait.',
    leadsTo: 'integration',
  },
  upstream_timeout: {
    title: 'The provider did not respond in time',
    text: 'You can repeat a read. Check the result of a write at the provider before you repeat it.',
    leadsTo: 'activity',
  },
  upstream_unreachable: {
    title: 'The provider could not be reached',
    text: 'The call was not processed. Try again; with the header Retries, the proxy retries automatically.',
  },
  upstream_unknown_outcome: {
    title: 'The connection was interrupted',
    text: 'The provider may have processed the call. Check at the provider before you repeat it.',
  },
  upstream_unreadable: {
    title: 'The response could not be read',
    text: 'The address does not belong to an API, or the provider has a problem.',
  },
  address_not_allowed: {
    title: 'This address is not allowed',
    text: 'The address is private, local or reserved. TRELLIS_OUTBOUND_ALLOW allows ranges.',
  },
  forbidden: { title: 'Your role does not allow this', text: 'Ask an owner for the role of a developer.' },
  not_signed_in: {
    title: 'You are signed out',
    text: 'Sign in again. The address of this page keeps the call.',
  },
};

/** The meaning of an error and the next step; undefined for a success. */
export function adviceOn({
  status,
  ownError,
}: Pick<ProxiedAnswer, 'status' | 'ownError'>): Advice | undefined {
  if (ownError !== undefined) {
    const known = ofCode[ownError];
    return known !== undefined
      ? { by: 'Trellis', ...known }
      : {
          by: 'Trellis',
          title: 'Trellis did not make the call',
          text: 'The response below gives the reason.',
        };
  }
  if (status < 400) return undefined;
  return { by: 'provider', ...ofStatus(status) };
}

function ofStatus(status: number): Omit<Advice, 'by'> {
  switch (status) {
    case 400:
      return {
        title: 'The provider rejects the call as invalid',
        text: 'The response usually names the wrong field or parameter.',
      };
    case 401:
      return {
        title: 'The provider does not accept the credentials',
        text: 'A call with a refreshed token failed too. See the status of the connection.',
        leadsTo: 'connection',
      };
    case 403:
      return {
        title: 'The provider denies the call',
        text: 'The account may not do this, a scope was not granted, or the API is not enabled in your project.',
        leadsTo: 'connection',
      };
    case 404:
      return {
        title: 'The provider did not find the resource',
        text: 'Check the path and its IDs. Many providers also return this for resources that the account cannot access.',
      };
    case 429:
      return {
        title: 'The provider limits the rate of calls',
        text: 'Wait for the time in Retry-After. With the header Retries, the proxy waits and retries automatically.',
      };
    default:
      return status >= 500
        ? {
            title: 'The provider has an error',
            text: 'Try again; with the header Retries, the proxy retries safe calls automatically.',
          }
        : { title: 'The provider rejects the call', text: 'The response below gives the reason.' };
  }
}
