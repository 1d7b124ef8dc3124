/** Calls to a provider that open, renew and stop push channels. Does not own: their effects (`watches.ts`, `channel-ends.ts`). */
import type { Credentials } from '../../auth-modes/modes.ts';
import { placeCredentials } from '../../auth-modes/place.ts';
import type { CredentialSource } from '../../connections/refresh/credentials.ts';
import { type LiveConnection, templateValues } from '../../connections/store/reader.ts';
import { AppError } from '../../errors.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { readBody } from '../../outbound/read-body.ts';
import type { ChannelRules } from '../../providers/definition.ts';
import { fieldsAt } from '../inbound/signature.ts';
import type { WatchFault } from './channel-store.ts';

export type ProviderCall = {
  connection: LiveConnection;
  credentials: Credentials;
  rules: ChannelRules;
  fetch: Fetch;
  signal: AbortSignal;
};

export type Opened =
  /** `secret`: the key of messages, if the provider has made one. */
  { ok: true; resourceId: string; expiresAt: Date; secret?: string | undefined } | Refused;
/**
 * `isRefused`: the provider has no such channel. `isLasting`: a soon repetition is useless. `isGone`: the channel that was to be
 * renewed does not exist.
 */
type Refused = {
  ok: false;
  fault: WatchFault;
  isRefused: boolean;
  isLasting: boolean;
  isTokenRefused: boolean;
  isGone?: boolean;
};

const requestMs = 15_000;
const maxBytes = 64 * 1024;

/** Calls the provider, and once more with renewed credentials if it refuses the token. Each call has its own time limit. */
export async function callWithRenewal<T>(
  source: Pick<CredentialSource, 'renewed'>,
  to: ProviderCall,
  by: { call: (to: ProviderCall) => Promise<T>; isTokenRefused: (outcome: T) => boolean },
): Promise<T> {
  const limited = () => AbortSignal.any([to.signal, AbortSignal.timeout(requestMs)]);
  const outcome = await by.call({ ...to, signal: limited() });
  if (!by.isTokenRefused(outcome)) return outcome;
  const credentials = await source.renewed(to.connection, to.credentials);
  return credentials === undefined ? outcome : by.call({ ...to, credentials, signal: limited() });
}

/** Requests a channel. An empty `target` is the whole account. Throws TemplateError, and AppError for a forbidden address. */
export async function openChannel(
  to: ProviderCall,
  {
    now,
    ...channel
  }: { id: string; token: string; target: string; address: string; expiresAt: Date; now: Date },
): Promise<Opened> {
  const { rules } = to;
  const { target, expiresAt } = channel;
  const values = valuesOf(channel);
  let path = filledPath(rules.target.path, values);
  if (target === '') {
    const { account } = rules;
    if (account === undefined) throw new Error('The provider watches no whole account.');
    const page = await call(to, { method: 'GET', path: account.page.path });
    if (!page.ok) return page;
    path = filledPath(account.path, { page: String(page.json[account.page.field] ?? '') });
  }
  const special = rules.body_for.find((one) => new RegExp(one.target, 'u').test(target));
  const body = filled({ ...rules.body, ...special?.body }, values) as object;
  const answer = await call(to, { method: 'POST', path, body });
  if (!answer.ok) return answer;
  const { response } = rules;
  const resourceId = textAt(answer.json, response.resource);
  const secret = response.secret === undefined ? undefined : textAt(answer.json, response.secret);
  const endsAt = endIn(answer.json, { rules, latest: expiresAt });
  const isClear = resourceId !== '' && secret !== '' && endsAt > now;
  if (!isClear) return unknown('The provider answered without saying what it watches, and until when.');
  return { ok: true, resourceId, secret, expiresAt: endsAt };
}

type OpenChannel = { id: string; resourceId: string; target: string };

/** Extends a channel until `expiresAt`. The definition has a renewal. */
export async function renewChannel(
  to: ProviderCall,
  { now, ...channel }: OpenChannel & { expiresAt: Date; now: Date },
): Promise<Opened> {
  const { rules } = to;
  if (rules.renewal === undefined) throw new Error('The provider renews no channel.');
  const values = valuesOf(channel);
  const { method, path, body } = rules.renewal;
  const answer = await call(to, {
    method,
    path: filledPath(path, values),
    body: body && (filled(body, values) as object),
  });
  if (!answer.ok) return { ...answer, isGone: answer.status === 404 || answer.status === 410 };
  const endsAt = endIn(answer.json, { rules, latest: channel.expiresAt });
  if (!(endsAt > now)) return unknown('The provider answered without saying until when it watches.');
  return { ok: true, resourceId: channel.resourceId, expiresAt: endsAt };
}

