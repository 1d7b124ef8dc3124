/**
 * Puts a connection's credentials into the body of a call, where the provider's definition wants them there. Pure.
 *
 * The field is written into the bytes as they came: numbers, the order of keys and every blank stay. What cannot be
 * given a field so is refused, since without one the provider would be called by nobody.
 */
import { AppError } from '../errors.ts';
import { decodedName, pairsOf, plainName } from '../http/query.ts';
import { firstValue, without } from '../http/raw-headers.ts';
import { ofTheBytes } from './header-names.ts';

export type PlacedField = { readonly name: string; readonly value: string };

/**
 * The body with the field, and the headers for it. Throws `invalid_body` where it is neither a form nor a JSON object,
 * is encoded, or has a field of that name already.
 */
export function withField(
  { headers, body }: { headers: readonly string[]; body: Buffer },
  field: PlacedField,
): { headers: string[]; body: Buffer } {
  const type = firstValue(headers, 'content-type')?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (firstValue(headers, 'content-encoding') !== undefined) throw refusal('without a Content-Encoding');
  const filled = isJson(type) ? inObject(body, field) : type === formType ? inForm(body, field) : undefined;
  if (filled === undefined) throw refusal(`as \`${formType}\` or \`application/json\``);
  return {
    headers: [...without(headers, ofTheBytes), 'content-length', String(filled.length)],
    body: filled,
  };
}

/** A body that is longer than what can be held for it. */
export function tooLongForField(): AppError {
  return refusal('with at most 1 MB');
}

const formType = 'application/x-www-form-urlencoded';

function isJson(type: string): boolean {
  return type === 'application/json' || /^application\/[^ ]+\+json$/.test(type);
}

function inForm(body: Buffer, { name, value }: PlacedField): Buffer {
  const names = body.length === 0 ? [] : pairsOf(body.toString('latin1')).map(decodedName);
  refuseSecond(names, name);
  const pair = `${encodeURIComponent(name)}=${encodeURIComponent(value)}`;
  return Buffer.concat([Buffer.from(body.length === 0 ? pair : `${pair}&`), body]);
}

function inObject(body: Buffer, { name, value }: PlacedField): Buffer {
  const names = namesOf(body);
  refuseSecond(names, name);
  const member = `${JSON.stringify(name)}:${JSON.stringify(value)}${names.length === 0 ? '' : ','}`;
  // Before the brace there is nothing but blanks.
  const start = body.indexOf('{') + 1;
  return Buffer.concat([body.subarray(0, start), Buffer.from(member), body.subarray(start)]);
}

function namesOf(body: Buffer): string[] {
  try {
    const value: unknown = JSON.parse(
      new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body),
    );
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return Object.keys(value);
  } catch {
    // No JSON in UTF-8.
  }
  throw refusal('as a JSON object in UTF-8');
}

/** Which of two fields counts differs between servers, and so do the spellings that they take for one. */
function refuseSecond(names: readonly string[], name: string): void {
  const wanted = plainName(name);
  if (names.some((given) => plainName(given) === wanted))
    throw refusal(`without a field \`${name}\` of your own`);
}

function refusal(how: string): AppError {
  return new AppError(
    'invalid_body',
    `This provider takes the credentials in the body, where they are put on the way: send the body ${how}.`,
  );
}
