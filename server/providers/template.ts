/**
 * Templates: fills `${connectionConfig.x}`, `${integrationConfig.x}` and `${credentials.x}` in the addresses and
 * headers of a provider definition. Pure: no table, no socket, no clock.
 *
 * The values come from customers and end users, and a request to the finished address carries secrets. So a value can
 * choose a label inside a host but never where the host ends, and a segment of a path but never its shape. The templates
 * of a definition are checked at start, the values at every fill.
 *
 * `fields.ts` checks the values when they are entered; `outbound/outbound.ts` decides which finished addresses may be
 * reached.
 */

import { isLoopback } from '../config/setting-values.ts';

type TemplateSource = 'connectionConfig' | 'integrationConfig' | 'credentials';
export type TemplateValues = {
  readonly [source in TemplateSource]?: Readonly<Record<string, string>> | undefined;
};
/** The properties of a form field that its placeholders use. */
type TemplateField = {
  readonly pattern?: string | undefined;
  readonly format?: string | undefined;
  /** False: a segment of a path that is this field alone is left out if the field has no value. */
  readonly required?: boolean | undefined;
};
export type TemplateFields = {
  readonly [source in TemplateSource]?: Readonly<Record<string, TemplateField>> | undefined;
};

/** A value that does not fit its template. Contains the name of the field, never the value, which may be a secret. */
export class TemplateError extends Error {
  readonly field: string | undefined;
  constructor(reason: string, field?: string) {
    super(field === undefined ? reason : `${field}: ${reason}`);
    this.name = 'TemplateError';
    this.field = field;
  }
}

type Placeholder = { readonly source: TemplateSource; readonly name: string };
export type Part = string | Placeholder;
export type Address = {
  /** The scheme, or the field that contains scheme and host. */
  readonly start: 'https://' | 'http://' | Placeholder;
  readonly host: readonly Part[];
  /** `:8443`, or empty. */
  readonly port: string;
  readonly path: readonly Part[];
  readonly query: readonly Part[];
};

const placeholderPattern = /\$\{([^}]*)\}/g;
const namePattern = /^(connectionConfig|integrationConfig|credentials)\.([A-Za-z][A-Za-z0-9_]*)$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const controlCharacter = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;

/** The placeholders of a template in order. Throws TemplateError for a malformed one. */
export function placeholdersOf(template: string): Placeholder[] {
  return partsOf(template).filter((part) => typeof part !== 'string');
}

/** The fixed texts and placeholders of a template in order. Throws TemplateError for a malformed placeholder. */
export function partsOf(template: string): Part[] {
  const parts: Part[] = [];
  let end = 0;
  for (const match of template.matchAll(placeholderPattern)) {
    const [text, inner = ''] = match;
    const named = namePattern.exec(inner);
    if (!named)
      throw new TemplateError(`"${text}" is no placeholder: write \${connectionConfig.name} or the like`);
    if (match.index > end) parts.push(template.slice(end, match.index));
    parts.push({ source: named[1] as TemplateSource, name: named[2] as string });
    end = match.index + text.length;
  }
  if (end < template.length) parts.push(template.slice(end));
  if (parts.some((part) => typeof part === 'string' && part.includes('${'))) {
    throw new TemplateError('a placeholder is not closed');
  }
  return parts;
}

