import { json } from '../http.ts';
import * as pages from '../oauth/page-errors.ts';
import type { PageError } from '../oauth/request.ts';
import {
  ABUSE_PAGE,
  altered,
  answered,
  broken,
  type FaultCase,
  type FaultPoint,
  HTML_PAGE,
  htmlAnswer,
  special,
} from './case.ts';

/** The faults of authorization, exchange, refresh and revocation, by name. */
export const OAUTH_CASES = {
  error_page: page(pages.ADMIN_POLICY),
  error_page_org_internal: page(pages.ORG_INTERNAL),
  error_page_untested_user: page(pages.UNTESTED_USER),
  error_page_redirect_mismatch: page(pages.REDIRECT_MISMATCH),
  error_page_deleted_client: page(pages.DELETED_CLIENT),
  error_page_rate_limited: page(pages.RATE_LIMITED),

  consent_denied: special(
    'consent',
    'The account says no, whatever is ticked: error=access_denied comes back.',
  ),
  consent_fewer_scopes: special('consent', 'Only the sign-in scopes are granted, whatever is ticked.'),
  consent_other_account: special('consent', 'Another account than the one chosen gives the consent.'),
  wrong_iss: special('consent', 'The redirect names an issuer that is not the sandbox.'),

  no_refresh_token: special('exchange', 'The code is exchanged for an access token alone.'),
  testing_mode: special(
    'exchange',
    'The refresh token dies after seven days: refresh_token_expires_in 604799.',
  ),

  refresh_revoked: refused('refresh', 400, {
    error: 'invalid_grant',
    error_description: 'Token has been expired or revoked.',
  }),
  refresh_bad_request: refused('refresh', 400, {
    error: 'invalid_grant',
    error_description: 'Bad Request',
  }),
  refresh_account_deleted: refused('refresh', 400, {
    error: 'invalid_grant',
    error_description: 'The account has been deleted',
  }),
  refresh_invalid_rapt: refused('refresh', 400, reauth('invalid_rapt')),
  refresh_rapt_required: refused('refresh', 400, reauth('rapt_required')),
  refresh_admin_policy: refused('refresh', 400, {
    error: 'admin_policy_enforced',
    error_description: pages.ADMIN_POLICY.message,
  }),
  refresh_org_internal: refused('refresh', 403, {
    error: 'org_internal',
    error_description: pages.ORG_INTERNAL.message,
  }),
  refresh_account_restricted: refused('refresh', 400, {
    error: 'access_denied',
    error_description: 'Account restricted',
  }),
  refresh_fewer_scopes: special('refresh', 'The refreshed access token has the sign-in scopes only.'),
  refresh_rotates: special('refresh', 'Each refresh brings a new refresh token and ends the one used.'),
  refresh_rotates_until_used: special(
    'refresh',
    'Each refresh brings a new refresh token; the one used stays good until a successor of it is used.',
  ),

  token_invalid_client: refused('token', 401, {
    error: 'invalid_client',
    error_description: 'The OAuth client was not found.',
  }),
  token_wrong_secret: refused('token', 401, {
    error: 'invalid_client',
    error_description: 'Unauthorized',
  }),
  token_deleted_client: refused('token', 401, {
    error: 'deleted_client',
    error_description: 'The OAuth client was deleted.',
  }),
  token_unauthorized_client: refused('token', 401, {
    error: 'unauthorized_client',
    error_description: 'Unauthorized',
  }),
  token_500: refused('token', 500, { error: 'internal_failure', error_description: 'Backend Error' }),
  token_503: refused('token', 503, { error: 'internal_failure', error_description: 'Backend Error' }),
  token_html_403: answered('token', '403 with the HTML page for automated queries.', () =>
    htmlAnswer(403, ABUSE_PAGE),
  ),
  token_html_200: answered('token', '200 with an HTML page in place of tokens; nothing is done.', () =>
    htmlAnswer(200, HTML_PAGE),
  ),
  token_slow: broken('token', 'slow', 'The token endpoint waits delay_ms, then does the work and answers.'),
  token_slow_after: broken(
    'token',
    'slow_after',
    'Tokens are issued at once, the answer comes after delay_ms.',
  ),
  token_timeout: broken('token', 'hang', 'The token endpoint never answers; nothing is done.'),
  token_reset: broken('token', 'reset', 'The token endpoint breaks the connection; nothing is done.'),
  token_reset_after: broken(
    'token',
    'reset_after',
    'Tokens are issued, but the connection breaks instead of the answer.',
  ),
  token_truncated: broken(
    'token',
    'truncate',
    'Tokens are issued, but half of the answer is all that comes.',
  ),
  token_expires_in_tiny: special('token', 'The access token lives five seconds, and expires_in says so.'),
  token_expires_in_absent: altered('token', 'The answer has no expires_in.', (body) => {
    delete body.expires_in;
  }),
  token_expires_in_string: altered('token', 'expires_in is a string: "3599".', (body) => {
    body.expires_in = String(body.expires_in);
  }),
  token_refresh_token_number: altered('token', 'refresh_token is the number 7.', (body) => {
    body.refresh_token = 7;
  }),

  revoke_invalid_token: refused('revoke', 400, {
    error: 'invalid_token',
    error_description: 'Token expired or revoked',
  }),
  revoke_503: refused('revoke', 503, { error: 'internal_failure', error_description: 'Backend Error' }),
  revoke_slow: broken('revoke', 'slow', 'Revocation waits delay_ms, then acts and answers.'),
  revoke_reset: broken('revoke', 'reset', 'Revocation breaks the connection; nothing is done.'),
} satisfies Record<string, FaultCase>;

function refused(
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
    text: `The error page ${error.code} (${error.status}); nothing comes back to the client.`,
    effect: { kind: 'page', ...error },
  };
}
