import type { Profile } from './profile.ts';

export type Reply = { status: number; headers: Record<string, string>; text: string };

/** Life of every access token, in seconds, where it has one. */
export const lifeS = 4321;
export const refreshLifeS = 98765;

/** The answer of a token endpoint, written as the profile's provider writes it. */
export function tokenReply(
  profile: Profile,
  given: {
    accessToken: string;
    refreshToken: string | undefined;
    scopes: readonly string[];
    isExchange: boolean;
    now: Date;
  },
): Reply {
  const token = {
    access_token: given.accessToken,
    ...(profile.tokenType !== '' && { token_type: profile.tokenType }),
    ...(given.refreshToken !== undefined && {
      refresh_token: given.refreshToken,
      ...(profile.refreshLifeIn !== undefined && { [profile.refreshLifeIn]: refreshLifeS }),
    }),
    ...lifeOf(profile, given.now),
    ...scopesOf(
      profile,
      allowed(given.scopes).filter((scope) => scope !== profile.unnamedScope),
    ),
  };
  const isInside = profile.tokenIn !== undefined && given.isExchange;
  const body = {
    ...(profile.faults === 'in_200' && { ok: true }),
    ...(isInside ? { team: { id: 'T1' }, [profile.tokenIn ?? '']: { id: '77', ...token } } : token),
  };
  if (profile.answer === 'json') return jsonReply(200, body);
  const text = new URLSearchParams(body as unknown as Record<string, string>).toString();
  return { status: 200, headers: { 'content-type': 'text/plain' }, text };
}

/** A refusal, told as the profile's provider tells it. */
export function refusal(profile: Profile, error: string): Reply {
  if (profile.faults === 'in_200') return jsonReply(200, { ok: false, error });
  if (profile.faults === 'message')
    return jsonReply(400, { error: 'Bad Request', status: 400, message: error });
  return jsonReply(error === 'invalid_client' ? 401 : 400, { error });
}

function lifeOf({ life }: Profile, now: Date): Record<string, unknown> {
  const end = new Date(now.getTime() + lifeS * 1000);
  switch (life) {
    case 'expires_in':
      return { expires_in: lifeS };
    case 'text':
      return { expires_in: String(lifeS) };
    case 'expires':
      return { expires: lifeS };
    case 'date':
      return { expires_at: end.toISOString() };
    case 'unix':
      return { expires_at: end.getTime() / 1000 };
    case 'zero':
      return { expires_in: 0 };
    case 'untold':
      return {};
  }
}

/** What a person allows of what was asked for: all but the last scope, where there are several. */
export function allowed(scopes: readonly string[]): readonly string[] {
  return scopes.length > 1 ? scopes.slice(0, -1) : scopes;
}

function scopesOf({ grantedScopes, grantedIn }: Profile, scopes: readonly string[]): Record<string, unknown> {
  switch (grantedScopes) {
    case 'space':
      return { [grantedIn]: scopes.join(' ') };
    case 'comma':
      return { [grantedIn]: scopes.join(',') };
    case 'list':
      return { [grantedIn]: scopes };
    case 'null':
      return { [grantedIn]: null };
    case 'empty':
      return { [grantedIn]: '' };
    case 'untold':
      return {};
  }
}

function jsonReply(status: number, body: unknown): Reply {
  return { status, headers: { 'content-type': 'application/json' }, text: JSON.stringify(body) };
}
