import { json, type Reply } from './http.ts';
import {
  GoogleError,
  notFound,
  permissionDenied,
  scopeInsufficient,
  unauthenticated,
} from './sheets/errors.ts';

/**
 * Where a fault strikes: on the authorization page, when consent is sent back, when a code is exchanged, when a
 * token is refreshed, at the token endpoint whatever the grant, at revocation, or at an API.
 */
export type FaultPoint = 'authorize' | 'consent' | 'exchange' | 'refresh' | 'token' | 'revoke' | 'api';

/**
 * What a fault does. `answer` replaces the work; `slow` waits, then works; `reset` breaks the connection and
 * nothing is done; `reset_after` does the work and breaks the connection instead of answering; `truncate` sends
 * half of the answer; `page` is an error page that never comes back to the client; `special` is done by the
 * code at that point, which asks for the case by name.
 */
export type FaultEffect =
  | { kind: 'answer'; reply: (subject: { projectNumber: string }) => Reply }
  | { kind: 'page'; status: number; code: string; message: string }
  | { kind: 'slow' | 'reset' | 'reset_after' | 'truncate' | 'special' };

/** One line of the table of faults. */
export interface FaultCase {
  point: FaultPoint;
  /** What happens while it is on, for a person. */
  text: string;
  effect: FaultEffect;
}

const SPECIAL: FaultEffect = { kind: 'special' };
const ABUSE_PAGE = `<html><head><meta http-equiv="content-type" content="text/html; charset=utf-8"/><title>Sorry...</title></head>
<body><h1>We're sorry...</h1><p>... but your computer or network may be sending automated queries. To protect our users, we can't process your request right now.</p></body></html>
`;

/** Every fault that can be switched on, by name; GET /_sandbox/faults lists the same. */
export const FAULT_CASES = {
  error_page: pageFault(
    400,
    'admin_policy_enforced',
    'Access to your account data is restricted by policies within your organization.',
  ),
  error_page_org_internal: pageFault(
    403,
    'org_internal',
    'This client is restricted to users within its organization.',
  ),
  error_page_untested_user: pageFault(
    403,
    'access_denied',
    'The developer hasn’t given you access to this app. It’s currently being tested and it hasn’t been verified by Google.',
  ),
  consent_denied: special(
    'consent',
    'The account says no, whatever is ticked: error=access_denied comes back.',
  ),
  wrong_iss: special('consent', 'The redirect names an issuer that is not the sandbox.'),

  no_refresh_token: special('exchange', 'The code is exchanged for an access token alone.'),
  testing_mode: special(
    'exchange',
    'The refresh token dies after seven days: refresh_token_expires_in 604799.',
  ),

  refresh_revoked: tokenError('refresh', 400, {
    error: 'invalid_grant',
    error_description: 'Token has been expired or revoked.',
  }),
  refresh_invalid_rapt: tokenError('refresh', 400, {
    error: 'invalid_grant',
    error_description: 'reauth related error (invalid_rapt)',
    error_uri: 'https://support.google.com/a/answer/9368756',
    error_subtype: 'invalid_rapt',
  }),
  refresh_admin_policy: tokenError('refresh', 400, {
    error: 'admin_policy_enforced',
    error_description: 'Access to your account data is restricted by policies within your organization.',
  }),
  refresh_account_restricted: tokenError('refresh', 400, {
    error: 'access_denied',
    error_description: 'Account restricted',
  }),
  refresh_fewer_scopes: special('refresh', 'The refreshed access token has the sign-in scopes only.'),
  refresh_rotates: special('refresh', 'Each refresh brings a new refresh token and ends the one used.'),

  token_invalid_client: tokenError('token', 401, {
    error: 'invalid_client',
    error_description: 'The OAuth client was not found.',
  }),
  token_503: tokenError('token', 503, { error: 'internal_failure', error_description: 'Backend Error' }),
  token_html_403: answerFault('token', '403 with the HTML page for automated queries.', () =>
    html(403, ABUSE_PAGE),
  ),
  token_slow: {
    point: 'token',
    text: 'The token endpoint answers after delay_ms.',
    effect: { kind: 'slow' },
  },
  token_reset: {
    point: 'token',
    text: 'The token endpoint breaks the connection; nothing is done.',
    effect: { kind: 'reset' },
  },
  token_reset_after: {
    point: 'token',
    text: 'Tokens are issued, but the connection breaks instead of the answer.',
    effect: { kind: 'reset_after' },
  },

  revoke_503: tokenError('revoke', 503, { error: 'internal_failure', error_description: 'Backend Error' }),

  access_token_ended: special('api', 'The access token presented is ended ahead of time, for good: 401.'),
  api_401: apiFault('401 although the token is good.', () => unauthenticated('invalid')),
  api_service_disabled: apiFault(
    '403 SERVICE_DISABLED: the API is not enabled in the project.',
    serviceDisabled,
  ),
  api_scope_insufficient: apiFault('403: the token lacks a scope.', () =>
    scopeInsufficient('GetValues', ['https://www.googleapis.com/auth/spreadsheets']),
  ),
  api_403: apiFault('403: the account may not see the file.', permissionDenied),
  api_404: apiFault('404: the file is gone.', notFound),
  api_429_user: apiFault("429: the account's reads per minute are used up.", (projectNumber) =>
    quotaExceeded(projectNumber, {
      limit: 'Read requests per minute per user',
      id: 'ReadRequestsPerMinutePerUser',
      value: '60',
    }),
  ),
  api_429_project: apiFault("429: the project's reads per minute are used up.", (projectNumber) =>
    quotaExceeded(projectNumber, {
      limit: 'Read requests per minute',
      id: 'ReadRequestsPerMinutePerProject',
      value: '300',
    }),
  ),
  api_429_html: answerFault('api', '429 with the HTML page for automated queries.', () =>
    html(429, ABUSE_PAGE),
  ),
  api_500: apiFault(
    '500 INTERNAL; nothing is done.',
    () => new GoogleError({ code: 500, status: 'INTERNAL', message: 'Internal error encountered.' }),
  ),
  api_503: apiFault(
    '503 UNAVAILABLE; nothing is done.',
    () =>
      new GoogleError({ code: 503, status: 'UNAVAILABLE', message: 'The service is currently unavailable.' }),
  ),
  api_slow: { point: 'api', text: 'The API answers after delay_ms.', effect: { kind: 'slow' } },
  api_reset: {
    point: 'api',
    text: 'The API breaks the connection; nothing is done.',
    effect: { kind: 'reset' },
  },
  api_reset_after: {
    point: 'api',
    text: 'The API does the work, then breaks the connection instead of answering.',
    effect: { kind: 'reset_after' },
  },
  api_truncated: {
    point: 'api',
    text: 'Half of the answer, then the connection breaks.',
    effect: { kind: 'truncate' },
  },
} satisfies Record<string, FaultCase>;

