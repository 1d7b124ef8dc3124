/**
 * Templates: fills `${connectionConfig.x}`, `${integrationConfig.x}` and `${credentials.x}` in the addresses and
 * headers of a provider definition. Pure: no table, no socket, no clock.
 *
 * The values come from customers and end users, and what is sent to the finished address carries secrets. So a
 * value can choose a label inside a host but never where the host ends, and a segment of a path but never its
 * shape. Which templates a definition may hold is checked at start (`template-faults.ts`), the values at every fill.
 *
 * Neighbours: `template-grammar.ts` takes templates apart, `fields.ts` judges the values when they are typed in, and
 * `outbound.ts` decides which finished addresses may be reached.
 */
import {
  CONTROL,
  fieldOf,
  isLoopbackHost,
  nameOf,
  type Placeholder,
  parseAddress,
  partsOf,
  patternExpression,
  placeholdersOf,
  TemplateError,
  type TemplateFields,
  type TemplateValues,
} from './template-grammar.ts';

const LABEL = /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/;
const EXPLICIT_DOT = /\\\.|\[[^\]]*\.[^\]]*\]/;
const MAX_ADDRESS_LENGTH = 8192;

/**
 * The finished address, without a trailing slash where the template is a bare base. Its host ends as the template's
 * does, its path has the template's shape, and parsing it changes nothing. Throws TemplateError naming the field
 * whose value is missing or does not fit, or when it is neither https nor http to a loopback host.
 */
export function fillAddress(
  template: string,
  given: { values: TemplateValues; fields: TemplateFields },
): string {
  const address = parseAddress(template);
  const start = typeof address.start === 'string' ? address.start : wholeAddress(address.start, given);
  const host = address.host
    .map((part) => (typeof part === 'string' ? part : hostLabels(part, given)))
    .join('');
  const path = address.path.map((part) => (typeof part === 'string' ? part : pathText(part, given))).join('');
  const query = address.query
    .map((part) => (typeof part === 'string' ? part : percentEncode(givenValue(part, given), part)))
    .join('');
  const text = `${start}${host}${address.port}${path}${query}`;
  assertUnchangedByParsing(
    text,
    typeof address.start === 'string' ? { host, port: address.port } : undefined,
  );
  return text;
}

/**
 * A header value, or any other text that is no address. Throws TemplateError when a value is missing or holds what a
 * header field must not (RFC 9110 §5.5: control characters; we also refuse what is not Latin-1).
 */
export function fillHeader(template: string, given: { values: TemplateValues }): string {
  return partsOf(template)
    .map((part) => {
      if (typeof part === 'string') return part;
      const value = givenValue(part, given);
      if (/[^\u0020-\u007e\u00a0-\u00ff]/.test(value))
        throw new TemplateError('does not fit into a header', nameOf(part));
      return value;
    })
    .join('');
}

/** A path or query text that is put behind a base address: values are percent-encoded. Throws TemplateError. */
export function fillPath(
  template: string,
  given: { values: TemplateValues; fields: TemplateFields },
): string {
  const text = partsOf(template)
    .map((part) => (typeof part === 'string' ? part : pathText(part, given)))
    .join('');
  assertUnchangedByParsing(`https://path.invalid${text}`, { host: 'path.invalid', port: '' });
  return text;
}

/** Whether every placeholder of the template has a value, so that filling it cannot miss one. */
export function isFillable(template: string, values: TemplateValues): boolean {
  return placeholdersOf(template).every(({ source, name }) => {
    const value = ownValue(values, { source, name });
    return value !== undefined && value !== '';
  });
}

function wholeAddress(
  placeholder: Placeholder,
  given: { values: TemplateValues; fields: TemplateFields },
): string {
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

function hostLabels(
  placeholder: Placeholder,
  given: { values: TemplateValues; fields: TemplateFields },
): string {
  const value = givenValue(placeholder, given);
  const pattern = fieldOf(given.fields, placeholder)?.pattern;
  if (pattern === undefined)
    throw new TemplateError('is part of a host and needs a pattern', nameOf(placeholder));
  const labels = EXPLICIT_DOT.test(pattern) ? value.split('.') : [value];
  if (!labels.every((label) => LABEL.test(label))) {
    throw new TemplateError('must be made of letters, digits and hyphens', nameOf(placeholder));
  }
  return value;
}

function pathText(
  placeholder: Placeholder,
  given: { values: TemplateValues; fields: TemplateFields },
): string {
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

/** Throws TemplateError unless the WHATWG parser, which every client uses, sees exactly what was put together. */
function assertUnchangedByParsing(text: string, expected: { host: string; port: string } | undefined): void {
  if (text.length > MAX_ADDRESS_LENGTH) throw new TemplateError('the address is too long');
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
  if (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopbackHost(url.hostname))) return;
  throw new TemplateError('the address must be https');
}

function givenValue(
  placeholder: Placeholder,
  given: { values: TemplateValues; fields?: TemplateFields },
): string {
  const value = ownValue(given.values, placeholder);
  if (value === undefined || value === '') throw new TemplateError('is missing', nameOf(placeholder));
  if (CONTROL.test(value)) throw new TemplateError('holds a control character', nameOf(placeholder));
  const pattern = given.fields === undefined ? undefined : fieldOf(given.fields, placeholder)?.pattern;
  if (pattern !== undefined && !patternExpression(pattern).test(value)) {
    throw new TemplateError('does not fit its pattern', nameOf(placeholder));
  }
  return value;
}

function ownValue(values: TemplateValues, { source, name }: Placeholder): string | undefined {
  const record = values[source];
  return record !== undefined && Object.hasOwn(record, name) ? record[name] : undefined;
}