/** The parts of an address template. Throws TemplateError if no value could make it a safe address. */
export function parseAddress(template: string): Address {
  if (controlCharacter.test(template) || /[\\\s#]/.test(template)) {
    throw new TemplateError('an address holds no control character, space, backslash or fragment');
  }
  const parts = partsOf(template);
  const [first, ...others] = parts;
  let rest: Part[];
  let start: Address['start'];
  if (first !== undefined && typeof first !== 'string') {
    const [next] = others;
    if (next !== undefined && !(typeof next === 'string' && next.startsWith('/')))
      throw new TemplateError('after a whole address only a path may follow');
    start = first;
    rest = others;
  } else {
    const scheme = /^https?:\/\//.exec(first ?? '')?.[0];
    if (!first || !scheme)
      throw new TemplateError('an address starts with https://, or with one placeholder');
    start = scheme as 'https://' | 'http://';
    rest = [first.slice(scheme.length), ...others].filter((part) => part !== '');
  }
  const [authority, tail] = splitAt(rest, /[/?]/);
  const [path, query] = splitAt(tail, /\?/);
  const authorityText = authority.map((part) => (typeof part === 'string' ? part : '\u0001')).join('');
  if (authorityText.includes('@')) throw new TemplateError('an address holds no user name or password');
  const port = /:\d{1,5}$/.exec(authorityText)?.[0] ?? '';
  const host = port === '' ? authority : dropEnd(authority, port.length);
  if (!authorityText.startsWith('[') && host.some((part) => typeof part === 'string' && part.includes(':'))) {
    throw new TemplateError('the port of an address is a fixed number');
  }
  if (typeof start === 'string' && host.length === 0) throw new TemplateError('an address has a host');
  return { start, host, port, path, query };
}

function splitAt(parts: readonly Part[], separator: RegExp): [Part[], Part[]] {
  for (const [index, part] of parts.entries()) {
    const at = typeof part === 'string' ? part.search(separator) : -1;
    if (typeof part !== 'string' || at < 0) continue;
    const before = [...parts.slice(0, index), part.slice(0, at)].filter((text) => text !== '');
    return [before, [part.slice(at), ...parts.slice(index + 1)]];
  }
  return [[...parts], []];
}

function dropEnd(parts: readonly Part[], length: number): Part[] {
  const last = parts.at(-1);
  if (typeof last !== 'string') return [...parts];
  return [...parts.slice(0, -1), last.slice(0, -length)].filter((part) => part !== '');
}

/** The expression must match the whole value, whatever anchors the pattern has. */
export function patternExpression(pattern: string): RegExp {
  return new RegExp(`^(?:${pattern})$`, 'u');
}

/** The declared form field of a placeholder. */
function fieldOf(fields: TemplateFields, { source, name }: Placeholder): TemplateField | undefined {
  const record = fields[source];
  return record !== undefined && Object.hasOwn(record, name) ? record[name] : undefined;
}

/** A placeholder in messages: `connectionConfig.subdomain`. */
export function nameOf({ source, name }: Placeholder): string {
  return `${source}.${name}`;
}

const fixedSuffixPattern = /^[A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+){2,}$/;

/**
 * The faults of an address template of a definition. If there are none, no value can change the host.
 *
 * `ownCredentialsOnly`: all secrets sent to the address belong to the connection (API key, basic). Only then may a
 * connection choose a whole host. Otherwise the request contains the integration's client secret or a secret setting, and a
 * whole host may only come from `integrationConfig`.
 */
export function addressFaults(
  template: string,
  context: { fields: TemplateFields; ownCredentialsOnly: boolean },
): string[] {
  return orFault(() => faultsOfAddress(template, context));
}

/** The faults, or the message of a TemplateError. */
function orFault(find: () => string[]): string[] {
  try {
    return find();
  } catch (error) {
    if (error instanceof TemplateError) return [error.message];
    throw error;
  }
}

function faultsOfAddress(
  template: string,
  context: { fields: TemplateFields; ownCredentialsOnly: boolean },
): string[] {
  const address = parseAddress(template);
  const faults = undeclaredFaults(template, context.fields);
  if (address.start === 'http://' && !isLoopback(address.host.join('')))
    faults.push('the address must be https');
  const fromHost = [address.start, ...address.host].filter((part) => typeof part !== 'string');
  for (const placeholder of fromHost) {
    const name = nameOf(placeholder);
    const field = fieldOf(context.fields, placeholder);
    if (placeholder.source === 'credentials')
      faults.push(`${name} is a credential and must not choose a host`);
    if (placeholder === address.start) {
      if (field && field.format !== 'uri')
        faults.push(`${name} brings a whole address and needs "format: uri"`);
    } else if (field && field.pattern === undefined) {
      faults.push(`${name} is part of a host and needs a pattern`);
    } else if (field?.pattern !== undefined && allowsForeignText(field.pattern)) {
      faults.push(`${name} is part of a host, but its pattern lets through more than labels`);
    }
    if (
      placeholder.source === 'connectionConfig' &&
      !context.ownCredentialsOnly &&
      !hasFixedSuffix(address)
    ) {
      faults.push(
        `${name} would choose the whole host: the template needs a fixed end such as ".example.com", ` +
          'or the value must come from integrationConfig, since a secret of the integration is sent there',
      );
    }
  }
  return faults;
}

/** As `addressFaults`, for a header, a query value or a path: its placeholders must be well formed and declared. */
export function textFaults(template: string, context: { fields: TemplateFields }): string[] {
  return orFault(() => undeclaredFaults(template, context.fields));
}

/**
 * The faults of the name under which credentials are placed. Only the name of a header may come from a setting, whose
 * format is checked: links and redirects repeat a query, and parser messages repeat a body.
 */
export function placementFaults(
  { in: place, name }: { in: 'header' | 'query' | 'body'; name: string },
  fields: TemplateFields,
): string[] {
  if (textFaults(name, { fields }).length > 0) return [];
  const placeholders = placeholdersOf(name);
  if (placeholders.length === 0) return [];
  if (place !== 'header') return [`the name in the ${place} that carries credentials must be fixed`];
  const isWhole = placeholders.length === 1 && name === `\${${nameOf(placeholders[0]!)}}`;
  if (isWhole && fieldOf(fields, placeholders[0]!)?.format === 'header_name') return [];
  return ['a header name must be fixed, or one placeholder of a field with "format: header_name"'];
}

function hasFixedSuffix(address: Address): boolean {
  const last = address.host.at(-1);
  return typeof last === 'string' && fixedSuffixPattern.test(last);
}

function undeclaredFaults(template: string, fields: TemplateFields): string[] {
  return placeholdersOf(template)
    .filter((placeholder) => fieldOf(fields, placeholder) === undefined)
    .map((placeholder) => `${nameOf(placeholder)} is not a declared field`);
}

// Tries the pattern with typical attacks. The check of the labels at each fill is the second guard.
function allowsForeignText(pattern: string): boolean {
  const expression = patternExpression(pattern);
  return ['', 'a/b', 'a\\b', 'a@b', 'a#b', 'a?b', 'a:1', 'a b', 'a%2eb', 'ａ'].some((probe) =>
    expression.test(probe),
  );
}

const labelPattern = /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/;
const explicitDotPattern = /\\\.|\[[^\]]*\.[^\]]*\]/;
const maxAddressLength = 8192;

