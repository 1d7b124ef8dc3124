/** The table of faults that can be switched on, by name; GET /_sandbox/faults lists the same. */
import { json, type Reply } from '../http.ts';
import * as pages from '../oauth/page-errors.ts';
import type { PageError } from '../oauth/request.ts';
import {
  badRequest,
  GoogleError,
  invalidArgument,
  notFound,
  permissionDenied,
  scopeInsufficient,
  unauthenticated,
} from '../sheets/errors.ts';

/**
 * The point where a fault is applied: the authorization page, the redirect after consent, the exchange of a code, a refresh, a
 * client credentials grant, the token endpoint with any grant, revocation, or an API.
 */
export type FaultPoint =
  | 'authorize'
  | 'consent'
  | 'exchange'
  | 'refresh'
  | 'client'
  | 'token'
  | 'revoke'
  | 'api';

/**
 * The effect of a fault on a request. `answer` sends another response instead; `alter` changes the response; `slow` delays
 * the request; `slow_after` delays the response; `hang` never responds and does nothing; `reset` resets the connection and
 * does nothing; `reset_after` handles the request and resets the connection; `truncate` sends half of the response; `page`
 * shows an error page without a redirect to the client; `special` is implemented at that point, by the name of the case.
 */
type FaultEffect =
  | { kind: 'answer'; reply: (subject: { projectNumber: string }) => Reply }
  | { kind: 'alter'; alter: (reply: Reply) => Reply }
  | { kind: 'page'; status: number; code: string; message: string }
  | { kind: 'slow' | 'slow_after' | 'hang' | 'reset' | 'reset_after' | 'truncate' | 'special' };

/** An entry of the table of faults. */
interface FaultCase {
  point: FaultPoint;
  /** The description that is shown to people. */
  text: string;
  effect: FaultEffect;
}

function special(point: FaultPoint, text: string): FaultCase {
  return { point, text, effect: { kind: 'special' } };
}

/** A case that delays the response or cuts the connection. */
function broken(
  point: FaultPoint,
  kind: 'slow' | 'slow_after' | 'hang' | 'reset' | 'reset_after' | 'truncate',
  text: string,
): FaultCase {
  return { point, text, effect: { kind } };
}

/** A case with a response instead of the usual one; nothing is done. */
function answered(
  point: FaultPoint,
  text: string,
  reply: (subject: { projectNumber: string }) => Reply,
): FaultCase {
  return { point, text, effect: { kind: 'answer', reply } };
}

/** A case that changes the JSON object of a successful response. */
function altered(
  point: FaultPoint,
  text: string,
  change: (body: Record<string, unknown>) => void,
): FaultCase {
  const alter = (reply: Reply): Reply => {
    if (reply.status !== 200) return reply;
    const body = JSON.parse(reply.body.toString()) as Record<string, unknown>;
    change(body);
    return { ...json(200, body), headers: reply.headers };
  };
  return { point, text, effect: { kind: 'alter', alter } };
}

function htmlAnswer(status: number, body: string): Reply {
  return { status, headers: { 'content-type': 'text/html; charset=utf-8' }, body };
}

/** The HTML page that Google sends for suspected automated queries. */
const abusePage = `<html><head><meta http-equiv="content-type" content="text/html; charset=utf-8"/><title>Sorry...</title></head>
<body><h1>We're sorry...</h1><p>... but your computer or network may be sending automated queries. To protect our users, we can't process your request right now.</p></body></html>
`;

/** A sign-in page of a network, without a description of the error. */
const htmlPage = `<!DOCTYPE html>
<html lang="en"><head><title>Sign in</title></head><body><p>Sign in to the network to continue.</p></body></html>
`;

