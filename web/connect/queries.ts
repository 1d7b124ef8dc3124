import type { Routes } from '../../sdk/client/routes.ts';
import { type Answer, send } from '../api/client.ts';

/** The calls of the page, each with the token of the session. All throw `Fault`. */
export type Progress = Answer<'GET /connect/session/progress'>['data'];
/** The connection that the session created. */
export type Made = NonNullable<Progress['connection']>;
export type Choices = Answer<'GET /connect/session/choices'>['data'];
export type Choice = Choices['choices'][number];
export type Settings = NonNullable<Progress['settings']>;

export type Session = { token: string; baseUrl: string };

export async function fetchProgress(session: Session): Promise<Progress> {
  return (await call(session, 'GET /connect/session/progress')).data;
}

/** Includes the settings of the page, which are fetched only once: a logo may have tens of kilobytes. */
export async function fetchOpening(session: Session): Promise<Progress> {
  return (await call(session, 'GET /connect/session/progress', { query: { settings: 'true' } })).data;
}

export async function fetchChoices(session: Session): Promise<Choices> {
  return (await call(session, 'GET /connect/session/choices')).data;
}

/** Reopens the session for the missing scopes. */
export async function requestMissingScopes(session: Session): Promise<void> {
  await call(session, 'POST /connect/session/rest');
}

/** Connects with the values of the form: `params[x]` is sent in the query, all other values in the body. */
export async function submitForm(
  { token, baseUrl }: Session,
  { choice, values }: { choice: Choice; values: Record<string, string> },
): Promise<void> {
  if (choice.form_path === null) throw new Error('the connection begins at the provider');
  const entries = Object.entries(values);
  const isParam = (name: string) => name.startsWith('params[');
  await send(`POST ${pathOf(baseUrl)}${choice.form_path}`, {
    query: { connect_session_token: token, ...Object.fromEntries(entries.filter(([name]) => isParam(name))) },
    body: Object.fromEntries(entries.filter(([name]) => !isParam(name))),
  });
}

/** The absolute URL that starts a flow, so that the cookie is set for the host to which the provider redirects. */
export function authorizationUrl(
  { token, baseUrl }: Session,
  { key, values }: { key: string; values: Record<string, string> },
): string {
  const url = new URL(`${baseUrl}/oauth/connect/${encodeURIComponent(key)}`);
  url.searchParams.set('connect_session_token', token);
  for (const [name, value] of Object.entries(values)) if (value !== '') url.searchParams.set(name, value);
  return url.href;
}

/** The prefix of the paths of the service; the page may have been opened with another host name. */
function pathOf(baseUrl: string): string {
  return new URL(baseUrl).pathname.replace(/\/$/, '');
}

export async function call<R extends keyof Routes>(
  { token, baseUrl }: Session,
  route: R,
  given: { query?: Record<string, string>; body?: object } = {},
): Promise<Answer<R>> {
  const [method, path] = route.split(' ');
  const headers = { authorization: `Bearer ${token}` };
  return (await send(`${method} ${pathOf(baseUrl)}${path}`, { headers, ...given })) as Answer<R>;
}