/** The name of a fault that exists. */
export type FaultName = keyof typeof FAULT_CASES;

/** Whether a text names a fault that exists. */
export function isFaultName(name: string): name is FaultName {
  return Object.hasOwn(FAULT_CASES, name);
}

function special(point: FaultPoint, text: string): FaultCase {
  return { point, text, effect: SPECIAL };
}

function answerFault(
  point: FaultPoint,
  text: string,
  reply: (subject: { projectNumber: string }) => Reply,
): FaultCase {
  return { point, text, effect: { kind: 'answer', reply } };
}

function tokenError(
  point: FaultPoint,
  status: number,
  body: { error: string; error_description: string } & Record<string, string>,
): FaultCase {
  return answerFault(point, `${status} ${body.error}: ${body.error_description}`, () => json(status, body));
}

function pageFault(status: number, code: string, message: string): FaultCase {
  return {
    point: 'authorize',
    text: `The error page ${code}; nothing comes back to the client.`,
    effect: { kind: 'page', status, code, message },
  };
}

function html(status: number, body: string): Reply {
  return { status, headers: { 'content-type': 'text/html; charset=utf-8' }, body };
}

function apiFault(text: string, error: (projectNumber: string) => GoogleError): FaultCase {
  return answerFault('api', text, ({ projectNumber }) => {
    const google = error(projectNumber);
    return json(google.code, google.toJson(), {
      vary: 'Origin, X-Origin, Referer',
      server: 'ESF',
      'cache-control': 'private',
      'x-content-type-options': 'nosniff',
      ...google.headers,
    });
  });
}

function errorInfo(reason: string, metadata: Record<string, string>): object {
  return {
    '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
    reason,
    domain: 'googleapis.com',
    metadata: { service: 'sheets.googleapis.com', ...metadata },
  };
}

function helpLink(description: string, url: string): object {
  return { '@type': 'type.googleapis.com/google.rpc.Help', links: [{ description, url }] };
}

function serviceDisabled(projectNumber: string): GoogleError {
  const url = `https://console.developers.google.com/apis/api/sheets.googleapis.com/overview?project=${projectNumber}`;
  return new GoogleError({
    code: 403,
    status: 'PERMISSION_DENIED',
    message:
      `Google Sheets API has not been used in project ${projectNumber} before or it is disabled. ` +
      `Enable it by visiting ${url} then retry. If you enabled this API recently, wait a few minutes ` +
      'for the action to propagate to our systems and retry.',
    details: [
      errorInfo('SERVICE_DISABLED', { consumer: `projects/${projectNumber}`, activationUrl: url }),
      helpLink('Google developers console API activation', url),
    ],
  });
}

function quotaExceeded(
  projectNumber: string,
  quota: { limit: string; id: string; value: string },
): GoogleError {
  return new GoogleError({
    code: 429,
    status: 'RESOURCE_EXHAUSTED',
    message:
      `Quota exceeded for quota metric 'Read requests' and limit '${quota.limit}' of service ` +
      `'sheets.googleapis.com' for consumer 'project_number:${projectNumber}'.`,
    details: [
      errorInfo('RATE_LIMIT_EXCEEDED', {
        consumer: `projects/${projectNumber}`,
        quota_metric: 'sheets.googleapis.com/read_requests',
        quota_limit: quota.id,
        quota_limit_value: quota.value,
        quota_location: 'global',
      }),
      helpLink(
        'Request a higher quota limit.',
        'https://cloud.google.com/docs/quota#requesting_higher_quota',
      ),
    ],
  });
}
