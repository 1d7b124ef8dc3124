import type { Routes } from '../client/routes.ts';
import { ConnectError } from './connect-error.ts';
import { openPopup, watchPopup } from './popup.ts';
import type { Connected, Session } from './progress.ts';
import { serviceUrl } from './service-url.ts';

/** The choices of a session, as returned by `GET /connect/session/choices`. */
export type Choices = Routes['GET /connect/session/choices']['answer']['data'];
/** An integration that the user may connect, with the scopes to be requested and the fields to fill in. */
export type Choice = Choices['choices'][number];

/**
 * The error of one field; `path` is its name. `reason` is for pages in another language than English, and
 * docs/reference/errors.md lists its codes.
 */
export type ConnectFieldError = {
  path: string;
  message: string;
  reason?: { code: string; limit?: string } | undefined;
};

/** The error of a call that the service refused, or that did not reach it (`code` is `unreachable`, `status` is 0). */
export class ConnectCallError extends Error {
  declare readonly name: 'ConnectCallError';
  /** See docs/reference/errors.md. */
  readonly code: string;
  readonly status: number;
  /** The errors of single fields. */
  readonly fields: ConnectFieldError[];
  readonly requestId: string | undefined;
  readonly payload: unknown;

  static {
    Object.assign(ConnectCallError.prototype, { name: 'ConnectCallError' });
  }

  constructor(
    message: string,
    given: {
      code: string;
      status: number;
      fields?: ConnectFieldError[] | undefined;
      requestId?: string | undefined;
      payload?: unknown;
      cause?: unknown;
    },
  ) {
    super(message, given.cause === undefined ? undefined : { cause: given.cause });
    this.code = given.code;
    this.status = given.status;
    this.fields = given.fields ?? [];
    this.requestId = given.requestId;
    this.payload = given.payload;
  }
}

/** The integrations that the session allows, and the end user. Changes nothing. Throws `ConnectCallError`. */
export async function listChoices(session: Session): Promise<Choices> {
  return (await callWithSession(session, 'GET /connect/session/choices')).data;
}

/**
 * Connects an account with the values of the fields of `choice`, such as an API key. For a choice whose `form_path` is
 * not null; the service tests the values first if the provider allows that.
 *
 * Throws `ConnectCallError`, with `connection_test_failed` if the provider refuses the values, and with `fields` if some
 * of them are invalid.
 */
export async function submitForm(
  session: Session,
  { choice, values = {} }: { choice: Pick<Choice, 'form_path'>; values?: Record<string, string> | undefined },
): Promise<Connected> {
  const { form_path: path } = choice;
  if (path === null) throw new TypeError('The connection begins at the provider: call authorize.');
  const entries = Object.entries(values);
  const isParam = ([name]: [string, string]) => name.startsWith('params[');
  const query = { connect_session_token: session.token, ...Object.fromEntries(entries.filter(isParam)) };
  const body = Object.fromEntries(entries.filter((entry) => !isParam(entry)));
  const answer = (await send(session, { method: 'POST', path, query, body })) as {
    connectionId: string;
    providerConfigKey: string;
  };
  return { connectionId: answer.connectionId, integration: answer.providerConfigKey, missingScopes: [] };
}

/**
 * Opens the provider in a window, and resolves when the user has connected an account; call it in a click handler. For a
 * choice whose `form_path` is null. Before the provider, the window shows for whom the account will be connected.
 *
 * If the user did not grant a scope, the promise resolves once the user has closed the window, with `missingScopes`.
 * Throws `ConnectError` as `connect` does, or the signal's reason.
 */
