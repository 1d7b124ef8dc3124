import { type Client, type Clients, takesRedirect } from '../clients.ts';
import { isKnownScope, resolveScopes } from './scopes.ts';

/** A valid authorization request. */
export interface AuthorizationRequest {
  client: Client;
  redirectUri: string;
  /** Full names, with `openid` if the address or profile was requested. */
  scopes: string[];
  state: string | undefined;
  offline: boolean;
  includeGranted: boolean;
  loginHint: string | undefined;
  prompts: Set<string>;
  nonce: string | undefined;
  challenge: { value: string; method: 'S256' | 'plain' } | undefined;
}

/** An error that is shown on a page, without a redirect to the client. */
export interface PageError {
  status: number;
  code: string;
  message: string;
}

/** The result of validating a request. */
export type ValidationResult = { ok: true; request: AuthorizationRequest } | { ok: false; error: PageError };

const knownPrompts = new Set(['none', 'consent', 'select_account']);

/**
 * Validates the query of an authorization URL in Google's order: client, redirect URI, then the other parameters.
 *
 * Source: https://developers.google.com/identity/protocols/oauth2/web-server and RFC 6749 §4.1.2.1. In contrast to the RFC,
 * Google shows all of these errors on its own page and does not redirect to the client.
 */
export function validateRequest(query: URLSearchParams, clients: Clients): ValidationResult {
  for (const name of new Set(query.keys())) {
    if (query.getAll(name).length > 1)
      return invalid(`OAuth 2 parameters can only have a single value: ${name}`);
  }
  const value = (name: string) => query.get(name) || undefined;

  const clientId = value('client_id');
  if (clientId === undefined) return missing('client_id');
  const client = clients.find(clientId);
  if (client === undefined) return refuse(401, 'invalid_client', 'The OAuth client was not found.');

  const redirectUri = value('redirect_uri');
  if (redirectUri === undefined) return missing('redirect_uri');
  if (!takesRedirect(client, redirectUri)) {
    return refuse(
      400,
      'redirect_uri_mismatch',
      `The redirect URI ${redirectUri} is not registered with the client ${clientId}.`,
    );
  }

  const responseType = value('response_type');
  if (responseType === undefined) return missing('response_type');
  if (responseType !== 'code') {
    return refuse(400, 'unsupported_response_type', `Invalid response_type: ${responseType}`);
  }

  const asked = (value('scope') ?? '').split(' ').filter((scope) => scope !== '');
  if (asked.length === 0) return missing('scope');
  const unknown = asked.filter((scope) => !isKnownScope(scope));
  if (unknown.length > 0) {
    return refuse(
      400,
      'invalid_scope',
      `Some requested scopes were invalid. {invalid=[${unknown.join(', ')}]}`,
    );
  }

  const accessType = value('access_type') ?? 'online';
  if (accessType !== 'online' && accessType !== 'offline') return badValue('access_type', accessType);
  const includeGranted = value('include_granted_scopes') ?? 'false';
  if (includeGranted !== 'true' && includeGranted !== 'false')
    return badValue('include_granted_scopes', includeGranted);

  const prompts = new Set((value('prompt') ?? '').split(' ').filter((prompt) => prompt !== ''));
  if ([...prompts].some((prompt) => !knownPrompts.has(prompt)) || (prompts.has('none') && prompts.size > 1)) {
    return badValue('prompt', value('prompt')!);
  }

  const method = value('code_challenge_method') ?? 'plain';
  const challenge = value('code_challenge');
  if (method !== 'S256' && method !== 'plain') return badValue('code_challenge_method', method);
  if (challenge === undefined && query.has('code_challenge_method')) return missing('code_challenge');
  // RFC 7636 §4.2: 43 to 128 unreserved characters.
  if (challenge !== undefined && !/^[A-Za-z0-9._~-]{43,128}$/.test(challenge)) {
    return badValue('code_challenge', challenge);
  }

  return {
    ok: true,
    request: {
      client,
      redirectUri,
      scopes: resolveScopes(asked),
      state: query.get('state') ?? undefined,
      offline: accessType === 'offline',
      includeGranted: includeGranted === 'true',
      loginHint: value('login_hint'),
      prompts,
      nonce: value('nonce'),
      challenge: challenge === undefined ? undefined : { value: challenge, method },
    },
  };
}

function refuse(status: number, code: string, message: string): ValidationResult {
  return { ok: false, error: { status, code, message } };
}

function invalid(message: string): ValidationResult {
  return refuse(400, 'invalid_request', message);
}

function missing(name: string): ValidationResult {
  return invalid(`Missing required parameter: ${name}`);
}

function badValue(name: string, value: string): ValidationResult {
  return invalid(`Invalid parameter value for ${name}: ${value}`);
}
