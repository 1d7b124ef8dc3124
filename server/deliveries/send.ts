/** One attempt: the request as a receiver gets it, in one of three forms, or the mail; and the outcome. */
import type { Brand } from '../brand.ts';
import { AppError } from '../errors.ts';
import { type CompatType, compatTypes } from '../events/compat-types.ts';
import { readRetryAfter } from '../http/retry-after.ts';
import { withIntegrationId } from '../http/spellings.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { readBody } from '../outbound/read-body.ts';
import type { Mailer } from '../users/mail.ts';
import { alertMail, slackBody } from './alert-text.ts';
import type { Claim } from './claims.ts';
import { type SigningKeys, signatureHeaders } from './signing.ts';
import type { WebhookBody } from './webhook-bodies.ts';

/** The outcome of one attempt. */
export type Attempt = {
  readonly isDelivered: boolean;
  readonly durationMs: number;
  readonly httpStatus?: number;
  readonly error?: AttemptError;
  /** The error code of the system or the client if there was no response: ECONNREFUSED, ENOTFOUND. */
  readonly code?: string;
  /** The beginning of the response body, without secrets; the SMTP status of a mail server. */
  readonly answer?: string;
  /** The pause that the receiver requests. */
  readonly requestedPauseMs?: number;
};
/**
 * `status`: the receiver answered, but not with 2xx; redirects are never followed. `internal`: nothing was sent, since
 * this node could not write or sign the request. `mail_not_configured`: the node has no mail server.
 */
type AttemptError =
  | 'status'
  | 'redirect'
  | 'timeout'
  | 'no_answer'
  | 'address_not_allowed'
  | 'mail_refused'
  | 'mail_not_configured'
  | 'internal';

type Sending = {
  fetch: Fetch;
  /** Undefined if the service has no mail server. */
  mailer: Mailer | undefined;
  brand: Brand;
  /** The address of the dashboard is below it. */
  baseUrl: string;
  authModeOf: (provider: string) => string | undefined;
  keys: SigningKeys;
  /** The content of the webhook that the event is about. Undefined if it cannot be decrypted any more. */
  webhook?: WebhookBody | undefined;
  timeoutMs: number;
  /** Aborts the attempt. */
  signal: AbortSignal;
  nowMs: () => number;
};

/** A short response to a successful attempt is read to its end, so that the connection can be used again. */
const maxReadBytes = 16 * 1024;
const readForMs = 1_000;
const maxKeptBytes = 4 * 1024;

/**
 * Sends a delivery once. The status alone decides: nothing that follows a 2xx changes the outcome. Undefined if `signal`
 * aborted the attempt: it is not known whether the event arrived. Throws before sending if the request cannot be built.
 */
export async function send(claim: Claim, sending: Sending): Promise<Attempt | undefined> {
  if (sending.signal.aborted) return undefined;
  return claim.endpoint.format === 'email' ? sendMail(claim, sending) : post(claim, sending);
}

