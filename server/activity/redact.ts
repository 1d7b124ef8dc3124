/** What of a call's address may be kept. */
import { decodedBytes } from '../http/query.ts';

/** Words that make a parameter's name one of a secret, or of something that is as good as one for a while. */
const secretWords = new Set([
  'assertion', 'auth', 'authorization', 'bearer', 'code', 'cookie', 'credential', 'credentials', 'hmac', 'jwt',
  'key', 'mac', 'otp', 'pass', 'passcode', 'passphrase', 'passwd', 'password', 'pin', 'private', 'pwd', 'sas', 'secret', 'session',
  'sid', 'sig', 'signature', 'sso', 'ticket', 'token', 'verifier',
]); // biome-ignore format: a list reads better in lines
/** The same where words are run together, and Google's name for an open upload, which needs no other credential. */
const secretEnds =
  /((?<!don|hoc|joc|mon|tur|whis)key|credentials?|passphrase|passw(or)?d|secret|sessionid|signature|token|httpheaders|uploadid)$/;

/** A longer path says no more to a reader. */
const maxCharacters = 2048;
const mask = '***';

/**
 * Path and query as they came in, with the values of credential-like parameters masked, and those that hold another
 * address with such parameters; at most 2048 characters. The segments of the path are kept as they are: where a provider
 * wants a secret there, the log holds it.
 */
export function redactedTarget(rawUrl: string): string {
  const at = rawUrl.indexOf('?');
  const text =
    at === -1
      ? maskedPath(rawUrl)
      : maskedPath(rawUrl.slice(0, at)) + maskedQuery(rawUrl.slice(at, at + maxCharacters));
  return text.length > maxCharacters ? `${text.slice(0, maxCharacters - 1)}…` : text;
}

function maskedQuery(query: string): string {
  return query.replace(/([^?&;=]+)=([^&;]*)/g, (pair, name: string, value: string) =>
    isSecretName(decodedBytes(name)) || holdsSecret(value) ? `${name}=${mask}` : pair,
  );
}

/** Parameters may stand in a path too (RFC 3986 §3.3). */
function maskedPath(path: string): string {
  if (!path.includes(';')) return path;
  return path.replace(/;([^;/=]+)=[^;/]*/g, (pair, name: string) =>
    isSecretName(decodedBytes(name)) ? `;${name}=${mask}` : pair,
  );
}

/** Whether a value has parameters of its own that are secrets, as an address has to which somebody is to return. */
function holdsSecret(value: string): boolean {
  if (!/[=%]/.test(value)) return false;
  const parameters = decodedBytes(value).matchAll(/(?<=[?&;#])[^?&;#=]+(?==)/g);
  return parameters.some(([name]) => isSecretName(decodedBytes(name)));
}

function isSecretName(name: string): boolean {
  const words = name
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z\d]+/);
  return words.some((word) => secretWords.has(word)) || secretEnds.test(words.join(''));
}
