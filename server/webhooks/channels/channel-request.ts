/** Calls to a provider that open, renew and stop push channels. Does not own: their effects (`watches.ts`, `channel-ends.ts`). */
import type { Credentials } from '../../auth-modes/modes.ts';
import { placeCredentials, withQuery } from '../../auth-modes/place.ts';
import type { CredentialSource } from '../../connections/refresh/credentials.ts';
import { type LiveConnection, templateValues } from '../../connections/store/reader.ts';
import { AppError } from '../../errors.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { readBody } from '../../outbound/read-body.ts';
import { type ChannelRules, templateFields } from '../../providers/definition.ts';
import {
  fillAddress,
  fillText,
  isFillable,
  TemplateError,
  type TemplateFields,
  type TemplateValues,
} from '../../providers/template.ts';
import { fieldsAt } from '../inbound/signature.ts';
import type { WatchFault } from './channel-store.ts';

export type ProviderCall = {
  connection: LiveConnection;
  credentials: Credentials;
  rules: ChannelRules;
  fetch: Fetch;
  signal: AbortSignal;
};

/**
 * `fault.code` is `channel_unanswered` if it is unknown whether the provider has done what was requested. `isLasting`: a soon
 * repetition is useless.
 */
export type CallFault = {
  ok: false;
  fault: WatchFault;
  status?: number;
  isLasting: boolean;
  isTokenRefused: boolean;
};
/** `secret`: the key of messages, if the provider has made one. */
export type Opened =
  | { ok: true; resourceId: string; expiresAt: Date; secret?: string | undefined }
  | CallFault;

const requestMs = 15_000;
const maxBytes = 64 * 1024;

/** Calls the provider, and once more with renewed credentials if it refuses the token. Each call has its own time limit. */
export async function callWithRenewal<T extends { ok: true } | CallFault>(
  source: Pick<CredentialSource, 'fresh' | 'renewed'>,
  to: Omit<ProviderCall, 'credentials'>,
  call: (to: ProviderCall) => Promise<T>,
): Promise<T> {
  const limited = () => AbortSignal.any([to.signal, AbortSignal.timeout(requestMs)]);
  const credentials = await source.fresh(to.connection);
  const outcome = await call({ ...to, credentials, signal: limited() });
  if (outcome.ok || !outcome.isTokenRefused) return outcome;
  const renewed = await source.renewed(to.connection, credentials);
  return renewed === undefined ? outcome : call({ ...to, credentials: renewed, signal: limited() });
}

/** Whether the settings have each value that a request for a channel needs. */
export function isRequestable(connection: LiveConnection, { base_url, body }: ChannelRules): boolean {
  return isFillable(base_url + JSON.stringify(body), templateValues(connection));
}

/** What a call needs of a channel. An empty `target` is the whole account. */
type ChannelValues = {
  id: string;
  target: string;
  token?: string;
  address?: string;
  resourceId?: string;
  expiresAt?: Date;
};

/** Requests a channel. Throws TemplateError, and AppError for a forbidden address. */
export async function openChannel(
  to: ProviderCall,
  { now, ...channel }: Required<Omit<ChannelValues, 'resourceId'>> & { now: Date },
): Promise<Opened> {
  const { rules } = to;
  const { id, target, expiresAt } = channel;
  const values = valuesOf(channel);
  const place = target === '' ? rules.account : rules.target;
  if (place === undefined) throw new Error('The provider has no such channel.');
  const lookup = target === '' ? rules.account?.lookup : undefined;
  if (lookup !== undefined) {
    const found = await call(to, { method: 'GET', path: lookup.path, values });
    if (!found.ok) return found;
    for (const [name, path] of Object.entries(lookup.fields)) {
      values[name] = textAt(found.json, path);
      if (values[name] === '') return unanswered('The provider answered without what a channel needs.');
    }
  }
  const special = rules.body_for.find((one) => new RegExp(one.target, 'u').test(target));
  const body = { ...rules.body, ...special?.body };
  const answer = await call(to, { method: rules.method, path: place.path, body, values });
  if (!answer.ok) return answer;
  if (answer.json === undefined) return unanswered('The provider answered without JSON.');
  const { response } = rules;
  const named = response.resource === undefined ? id : textAt(answer.json, response.resource);
  const resourceId =
    response.resource_pattern === undefined
      ? named
      : (new RegExp(response.resource_pattern, 'u').exec(named)?.[0] ?? '');
  const secret = response.secret === undefined ? undefined : textAt(answer.json, response.secret);
  const endsAt = endIn(answer.json, { rules, latest: expiresAt });
  if (resourceId !== '' && secret !== '' && endsAt > now)
    return { ok: true, resourceId, secret, expiresAt: endsAt };
  return unanswered('The provider answered without saying what it watches, and until when.');
}