type Filling = { values: TemplateValues; fields: TemplateFields };

function joined(parts: readonly Part[], fill: (placeholder: Placeholder) => string): string {
  return parts.map((part) => (typeof part === 'string' ? part : fill(part))).join('');
}

/**
 * The finished address, without a trailing slash if the template is a bare base. Its host ends like the template's,
 * its path has the template's shape, and parsing does not change it. Throws TemplateError naming the field with a
 * missing or unfitting value, or if the address is neither https nor http to a loopback host.
 */
export function fillAddress(template: string, given: Filling): string {
  const address = parseAddress(template);
  const start = typeof address.start === 'string' ? address.start : wholeAddress(address.start, given);
  const host = joined(address.host, (part) => hostLabels(part, given));
  const path = joined(withoutUnsetSegments(address.path, given), (part) => pathText(part, given));
  const query = joined(address.query, (part) => percentEncode(givenValue(part, given), part));
  const text = `${start}${host}${address.port}${path}${query}`;
  assertUnchangedByParsing(
    text,
    typeof address.start === 'string' ? { host, port: address.port } : undefined,
  );
  return text;
}

/** The parts of a path without the segments that are optional fields without a value, and without the slashes before them. */
function withoutUnsetSegments(parts: readonly Part[], { values, fields }: Filling): Part[] {
  const kept: Part[] = [];
  for (const [index, part] of parts.entries()) {
    const [before, next] = [kept.at(-1), parts[index + 1] ?? '/'];
    const isUnset =
      typeof part !== 'string' &&
      fieldOf(fields, part)?.required === false &&
      (ownValue(values, part) ?? '') === '';
    const isSegment =
      typeof before === 'string' && before.endsWith('/') && typeof next === 'string' && next.startsWith('/');
    if (isUnset && isSegment) kept[kept.length - 1] = before.slice(0, -1);
    else kept.push(part);
  }
  return kept;
}

/**
 * A header value, or any other text that is not an address. Throws TemplateError if a value is missing or contains a
 * character that a header field must not contain (RFC 9110 §5.5: control characters; we also refuse characters outside
 * Latin-1).
 */
export function fillHeader(template: string, given: { values: TemplateValues }): string {
  return joined(partsOf(template), (part) => {
    const value = givenValue(part, given);
    if (/[^\u0020-\u007e\u00a0-\u00ff]/.test(value))
      throw new TemplateError('does not fit into a header', nameOf(part));
    return value;
  });
}

/** A text for a body that is encoded afterwards. Throws TemplateError if a value is missing or does not match its pattern. */
export function fillText(template: string, given: Filling): string {
  return joined(partsOf(template), (part) => givenValue(part, given));
}

/** A path or query text to append to a base address, with percent-encoded values. Throws TemplateError. */
export function fillPath(template: string, given: Filling): string {
  const text = joined(partsOf(template), (part) => pathText(part, given));
  assertUnchangedByParsing(`https://path.invalid${text}`, { host: 'path.invalid', port: '' });
  return text;
}