/** The faults of authorization, exchange, refresh and revocation, by name. */
const oauthCases = {
  error_page: page(pages.adminPolicy),
  error_page_org_internal: page(pages.orgInternal),
  error_page_untested_user: page(pages.untestedUser),
  error_page_redirect_mismatch: page(pages.redirectMismatch),
  error_page_deleted_client: page(pages.deletedClient),
  error_page_rate_limited: page(pages.rateLimited),

  consent_denied: special('consent', 'The account denies consent: the redirect has error=access_denied.'),
  consent_fewer_scopes: special('consent', 'Only the sign-in scopes are granted, even if others are ticked.'),
  consent_other_account: special('consent', 'The consent is given by another account than the chosen one.'),
  wrong_iss: special('consent', 'The redirect names an issuer that is not the sandbox.'),

  no_refresh_token: special('exchange', 'The exchange returns an access token only.'),
  testing_mode: special(
    'exchange',
    'The refresh token expires after seven days: refresh_token_expires_in is 604799.',
  ),

  refresh_revoked: oauthRefusal('refresh', 400, {
    error: 'invalid_grant',
    error_description: 'Token has been expired or revoked.',
  }),
  refresh_bad_request: oauthRefusal('refresh', 400, {
    error: 'invalid_grant',
    error_description: 'Bad Request',
  }),
  refresh_account_deleted: oauthRefusal('refresh', 400, {
    error: 'invalid_grant',
    error_description: 'The account has been deleted',
  }),
  refresh_invalid_rapt: oauthRefusal('refresh', 400, reauth('invalid_rapt')),
  refresh_rapt_required: oauthRefusal('refresh', 400, reauth('rapt_required')),
  refresh_admin_policy: oauthRefusal('refresh', 400, {
    error: 'admin_policy_enforced',
    error_description: pages.adminPolicy.message,
  }),
  refresh_org_internal: oauthRefusal('refresh', 403, {
    error: 'org_internal',
    error_description: pages.orgInternal.message,
  }),
  refresh_account_restricted: oauthRefusal('refresh', 400, {
    error: 'access_denied',
    error_description: 'Account restricted',
  }),
  refresh_fewer_scopes: special('refresh', 'The new access token has the sign-in scopes only.'),
  refresh_rotates: special('refresh', 'Each refresh returns a new refresh token and ends the used one.'),
  refresh_rotates_until_used: special(
    'refresh',
    'Each refresh returns a new refresh token; the used one stays valid until a successor is used.',
  ),

  token_invalid_client: oauthRefusal('token', 401, {
    error: 'invalid_client',
    error_description: 'The OAuth client was not found.',
  }),
  token_wrong_secret: oauthRefusal('token', 401, {
    error: 'invalid_client',
    error_description: 'Unauthorized',
  }),
  token_deleted_client: oauthRefusal('token', 401, {
    error: 'deleted_client',
    error_description: 'The OAuth client was deleted.',
  }),
  token_unauthorized_client: oauthRefusal('token', 401, {
    error: 'unauthorized_client',
    error_description: 'Unauthorized',
  }),
  token_500: oauthRefusal('token', 500, { error: 'internal_failure', error_description: 'Backend Error' }),
  token_503: oauthRefusal('token', 503, { error: 'internal_failure', error_description: 'Backend Error' }),
  token_html_403: answered('token', '403 with the HTML page for automated queries.', () =>
    htmlAnswer(403, abusePage),
  ),
  token_html_200: answered('token', '200 with an HTML page instead of tokens; nothing is done.', () =>
    htmlAnswer(200, htmlPage),
  ),
  token_slow: broken('token', 'slow', 'The token endpoint waits delay_ms before it handles the request.'),
  token_slow_after: broken(
    'token',
    'slow_after',
    'Tokens are issued immediately, but the response is sent after delay_ms.',
  ),
  token_timeout: broken('token', 'hang', 'The token endpoint never responds; nothing is done.'),
  token_reset: broken('token', 'reset', 'The token endpoint resets the connection; nothing is done.'),
  token_reset_after: broken(
    'token',
    'reset_after',
    'Tokens are issued, but the connection is reset instead of a response.',
  ),
  token_truncated: broken(
    'token',
    'truncate',
    'Tokens are issued, but the response is cut off in the middle.',
  ),
  token_expires_in_tiny: special('token', 'The access token is valid for five seconds, as in expires_in.'),
  token_expires_in_absent: altered('token', 'The response has no expires_in.', (body) => {
    delete body.expires_in;
  }),
  token_expires_in_string: altered('token', 'expires_in is a string: "3599".', (body) => {
    body.expires_in = String(body.expires_in);
  }),
  token_refresh_token_number: altered('token', 'refresh_token is the number 7.', (body) => {
    body.refresh_token = 7;
  }),

  revoke_invalid_token: oauthRefusal('revoke', 400, {
    error: 'invalid_token',
    error_description: 'Token expired or revoked',
  }),
  revoke_503: oauthRefusal('revoke', 503, { error: 'internal_failure', error_description: 'Backend Error' }),
  revoke_slow: broken('revoke', 'slow', 'Revocation waits delay_ms before it handles the request.'),
  revoke_reset: broken('revoke', 'reset', 'Revocation resets the connection; nothing is done.'),
} satisfies Record<string, FaultCase>;

