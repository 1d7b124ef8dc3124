import type { FaultName } from '../../sandbox/faults/cases.ts';

/** One line of the table: what is switched on, and what follows after three attempts. */
export type Case = {
  /** The number of the case in docs/reference/connection-health.md. */
  of: number;
  name: string;
  fault?: FaultName;
  times?: number;
  /** Whether the end that the provider had announced for the grant has passed. */
  isPastEnd?: boolean;
  /** Status, and our code; without one the answer is the provider's own. */
  answer: [status: number, code?: string];
  /** Where it differs from an active connection without a fault. */
  health?: { status?: string; kind?: string; cause?: string };
  evidence?: Record<string, unknown>;
  /** Whether connecting again is offered. */
  reconnects?: boolean;
  events: string[];
  text?: RegExp;
  refreshes?: number;
};

const dead = (cause: string): Pick<Case, 'answer' | 'health' | 'reconnects' | 'events'> => ({
  answer: [424, 'connection_needs_reauth'],
  health: { status: 'needs_reauth', kind: 'connection', cause },
  reconnects: true,
  events: ['connection.needs_reauth'],
});
const blocked: Pick<Case, 'answer' | 'health' | 'events' | 'text'> = {
  answer: [424, 'connection_blocked'],
  health: { status: 'blocked', kind: 'connection', cause: 'blocked_by_admin' },
  events: ['connection.blocked'],
  text: /Ask the administrator/,
};
const ofIntegration = (cause: string): Pick<Case, 'answer' | 'health' | 'events'> => ({
  answer: [424, 'integration_misconfigured'],
  health: { kind: 'integration', cause },
  events: ['integration.misconfigured'],
});

export const refreshCases: Case[] = [
  {
    of: 4,
    name: 'no refresh token and an expired access token',
    ...dead('no_refresh_token'),
    text: /allow access/,
  },
  {
    of: 7,
    name: 'revoked, expired, unused or pushed out',
    fault: 'refresh_revoked',
    ...dead('grant_dead'),
    evidence: { error: 'invalid_grant', http_status: 400 },
    text: /connect again/,
  },
  { of: 7, name: 'a token of another kind', fault: 'refresh_bad_request', ...dead('grant_dead') },
  { of: 7, name: 'the account was deleted', fault: 'refresh_account_deleted', ...dead('grant_dead') },
  {
    of: 8,
    name: 'the seven days of a project in Testing are over',
    fault: 'refresh_revoked',
    isPastEnd: true,
    ...dead('testing_expired'),
    text: /in testing/,
  },
  {
    of: 9,
    name: 'the session is too old (invalid_rapt)',
    fault: 'refresh_invalid_rapt',
    ...dead('session_policy'),
    evidence: { error: 'invalid_grant', subtype: 'invalid_rapt' },
    text: /limits the duration of sign-ins/,
  },
  {
    of: 9,
    name: 'the session is too old (rapt_required)',
    fault: 'refresh_rapt_required',
    ...dead('session_policy'),
  },
  { of: 10, name: 'an administrator forbids the application', fault: 'refresh_admin_policy', ...blocked },
  { of: 10, name: 'the application is for one organization', fault: 'refresh_org_internal', ...blocked },
  { of: 10, name: 'the account is restricted', fault: 'refresh_account_restricted', ...blocked },
  {
    of: 11,
    name: 'the client is not known',
    fault: 'token_invalid_client',
    ...ofIntegration('client_refused'),
    evidence: { error: 'invalid_client', http_status: 401 },
    text: /client secret/,
  },
  {
    of: 11,
    name: 'the client secret is wrong',
    fault: 'token_wrong_secret',
    ...ofIntegration('client_refused'),
  },
  {
    of: 11,
    name: 'the client was deleted',
    fault: 'token_deleted_client',
    ...ofIntegration('client_deleted'),
    text: /Restore/,
  },
  {
    of: 11,
    name: 'the token belongs to another client',
    fault: 'token_unauthorized_client',
    ...ofIntegration('client_not_allowed'),
    evidence: { error: 'unauthorized_client', http_status: 401 },
    reconnects: true,
    text: /another client/,
  },
];