async function post(claim: Claim, sending: Sending): Promise<Attempt | undefined> {
  const { fetch, signal, timeoutMs, nowMs, keys } = sending;
  const written = request(claim, sending);
  const startedMs = performance.now();
  // Not `AbortSignal.any`: `signal` would keep its listeners, and all that they refer to, for its whole life.
  const ending = new AbortController();
  const end = () => ending.abort();
  signal.addEventListener('abort', end, { once: true });
  let timer = setTimeout(end, timeoutMs);
  const elapsed = () => Math.round(performance.now() - startedMs);
  try {
    const answering = fetch(claim.endpoint.url, {
      ...written,
      method: 'POST',
      redirect: 'manual',
      signal: ending.signal,
    });
    // During name resolution and connecting, `fetch` reacts to the signal only at the end of the step. It sends nothing then.
    const answer = await Promise.race([answering, whenAborted(ending.signal)]);
    clearTimeout(timer);
    timer = setTimeout(end, Math.min(readForMs, timeoutMs));
    const { status } = answer;
    const isDelivered = status >= 200 && status < 300;
    const body = await readBody(untilBroken(answer.body), isDelivered ? maxReadBytes : maxKeptBytes);
    if (isDelivered) return { isDelivered, durationMs: elapsed(), httpStatus: status };
    const requestsPause = status === 429 || status === 503;
    const retryAfter = requestsPause ? answer.headers.get('retry-after') : null;
    const requestedPauseMs = readRetryAfter(retryAfter, nowMs());
    const secrets = keys.map(({ secret }) => secret);
    return {
      isDelivered,
      durationMs: elapsed(),
      httpStatus: status,
      error: status >= 300 && status < 400 ? 'redirect' : 'status',
      answer: keptAnswer(body.bytes, secrets),
      ...(requestedPauseMs !== undefined && { requestedPauseMs }),
    };
  } catch (error) {
    if (signal.aborted) return undefined;
    const durationMs = elapsed();
    if (ending.signal.aborted) return { isDelivered: false, durationMs, error: 'timeout' };
    return { isDelivered: false, durationMs, ...faultOf(error) };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}

/** The mailer has time limits of its own. An abort leaves it unknown whether the mail arrived. */
async function sendMail(claim: Claim, sending: Sending): Promise<Attempt | undefined> {
  const { mailer, signal, timeoutMs, brand } = sending;
  if (mailer === undefined) return { isDelivered: false, durationMs: 0, error: 'mail_not_configured' };
  const { url } = claim.endpoint;
  const { eventId, queuedAt } = claim.delivery;
  const mail = {
    ...alertMail({ ...alertFacts(claim, sending), brand: brand.word }),
    to: url.slice('mailto:'.length),
    // Another attempt may report further events.
    messageId: `<${eventId}.${queuedAt.getTime()}.${claim.others.length}.${claim.endpoint.id}@${new URL(sending.baseUrl).hostname}>`,
  };
  const startedMs = performance.now();
  const ending = new AbortController();
  const end = () => ending.abort();
  signal.addEventListener('abort', end, { once: true });
  const timer = setTimeout(end, timeoutMs);
  const elapsed = () => Math.round(performance.now() - startedMs);
  try {
    const fault = await Promise.race([mailer.deliver(mail), whenAborted(ending.signal)]);
    if (fault === undefined) return { isDelivered: true, durationMs: elapsed() };
    const { code, status } = fault;
    return {
      isDelivered: false,
      durationMs: elapsed(),
      error: 'mail_refused',
      ...(code !== undefined && { code }),
      ...(status !== undefined && { answer: `SMTP ${status}` }),
    };
  } catch {
    return signal.aborted ? undefined : { isDelivered: false, durationMs: elapsed(), error: 'timeout' };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}

function alertFacts({ delivery, others, environment }: Claim, { baseUrl }: Pick<Sending, 'baseUrl'>) {
  const { type, data } = delivery;
  return { type, data, more: others.length, environment, baseUrl };
}

function request(claim: Claim, sending: Sending): { headers: Record<string, string>; body: string } {
  const { brand, keys, nowMs, webhook } = sending;
  const { delivery, endpoint } = claim;
  const isCompat = endpoint.kind !== 'events' && isCompatType(delivery.type);
  const body =
    endpoint.format === 'slack' ? slackBody(alertFacts(claim, sending)) : eventBody(claim, sending);
  const [newest, ...others] = keys;
  return {
    body,
    headers: {
      ...(isCompat && webhook?.headers),
      'content-type': 'application/json',
      'user-agent': `${brand.word}/1`,
      ...signatureHeaders({
        brand,
        eventId: delivery.eventId,
        body,
        nowMs: nowMs(),
        secrets: [newest.secret, ...others.map(({ secret }) => secret)],
        signedFor: isCompat ? 'compat' : 'envelope',
      }),
    },
  };
}

function eventBody(
  { delivery, endpoint, environment }: Claim,
  { brand, authModeOf, webhook }: Sending,
): string {
  const { eventId, type, createdAt, data } = delivery;
  if (endpoint.kind !== 'events' && isCompatType(type))
    return compatBody(type, {
      environment,
      brandWord: brand.word,
      data,
      payload: webhook?.payload,
      authModeOf,
    });
  return JSON.stringify({
    id: eventId,
    type,
    environment,
    created_at: createdAt.toISOString(),
    data: withIntegrationId(
      type === 'webhook.received' ? { ...data, payload: webhook?.payload ?? null } : data,
    ),
  });
}

function isCompatType(type: string): type is CompatType {
  return Object.hasOwn(compatTypes, type);
}

function whenAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}

async function* untilBroken(body: AsyncIterable<Uint8Array> | null): AsyncGenerator<Uint8Array> {
  try {
    yield* body ?? [];
  } catch {
    // The body broke off or was too slow. The status has arrived.
  }
}

function faultOf(error: unknown): Pick<Attempt, 'error' | 'code'> {
  if (error instanceof AppError && error.code === 'address_not_allowed') return { error: error.code };
  const code = (error as { code?: unknown } | undefined)?.code;
  return { error: 'no_answer', ...(typeof code === 'string' && /^[A-Z_]{1,40}$/.test(code) && { code }) };
}

/** What the database keeps of an attempt, as callers get it. */
export function evidenceOf(attempt: Attempt): Record<string, unknown> {
  const { durationMs, httpStatus, error, code, answer } = attempt;
  return {
    ...(error !== undefined && { error }),
    ...(code !== undefined && { code }),
    ...(httpStatus !== undefined && { http_status: httpStatus }),
    ...(answer !== undefined && answer !== '' && { answer }),
    duration_ms: durationMs,
  };
}

/** The maximum length of a stored response body, in characters. */
const maxCharacters = 1_000;
const mask = '***';

/** A name that is usual for secrets, an assignment, and the value up to its closing quote or its end. */
const assigned =
  /((?:authorization|cookie|password|passwd|secret|signature|credential|token|api[_-]?key|access[_-]?key)[\w-]*["']?\s*[:=]\s*)(?:"(?:[^"\\]|\\.)*|'(?:[^'\\]|\\.)*|(?:(?:bearer|basic)\s+)?[^\s"'&,;}<]+)/gis;
const bearer = /\b(bearer|basic)\s+[\w.~+/=-]{8,}/gi;

/**
 * The beginning of a receiver's response, for a user who looks for the reason of a failure: at most 1000 characters, in one
 * line, without `secrets` (the signing secrets) and without values whose names are usual for secrets.
 */
function keptAnswer(bytes: Buffer, secrets: readonly string[]): string {
  let text = bytes.toString('utf8');
  for (const secret of secrets) text = text.replaceAll(secret, mask).replaceAll(secret.slice(6), mask);
  text = text.replace(assigned, `$1${mask}`).replace(bearer, `$1 ${mask}`);
  // Control characters, and characters that the limit on bytes cut in half.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
  text = text.replace(/[\u0000-\u001f\u007f-\u009f\ufffd]+/g, ' ').trim();
  return text.slice(0, maxCharacters).toWellFormed();
}

// Bodies in the form that official clients read. Such an event has a line in `events/compat-types.ts` and a writer here.

type Facts = {
  environment: string;
  brandWord: string;
  data: Readonly<Record<string, unknown>>;
  /** The provider's payload, for a webhook. */
  payload?: unknown;
  /** `OAUTH2`, `API_KEY`, ...; undefined if the catalogue no longer has the provider. */
  authModeOf: (provider: string) => string | undefined;
};
type Body = Record<string, unknown>;

const writers: Record<CompatType, (facts: Facts) => unknown> = {
  'connection.created': (facts) => auth(facts, { operation: 'creation', success: true }),
  'connection.reconnected': (facts) => auth(facts, { operation: 'override', success: true }),
  'connection.connect_failed': (facts) => ({
    ...auth(facts, {
      operation: facts.data.connection_id === null ? 'creation' : 'override',
      success: false,
    }),
    error: errorOf(facts),
  }),
  'connection.needs_reauth': refreshFailed,
  'connection.blocked': refreshFailed,
  'sync.changed': synced,
  'sync.unchanged': synced,
  'action.succeeded': actionEnded,
  'action.failed': actionEnded,
  'webhook.received': forwarded,
  'sync.failed': (facts) => {
    const { code, message } = facts.data.error as { code: string; message: string };
    return {
      ...sync(facts, { success: false }),
      error: { type: code, description: message },
      startedAt: facts.data.started_at,
      failedAt: facts.data.failed_at,
    };
  },
};

/** The body as it is signed and sent: JSON with sorted keys, at every depth. */
export function compatBody(type: CompatType, facts: Facts): string {
  return JSON.stringify(sorted(writers[type](facts)));
}

function auth(
  { environment, brandWord, data, authModeOf }: Facts,
  outcome: { operation: 'creation' | 'override' | 'refresh'; success: boolean },
): Body {
  const tags = (data.tags ?? {}) as Record<string, string>;
  const endUser = data.end_user as { id: string } | null | undefined;
  return {
    from: brandWord,
    type: 'auth',
    // An authorization that failed before it created a connection has none.
    connectionId: data.connection_id ?? '',
    providerConfigKey: data.provider_config_key,
    provider: data.provider,
    authMode: authModeOf(String(data.provider)) ?? 'unknown',
    environment,
    ...outcome,
    ...(Object.keys(tags).length > 0 && { tags }),
    ...(endUser && {
      endUser: {
        endUserId: endUser.id,
        ...(tags.end_user_email !== undefined && { endUserEmail: tags.end_user_email }),
        ...(tags.organization_id !== undefined && { organizationId: tags.organization_id }),
        tags,
      },
    }),
  };
}

function refreshFailed(facts: Facts): Body {
  return { ...auth(facts, { operation: 'refresh', success: false }), error: errorOf(facts) };
}

function sync({ brandWord, data }: Facts, outcome: { success: boolean }): Body {
  return {
    from: brandWord,
    type: 'sync',
    connectionId: data.connection_id,
    providerConfigKey: data.provider_config_key,
    syncName: data.function,
    syncVariant: data.variant,
    syncType: data.sync_type,
    ...outcome,
  };
}

function synced(facts: Facts): Body {
  const { model, started_at: startedAt, added = 0, updated = 0, deleted = 0 } = facts.data;
  return {
    ...sync(facts, { success: true }),
    model,
    modifiedAfter: startedAt,
    queryTimeStamp: startedAt,
    responseResults: { added, updated, deleted },
  };
}

/** The receiver reads the outcome, success or failure, at `statusUrl`. */
function actionEnded({ brandWord, data }: Facts): Body {
  return {
    from: brandWord,
    type: 'async_action',
    connectionId: data.connection_id,
    providerConfigKey: data.provider_config_key,
    payload: { id: data.run, statusUrl: `/action/${data.run}` },
  };
}

/** A webhook that belongs to no connection is forwarded as the provider sent it. */
function forwarded({ data, payload = null }: Facts): unknown {
  if (data.connection_id === null) return payload;
  return {
    from: data.provider,
    type: 'forward',
    connectionId: data.connection_id,
    providerConfigKey: data.provider_config_key,
    payload,
  };
}

function errorOf({ data }: Facts): Body {
  return { type: data.cause, description: data.next_step };
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(entries.map(([key, inner]) => [key, sorted(inner)]));
}
