import { type Scope, scopes } from './caller.ts';

/** What a person may be: an owner everywhere, the others in the environments they are given. */
export const roles = ['owner', 'developer', 'viewer'] as const;
export type Role = (typeof roles)[number];

export function isRole(text: string): text is Role {
  return roles.some((role) => role === text);
}

/**
 * Credentials of connections and values of variables are for keys, and for none that a person could make: a page that is
 * taken over must not be able to carry them off.
 */
const ofKeysAlone: readonly Scope[] = [
  'connections:credentials',
  'connections:refresh_tokens',
  'environment:secrets',
  // Code that is deployed reads what it likes of the environment's connections.
  'functions:deploy',
];
const ofMakers = new Set<string>(scopes.filter((scope) => !ofKeysAlone.includes(scope)));
const ofViewers = new Set<string>(
  scopes.filter((scope) => scope.endsWith(':read') && scope !== 'proxy:read'),
);

/** The scopes of a role in an environment. docs/users.md says them, and a test compares. */
export function scopesOfRole(role: Role): ReadonlySet<string> {
  return role === 'viewer' ? ofViewers : ofMakers;
}
