import { credentialHeaderFault } from './credential-header.ts';
import type { FormField } from './definition.ts';
import { patternExpression } from './template.ts';

type FieldIssue = { readonly field: string; readonly message: string };

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
    const message = typeof value === 'string' ? valueFault(field, value) : 'must be a string';
    if (message !== undefined) issues.push({ field: name, message });
    else values.push([name, value as string]);
  }
  return issues.length > 0 ? { ok: false, issues } : { ok: true, values: Object.fromEntries(values) };
}

function valueFault(field: FormField, value: string): string | undefined {
  if (value.length > field.max_length) return `must be at most ${field.max_length} characters`;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  if (/[\u0000-\u001f\u007f]/.test(field.multiline ? value.replaceAll(/[\t\r\n]/g, '') : value))
    return 'must not contain control characters';
  if (field.pattern !== undefined && !patternExpression(field.pattern).test(value))
    return allowedBy(field.pattern, field);
  if (field.format !== undefined && !formatPatterns[field.format].test(value))
    return `must be ${formatNames[field.format]}${exampleOf(field)}`;
  const fault = field.format === 'header_name' ? credentialHeaderFault(value) : undefined;
  return fault && `names a header that may not carry credentials: it ${fault}`;
}

const listed = (type: 'conjunction' | 'disjunction', items: string[]) =>
  new Intl.ListFormat('en', { type }).format(items);
const exampleOf = ({ example }: Pick<FormField, 'example'>) =>
  example === undefined ? '' : `, as in ${example}`;

/**
 * What values a pattern allows, for the message about another one. A pattern that is neither a choice of words nor a set of
 * characters is described by its example.
 */
export function allowedBy(pattern: string, { example }: Pick<FormField, 'example'> = {}): string {
  const words = pattern.split('|');
  if (words.length > 1 && words.every((word) => /^(?:[\w-]|\\\.)+$/.test(word))) {
    const choices = words.map((word) => word.replaceAll('\\', ''));
    return `must be ${listed('disjunction', choices)}`;
  }
  // Single characters follow the ranges; a set with other ranges or escapes is not described.
  const [, ranges, others, min, max = min] =
    /^\[((?:A-Z|a-z|0-9|\\[dw])*)([^\\\]^-]*-?)\](?:\+|\{(\d+)(?:,(\d+))?\})$/.exec(pattern) ?? [];
  if (ranges === undefined || others === undefined)
    return example === undefined ? `must match ${pattern}` : `must have the form of ${example}`;
  const isWord = ranges.includes('\\w');
  const [isCapital, isSmall] = [isWord || ranges.includes('A-Z'), isWord || ranges.includes('a-z')];
  const kinds = [
    ...(isCapital || isSmall
      ? [isCapital && isSmall ? 'letters' : isSmall ? 'small letters' : 'capital letters']
      : []),
    ...(/0-9|\\/.test(ranges) ? ['digits'] : []),
    ...(isWord ? ['_'] : []),
    ...others,
  ];
  const length = min === undefined ? '' : `, ${min === max ? min : `${min} to ${max}`} in all`;
  return `must contain only ${listed('conjunction', kinds)}${length}${exampleOf({ example })}`;
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
