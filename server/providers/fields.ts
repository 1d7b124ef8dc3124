import type { FieldReason } from '../errors.ts';
import { credentialHeaderFault } from './credential-header.ts';
import type { FormField } from './definition.ts';
import { patternExpression } from './template.ts';

type ValueFault = { readonly message: string; readonly reason?: FieldReason | undefined };
type FieldIssue = ValueFault & { readonly field: string };

/**
 * Checks the input of a form of a definition, from a browser or an API caller. Issues are: a name that is not
 * declared, a missing required field, a value over `max_length`, and a value that does not match its pattern or
 * format. An empty optional field counts as absent. Messages never contain the value.
 */
export function readFields(
  form: Readonly<Record<string, FormField>>,
  input: Readonly<Record<string, unknown>>,
): { ok: true; values: Record<string, string> } | { ok: false; issues: FieldIssue[] } {
  const issues: FieldIssue[] = [];
  const values: [string, string][] = [];
  for (const name of Object.keys(input)) {
    if (!Object.hasOwn(form, name)) issues.push({ field: name, message: 'is not a field of this provider' });
  }
  for (const [name, field] of Object.entries(form)) {
    const value = Object.hasOwn(input, name) ? input[name] : undefined;
    if (value === undefined || value === null || value === '') {
      if (field.required) issues.push({ field: name, message: 'is required' });
      continue;
    }
    const fault = typeof value === 'string' ? valueFault(field, value) : { message: 'must be a string' };
    if (fault !== undefined) issues.push({ field: name, ...fault });
    else values.push([name, value as string]);
  }
  return issues.length > 0 ? { ok: false, issues } : { ok: true, values: Object.fromEntries(values) };
}

function valueFault(field: FormField, value: string): ValueFault | undefined {
  const { max_length: max, pattern, format, example } = field;
  if (value.length > max)
    return { message: `must be at most ${max} characters`, reason: { code: 'too_long', limit: String(max) } };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  if (/[\u0000-\u001f\u007f]/.test(field.multiline ? value.replaceAll(/[\t\r\n]/g, '') : value))
    return { message: 'must not contain control characters', reason: { code: 'control_characters' } };
  const form = example === undefined ? undefined : ({ code: 'form' } as const);
  if (pattern !== undefined && !patternExpression(pattern).test(value))
    return { message: allowedBy(pattern, field), reason: patternReason(pattern, value) ?? form };
  if (format !== undefined && !formatPatterns[format].test(value)) {
    const message = `must be ${formatNames[format]}${exampleOf(field)}`;
    return { message, reason: format === 'uri' ? { code: 'address' } : form };
  }
  const fault = format === 'header_name' ? credentialHeaderFault(value) : undefined;
  return fault === undefined
    ? undefined
    : { message: `names a header that may not carry credentials: it ${fault}` };
}

const listed = (type: 'conjunction' | 'disjunction', items: string[]) =>
  new Intl.ListFormat('en', { type }).format(items);
const exampleOf = ({ example }: Pick<FormField, 'example'>) =>
  example === undefined ? '' : `, as in ${example}`;

/** The words of a pattern that is a choice of them. */
function wordsOf(pattern: string): string[] | undefined {
  const words = pattern.split('|');
  const isChoice = words.length > 1 && words.every((word) => /^(?:[\w-]|\\\.)+$/.test(word));
  return isChoice ? words.map((word) => word.replaceAll('\\', '')) : undefined;
}

/** The characters of a pattern that is a set of them, each kind by its English name and as written, and their number. */
function charactersOf(pattern: string) {
  // Single characters follow the ranges; a set with other ranges or escapes is not described.
  const [, set, ranges, others, min, max = min] =
    /^(\[((?:A-Z|a-z|0-9|\\[dw])*)([^\\\]^-]*-?)\])(?:\+|\{(\d+)(?:,(\d+))?\})$/.exec(pattern) ?? [];
  if (set === undefined || ranges === undefined || others === undefined) return undefined;
  const isWord = ranges.includes('\\w');
  const [isCapital, isSmall] = [isWord || ranges.includes('A-Z'), isWord || ranges.includes('a-z')];
  const kinds = [
    ...(isCapital && isSmall ? [['letters', 'A–Z a–z'] as const] : []),
    ...(isSmall && !isCapital ? [['small letters', 'a–z'] as const] : []),
    ...(isCapital && !isSmall ? [['capital letters', 'A–Z'] as const] : []),
    ...(/0-9|\\/.test(ranges) ? [['digits', '0–9'] as const] : []),
    ...[...(isWord ? '_' : ''), ...others].map((one) => [one, one] as const),
  ];
  return { set, kinds, min, max };
}

/**
 * What values a pattern allows, for the message about another one. A pattern that is neither a choice of words nor a set of
 * characters is described by its example.
 */
export function allowedBy(pattern: string, { example }: Pick<FormField, 'example'> = {}): string {
  const words = wordsOf(pattern);
  if (words !== undefined) return `must be ${listed('disjunction', words)}`;
  const characters = charactersOf(pattern);
  if (characters === undefined)
    return example === undefined ? `must match ${pattern}` : `must have the form of ${example}`;
  const { kinds, min, max } = characters;
  const length = min === undefined ? '' : `, ${min === max ? min : `${min} to ${max}`} in all`;
  const names = kinds.map(([name]) => name);
  return `must contain only ${listed('conjunction', names)}${length}${exampleOf({ example })}`;
}

function patternReason(pattern: string, value: string): FieldReason | undefined {
  const words = wordsOf(pattern);
  if (words !== undefined) return { code: 'one_of', limit: words.join(', ') };
  const characters = charactersOf(pattern);
  if (characters === undefined) return undefined;
  const { set, kinds, min, max } = characters;
  if (min !== undefined && patternExpression(`${set}*`).test(value))
    return { code: 'length', limit: min === max ? min : `${min}–${max}` };
  return { code: 'characters', limit: kinds.map(([, written]) => written).join(' ') };
}

type Format = NonNullable<FormField['format']>;
const formatPatterns: Record<Format, RegExp> = {
  hostname: /^(?=.{1,253}$)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*$/,
  uri: /^https?:\/\/[^\s\\@#?]+$/,
  uuid: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  email: /^[^\s@]+@[^\s@]+$/,
  path: /^\/?[^\s?#\\]+$/,
  header_name: /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/,
};
const formatNames: Record<Format, string> = {
  hostname: 'a host name',
  uri: 'an http(s) address without user name, query or fragment',
  uuid: 'a UUID',
  email: 'an e-mail address',
  path: 'a path',
  header_name: 'a header name',
};
