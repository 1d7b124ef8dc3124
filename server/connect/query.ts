import { clientText } from '../auth-modes/token-text.ts';
import { AppError, type FieldError } from '../errors.ts';
import type { OAuthClient } from '../integrations/store.ts';
import { readScopes } from '../integrations/wire.ts';

/** What a browser may say when it begins: everything else is fixed by the session and the definition. */
export type Wishes = {
  /** `params[x]`: fields of the connection's configuration. */
  config: Record<string, string>;
  /** `authorization_params[x]` */
  authorizationParams: Record<string, string>;
  /** `user_scope`: only to ask for less. */
  scopes: string[] | undefined;
  /** `credentials[oauth_client_id_override]` and `credentials[oauth_client_secret_override]`: a client of their own. */
  ownClient: OAuthClient | undefined;
  /** `ws_client_id`: how an official client calls the socket on which it waits. */
  waiter: string | undefined;
};

/** `hmac` has no meaning beside a session. */
const known = new Set(['connect_session_token', 'ws_client_id', 'user_scope', 'hmac']);

const ownClientNames = ['oauth_client_id_override', 'oauth_client_secret_override'].map(
  (name) => `credentials[${name}]`,
);

/**
 * Reads the query of a route that takes the session token in it. Throws `invalid_query_params` naming each
 * parameter that does not belong there or stands twice.
 */
export function readWishes(url: string): Wishes {
  const faults: FieldError[] = [];
  const wishes: Wishes = {
    ...{ config: {}, authorizationParams: {}, scopes: undefined, ownClient: undefined, waiter: undefined },
  };
  const own = new Map<string, string>();
  const seen = new Set<string>();
  for (const [name, value] of queryOf(url)) {
    const report = (message: string) => faults.push({ code: 'custom', message, path: [name] });
    if (seen.has(name)) report('stands twice');
    seen.add(name);
    const [, group, field] = /^(params|authorization_params)\[([A-Za-z][A-Za-z0-9_]*)\]$/.exec(name) ?? [];
    if (group === 'params' && field !== undefined) {
      // Where events go is for the application to say.
      if (field !== 'webhook_url') wishes.config[field] = value;
    } else if (group === 'authorization_params' && field !== undefined) {
      // Official clients write an absent value as this word.
      if (value !== 'undefined') wishes.authorizationParams[field] = value;
    } else if (ownClientNames.includes(name)) {
      if (clientText.safeParse(value).success) own.set(name, value);
      else report('must be printable ASCII');
    } else if (name === 'user_scope') wishes.scopes = readScopes(value);
    else if (name === 'ws_client_id') wishes.waiter = value;
    else if (name === 'connection_id') report('cannot be chosen: the session says which connection is made');
    else if (!known.has(name)) report('is not a parameter of this route');
  }
  const [clientId, clientSecret] = ownClientNames.map((name) => own.get(name));
  if (clientId !== undefined && clientSecret !== undefined) wishes.ownClient = { clientId, clientSecret };
  else if (own.size > 0 && faults.length === 0) {
    const path = ownClientNames.filter((name) => !own.has(name));
    faults.push({ code: 'custom', message: 'belongs to the other one: give both or none', path });
  }
  if (faults.length > 0) throw new AppError('invalid_query_params', sentenceOf(faults), { errors: faults });
  return wishes;
}

/** The query of a request's own URL, decoded. */
export function queryOf(url: string): URLSearchParams {
  const start = url.indexOf('?');
  return new URLSearchParams(start < 0 ? '' : url.slice(start + 1));
}

/** One sentence for a reader who sees only the message. */
export function sentenceOf(faults: readonly FieldError[]): string {
  return `${faults.map(({ path, message }) => `${path.at(-1) ?? 'query'}: ${message}`).join('; ')}.`;
}
