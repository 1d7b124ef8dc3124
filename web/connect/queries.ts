import type { Routes } from '../../sdk/client/routes.ts';
import { type Answer, send } from '../api/client.ts';

/** The page's calls of the service, each with the token of the session. All throw `Fault`. */
export type Progress = Answer<'GET /connect/session/progress'>['data'];
/** What the session has made. */
export type Made = NonNullable<Progress['connection']>;
export type Choices = Answer<'GET /connect/session/choices'>['data'];
export type Choice = Choices['choices'][number];
export type Settings = NonNullable<Progress['settings']>;

export type Session = { token: string; baseUrl: string };

export async function fetchProgress(session: Session): Promise<Progress> {
  return (await call(session, 'GET /connect/session/progress')).data;
}

/** With how the page looks, which is asked for once: a logo may have tens of kilobytes. */
export async function fetchOpening(session: Session): Promise<Progress> {
  return (await call(session, 'GET /connect/session/progress', { query: { settings: 'true' } })).data;
}

export async function fetchChoices(session: Session): Promise<Choices> {
  return (await call(session, 'GET /connect/session/choices')).data;
}

/** Opens the session again for what was not granted. */
export async function askForTheRest(session: Session): Promise<void> {
  await call(session, 'POST /connect/session/rest');
}

const formPaths = {
  API_KEY: 'api-auth/api-key',
  BASIC: 'api-auth/basic',
  OAUTH2_CC: 'oauth2/auth',
  NONE: 'auth/unauthenticated',
};

/** Connects with what was filled in: `params[x]` goes into the query, all else into the body. */
export async function submitForm(
  { token, baseUrl }: Session,
  { choice, values }: { choice: Choice; values: Record<string, string> },
): Promise<void> {
  if (choice.auth_mode === 'OAUTH2') throw new Error('begins at the provider');
  const entries = Object.entries(values);
  const isParam = (name: string) => name.startsWith('params[');
  const path = `${pathOf(baseUrl)}/${formPaths[choice.auth_mode]}/${encodeURIComponent(choice.unique_key)}`;
  await send(`POST ${path}`, {
    query: {
      connect_session_token: token,
      ...Object.fromEntries(entries.filter(([name]) => isParam(name))),
    },
    body: Object.fromEntries(entries.filter(([name]) => !isParam(name))),
  });
}

/**
 * Where a trip to the provider begins. Whole, so that the cookie is set for the host that the provider sends the
 * browser back to.
 */
export function tripUrl(
  { token, baseUrl }: Session,
  { key, values }: { key: string; values: Record<string, string> },
): string {
  const url = new URL(`${baseUrl}/oauth/connect/${encodeURIComponent(key)}`);
  url.searchParams.set('connect_session_token', token);
  for (const [name, value] of Object.entries(values)) if (value !== '') url.searchParams.set(name, value);
  return url.href;
}

/** In front of our paths; the page may have been opened by another name of this host. */
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