function oauthRefusal(
  point: FaultPoint,
  status: number,
  body: { error: string; error_description: string } & Record<string, string>,
): FaultCase {
  return answered(point, `${status} ${body.error}: ${body.error_description}`, () => json(status, body));
}

function reauth(subtype: 'invalid_rapt' | 'rapt_required') {
  return {
    error: 'invalid_grant',
    error_description: `reauth related error (${subtype})`,
    error_uri: 'https://support.google.com/a/answer/9368756',
    error_subtype: subtype,
  };
}

function page(error: PageError): FaultCase {
  return {
    point: 'authorize',
    text: `The error page ${error.code} (${error.status}), without a redirect to the client.`,
    effect: { kind: 'page', ...error },
  };
}

const hugeBytes = 48 * 1024 * 1024;

/** The faults of the APIs, by name. */
const apiCases = {
  access_token_ended: special('api', 'The access token is revoked before its expiry: 401.'),
  api_401: apiRefusal('401 although the token is valid.', () => unauthenticated('invalid')),
  api_service_disabled: apiRefusal(
    '403 SERVICE_DISABLED: the API is not enabled in the project.',
    serviceDisabled,
  ),
  api_scope_insufficient: apiRefusal('403: the token lacks a scope.', () =>
    scopeInsufficient('GetValues', ['https://www.googleapis.com/auth/spreadsheets']),
  ),
  api_403: apiRefusal('403: the account has no access to the file.', permissionDenied),
  api_403_html: answered('api', '403 with the HTML page for automated queries.', () =>
    htmlAnswer(403, abusePage),
  ),
  api_404: apiRefusal('404: the file does not exist.', notFound),
  api_429_user: answered(
    'api',
    "429: the account's quota of reads per minute is exhausted.",
    ({ projectNumber }) => quotaRefusal({ projectNumber, kind: 'Read', per: 'User', count: 60 }),
  ),
  api_429_project: answered(
    'api',
    "429: the project's quota of reads per minute is exhausted.",
    ({ projectNumber }) => quotaRefusal({ projectNumber, kind: 'Read', per: 'Project', count: 300 }),
  ),
  api_403_user_rate: answered('api', '403 of older APIs: the account has sent too many requests.', () =>
    olderRefusal('userRateLimitExceeded', 'User Rate Limit Exceeded'),
  ),
  api_403_project_rate: answered('api', '403 of older APIs: the project has sent too many requests.', () =>
    olderRefusal('rateLimitExceeded', 'Rate Limit Exceeded'),
  ),
  api_401_push_address: answered('api', '401: a push channel to this address is not allowed.', () =>
    olderRefusal('push.webhookUrlUnauthorized', 'Unauthorized WebHook callback channel', 401),
  ),
  api_403_channels: answered('api', '403: the file has too many push channels.', () =>
    olderRefusal('subscriptionRateLimitExceeded', 'Rate limit exceeded for creating file subscriptions.'),
  ),
  api_429_html: answered('api', '429 with the HTML page for automated queries.', () =>
    htmlAnswer(429, abusePage),
  ),

  api_bad_range: apiRefusal('400: the range cannot be parsed.', () =>
    invalidArgument('Unable to parse range: Sheet1!A1:B2'),
  ),
  api_grid_limits: apiRefusal('400: the range exceeds the grid.', () =>
    invalidArgument('Range (Sheet1!A1001:B1002) exceeds grid limits. Max rows: 1000, max columns: 26'),
  ),
  api_protected_range: apiRefusal('400: the cells are protected.', () =>
    invalidArgument(
      'You are trying to edit a protected cell or object. Please contact the spreadsheet owner to remove protection if you need to edit.',
    ),
  ),
  api_unknown_field: apiRefusal('400: the body has a field that does not exist.', () =>
    badRequest([{ description: 'Invalid JSON payload received. Unknown name "valuez": Cannot find field.' }]),
  ),
  api_office_file: apiRefusal(
    '400: the file is an Office file, not a Google spreadsheet.',
    () =>
      new GoogleError({
        code: 400,
        status: 'FAILED_PRECONDITION',
        message: 'This operation is not supported for this document',
      }),
  ),

  api_500: apiRefusal(
    '500 INTERNAL; nothing is done.',
    () => new GoogleError({ code: 500, status: 'INTERNAL', message: 'Internal error encountered.' }),
  ),
  api_503: apiRefusal(
    '503 UNAVAILABLE; nothing is done.',
    () =>
      new GoogleError({ code: 503, status: 'UNAVAILABLE', message: 'The service is currently unavailable.' }),
  ),
  api_slow: broken('api', 'slow', 'The API waits delay_ms before it handles the request.'),
  api_timeout: broken('api', 'hang', 'The API never responds; nothing is done.'),
  api_reset: broken('api', 'reset', 'The API resets the connection; nothing is done.'),
  api_reset_after: broken(
    'api',
    'reset_after',
    'The API handles the request, then resets the connection instead of a response.',
  ),
  api_truncated: broken('api', 'truncate', 'The response is cut off in the middle.'),
  api_gzip_broken: answered(
    'api',
    '200 with content-encoding: gzip and a body that is not gzip; nothing is done.',
    () => ({
      ...json(200, { values: [['not gzip']] }),
      headers: { 'content-type': 'application/json; charset=UTF-8', 'content-encoding': 'gzip' },
    }),
  ),
  api_html_200: answered('api', '200 with an HTML page instead of JSON; nothing is done.', () =>
    htmlAnswer(200, htmlPage),
  ),
  api_huge: answered('api', '200 with 48 MiB of JSON; nothing is done.', () => ({
    ...json(200, {}),
    body: Buffer.concat([Buffer.from('{"padding":"'), Buffer.alloc(hugeBytes, 'x'), Buffer.from('"}')]),
  })),
} satisfies Record<string, FaultCase>;

