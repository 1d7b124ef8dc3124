/** A scope the sandbox knows: the sentence a person reads, and whether it is only about signing in. */
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

/** Scopes a client may ask for, as discovery lists them. */
export const SIGN_IN_SCOPES = ['openid', 'email', 'profile'];

/** The full name of a scope: `email` is short for .../auth/userinfo.email. */
export function fullScope(scope: string): string {
  return ALIASES[scope] ?? scope;
}

export function isKnownScope(scope: string): boolean {
  return Object.hasOwn(SCOPES, fullScope(scope));
}

/** Sign-in scopes have no box to tick: who signs in at all grants them. */
export function isSignInScope(scope: string): boolean {
  return SCOPES[fullScope(scope)]?.isSignIn ?? false;
}

/** A change of password ends the tokens that hold one of these. */
export function isMailScope(scope: string): boolean {
  return scope === MAIL || scope.startsWith(`${AUTH}gmail.`);
}

/** Scopes that an organization's session length applies to. */
export function isCloudScope(scope: string): boolean {
  return scope === `${AUTH}cloud-platform`;
}

/** The sentence shown beside the box. */
export function scopeSentence(scope: string): string {
  return SCOPES[fullScope(scope)]?.sentence ?? scope;
}

/**
 * What a list of asked scopes stands for: full names, each once; asking for the address or the profile brings
 * `openid` along, as Google answers.
 */
export function resolveScopes(asked: string[]): string[] {
  const full = asked.map(fullScope);
  if (full.some((scope) => scope.startsWith(`${AUTH}userinfo.`))) full.push('openid');
  return inAnswerOrder(full);
}

/**
 * Scopes once each, in the order the sandbox names them: APIs first, then the sign-in scopes, `openid` last.
 * Google's order also differs from the one asked for; a client that compares strings must fail here as well.
 */
export function inAnswerOrder(scopes: Iterable<string>): string[] {
  const rank = (scope: string) => (scope === 'openid' ? 2 : isSignInScope(scope) ? 1 : 0);
  return [...new Set(scopes)].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}
