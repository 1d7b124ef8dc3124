/**
 * Queries as servers read them, which is not all in one way. Pure. What must not pass is looked for in every reading;
 * what passes keeps every byte.
 */

/**
 * Cuts `name=value` pairs out of a query, which begins with its `?`. Pairs end at `&`, and for some servers at `;` too:
 * what either makes of it is asked for.
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

/** The pairs of a query without its `?`, or of a form, as servers do that end them at `;` too. */
export function pairsOf(query: string): string[] {
  return query.split(/[&;]/);
}

/** The name of a pair. */
export function decodedName(pair: string): string {
  return decodedPair(pair.split('=', 1)[0] ?? '').trim();
}

/** A pair, its characters beyond ASCII byte by byte. */
export function decodedPair(pair: string): string {
  if (!/[%+]/.test(pair)) return pair;
  return decodedBytes(pair.replaceAll('+', ' '));
}

/** Without percent-encoding, byte by byte, so that nothing can fail: what is no escape stays. */
export function decodedBytes(text: string): string {
  return text.replace(/%([\da-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/** Without percent-encoding; undefined where that is no UTF-8. */
export function decodedText(text: string): string | undefined {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/**
 * A name, of a parameter or a header, as the most tolerant server reads it: two that are equal then may be one. CGI and
 * PHP take dots, blanks and dashes for underscores; PHP and Rails read `name[]` and `name[x]` into `name`, and PHP a
 * bracket that nothing closes as an underscore, and a name to its first NUL; some pass over case, or a second `?`.
 */
export function plainName(name: string): string {
  return name
    .replace(/^[\s?]+|\s+$/g, '')
    .toLowerCase()
    .replace(/(?<=.)[[\0].*$/s, '')
    .replace(/[\s._[]/g, '-');
}