function apiRefusal(text: string, error: (projectNumber: string) => GoogleError): FaultCase {
  return answered('api', text, ({ projectNumber }) => refusal(error(projectNumber)));
}

function refusal(google: GoogleError): Reply {
  return json(google.code, google.toJson(), {
    vary: 'Origin, X-Origin, Referer',
    server: 'ESF',
    'cache-control': 'private',
    'x-content-type-options': 'nosniff',
    ...google.headers,
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

/** The error format of Drive and other older APIs: developers.google.com/workspace/drive/api/guides/handle-errors. */
function olderRefusal(reason: string, message: string, code = 403): Reply {
  const error = {
    errors: [{ domain: code === 403 ? 'usageLimits' : 'global', reason, message }],
    code,
    message,
  };
  return json(code, { error });
}

/** The response to a call above a quota of the Sheets API. */
export function quotaRefusal(quota: {
  projectNumber: string;
  kind: 'Read' | 'Write';
  per: 'User' | 'Project';
  count: number;
}): Reply {
  const { projectNumber, kind, per, count } = quota;
  const limit = `${kind} requests per minute${per === 'User' ? ' per user' : ''}`;
  const google = new GoogleError({
    code: 429,
    status: 'RESOURCE_EXHAUSTED',
    message:
      `Quota exceeded for quota metric '${kind} requests' and limit '${limit}' of service ` +
      `'sheets.googleapis.com' for consumer 'project_number:${projectNumber}'.`,
    details: [
      errorInfo('RATE_LIMIT_EXCEEDED', {
        consumer: `projects/${projectNumber}`,
        quota_metric: `sheets.googleapis.com/${kind.toLowerCase()}_requests`,
        quota_limit: `${kind}RequestsPerMinutePer${per}`,
        quota_limit_value: String(count),
        quota_location: 'global',
      }),
      helpLink(
        'Request a higher quota limit.',
        'https://cloud.google.com/docs/quota#requesting_higher_quota',
      ),
    ],
  });
  return refusal(google);
}

export const faultCases = { ...oauthCases, ...apiCases } satisfies Record<string, FaultCase>;

export type FaultName = keyof typeof faultCases;

export function isFaultName(name: string): name is FaultName {
  return Object.hasOwn(faultCases, name);
}

export function caseOf(name: FaultName): FaultCase {
  return faultCases[name];
}
