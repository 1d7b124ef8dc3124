/**
 * Credentials that are exchanged for a token by one request, which the definition describes in `login`: its address,
 * headers and body, and the paths of the token in the response. No OAuth client is involved.
 *
 * The stored credentials renew the token: by the request of `login.renewal` if the provider returned a refresh token,
 * else, or if the provider refuses it, by the first request again.
 */
import { z } from 'zod';
import { isUnsendable } from '../providers/credential-header.ts';
import { type LoginRequest, type ProviderDefinition, templateFields } from '../providers/definition.ts';
import { readFields } from '../providers/fields.ts';
import {
  fillHeader,
  fillText,
  isFillable,
  type TemplateFields,
  type TemplateValues,
} from '../providers/template.ts';
import type { RenewableMode } from './mode.ts';
import { expiryText, tokenText, withoutRefreshToken } from './oauth2-credentials.ts';
import { address, type Network, type OAuthContext, type TokenOutcome } from './oauth2-request.ts';
import { faultOfAnswer, faultOfSilence, type TokenFault } from './token-fault.ts';
import {
  at,
  isHtml,
  isObject,
  type JsonObject,
  type JsonValue,
  readAnswer,
  secondsOf,
  secondsUntil,
  UnreadableAnswerError,
} from './token-response.ts';

/** As sealed. `expires_at` is ISO 8601 in UTC. */
export type TwoStepCredentials = {
  readonly type: 'TWO_STEP';
  /** The values of the definition's `credentials`. */
  readonly fields: Readonly<Record<string, string>>;
  /** Absent before the first token is requested. */
  readonly token?: string;
  readonly refresh_token?: string;
  readonly expires_at?: string;
  /** The lifetime of the token in seconds. */
  readonly life_s?: number;
  /** The provider's last response, without a refresh token. */
  readonly raw: JsonObject;
};

const importSchema = z
  .object({
    type: z.literal('TWO_STEP'),
    token: tokenText.optional(),
    refresh_token: tokenText.optional(),
    expires_at: expiryText.optional(),
    raw: z.record(z.string(), z.json()).optional(),
  })
  .catchall(z.string().max(8192))
  .transform(({ type, token, refresh_token, expires_at, raw = {}, ...others }): TwoStepCredentials => {
    // The definition checks the fields. An optional one may be empty.
    const fields = Object.fromEntries(Object.entries(others).filter(([, value]) => value !== ''));
    return {
      type,
      fields: fields as Record<string, string>,
      ...(token !== undefined && { token }),
      ...(refresh_token !== undefined && { refresh_token }),
      ...(expires_at !== undefined && { expires_at }),
      raw: raw as JsonObject,
    };
  });
/** Names that a field of a definition cannot have: they have a meaning beside the fields. */
const reserved = ['type', 'token', 'refresh_token', 'expires_at', 'raw', 'accessToken', 'refreshToken'];

const toWire = ({ type, token, expires_at, raw }: TwoStepCredentials) => ({
  type,
  ...(token !== undefined && { token }),
  ...(expires_at !== undefined && { expires_at }),
  raw: withoutRefreshToken(raw),
});

