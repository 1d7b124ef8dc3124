/** How much of an answer is kept, in characters. */
const maxCharacters = 1_000;
const mask = '***';

/** A name as secrets are called, an assignment, and the value up to its closing quote or to where it can end. */
const assigned =
  /((?:authorization|cookie|password|passwd|secret|signature|credential|token|api[_-]?key|access[_-]?key)[\w-]*["']?\s*[:=]\s*)(?:"(?:[^"\\]|\\.)*|'(?:[^'\\]|\\.)*|(?:(?:bearer|basic)\s+)?[^\s"'&,;}<]+)/gis;
const bearer = /\b(bearer|basic)\s+[\w.~+/=-]{8,}/gi;

/**
 * The beginning of a receiver's answer, for the user who looks for the reason of a failure: at most 1000 characters, in
 * one line, without `secrets` (the signing secrets) and without values that are named like secrets.
 */
export function keptAnswer(bytes: Buffer, secrets: readonly string[]): string {
  let text = bytes.toString('utf8');
  for (const secret of secrets) text = text.replaceAll(secret, mask).replaceAll(secret.slice(6), mask);
  text = text.replace(assigned, `$1${mask}`).replace(bearer, `$1 ${mask}`);
  // Control characters, and halves of a character that the limit cut through.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
  text = text.replace(/[\u0000-\u001f\u007f-\u009f\ufffd]+/g, ' ').trim();
  return text.slice(0, maxCharacters).toWellFormed();
}
