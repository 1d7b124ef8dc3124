/** What both directions know of the names of headers. Pure. */

/** Between two neighbours only (RFC 9110 §7.6.1, RFC 9113 §8.2.2). */
export const hopByHop: ReadonlySet<string> = new Set([
  'connection', 'http2-settings', 'keep-alive', 'proxy-authenticate', 'proxy-authentication-info',
  'proxy-authorization', 'proxy-connection', 'transfer-encoding', 'upgrade',
]); // biome-ignore format: a list reads better in lines

/** They say of a body's bytes what is not true of others (RFC 9530, RFC 3230). */
export const ofTheBytes: ReadonlySet<string> = new Set([
  'content-length', 'content-md5', 'content-digest', 'digest', 'repr-digest',
]); // biome-ignore format: a list reads better in lines

/** Names that `Connection` declares to be for this hop (RFC 9110 §7.6.1), lower case; undefined: none. */
export function listedByConnection(rawHeaders: readonly string[]): Set<string> | undefined {
  let names: Set<string> | undefined;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (name.length !== 10 || name.toLowerCase() !== 'connection') continue;
    const value = (rawHeaders[at + 1] as string).toLowerCase();
    if (value === 'keep-alive' || value === 'close') continue;
    names ??= new Set();
    for (const listed of value.split(',')) names.add(listed.trim());
  }
  // Both say how the message is to be read; no option of a connection can take them away.
  names?.delete('content-length');
  names?.delete('content-type');
  return names;
}

/** A caller that makes names up cannot fill the memory. */
const maxNames = 500;

/** What becomes of a header by its name, worked out once for each. */
export class HeaderPolicy<F extends NonNullable<unknown>> {
  readonly #judge: (name: string) => F;
  readonly #known = new Map<string, F>();

  constructor(judge: (name: string) => F) {
    this.#judge = judge;
  }

  of(name: string): F {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    const rule = this.#judge(name);
    if (this.#known.size >= maxNames) this.#known.clear();
    this.#known.set(name, rule);
    return rule;
  }
}
