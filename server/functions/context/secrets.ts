/**
 * What a run was told in confidence, kept out of what is stored in plain text: its log and its error.
 *
 * A convenience against carelessness (`log(connection)`, a token in the text of an error), and no more: code that turns a
 * secret into another text can write that one down.
 */

/** Names under which credentials and variables hold secrets. */
const secretNames = /token|secret|password|passphrase|private|credential|assertion|cookie|jwt|api.?key|key$/i;
/** Names with such a word that say something about a secret. */
const plainNames = /type|expire|_at$|url|uri|scope/i;
/** A shorter one stands in too many words. */
const minLength = 8;
const maxSecrets = 1_000;

export const hidden = '[hidden]';

export class Secrets {
  readonly #spellings = new Set<string>();

  /** Notes all texts that stand under the name of a secret, at any depth. */
  noteCredentials(credentials: unknown): void {
    if (typeof credentials !== 'object' || credentials === null) return;
    for (const [name, value] of Object.entries(credentials)) {
      if (typeof value !== 'string') this.noteCredentials(value);
      else if (secretNames.test(name) && !plainNames.test(name)) this.note(value);
    }
    const { username, password } = credentials as Record<string, unknown>;
    // RFC 7617 §2.
    if (typeof username === 'string' && typeof password === 'string')
      this.note(Buffer.from(`${username}:${password}`).toString('base64'));
  }

  /** Notes the values of variables that are called secrets. */
  noteVariables(variables: readonly { name: string; value: string }[]): void {
    for (const { name, value } of variables) this.noteCredentials({ [name]: value });
  }

  note(secret: string): void {
    if (secret.length < minLength || this.#spellings.size >= maxSecrets) return;
    this.#spellings.add(secret);
    this.#spellings.add(JSON.stringify(secret).slice(1, -1));
    this.#spellings.add(encodeURIComponent(secret.toWellFormed()));
  }

  /** The text without them. */
  hide(text: string): string {
    let rest = text;
    for (const secret of this.#spellings) if (rest.includes(secret)) rest = rest.replaceAll(secret, hidden);
    return rest;
  }

  /** A value of JSON without them, in texts and in names. */
  hideIn(value: unknown): unknown {
    if (this.#spellings.size === 0) return value;
    if (typeof value === 'string') return this.hide(value);
    if (Array.isArray(value)) return value.map((one) => this.hideIn(one));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, inner]) => [this.hide(name), this.hideIn(inner)]),
    );
  }
}
