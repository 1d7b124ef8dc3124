/** A scope: its sentence on the consent page, and whether it is for sign-in only. */
interface Scope {
  sentence: string;
  isSignIn: boolean;
}

const auth = 'https://www.googleapis.com/auth/';
const mail = 'https://mail.google.com/';

const knownScopes: Record<string, Scope> = {
  openid: { sentence: 'Associate you with your personal info', isSignIn: true },
  [`${auth}userinfo.email`]: { sentence: 'See your email address', isSignIn: true },
  [`${auth}userinfo.profile`]: {
    sentence: 'See your name and other profile information',
    isSignIn: true,
  },
  [`${auth}spreadsheets`]: {
    sentence: 'See, edit, create and delete all your spreadsheets',
    isSignIn: false,
  },
  [`${auth}spreadsheets.readonly`]: { sentence: 'See all your spreadsheets', isSignIn: false },
  [`${auth}drive`]: {
    sentence: 'See, edit, create and delete all of your Drive files',
    isSignIn: false,
  },
  [`${auth}drive.readonly`]: { sentence: 'See and download all your Drive files', isSignIn: false },
  [`${auth}drive.file`]: {
    sentence: 'See, edit, create and delete only the Drive files you use with this app',
    isSignIn: false,
  },
  [`${auth}drive.metadata.readonly`]: {
    sentence: 'See information about your Drive files',
    isSignIn: false,
  },
  [`${auth}drive.appdata`]: {
    sentence: 'See, create and delete its own configuration data in your Drive',
    isSignIn: false,
  },
  [`${auth}calendar`]: { sentence: 'See, edit, share and delete all your calendars', isSignIn: false },
  [`${auth}calendar.readonly`]: { sentence: 'See your calendars', isSignIn: false },
  [mail]: { sentence: 'Read, compose, send and delete all your email', isSignIn: false },
  [`${auth}gmail.send`]: { sentence: 'Send email on your behalf', isSignIn: false },
  [`${auth}gmail.readonly`]: { sentence: 'View your email messages and settings', isSignIn: false },
  [`${auth}cloud-platform`]: {
    sentence: 'See, edit, configure and delete your Cloud data',
    isSignIn: false,
  },
};

const aliases: Record<string, string> = {
  email: `${auth}userinfo.email`,
  profile: `${auth}userinfo.profile`,
};

/** The scopes in the discovery document. */
export const signInScopes = ['openid', 'email', 'profile'];

/** The full name of a scope: `email` is short for .../auth/userinfo.email. */
export function fullScope(scope: string): string {
  return aliases[scope] ?? scope;
}

export function isKnownScope(scope: string): boolean {
  return Object.hasOwn(knownScopes, fullScope(scope));
}

/** Whether a scope is for sign-in. Such scopes have no checkbox on the consent page: every sign-in grants them. */
export function isSignInScope(scope: string): boolean {
  return knownScopes[fullScope(scope)]?.isSignIn ?? false;
}

/** Whether a scope is a mail scope: a password change ends the tokens with such a scope. */
export function isMailScope(scope: string): boolean {
  return scope === mail || scope.startsWith(`${auth}gmail.`);
}

/** Whether an organization's session length applies to a scope. */
export function isCloudScope(scope: string): boolean {
  return scope === `${auth}cloud-platform`;
}

/** The sentence beside the checkbox. */
export function scopeSentence(scope: string): string {
  return knownScopes[fullScope(scope)]?.sentence ?? scope;
}

/**
 * The full names of requested scopes, without duplicates. Like Google, it adds `openid` to a request for the address or the
 * profile.
 */
export function resolveScopes(asked: string[]): string[] {
  const full = asked.map(fullScope);
  if (full.some((scope) => scope.startsWith(`${auth}userinfo.`))) full.push('openid');
  return inAnswerOrder(full);
}

/**
 * Scopes without duplicates, in the order of responses: APIs, then the sign-in scopes, `openid` last. Google's order also
 * differs from the order of the request, so a client that compares strings must fail here as well.
 */
export function inAnswerOrder(scopes: Iterable<string>): string[] {
  const rank = (scope: string) => (scope === 'openid' ? 2 : isSignInScope(scope) ? 1 : 0);
  return [...new Set(scopes)].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}
