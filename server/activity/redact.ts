/** What of a call's address may be kept. */

/** Words that make a parameter's name one of a secret, or of something that is as good as one for a while. */
const secretWords = new Set([
  'assertion', 'auth', 'authorization', 'bearer', 'code', 'cookie', 'credential', 'credentials', 'jwt', 'key', 'otp',
  'pass', 'password', 'passwd', 'pin', 'private', 'pwd', 'secret', 'session', 'sid', 'sig', 'signature', 'sso', 'ticket', 'token', 'verifier',
]); // biome-ignore format: a list reads better in lines
/** The same where words are run together, and Google's name for an open upload, which needs no other credential. */
const secretEnds = /(apikey|accesskey|credentials?|passw(or)?d|secret|signature|token|httpheaders|uploadid)$/;

/** A longer path says no more to a reader. */
const mostCharacters = 2048;
const mask = '***';

/**
 * Path and query as they came in, with the values of credential-like parameters masked; at most 2048 characters. The
 * path is kept as it is: where a provider wants a secret there, the log holds it.
 */
export function redactedTarget(rawUrl: string): string {
  const at = rawUrl.indexOf('?');
  const text = at === -1 ? rawUrl : rawUrl.slice(0, at) + withMasks(rawUrl.slice(at, at + mostCharacters));
  return text.length > mostCharacters ? `${text.slice(0, mostCharacters - 1)}…` : text;
}

function withMasks(query: string): string {
  return query.replace(/([^?&;=]+)=[^&;]*/g, (pair, name: string) =>
    isSecretName(decoded(name)) ? `${name}=${mask}` : pair,
  );
}

function isSecretName(name: string): boolean {
  const words = name
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z\d]+/);
  return words.some((word) => secretWords.has(word)) || secretEnds.test(words.join(''));
}

/** Byte by byte, so that nothing can fail to be decoded; names of secrets are ASCII. */
function decoded(name: string): string {
  return name.replace(/%([\da-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}