/** Extends a channel until `expiresAt`. */
export async function renewChannel(
  to: ProviderCall,
  {
    now,
    renewal,
    ...channel
  }: ChannelValues & {
    resourceId: string;
    expiresAt: Date;
    now: Date;
    renewal: NonNullable<ChannelRules['renewal']>;
  },
): Promise<Opened> {
  const answer = await call(to, { ...renewal, values: valuesOf(channel) });
  if (!answer.ok) return answer;
  const endsAt = endIn(answer.json, { rules: to.rules, latest: channel.expiresAt });
  if (!(endsAt > now)) return unanswered('The provider answered without saying until when it watches.');
  return { ok: true, resourceId: channel.resourceId, expiresAt: endsAt };
}

/** `ok` also if the provider has no such channel, or stops none. */
export async function stopChannel(
  to: ProviderCall,
  channel: ChannelValues,
): Promise<{ ok: true } | CallFault> {
  const { stop } = to.rules;
  if (stop === undefined) return { ok: true };
  const answer = await call(to, { ...stop, values: valuesOf(channel) });
  return answer.ok || isGone(answer) ? { ok: true } : answer;
}

/** Whether the provider has answered that the channel does not exist. */
export const isGone = ({ status }: CallFault): boolean => status === 404 || status === 410;

type Values = Record<string, string>;

function valuesOf({ resourceId: resource = '', expiresAt, ...texts }: ChannelValues): Values {
  return {
    token: '',
    address: '',
    ...texts,
    resource,
    expires_at: expiresAt?.toISOString() ?? '',
    expires_ms: String(expiresAt?.getTime() ?? ''),
  };
}

/** The secret of a channel that the service has made. */
export const ownSecret = ({ secret }: ChannelRules, token: string): string =>
  secret.replaceAll('{token}', token);

const placeholder = /\$\{[^}]*\}|\{(\w+)\}/g;

/** One pass, so that a value with the text of a placeholder stays as it is. */
function filledText(
  template: string,
  { values, settings }: Filling,
  encode = (value: string) => value,
): string {
  return template.replaceAll(placeholder, (text, name?: string) =>
    encode(name === undefined ? fillText(text, settings) : (values[name] ?? '')),
  );
}

function encodeSegment(value: string): string {
  if (value === '.' || value === '..')
    throw new TemplateError('a part of the path must not be a dot segment');
  return encodeURIComponent(value);
}

function filled(template: unknown, filling: Filling): unknown {
  if (typeof template === 'string') return filledText(template, filling);
  if (Array.isArray(template)) return template.map((item) => filled(item, filling));
  if (typeof template !== 'object' || template === null) return template;
  return Object.fromEntries(Object.entries(template).map(([name, value]) => [name, filled(value, filling)]));
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

type Filling = { values: Values; settings: { values: TemplateValues; fields: TemplateFields } };
/** `json` is undefined if the response is not a JSON object. */
type Called = { ok: true; json: Record<string, unknown> | undefined } | CallFault;

async function call(
  { connection, credentials, rules, fetch, signal }: ProviderCall,
  { method, path, body, values }: { method: string; path: string; body?: object | undefined; values: Values },
): Promise<Called> {
  const definition = connection.integration.provider;
  const settings = { values: templateValues(connection), fields: templateFields(definition) };
  const placed = placeCredentials({ definition, credentials, values: settings.values });
  const base = fillAddress(rules.base_url, settings).replace(/\/+$/, '');
  const url = withQuery(base + filledText(path, { values, settings }, encodeSegment), placed.query);
  const content = body && JSON.stringify(filled(body, { values, settings }));
  let status: number;
  let text: string;
  try {
    const answer = await fetch(url, {
      method,
      headers: {
        ...placed.headers,
        accept: 'application/json',
        ...(content && { 'content-type': 'application/json' }),
      },
      ...(content && { body: content }),
      clientCertificate: placed.clientCertificate,
      redirect: 'manual',
      signal,
    });
    status = answer.status;
    // Longer responses are cut, so they are not valid JSON.
    text = (await readBody(answer.body, maxBytes)).bytes.toString('utf8');
  } catch (error) {
    for (let cause = error; cause instanceof Error; cause = cause.cause)
      if (cause instanceof AppError) throw cause;
    return unanswered('The provider did not answer.');
  }
  const json = objectIn(text);
  if (status >= 200 && status < 300) return { ok: true, json };
  if (status < 400 || status >= 500) return unanswered(`The provider answered with status ${status}.`);
  const reason = reasonIn(json);
  const isLasting = reason !== undefined && rules.lasting.includes(reason);
  const message = `The provider refused the channel: status ${status}${reason === undefined ? '' : `, ${reason}`}.`;
  return {
    ok: false,
    fault: { code: 'channel_refused', message },
    status,
    isLasting,
    isTokenRefused: status === 401 && !isLasting,
  };
}

function unanswered(message: string): CallFault {
  const fault = { code: 'channel_unanswered', message };
  return { ok: false, fault, isLasting: false, isTokenRefused: false };
}

function objectIn(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** Google's `error.errors[0].reason`. Texts of the provider are not passed on. */
function reasonIn(json: unknown): string | undefined {
  const [reason] = fieldsAt(json, 'error.errors.reason');
  return typeof reason === 'string' && /^[A-Za-z.]{1,60}$/.test(reason) ? reason : undefined;
}
