/**
 * By what a call may become another one than its method and path say.
 *
 * There is no list of them that is complete: frameworks and APIs make up their own. A definition names those of its API.
 */
import { METHODS } from 'node:http';
import { decodedPair, pairsOf, plainName } from '../http/query.ts';

/** Those of one API, beside the usual ones: header names and query parameters, in any case. */
export type Overrides = { readonly headers: readonly string[]; readonly query: readonly string[] };

/** Of Rails, Laravel, Symfony, Express, ASP.NET, OData, IIS and proxies in front of them. */
const usualHeaders = [
  'http-method', 'http-method-override', 'method-override', 'x-http-method', 'x-http-method-override', 'x-method',
  'x-method-override', 'x-original-method', 'x-override-method', 'x-override-uri', 'x-override-url', 'x-original-uri',
  'x-original-url', 'x-rewrite-uri', 'x-rewrite-url',
]; // biome-ignore format: a list reads better in lines
/** The pair with a `$` is what Google's APIs take from browsers that avoid a preflight (Closure, goog.net.rpc.HttpCors). */
const usualParameters = [
  ...usualHeaders, '_method', '$method', '_httpmethod', '$httpmethod', '$httpheaders', '_http_method', '_method_override',
]; // biome-ignore format: a list reads better in lines
/** Parameters that say something else in many APIs: they count where their value is a method. */
const ambiguousParameters = ['method', 'http_method', 'httpmethod', 'verb', 'http_verb'];

const headers = new Set(usualHeaders.map(plainName));
const parameters = new Set(usualParameters.map(plainName));
const ambiguous = new Set(ambiguousParameters.map(plainName));
const methods = new Set(METHODS.map((method) => method.toLowerCase()));

/** The first header (names and values in turn) or parameter by which the call could become another one. */
export function overrideIn(
  rawHeaders: readonly string[],
  { query, also }: { query: string; also: Overrides | undefined },
): string | undefined {
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = plainName(rawHeaders[at]!);
    if (headers.has(name) || isAmong(also?.headers, name)) return rawHeaders[at]!.toLowerCase();
  }
  if (query === '') return undefined;
  for (const pair of pairsOf(query)) {
    const [name = '', value = ''] = pair.split('=', 2).map((part) => decodedPair(part).trim());
    const read = plainName(name);
    const isOverride =
      parameters.has(read) ||
      isAmong(also?.query, read) ||
      (ambiguous.has(read) && methods.has(value.toLowerCase()));
    if (isOverride) return name.toLowerCase();
  }
  return undefined;
}

function isAmong(names: readonly string[] | undefined, read: string): boolean {
  return names?.some((name) => plainName(name) === read) === true;
}
