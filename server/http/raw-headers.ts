/** Lists of headers as Node gives and takes them: names and values in turn, so that repeated ones stay repeated. Pure. */

/** The first value of a header, by its name in lower case. */
export function firstValue(rawHeaders: readonly string[], name: string): string | undefined {
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const found = rawHeaders[at] as string;
    if (found.length === name.length && found.toLowerCase() === name) return rawHeaders[at + 1];
  }
  return undefined;
}

/** The headers but those of these names (lower case). */
export function without(rawHeaders: readonly string[], names: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (!names.has(name.toLowerCase())) kept.push(name, rawHeaders[at + 1] as string);
  }
  return kept;
}

/** Whether a Transfer-Encoding names the one coding that ends with its hop unseen. */
export function isChunked(transferEncoding: string): boolean {
  return transferEncoding === 'chunked' || transferEncoding.trim().toLowerCase() === 'chunked';
}
