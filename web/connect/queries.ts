import type { Routes } from '../../sdk/client/routes.ts';
import * as client from '../../sdk/connect/session.ts';

export type { Choice, Choices } from '../../sdk/connect/session.ts';
/** The calls of the page, which are those of the client for pages of applications. All throw `Fault`. */
export { ConnectCallError as Fault, readFieldErrors } from '../../sdk/connect/session.ts';

type Answer<R extends keyof Routes> = Routes[R]['answer'];
export type Progress = Answer<'GET /connect/session/progress'>['data'];
/** The connection that the session created. */
export type Made = NonNullable<Progress['connection']>;
export type Settings = NonNullable<Progress['settings']>;

export type Session = { token: string; baseUrl: string };

export async function fetchProgress(session: Session): Promise<Progress> {
  return (await call(session, 'GET /connect/session/progress')).data;
}

/** Includes the settings of the page, which are fetched only once: a logo may have tens of kilobytes. */
export async function fetchOpening(session: Session): Promise<Progress> {
  return (await call(session, 'GET /connect/session/progress', { query: { settings: 'true' } })).data;
}

export function fetchChoices(session: Session): Promise<client.Choices> {
  return client.listChoices(reachable(session));
}

/** Reopens the session for the missing scopes. */
export function requestMissingScopes(session: Session): Promise<void> {
  return client.requestMissingScopes(reachable(session));
}

/** Connects with the values of the form. */
export async function submitForm(
  session: Session,
  given: { choice: client.Choice; values: Record<string, string> },
): Promise<void> {
  await client.submitForm(reachable(session), given);
}

/** The URL that starts a flow, so that the cookie is set for the host to which the provider redirects. */
export function authorizationUrl(
  { token, baseUrl }: Session,
  { key, values }: { key: string; values: Record<string, string> },
): string {
  return client.authorizationUrl({ url: baseUrl, token }, { integration: key, values });
}

export function call<R extends keyof Routes>(
  session: Session,
  route: R,
  given: { query?: Record<string, string>; body?: object } = {},
): Promise<Answer<R>> {
  return client.callWithSession(reachable(session), route, given);
}

/** The session at the host of the page, which may have been opened with another host name than that of the base URL. */
function reachable({ token, baseUrl }: Session) {
  return { token, url: location.origin + new URL(baseUrl).pathname.replace(/\/$/, '') };
}