export async function authorize(
  session: Session,
  given: {
    /** The `integration_id` of the choice. */
    integration: string;
    /** The values of the fields of the choice, if it has any. */
    values?: Record<string, string> | undefined;
    /** Called when an attempt failed and the window is still open. */
    onFailure?: ((error: ConnectError) => void) | undefined;
    /** Closes the window. */
    signal?: AbortSignal | undefined;
  },
): Promise<Connected> {
  const { integration, values, onFailure, signal = new AbortController().signal } = given;
  signal.throwIfAborted();
  const address = authorizationUrl(session, { integration, values });
  const popup = openPopup();
  if (popup === null) throw new ConnectError('popup_blocked');
  try {
    popup.location.replace(address);
    const url = serviceUrl(session.url);
    return await watchPopup(popup, { session: { ...session, url }, signal, onFailure });
  } finally {
    popup.close();
  }
}

/** The address that starts an authorization, for a page that opens it itself. */
export function authorizationUrl(
  { url, token }: Session,
  { integration, values = {} }: { integration: string; values?: Record<string, string> | undefined },
): string {
  const address = new URL(`${serviceUrl(url)}/oauth/connect/${encodeURIComponent(integration)}`);
  address.searchParams.set('connect_session_token', token);
  for (const [name, value] of Object.entries(values)) if (value !== '') address.searchParams.set(name, value);
  return address.href;
}

/**
 * Opens a session again whose connection lacks scopes, so that `authorize` requests the missing ones. Throws
 * `ConnectCallError`.
 */
export async function requestMissingScopes(session: Session): Promise<void> {
  await callWithSession(session, 'POST /connect/session/rest');
}

/**
 * Calls a route with the token of the session. Throws `ConnectCallError`.
 * @internal
 */
export async function callWithSession<R extends keyof Routes>(
  session: Session,
  route: R,
  given: { query?: Record<string, string>; body?: object } = {},
): Promise<Routes[R]['answer']> {
  const [method = '', path = ''] = route.split(' ');
  const headers = { authorization: `Bearer ${session.token}` };
  return (await send(session, { method, path, headers, ...given })) as Routes[R]['answer'];
}

/** A browser adds the cookies of the service only on its own pages. */
async function send(
  { url }: Pick<Session, 'url'>,
  request: {
    method: string;
    path: string;
    headers?: Record<string, string>;
    query?: Record<string, string>;
    body?: object;
  },
): Promise<unknown> {
  const search = new URLSearchParams(request.query).toString();
  const response = await fetch(`${serviceUrl(url)}${request.path}${search && `?${search}`}`, {
    method: request.method,
    headers: {
      accept: 'application/json',
      ...request.headers,
      ...(request.body !== undefined && { 'content-type': 'application/json' }),
    },
    cache: 'no-store',
    ...(request.body !== undefined && { body: JSON.stringify(request.body) }),
  }).catch((cause: unknown) => {
    const message = 'The service does not respond.';
    throw new ConnectCallError(message, { code: 'unreachable', status: 0, cause });
  });
  const isJson = response.headers.get('content-type')?.includes('application/json') === true;
  const answer: unknown = isJson ? await response.json().catch(() => undefined) : undefined;
  if (!response.ok) throw errorOf(response, answer);
  return answer;
}

type WireFieldError = Omit<ConnectFieldError, 'path'> & { path: string[] };

/** @internal */
export function readFieldErrors(errors: readonly WireFieldError[] = []): ConnectFieldError[] {
  return errors.map(({ path, message, reason }) => ({
    path: path.join('.'),
    message,
    ...(reason !== undefined && { reason }),
  }));
}

function errorOf({ status, headers }: Response, answer: unknown): ConnectCallError {
  type Refusal = {
    code?: string;
    message?: string;
    errors?: WireFieldError[];
    payload?: unknown;
  };
  const { error = {} } = (answer ?? {}) as { error?: Refusal };
  return new ConnectCallError(error.message ?? `The service responded with ${status}.`, {
    code: error.code ?? 'unknown',
    status,
    fields: readFieldErrors(error.errors),
    requestId: headers.get('x-request-id') ?? undefined,
    payload: error.payload,
  });
}