/** `over`: the channel was stopped, or the provider has none of this ID. */
export type StopOutcome = 'over' | 'token_refused' | 'refused' | 'unanswered';

export async function stopChannel(to: ProviderCall, channel: OpenChannel): Promise<StopOutcome> {
  const values = valuesOf(channel);
  const { method, path, body } = to.rules.stop;
  const answer = await call(to, {
    method,
    path: filledPath(path, values),
    body: body && (filled(body, values) as object),
  });
  if (answer.ok || answer.status === 404 || answer.status === 410) return 'over';
  if (answer.isTokenRefused) return 'token_refused';
  return answer.isRefused ? 'refused' : 'unanswered';
}

type Values = Record<string, string>;

function valuesOf(of: {
  id: string;
  target: string;
  token?: string;
  address?: string;
  resourceId?: string;
  expiresAt?: Date;
}): Values {
  const { id, target, token = '', address = '', resourceId: resource = '', expiresAt } = of;
  return {
    ...{ id, target, token, address, resource },
    expires_at: expiresAt?.toISOString() ?? '',
    expires_ms: String(expiresAt?.getTime() ?? ''),
  };
}

function filledPath(path: string, values: Values): string {
  return path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? ''));
}

function filled(template: unknown, values: Values): unknown {
  if (typeof template === 'string')
    return template.replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? '');
  if (Array.isArray(template)) return template.map((item) => filled(item, values));
  if (typeof template !== 'object' || template === null) return template;
  return Object.fromEntries(Object.entries(template).map(([name, value]) => [name, filled(value, values)]));
}

/** Empty if there is none. IDs of providers have at most 255 characters. */
function textAt(json: unknown, path: string): string {
  const [value] = fieldsAt(json, path);
  const text = typeof value === 'number' ? String(value) : value;
  return typeof text === 'string' && text.length <= 255 ? text : '';
}

/** The end that the provider tells, in RFC 3339 or in milliseconds since 1970. A later end than `latest` is not relied on. */
function endIn(json: unknown, { rules, latest }: { rules: ChannelRules; latest: Date }): Date {
  const { expires_at: path } = rules.response;
  if (path === undefined) return latest;
  const text = textAt(json, path);
  const end = new Date(/^\d+$/.test(text) ? Number(text) : text);
  return end > latest ? latest : end;
}

type CallFault = Refused & { status: number | undefined };
type Called = { ok: true; json: Record<string, unknown> } | CallFault;

async function call(
  { connection, credentials, rules, fetch, signal }: ProviderCall,
  { method, path, body }: { method: string; path: string; body?: object | undefined },
): Promise<Called> {
  const placed = placeCredentials({
    ...{ definition: connection.integration.provider, credentials },
    values: templateValues(connection),
  });
  let status: number;
  let text: string;
  try {
    const answer = await fetch(rules.base_url + path, {
      method,
      headers: {
        ...placed.headers,
        accept: 'application/json',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
      redirect: 'manual',
      signal,
    });
    status = answer.status;
    // Longer responses are cut, so they are not valid JSON.
    text = (await readBody(answer.body, maxBytes)).bytes.toString('utf8');
  } catch (error) {
    for (let cause = error; cause instanceof Error; cause = cause.cause)
      if (cause instanceof AppError) throw cause;
    return unknown('The provider did not answer.');
  }
  const json = objectIn(text);
  if (status >= 200 && status < 300) return { ok: true, json };
  if (status < 400 || status >= 500) return unknown(`The provider answered with status ${status}.`, status);
  const reason = reasonIn(json);
  return {
    ok: false,
    fault: {
      code: 'channel_refused',
      message: `The provider refused the channel: status ${status}${reason === undefined ? '' : `, ${reason}`}.`,
    },
    ...{ isRefused: true, isLasting: reason !== undefined && rules.lasting.includes(reason), status },
    isTokenRefused: status === 401 && (reason === undefined || !rules.lasting.includes(reason)),
  };
}

function unknown(message: string, status?: number): CallFault {
  return {
    ...{ ok: false, fault: { code: 'channel_unanswered', message }, status },
    ...{ isRefused: false, isLasting: false, isTokenRefused: false },
  };
}

function objectIn(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Google's `error.errors[0].reason`. Texts of the provider are not passed on. */
function reasonIn({ error }: Record<string, unknown>): string | undefined {
  const [first] = (error as { errors?: { reason?: unknown }[] } | undefined)?.errors ?? [];
  const reason = first?.reason;
  return typeof reason === 'string' && /^[A-Za-z.]{1,60}$/.test(reason) ? reason : undefined;
}
