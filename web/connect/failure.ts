import type { Progress } from './queries.ts';

/** A trip that made no connection, by the words that there are for it. */
export type Failure = { kind: Kind; type: string; said: string | undefined };
type Kind =
  | 'denied'
  | 'blockedByAdmin'
  | 'misconfigured'
  | 'tooLate'
  | 'refused'
  | 'busy'
  | 'odd'
  | 'otherAccount'
  | 'noAccount'
  | 'otherBrowser'
  | 'failed'
  | 'gone';

const kindOfCause: Record<string, Kind> = {
  access_denied: 'denied',
  blocked_by_admin: 'blockedByAdmin',
  client_refused: 'misconfigured',
  code_refused: 'tooLate',
  credentials_refused: 'refused',
  provider_not_answering: 'busy',
  unexpected_answer: 'odd',
  another_account: 'otherAccount',
  account_unknown: 'noAccount',
  another_browser: 'otherBrowser',
};

/** Where no cause is known: what the callback page calls it. */
const kindOfType: Record<string, Kind> = {
  session_in_other_browser: 'otherBrowser',
  state_cookie_err: 'otherBrowser',
  state_err: 'tooLate',
  provider_config_err: 'misconfigured',
  integration_misconfigured: 'misconfigured',
  test_credentials_unavailable: 'misconfigured',
  another_account: 'otherAccount',
  unknown_connection: 'gone',
};

export function failureOfSession({ cause, type, evidence }: NonNullable<Progress['failure']>): Failure {
  const said = [evidence.error, evidence.subtype, evidence.http_status].filter((part) => part !== undefined);
  return {
    kind: kindOfCause[cause] ?? kindOfType[type] ?? 'failed',
    type,
    said: said.length > 0 ? said.join(' · ') : undefined,
  };
}

export function failureBy(told: { message: string; errorType: string } | undefined): Failure {
  const { message, errorType: type } = { message: undefined, errorType: 'unknown_err', ...told };
  const kind = kindOfType[type] ?? 'failed';
  return { kind, type, said: kind === 'failed' ? message : undefined };
}
