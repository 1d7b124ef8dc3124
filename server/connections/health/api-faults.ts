/**
 * The meaning of an error response of a provider's API for the connection that made the call. Pure; the provider's
 * definition has the format of errors (`api.error_format`) and the meaning of their reasons (`api.errors`).
 *
 * Does not own: the consequences (`observe.ts`).
 */
import type { ProviderDefinition } from '../../providers/definition.ts';

export type ApiFault =
  /** The token was refused; the proxy refreshes it. */
  | { kind: 'token' }
  /** The token lacks a scope. Each of `accepted` would suffice, if the provider named them. */
  | { kind: 'scope_missing'; accepted: string[] }
  | { kind: 'api_disabled'; service?: string; activationUrl?: string }
  /** `of`: what the exhausted quota belongs to. `evidence` names the quota. */
  | { kind: 'rate_limited'; of: 'connection' | 'integration'; evidence: Record<string, string> }
  /** A page against robots instead of a response. Only waiting and fewer calls help. */
  | { kind: 'abuse_guard' }
  /** Concerns only this file, folder or record: it is not shared or does not exist. */
  | { kind: 'resource' }
  /** The request itself is wrong. */
  | { kind: 'request' }
  /** A failure on the provider's side. */
  | { kind: 'transient' };

export type ApiAnswer = {
  status: number;
  /** Names in lower case. */
  headers: Readonly<Record<string, string>>;
  /** Decoded; the first part of a long body. */
  body: string;
};

type Definition = Pick<ProviderDefinition, 'api'>;

/**
 * Whether a response with this status proves that the provider accepts the credentials: a success, or 304, for which a
 * server makes the same checks (RFC 9110 §13.2.1). An error, a redirect or an unknown path can be the response to a
 * call without credentials.
 */
export function provesCredentials(status: number): boolean {
  return (status >= 200 && status < 300) || status === 304;
}

/** `answer` has a status of 400 or above. */
export function classifyAnswer({ api }: Definition, answer: ApiAnswer): ApiFault {
  const { status } = answer;
  if (status >= 500) return { kind: 'transient' };
  if (status === 401) return { kind: 'token' };
  if (api.errors.guard_pages && (status === 403 || status === 429) && isPage(answer)) {
    return { kind: 'abuse_guard' };
  }
  const info = api.error_format === 'google' ? googleError(answer.body) : undefined;
  const known =
    info && Object.hasOwn(api.errors.reasons, info.reason) ? api.errors.reasons[info.reason] : undefined;
  if (known === 'scope_missing') return { kind: known, accepted: acceptedScopes(answer) };
  if (known === 'api_disabled') return disabled(info?.metadata ?? {});
  if (known === 'rate_limited' || status === 429) {
    return { kind: 'rate_limited', ...quotaOf(api, { status, info }) };
  }
  return { kind: status === 403 || status === 404 || status === 410 ? 'resource' : 'request' };
}

type GoogleInfo = { reason: string; metadata: Record<string, string>; isOlder?: true };

/** The ErrorInfo of a google.rpc.Status (AIP-193), else the format of older APIs such as Drive's. */
function googleError(body: string): GoogleInfo | undefined {
  const error = memberOf(parse(body), 'error');
  const details = memberOf(error, 'details');
  return (Array.isArray(details) ? errorInfo(details) : undefined) ?? olderError(memberOf(error, 'errors'));
}

/** `errors: [{domain, reason, message}]`: developers.google.com/workspace/drive/api/guides/handle-errors. */
function olderError(errors: unknown): GoogleInfo | undefined {
  const reason = Array.isArray(errors) ? memberOf(errors[0], 'reason') : undefined;
  return typeof reason === 'string' ? { reason, metadata: {}, isOlder: true } : undefined;
}

function errorInfo(details: unknown[]): GoogleInfo | undefined {
  const info: unknown = details.find(
    (detail) => memberOf(detail, '@type') === 'type.googleapis.com/google.rpc.ErrorInfo',
  );
  const reason = memberOf(info, 'reason');
  if (typeof reason !== 'string') return undefined;
  const metadata = memberOf(info, 'metadata');
  const texts = Object.entries(typeof metadata === 'object' && metadata !== null ? metadata : {}).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  );
  return { reason, metadata: Object.fromEntries(texts.map(([name, value]) => [name, value.slice(0, 500)])) };
}

function disabled({ service, activationUrl }: Record<string, string>): ApiFault {
  return {
    kind: 'api_disabled',
    ...(service !== undefined && { service }),
    // People see this as a link, so it must be an https URL.
    ...(activationUrl !== undefined && URL.parse(activationUrl)?.protocol === 'https:' && { activationUrl }),
  };
}

function quotaOf(
  api: Definition['api'],
  { status, info }: { status: number; info: GoogleInfo | undefined },
): { of: 'connection' | 'integration'; evidence: Record<string, string> } {
  const { metadata = {}, reason, isOlder = false } = info ?? {};
  // Older APIs do not name the limit, but have a reason for each limit. With 429 one reason covers both limits and
  // means the account ("the user has sent too many requests").
  const meaning: Record<string, string> = isOlder && status !== 429 && reason !== undefined ? { reason } : {};
  const limit = metadata.quota_limit ?? meaning.reason;
  const named = ['service', 'quota_metric', 'quota_limit', 'quota_limit_value'].filter(
    (name) => name in metadata,
  );
  const perAccount = api.errors.account_quota;
  // An unnamed limit counts as the account's: throttling one account affects the fewest calls.
  const isAccounts =
    limit === undefined || perAccount === undefined || new RegExp(perAccount, 'u').test(limit);
  return {
    of: isAccounts ? 'connection' : 'integration',
    evidence: { ...Object.fromEntries(named.map((name) => [name, metadata[name] ?? ''])), ...meaning },
  };
}

/** RFC 6750 §3: `scope` of the challenge has the scopes that would suffice. */
function acceptedScopes({ headers }: ApiAnswer): string[] {
  const challenge = headers['www-authenticate'] ?? '';
  const [, scopes = ''] = /\bscope="([^"]*)"/.exec(challenge) ?? [];
  return scopes.split(' ').filter((scope) => /^[\x21\x23-\x5b\x5d-\x7e]{1,300}$/.test(scope));
}

function isPage({ headers, body }: ApiAnswer): boolean {
  const type = headers['content-type'] ?? '';
  return /^text\/html\b/i.test(type) || /^\s*<(?:!doctype|html)/i.test(body);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined;
}
