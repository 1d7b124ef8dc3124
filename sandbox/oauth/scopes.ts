/** A scope: its sentence on the consent page, and whether it is for sign-in only. */
interface Scope {
  sentence: string;
  isSignIn: boolean;
}

const AUTH = 'https://www.googleapis.com/auth/';
const MAIL = 'https://mail.google.com/';

const SCOPES: Record<string, Scope> = {
  openid: { sentence: 'Associate you with your personal info', isSignIn: true },
  [`${AUTH}userinfo.email`]: { sentence: 'See your email address', isSignIn: true },
  [`${AUTH}userinfo.profile`]: { sentence: 'See your name and other profile information', isSignIn: true },
  [`${AUTH}spreadsheets`]: {
    sentence: 'See, edit, create and delete all your spreadsheets',
    isSignIn: false,
  },
  [`${AUTH}spreadsheets.readonly`]: { sentence: 'See all your spreadsheets', isSignIn: false },
  [`${AUTH}drive`]: { sentence: 'See, edit, create and delete all of your Drive files', isSignIn: false },
  [`${AUTH}drive.readonly`]: { sentence: 'See and download all your Drive files', isSignIn: false },
  [`${AUTH}drive.file`]: {
    sentence: 'See, edit, create and delete only the Drive files you use with this app',
    isSignIn: false,
  },
  [`${AUTH}drive.metadata.readonly`]: { sentence: 'See information about your Drive files', isSignIn: false },
  [`${AUTH}drive.appdata`]: {
    sentence: 'See, create and delete its own configuration data in your Drive',
    isSignIn: false,
  },
  [`${AUTH}calendar`]: { sentence: 'See, edit, share and delete all your calendars', isSignIn: false },
  [`${AUTH}calendar.readonly`]: { sentence: 'See your calendars', isSignIn: false },
  [MAIL]: { sentence: 'Read, compose, send and delete all your email', isSignIn: false },
  [`${AUTH}gmail.send`]: { sentence: 'Send email on your behalf', isSignIn: false },
  [`${AUTH}gmail.readonly`]: { sentence: 'View your email messages and settings', isSignIn: false },
  [`${AUTH}cloud-platform`]: { sentence: 'See, edit, configure and delete your Cloud data', isSignIn: false },
};

const ALIASES: Record<string, string> = {
  email: `${AUTH}userinfo.email`,
  profile: `${AUTH}userinfo.profile`,
};

/** The scopes in the discovery document. */
export const SIGN_IN_SCOPES = ['openid', 'email', 'profile'];

/** The full name of a scope: `email` is short for .../auth/userinfo.email. */
export function fullScope(scope: string): string {
  return ALIASES[scope] ?? scope;
}

export function isKnownScope(scope: string): boolean {
  return Object.hasOwn(SCOPES, fullScope(scope));
}

/** Whether a scope is for sign-in. Such scopes have no checkbox on the consent page: every sign-in grants them. */
export function isSignInScope(scope: string): boolean {
  return SCOPES[fullScope(scope)]?.isSignIn ?? false;
}

/** Whether a scope is a mail scope: a password change ends the tokens with such a scope. */
export function isMailScope(scope: string): boolean {
  return scope === MAIL || scope.startsWith(`${AUTH}gmail.`);
}

/** Whether an organization's session length applies to a scope. */
export function isCloudScope(scope: string): boolean {
  return scope === `${AUTH}cloud-platform`;
}

/** The sentence beside the checkbox. */
export function scopeSentence(scope: string): string {
  return SCOPES[fullScope(scope)]?.sentence ?? scope;
}

/**
 * The full names of requested scopes, without duplicates. Like Google, it adds `openid` to a request for the address or the
 * profile.
 */
export function resolveScopes(asked: string[]): string[] {
  const full = asked.map(fullScope);
  if (full.some((scope) => scope.startsWith(`${AUTH}userinfo.`))) full.push('openid');
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
