/**
 * Secrets that a run received: replaced in its log and its error.
 *
 * A convenience against carelessness (`log(connection)`, a token in an error message), not a fence: code can encode a secret
 * in another form and log that.
 */

/** Names under which credentials and variables hold secrets. */
const secretNames = /token|secret|password|passphrase|private|credential|assertion|cookie|jwt|api.?key|key$/i;
/** Names with such a word whose values are not secret. */
const plainNames = /type|expire|_at$|url|uri|scope/i;
/** Shorter secrets occur in ordinary words. */
const minLength = 8;
const maxSecrets = 1_000;

export const hidden = '[hidden]';

export class Secrets {
  readonly #spellings = new Set<string>();

  /** Adds all strings under the names of secrets, at any depth. */
  addCredentials(credentials: unknown): void {
    if (typeof credentials !== 'object' || credentials === null) return;
    for (const [name, value] of Object.entries(credentials)) {
      if (typeof value !== 'string') this.addCredentials(value);
      else if (secretNames.test(name) && !plainNames.test(name)) this.add(value);
    }
    const { username, password } = credentials as Record<string, unknown>;
    // RFC 7617 §2.
    if (typeof username === 'string' && typeof password === 'string')
      this.add(Buffer.from(`${username}:${password}`).toString('base64'));
  }

  /** Adds the values of variables with the names of secrets. */
  addVariables(variables: readonly { name: string; value: string }[]): void {
    for (const { name, value } of variables) this.addCredentials({ [name]: value });
  }

  add(secret: string): void {
    if (secret.length < minLength || this.#spellings.size >= maxSecrets) return;
    this.#spellings.add(secret);
    this.#spellings.add(JSON.stringify(secret).slice(1, -1));
    this.#spellings.add(encodeURIComponent(secret.toWellFormed()));
  }

  /** The text without the secrets. */
  hide(text: string): string {
    let rest = text;
    for (const secret of this.#spellings) if (rest.includes(secret)) rest = rest.replaceAll(secret, hidden);
    return rest;
  }

  /** A JSON value without the secrets, in strings and in names. */
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
