// How secrets may be written, and a search for all of them in one pass.

/** Characters of a form's end by which it is looked up; no form is shorter. */
const tailLength = 8;
const filterBits = 16;

/**
 * A search for secrets of these forms: which of the secrets stand in a text. One pass over the text, however many there
 * are: a run leaves thousands of secrets and megabytes of log.
 */
export function createFinder(formsOf: Iterable<[secret: string, forms: Iterable<string>]>) {
  const filter = new Uint8Array(1 << filterBits);
  const byTail = new Map<string, { form: string; secret: string }[]>();
  for (const [secret, forms] of formsOf) {
    for (const form of forms) {
      const tail = form.slice(-tailLength);
      if (tail.length < tailLength) throw new Error('a form is too short to be looked for');
      filter[hashAt(form, form.length)] = 1;
      const others = byTail.get(tail);
      if (others === undefined) byTail.set(tail, [{ form, secret }]);
      else others.push({ form, secret });
    }
  }
  return (text: string): Map<string, Set<string>> => {
    /** By secret the forms that were found. */
    const found = new Map<string, Set<string>>();
    for (let end = tailLength; end <= text.length; end += 1) {
      if (filter[hashAt(text, end)] === 0) continue;
      for (const { form, secret } of byTail.get(text.slice(end - tailLength, end)) ?? []) {
        if (text.endsWith(form, end)) found.set(secret, (found.get(secret) ?? new Set()).add(form));
      }
    }
    return found;
  };
}

/** Of the four characters before `end`. */
function hashAt(text: string, end: number): number {
  const first = Math.imul(text.charCodeAt(end - 4), 0x9e37) ^ text.charCodeAt(end - 3);
  const last = Math.imul(text.charCodeAt(end - 2), 0x85eb) ^ text.charCodeAt(end - 1);
  return (Math.imul(first, 0x27d4eb2f) ^ Math.imul(last, 0x165667b1)) >>> (32 - filterBits);
}

/**
 * How a secret may be written: as it is, in JSON, as part of an address or a form, in hexadecimal, and inside the
 * Base64 of a longer text, such as `Basic`; that again as part of an address. Bytes are no text, and have the last two.
 */
export function formsOfSecret(secret: string | Buffer): Set<string> {
  const texts = typeof secret === 'string' ? textForms(secret) : [];
  const forms = new Set(texts);
  const contents = typeof secret === 'string' ? texts.map((text) => Buffer.from(text)) : [secret];
  for (const bytes of contents) {
    const hex = bytes.toString('hex');
    forms.add(hex).add(hex.toUpperCase());
    for (const before of [0, 1, 2]) {
      const shifted = Buffer.concat([Buffer.alloc(before), bytes]);
      // The characters that depend on the secret alone, whatever stands before and after it.
      const first = Math.ceil((before * 8) / 6);
      const last = Math.floor((shifted.length * 8) / 6);
      const base64 = shifted.toString('base64').slice(first, last);
      forms.add(base64).add(encodeURIComponent(base64));
      forms.add(shifted.toString('base64url').slice(first, last));
    }
  }
  return forms;
}

function textForms(text: string): string[] {
  const inForm = new URLSearchParams({ '': text }).toString().slice(1);
  return [...new Set([text, encodeURIComponent(text), inForm, JSON.stringify(text).slice(1, -1)])];
}