export const twoStep: RenewableMode<TwoStepCredentials> = {
  name: 'TWO_STEP',
  client: 'none',
  // The request may contain a secret of the integration's settings.
  ownCredentialsOnly: false,
  form: {
    path: '/auth/two-step',
    operationId: 'connectByLogin',
    summary: 'Connect with credentials that are exchanged for a token',
    example: { username: 'ada@example.com', password: 'her-password' },
    fields: {},
    hasDefinedFields: true,
  },
  importSchema,
  credentialFaults({ fields }, { credentials }) {
    const read = readFields(credentials, fields);
    return read.ok ? [] : read.issues.map(({ field, ...fault }) => ({ path: [field], ...fault }));
  },
  placeholders: ['accessToken', 'refreshToken'],
  templateValues: ({ fields, token = '' }) => ({ ...fields, accessToken: token }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of the service
  placement: [{ in: 'header', name: 'Authorization', value: 'Bearer ${credentials.accessToken}' }],
  definitionFaults: ({ login, token, authorization, credentials }) => {
    if (login === undefined) return [[['login'], 'a TWO_STEP provider needs it']];
    const faults: [string[], string][] = [];
    if (token !== undefined) faults.push([['token'], 'a TWO_STEP provider has "login" instead']);
    if (authorization !== undefined)
      faults.push([['authorization'], 'a TWO_STEP provider has no authorization page']);
    for (const name of Object.keys(credentials)) {
      if (reserved.includes(name)) faults.push([['credentials', name], 'the name has another meaning']);
    }
    if ((login.renewal === undefined) !== (login.answer.refresh_token === undefined))
      faults.push([['login', 'renewal'], 'belongs together with login.answer.refresh_token']);
    faults.push(...faultsOfRequest(['login'], login));
    if (login.renewal !== undefined) faults.push(...faultsOfRequest(['login', 'renewal'], login.renewal));
    return faults;
  },
  toWire,
  renewal: {
    grantType: 'own_credentials',
    accessTokenOf: ({ token }) => token,
    secretOf: () => '',
    ownClientOf: () => undefined,
    request: requestToken,
    after: ({ accessToken, expiresAt, session, raw }, { previous: { type, fields } }) => ({
      type,
      fields,
      token: accessToken,
      ...session,
      raw,
      ...(expiresAt !== undefined && { expires_at: expiresAt.toISOString() }),
    }),
    // The fields renew the token, like a refresh token in other modes.
    toWireWithSecret: (credentials) => ({
      ...credentials.fields,
      ...(credentials.refresh_token !== undefined && { refresh_token: credentials.refresh_token }),
      ...toWire(credentials),
    }),
  },
};

type Login = NonNullable<ProviderDefinition['login']>;

function faultsOfRequest(path: string[], { url, headers, form, json, method }: LoginRequest) {
  const faults: [string[], string][] = [];
  if (url.includes('${credentials.'))
    faults.push([[...path, 'url'], 'a credential is not allowed here: addresses are written to logs']);
  for (const name of Object.keys(headers)) {
    if (isUnsendable(name)) faults.push([[...path, 'headers', name], 'is set by the protocol']);
  }
  const hasBody = form !== undefined || json !== undefined;
  if (form !== undefined && json !== undefined) faults.push([[...path, 'json'], 'a request has one body']);
  if (hasBody && method === 'GET') faults.push([[...path, 'method'], 'a GET request has no body']);
  return faults;
}

type LoginContext = OAuthContext & Network & { credentials: TwoStepCredentials };

/** Throws TemplateError, and AppError when the address may not be reached. */
async function requestToken(context: LoginContext): Promise<TokenOutcome> {
  const { definition, credentials } = context;
  const { login } = definition;
  if (login === undefined) throw new TypeError(`the provider "${definition.name}" has no login`);
  if (login.renewal !== undefined && credentials.refresh_token !== undefined) {
    const renewed = await send(context, login, login.renewal);
    if (renewed.ok || renewed.fault.kind !== 'dead_grant') return renewed;
  }
  return send(context, login, login);
}

async function send(context: LoginContext, login: Login, request: LoginRequest): Promise<TokenOutcome> {
  const { credentials, now = new Date() } = context;
  const { fields, token, refresh_token: refreshToken } = credentials;
  const own = { ...fields, ...(token && { accessToken: token }), ...(refreshToken && { refreshToken }) };
  const values = { ...context.values, credentials: own };
  const known = templateFields(context.definition);
  const url = address({ ...context, values }, request.url);
  const init = filledRequest(request, { values, fields: known });
  try {
    const answer = await readAnswer(url, init, {
      fetch: context.fetch,
      signal: context.signal,
      now,
      timeoutMs: context.timeoutMs ?? login.timeout_ms,
    });
    return judged(answer, { context, login, now, sent: Object.values(own) });
  } catch (error) {
    if (error instanceof UnreadableAnswerError) return { ok: false, fault: faultOfSilence(error) };
    throw error;
  }
}

type Filling = { values: TemplateValues; fields: TemplateFields };

/** Without headers and parameters that have a placeholder without a value. */
function filledRequest({ method, headers, basic, form, json }: LoginRequest, given: Filling) {
  const has = (template: unknown) => typeof template !== 'string' || isFillable(template, given.values);
  const filled = (templates: Record<string, string>, fill: (template: string) => string) =>
    Object.fromEntries(
      Object.entries(templates)
        .filter(([, template]) => has(template))
        .map(([name, template]) => [name, fill(template)]),
    );
  const fillJson = (template: JsonValue): JsonValue => {
    if (typeof template === 'string') return fillText(template, given);
    if (Array.isArray(template)) return template.filter(has).map(fillJson);
    if (!isObject(template)) return template;
    const entries = Object.entries(template).filter(([, inner]) => has(inner));
    return Object.fromEntries(entries.map(([name, inner]) => [name, fillJson(inner)]));
  };
  const type = json !== undefined ? 'application/json' : form && 'application/x-www-form-urlencoded';
  const body =
    json !== undefined
      ? JSON.stringify(fillJson(json))
      : form && new URLSearchParams(filled(form, (template) => fillText(template, given))).toString();
  const pair = basic && `${fillText(basic.username, given)}:${fillText(basic.password, given)}`;
  return {
    method,
    headers: {
      accept: 'application/json',
      ...(type && { 'content-type': type }),
      ...(pair !== undefined && { authorization: `Basic ${Buffer.from(pair).toString('base64')}` }),
      ...filled(headers, (template) => fillHeader(template, given)),
    },
    ...(body !== undefined && { body }),
  };
}

type Answer = Awaited<ReturnType<typeof readAnswer>>;

function judged(
  { status, contentType, retryAfterMs, text }: Answer,
  { context, login, now, sent }: { context: LoginContext; login: Login; now: Date; sent: string[] },
): TokenOutcome {
  const seen = { httpStatus: status, ...(retryAfterMs !== undefined && { retryAfterMs }) };
  const silent = (reason: UnreadableAnswerError['reason']) => ({
    ok: false as const,
    fault: faultOfSilence(new UnreadableAnswerError(reason, seen)),
  });
  if (status >= 300 && status < 400) return silent('redirect');
  if (status >= 500) return silent('server_error');
  const body = parsed(text);
  const raw = isObject(body) ? body : {};
  const { answer } = login;
  const code = answer.error === undefined ? undefined : at(raw, answer.error);
  const isCode = (typeof code === 'string' && code !== '') || typeof code === 'number';
  if (status >= 400 || isCode) {
    if (body === undefined && isHtml(text, contentType) && !login.refused.includes(status))
      return silent('html');
    const error = isCode ? String(code) : `status_${status}`;
    const fault = faultOfAnswer(login.errors, { httpStatus: status, raw, retryAfterMs, sent, error });
    return { ok: false, fault: refusal(fault, { login, isNamed: Object.hasOwn(login.errors, error) }) };
  }
  if (body === undefined) return silent(isHtml(text, contentType) ? 'html' : 'not_json');
  const token = answer.token === undefined ? body : at(raw, answer.token);
  if (!tokenText.safeParse(token).success)
    return { ok: false, fault: { kind: 'protocol', error: 'invalid_answer', httpStatus: status } };
  const given = secondsOf(answer.expires_in === undefined ? undefined : at(raw, answer.expires_in));
  // A lifetime of 0 would request a token for each call, so it counts as absent.
  const life_s =
    (given && (answer.expires_in_unit === 'ms' ? given / 1000 : given)) ||
    secondsUntil(answer.expires_at === undefined ? undefined : at(raw, answer.expires_at), now) ||
    context.definition.refresh.default_expires_in_s;
  const next = answer.refresh_token === undefined ? undefined : at(raw, answer.refresh_token);
  const refresh_token = tokenText.safeParse(next).data ?? context.credentials.refresh_token;
  return {
    ok: true,
    tokens: {
      accessToken: String(token),
      tokenType: 'Bearer',
      expiresAt: new Date(now.getTime() + life_s * 1000),
      session: { life_s, ...(refresh_token !== undefined && { refresh_token }) },
      raw: without(raw, answer.refresh_token),
    },
  };
}

/** A code that the definition does not name decides less than the status. */
function refusal(fault: TokenFault, { login, isNamed }: { login: Login; isNamed: boolean }): TokenFault {
  if (isNamed || fault.kind === 'transient' || fault.kind === 'dead_grant') return fault;
  const isRefused = login.refused.includes(fault.httpStatus ?? 0);
  return { ...fault, kind: isRefused ? 'dead_grant' : 'protocol' };
}

function parsed(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function without(raw: JsonObject, path: string | undefined): JsonObject {
  if (path === undefined) return raw;
  const copy = structuredClone(raw);
  const steps = path.split('.');
  const last = steps.pop()!;
  const parent = at(copy, steps.length > 0 ? steps.join('.') : undefined);
  if (isObject(parent)) delete parent[last];
  return copy;
}
