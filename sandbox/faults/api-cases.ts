import { json, type Reply } from '../http.ts';
import {
  badRequest,
  GoogleError,
  invalidArgument,
  notFound,
  permissionDenied,
  scopeInsufficient,
  unauthenticated,
} from '../sheets/errors.ts';
import { ABUSE_PAGE, answered, broken, type FaultCase, HTML_PAGE, htmlAnswer, special } from './case.ts';

const HUGE_BYTES = 48 * 1024 * 1024;

/** The faults of the APIs, by name. */
export const API_CASES = {
  access_token_ended: special('api', 'The access token presented is ended ahead of time, for good: 401.'),
  api_401: refused('401 although the token is good.', () => unauthenticated('invalid')),
  api_service_disabled: refused(
    '403 SERVICE_DISABLED: the API is not enabled in the project.',
    serviceDisabled,
  ),
  api_scope_insufficient: refused('403: the token lacks a scope.', () =>
    scopeInsufficient('GetValues', ['https://www.googleapis.com/auth/spreadsheets']),
  ),
  api_403: refused('403: the account may not see the file.', permissionDenied),
  api_403_html: answered('api', '403 with the HTML page for automated queries.', () =>
    htmlAnswer(403, ABUSE_PAGE),
  ),
  api_404: refused('404: the file is gone.', notFound),
  api_429_user: answered('api', "429: the account's reads per minute are used up.", ({ projectNumber }) =>
    quotaRefusal({ projectNumber, kind: 'Read', per: 'User', count: 60 }),
  ),
  api_429_project: answered('api', "429: the project's reads per minute are used up.", ({ projectNumber }) =>
    quotaRefusal({ projectNumber, kind: 'Read', per: 'Project', count: 300 }),
  ),
  api_403_user_rate: answered('api', '403 of older APIs: the account has made too many calls.', () =>
    olderRefusal('userRateLimitExceeded', 'User Rate Limit Exceeded'),
  ),
  api_403_project_rate: answered('api', '403 of older APIs: the project has made too many calls.', () =>
    olderRefusal('rateLimitExceeded', 'Rate Limit Exceeded'),
  ),
  api_401_push_address: answered('api', '401: messages of a push channel may not go to this address.', () =>
    olderRefusal('push.webhookUrlUnauthorized', 'Unauthorized WebHook callback channel', 401),
  ),
  api_403_channels: answered('api', '403: too many push channels watch this file.', () =>
    olderRefusal('subscriptionRateLimitExceeded', 'Rate limit exceeded for creating file subscriptions.'),
  ),
  api_429_html: answered('api', '429 with the HTML page for automated queries.', () =>
    htmlAnswer(429, ABUSE_PAGE),
  ),

  api_bad_range: refused('400: the range cannot be parsed.', () =>
    invalidArgument('Unable to parse range: Sheet1!A1:B2'),
  ),
  api_grid_limits: refused('400: the range lies outside the grid.', () =>
    invalidArgument('Range (Sheet1!A1001:B1002) exceeds grid limits. Max rows: 1000, max columns: 26'),
  ),
  api_protected_range: refused('400: the cells are protected.', () =>
    invalidArgument(
      'You are trying to edit a protected cell or object. Please contact the spreadsheet owner to remove protection if you need to edit.',
    ),
  ),
  api_unknown_field: refused('400: the body has a field that does not exist.', () =>
    badRequest([{ description: 'Invalid JSON payload received. Unknown name "valuez": Cannot find field.' }]),
  ),
  api_office_file: refused(
    '400: the file is an Office document, not a spreadsheet of Google.',
    () =>
      new GoogleError({
        code: 400,
        status: 'FAILED_PRECONDITION',
        message: 'This operation is not supported for this document',
      }),
  ),

  api_500: refused(
    '500 INTERNAL; nothing is done.',
    () => new GoogleError({ code: 500, status: 'INTERNAL', message: 'Internal error encountered.' }),
  ),
  api_503: refused(
    '503 UNAVAILABLE; nothing is done.',
    () =>
      new GoogleError({ code: 503, status: 'UNAVAILABLE', message: 'The service is currently unavailable.' }),
  ),
  api_slow: broken('api', 'slow', 'The API waits delay_ms, then does the work and answers.'),
  api_timeout: broken('api', 'hang', 'The API never answers; nothing is done.'),
  api_reset: broken('api', 'reset', 'The API breaks the connection; nothing is done.'),
  api_reset_after: broken(
    'api',
    'reset_after',
    'The API does the work, then breaks the connection instead of answering.',
  ),
  api_truncated: broken('api', 'truncate', 'Half of the answer, then the connection breaks.'),
  api_gzip_broken: answered(
    'api',
    '200 with a body that is called gzip and is not; nothing is done.',
    () => ({
      ...json(200, { values: [['not gzip']] }),
      headers: { 'content-type': 'application/json; charset=UTF-8', 'content-encoding': 'gzip' },
    }),
  ),
  api_html_200: answered('api', '200 with an HTML page in place of JSON; nothing is done.', () =>
    htmlAnswer(200, HTML_PAGE),
  ),
  api_huge: answered('api', '200 with 48 MiB of JSON; nothing is done.', () => ({
    ...json(200, {}),
    body: Buffer.concat([Buffer.from('{"padding":"'), Buffer.alloc(HUGE_BYTES, 'x'), Buffer.from('"}')]),
  })),
} satisfies Record<string, FaultCase>;

function refused(text: string, error: (projectNumber: string) => GoogleError): FaultCase {
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

/** As Drive and other older APIs refuse: developers.google.com/workspace/drive/api/guides/handle-errors. */
function olderRefusal(reason: string, message: string, code = 403): Reply {
  const error = {
    errors: [{ domain: code === 403 ? 'usageLimits' : 'global', reason, message }],
    code,
    message,
  };
  return json(code, { error });
}

/** The answer to a call beyond a quota of the Sheets API. */
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
