/** What customer code threw, as the database takes it: JSON there knows neither NUL nor half a character. */

/** Of what a run keeps of its error, as JSON. */
const maxBytes = 256 * 1024;

export function storableText(text: string): string {
  return text.replaceAll('\0', '').toWellFormed();
}

/** A value of JSON in which all texts are storable. What is too large is left out, and says so. */
export function storable(value: unknown): unknown {
  const cleaned = clean(value);
  if (Buffer.byteLength(JSON.stringify(cleaned) ?? '') <= maxBytes) return cleaned;
  return { left_out: `It was larger than ${maxBytes} bytes.` };
}

function clean(value: unknown): unknown {
  if (typeof value === 'string') return storableText(value);
  if (Array.isArray(value)) return value.map(clean);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [storableText(key), clean(inner)]));
}
