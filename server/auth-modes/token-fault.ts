/**
 * The meaning of a failed token request for the connection. It depends on codes and never on text: providers reword
 * and translate their messages (Google's "Token has been expired or revoked." stands for six causes).
 */
import type { FaultKind, ProviderDefinition } from '../providers/definition.ts';
import type { JsonObject, SeenAnswer, UnreadableAnswerError } from './token-response.ts';

/**
 * - `denied`: the end user refused; nothing changes.
 * - `dead_grant`: the code or refresh token is no longer valid; the user must connect again.
 * - `session_policy`: as dead_grant, because the account's administrator limits how long a sign-in lasts.
 * - `blocked_by_admin`: the account's administrator or the provider does not allow this application.
 * - `client_misconfigured`: the integration's client or settings are refused; the connection may be fine.
 * - `transient`: no verdict (outage, time-out, HTML page); retry later, change nothing.
 * - `protocol`: the response or callback breaks the protocol; a retry is not likely to help, change nothing.
 */
export type TokenFault = {
  readonly kind: FaultKind;
  /**
   * The provider's code, or one of the service: `state_mismatch`, `iss_mismatch`, `timeout`, `invalid_answer` ...;
   * `unknown_error` for a text that is not a code, or that contains a secret that was sent.
   */
  readonly error?: string;
  /** The provider's text, shortened. For people; untrusted. */
  readonly description?: string;
  readonly subtype?: string;
  readonly httpStatus?: number;
  readonly retryAfterMs?: number;
  /** Of `client_misconfigured`: other connections of the integration may not have this fault. */
  readonly isOfOneGrant?: true;
  /** Of `client_misconfigured`: the provider's definition says that the client itself is refused, not a setting. */
  readonly isOfClient?: true;
};

/** RFC 6749 §4.1.2.1 and §5.2, OpenID Connect Core §3.1.2.6, RFC 8628 §3.5, RFC 9126, RFC 9449. */
const standardKinds: Readonly<Record<string, FaultKind>> = {
  invalid_grant: 'dead_grant',
  invalid_client: 'client_misconfigured',
  unauthorized_client: 'client_misconfigured',
  unsupported_grant_type: 'client_misconfigured',
  unsupported_response_type: 'client_misconfigured',
  invalid_scope: 'client_misconfigured',
  server_error: 'transient',
  temporarily_unavailable: 'transient',
  slow_down: 'transient',
};
/** At the authorization endpoint, these are refusals by the end user. */
const authorizationKinds: Readonly<Record<string, FaultKind>> = {
  access_denied: 'denied',
  interaction_required: 'denied',
  login_required: 'denied',
  consent_required: 'denied',
  account_selection_required: 'denied',
};

type Errors = NonNullable<ProviderDefinition['token']>['errors'];

/**
 * The fault of an error response of the token endpoint. 429 is transient whatever the body says. A text that repeats a
 * secret of `sent` is dropped.
 */
export function faultOfAnswer(
  errors: Errors,
  { sent, ...answer }: SeenAnswer & { error: string },
): TokenFault {
  const subtype = text(answer.raw.error_subtype);
  const meaning =
    answer.httpStatus === 429
      ? 'transient'
      : ((subtype === undefined ? undefined : own(errors, `${answer.error}/${subtype}`)) ??
        own(errors, answer.error) ??
        own(standardKinds, answer.error) ??
        'protocol');
  return {
    ...judgedAs(meaning),
    error: codeOf(answer.error, { errors, sent }),
    ...described(answer.raw.error_description, sent),
    ...(subtype !== undefined && { subtype: codeOf(subtype, { errors, sent }) }),
    httpStatus: answer.httpStatus,
    ...(answer.retryAfterMs !== undefined && { retryAfterMs: answer.retryAfterMs }),
  };
}

/** The fault of a callback that holds an `error` (RFC 6749 §4.1.2.1). */
export function faultOfCallback(errors: Errors, params: URLSearchParams): TokenFault {
  const error = params.get('error') ?? '';
  const subtype = params.get('error_subtype');
  const meaning =
    own(authorizationKinds, error) ?? own(errors, error) ?? own(standardKinds, error) ?? 'protocol';
  const sent = params.getAll('state');
  return {
    ...judgedAs(meaning),
    error: codeOf(error, { errors, sent }),
    ...described(params.get('error_description'), sent),
    ...(subtype && { subtype: codeOf(subtype, { errors, sent }) }),
  };
}

/** The fault of a response that did not arrive or could not be read. */
export function faultOfSilence(error: UnreadableAnswerError): TokenFault {
  const isOurs = error.reason === 'not_json' || error.reason === 'redirect' || error.reason === 'too_large';
  return {
    kind: isOurs ? 'protocol' : 'transient',
    error: error.reason,
    ...(error.httpStatus !== undefined && { httpStatus: error.httpStatus }),
    ...(error.retryAfterMs !== undefined && { retryAfterMs: error.retryAfterMs }),
  };
}

/** Our codes for a response that did not arrive or could not be read. */
const unread: ReadonlySet<string | undefined> = new Set([
  'network',
  'timeout',
  'server_error',
  'html',
  'not_json',
  'too_large',
  'redirect',
  'invalid_answer',
  'token_type_unsupported',
]);

/**
 * Whether the provider may have carried out the request although its response was lost. Not if it returned a verdict,
 * if nothing was sent, or if the status says that nothing was done: 4xx and 503 (RFC 9110 §15.5, §15.6.4).
 */
export function isOutcomeUnknown({ error, httpStatus = 0 }: TokenFault): boolean {
  const isDeclined = (httpStatus >= 400 && httpStatus < 500) || httpStatus === 503;
  return unread.has(error) && !isDeclined;
}

/** A fault of the protocol with a code of the service. */
export function protocolFault(error: string, seen?: SeenAnswer): TokenFault {
  return { kind: 'protocol', error, ...(seen && { httpStatus: seen.httpStatus }) };
}

function judgedAs(meaning: Errors[string]): Pick<TokenFault, 'kind' | 'isOfClient'> {
  if (meaning !== 'client_refused') return { kind: meaning };
  return { kind: 'client_misconfigured', isOfClient: true };
}

/** A known code, or a text that looks like a code. It is used in events, logs and responses to callers. */
function codeOf(text: string, { errors, sent }: { errors: Errors; sent: readonly string[] }): string {
  const isKnown = [authorizationKinds, standardKinds, errors].some((codes) => own(codes, text) !== undefined);
  if (isKnown) return text;
  return /^[\w.-]{1,64}$/.test(text) && !repeats(text, sent) ? text : 'unknown_error';
}

function described(value: JsonObject[string] | undefined, sent: readonly string[]) {
  if (typeof value !== 'string' || value === '' || repeats(value, sent)) return {};
  return { description: clean(value, 500) };
}

/** A shorter secret may be a part of an ordinary word. */
const shortestSecret = 8;

/** Ignores case, which a provider may have changed. */
function repeats(text: string, sent: readonly string[]): boolean {
  const said = text.toLowerCase();
  return sent.some((secret) => secret.length >= shortestSecret && said.includes(secret.toLowerCase()));
}

function clean(value: string, maxLength: number): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is taken out
  const visible = value.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, ' ');
  return visible.slice(0, maxLength).toWellFormed();
}

function text(value: JsonObject[string] | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function own<T>(record: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}
