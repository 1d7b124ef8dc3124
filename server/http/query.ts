/**
 * Queries in each way that servers may parse them. Pure. Forbidden parameters are found in every reading; permitted ones keep
 * every byte.
 */

/**
 * Removes `name=value` pairs from a query, which begins with `?`. Pairs end at `&`, and for some servers at `;` too: `isCut` is
 * called for the pairs of both readings.
 */
export function withoutPairs(query: string, isCut: (pair: string) => boolean): string {
  const pairs = query.slice(1).split('&');
  const kept = pairs.map((pair) => withoutParts(pair, isCut)).filter((pair) => pair !== undefined);
  return kept.length === 0 ? '' : `?${kept.join('&')}`;
}

function withoutParts(pair: string, isCut: (pair: string) => boolean): string | undefined {
  if (isCut(pair)) return undefined;
  if (!pair.includes(';')) return pair;
  const kept = pair.split(';').filter((part) => !isCut(part));
  return kept.length === 0 ? undefined : kept.join(';');
}

/** The pairs of a query without its `?`, or of a form, which end at `&` or `;`. */
export function pairsOf(query: string): string[] {
  return query.split(/[&;]/);
}

/** The name of a pair. */
export function decodedName(pair: string): string {
  return decodedPair(pair.split('=', 1)[0] ?? '').trim();
}

/** A pair without encoding; characters beyond ASCII stay single bytes. */
export function decodedPair(pair: string): string {
  if (!/[%+]/.test(pair)) return pair;
  return decodedBytes(pair.replaceAll('+', ' '));
}

/** Without percent-encoding, byte by byte. It cannot fail: invalid escapes stay. */
export function decodedBytes(text: string): string {
  return text.replace(/%([\da-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/** Without percent-encoding; undefined if the result is not UTF-8. */
export function decodedText(text: string): string | undefined {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/**
 * The name of a parameter or a header as the most tolerant server reads it: names with the same result may be the same. CGI
 * and PHP replace dots, spaces and dashes by underscores; PHP and Rails read `name[]` and `name[x]` as `name`; PHP replaces an
 * unclosed bracket by an underscore, and ends a name at its first NUL; some servers ignore case, or a second `?`.
 */
export function plainName(name: string): string {
  return name
    .replace(/^[\s?]+|\s+$/g, '')
    .toLowerCase()
    .replace(/(?<=.)[[\0].*$/s, '')
    .replace(/[\s._[]/g, '-');
}