/** Whether every placeholder of the template has a value. */
export function isFillable(template: string, values: TemplateValues): boolean {
  return placeholdersOf(template).every(({ source, name }) => {
    const value = ownValue(values, { source, name });
    return value !== undefined && value !== '';
  });
}

function wholeAddress(placeholder: Placeholder, given: Filling): string {
  const value = givenValue(placeholder, given);
  const refuse = (reason: string) => new TemplateError(reason, nameOf(placeholder));
  if (!/^https?:\/\/[^/]/.test(value)) throw refuse('must be an address that starts with https://');
  if (/[^\u0021-\u007e]|[\\#?@"<>`{|}^]/.test(value)) {
    throw refuse('must be plain ASCII without user name, query, fragment, backslash or space');
  }
  const base = value.replace(/\/+$/, '');
  try {
    const scheme = base.slice(0, base.indexOf('://') + 3);
    const [authority = ''] = base.slice(scheme.length).split('/', 1);
    const port = /:\d{1,5}$/.exec(authority)?.[0] ?? '';
    assertUnchangedByParsing(base, {
      host: port === '' ? authority : authority.slice(0, -port.length),
      port,
    });
  } catch (error) {
    if (error instanceof TemplateError) throw refuse(error.message);
    throw error;
  }
  return base;
}

function hostLabels(placeholder: Placeholder, given: Filling): string {
  const value = givenValue(placeholder, given);
  const pattern = fieldOf(given.fields, placeholder)?.pattern;
  if (pattern === undefined)
    throw new TemplateError('is part of a host and needs a pattern', nameOf(placeholder));
  const labels = explicitDotPattern.test(pattern) ? value.split('.') : [value];
  if (!labels.every((label) => labelPattern.test(label))) {
    throw new TemplateError('must be made of letters, digits and hyphens', nameOf(placeholder));
  }
  return value;
}

function pathText(placeholder: Placeholder, given: Filling): string {
  const value = givenValue(placeholder, given);
  const segments =
    fieldOf(given.fields, placeholder)?.format === 'path' ? value.replace(/^\//, '').split('/') : [value];
  if (segments.some((segment) => /^(?:\.|%2e){1,2}$/i.test(segment))) {
    throw new TemplateError('must not be a dot segment', nameOf(placeholder));
  }
  return segments.map((segment) => percentEncode(segment, placeholder)).join('/');
}

function percentEncode(value: string, placeholder: Placeholder): string {
  if (!value.isWellFormed()) throw new TemplateError('is not well-formed text', nameOf(placeholder));
  return encodeURIComponent(value).replace(
    /[!'()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** Throws TemplateError unless the WHATWG parser, which every client uses, reads the address as it was assembled. */
function assertUnchangedByParsing(text: string, expected: { host: string; port: string } | undefined): void {
  if (text.length > maxAddressLength) throw new TemplateError('the address is too long');
  const url = URL.parse(text);
  if (url === null) throw new TemplateError('the address cannot be parsed');
  if (url.username !== '' || url.password !== '' || url.hash !== '' || text.includes('#')) {
    throw new TemplateError('an address holds no user name, password or fragment');
  }
  if (expected !== undefined && url.hostname !== expected.host.toLowerCase()) {
    throw new TemplateError('the host does not stay what it was');
  }
  if (expected !== undefined && url.hostname.length > 253) throw new TemplateError('the host is too long');
  const [pathStart] = /[/?]/.exec(text.slice(text.indexOf('://') + 3)) ?? [];
  const path = text
    .slice(text.indexOf('://') + 3)
    .replace(/^[^/?]*/, '')
    .replace(/\?.*$/s, '');
  if (url.pathname !== (pathStart === '/' ? path : '/'))
    throw new TemplateError('the path does not stay what it was');
  if (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname))) return;
  throw new TemplateError('the address must be https');
}

function givenValue(placeholder: Placeholder, given: Pick<Filling, 'values'> & Partial<Filling>): string {
  const value = ownValue(given.values, placeholder);
  if (value === undefined || value === '') throw new TemplateError('is missing', nameOf(placeholder));
  if (controlCharacter.test(value)) throw new TemplateError('holds a control character', nameOf(placeholder));
  const pattern = given.fields === undefined ? undefined : fieldOf(given.fields, placeholder)?.pattern;
  if (pattern !== undefined && !patternExpression(pattern).test(value)) {
    throw new TemplateError('does not match its pattern', nameOf(placeholder));
  }
  return value;
}

function ownValue(values: TemplateValues, { source, name }: Placeholder): string | undefined {
  const record = values[source];
  return record !== undefined && Object.hasOwn(record, name) ? record[name] : undefined;
}