const silent = (error: string): Pick<Case, 'answer' | 'health' | 'evidence' | 'events' | 'text'> => ({
  answer: [503, 'connection_refresh_failed'],
  health: { kind: 'transient', cause: 'provider_not_answering' },
  evidence: { error, attempts: 3 },
  events: ['connection.refresh_delayed'],
  text: /No action is needed/,
});

export const outageCases: Case[] = [
  { of: 12, name: '500', fault: 'token_500', ...silent('server_error') },
  { of: 12, name: '503', fault: 'token_503', ...silent('server_error') },
  { of: 12, name: '403 with a page', fault: 'token_html_403', ...silent('html') },
  { of: 12, name: '200 with a page', fault: 'token_html_200', ...silent('html') },
  { of: 12, name: 'the connection breaks', fault: 'token_reset', ...silent('network') },
  { of: 12, name: 'half of an answer', fault: 'token_truncated', ...silent('network') },
];

export const apiCases: Case[] = [
  {
    of: 6,
    name: 'the access token ended early',
    fault: 'access_token_ended',
    times: 1,
    answer: [200],
    events: [],
    refreshes: 1,
  },
  {
    of: 17,
    name: "the account's quota is used up",
    fault: 'api_429_user',
    answer: [429],
    events: ['connection.rate_limited'],
  },
  {
    of: 17,
    name: "the client's quota is used up",
    fault: 'api_429_project',
    answer: [429],
    events: ['integration.rate_limited'],
  },
  {
    of: 17,
    name: "the account's quota is used up, in the words of an older API",
    fault: 'api_403_user_rate',
    answer: [403],
    events: ['connection.rate_limited'],
  },
  {
    of: 17,
    name: "the client's quota is used up, in the words of an older API",
    fault: 'api_403_project_rate',
    answer: [403],
    events: ['integration.rate_limited'],
  },
  {
    of: 18,
    name: 'a page against robots with 429',
    fault: 'api_429_html',
    answer: [429],
    events: ['integration.rate_limited'],
  },
  {
    of: 18,
    name: 'a page against robots with 403',
    fault: 'api_403_html',
    answer: [403],
    events: ['integration.rate_limited'],
  },
  {
    of: 19,
    name: 'the token lacks a scope',
    fault: 'api_scope_insufficient',
    answer: [403],
    health: { kind: 'connection', cause: 'scopes_missing' },
    reconnects: true,
    events: ['connection.scopes_reduced'],
    text: /allow all scopes/,
  },
  { of: 20, name: 'the file is not shared', fault: 'api_403', answer: [403], events: [] },
  { of: 20, name: 'the file is gone', fault: 'api_404', answer: [404], events: [] },
  {
    of: 21,
    name: 'the API is switched off',
    fault: 'api_service_disabled',
    answer: [403],
    health: { kind: 'integration', cause: 'api_disabled' },
    events: ['integration.misconfigured'],
    text: /https:\/\/console\.developers\.google\.com\/apis\/api\/sheets\.googleapis\.com/,
  },
  { of: 22, name: 'the range cannot be parsed', fault: 'api_bad_range', answer: [400], events: [] },
  { of: 22, name: 'the range is outside the grid', fault: 'api_grid_limits', answer: [400], events: [] },
  { of: 22, name: 'the cells are protected', fault: 'api_protected_range', answer: [400], events: [] },
  { of: 22, name: 'the file is an Office file', fault: 'api_office_file', answer: [400], events: [] },
  { of: 22, name: 'a field that does not exist', fault: 'api_unknown_field', answer: [400], events: [] },
  { of: 23, name: '500', fault: 'api_500', answer: [500], events: [] },
  { of: 23, name: '503', fault: 'api_503', answer: [503], events: [] },
  {
    of: 23,
    name: 'the connection breaks',
    fault: 'api_reset',
    answer: [502, 'upstream_unreachable'],
    events: [],
  },
  { of: 24, name: 'a page with 200', fault: 'api_html_200', answer: [200], events: [] },
];
