/**
 * A secret key, a ticket or the token of a connect session; a function is asked before each attempt. Undefined, as a variable
 * of the environment may be, is told as missing where the client is made.
 */
export type Key = string | undefined | (() => string | Promise<string>);

/** Throws a `TypeError`, which never holds it, for what no key looks like. */
export function requireKeyText(key: unknown): asserts key is string {
  if (typeof key !== 'string' || key === '')
    throw new TypeError('key: it is missing. It is a secret key of the environment that is meant.');
  if (!/^[\x21-\x7e]+$/.test(key))
    throw new TypeError('key: it holds characters that no key has, such as a space or the end of a line.');
}
