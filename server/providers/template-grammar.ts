/**
 * The grammar of templates: what is a placeholder, and what are the parts of an address that holds some. Pure.
 * `template-faults.ts` checks templates when a definition is read, `template.ts` fills them with values.
 */

type TemplateSource = 'connectionConfig' | 'integrationConfig' | 'credentials';
export type TemplateValues = {
  readonly [source in TemplateSource]?: Readonly<Record<string, string>> | undefined;
};
/** What a template needs to know about the form fields its placeholders name. */
type TemplateField = { readonly pattern?: string | undefined; readonly format?: string | undefined };
export type TemplateFields = {
  readonly [source in TemplateSource]?: Readonly<Record<string, TemplateField>> | undefined;
};

/** A value that does not fit its template. Names the field, never the value, which may be a secret. */
export class TemplateError extends Error {
  readonly field: string | undefined;
  constructor(reason: string, field?: string) {
    super(field === undefined ? reason : `${field}: ${reason}`);
    this.name = 'TemplateError';
    this.field = field;
  }
}

export type Placeholder = { readonly source: TemplateSource; readonly name: string };
export type Part = string | Placeholder;
export type Address = {
  /** `https:` or `http:`, or the field that brings scheme and host. */
  readonly start: 'https://' | 'http://' | Placeholder;
  readonly host: readonly Part[];
  /** `:8443` or nothing. */
  readonly port: string;
  readonly path: readonly Part[];
  readonly query: readonly Part[];
};

const PLACEHOLDER = /\$\{([^}]*)\}/g;
const NAME = /^(connectionConfig|integrationConfig|credentials)\.([A-Za-z][A-Za-z0-9_]*)$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
export const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;

/** The placeholders of a template in order. Throws TemplateError for one that is not `${source.name}`. */
export function placeholdersOf(template: string): Placeholder[] {
  return partsOf(template).filter((part) => typeof part !== 'string');
}

/** The fixed texts and placeholders of a template in order. Throws TemplateError for a malformed placeholder. */
export function partsOf(template: string): Part[] {
  const parts: Part[] = [];
  let end = 0;
  for (const match of template.matchAll(PLACEHOLDER)) {
    const [text, inner = ''] = match;
    const named = NAME.exec(inner);
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

/** The parts of an address template. Throws TemplateError for what no value could turn into a safe address. */
export function parseAddress(template: string): Address {
  if (CONTROL.test(template) || /[\\\s#]/.test(template)) {
    throw new TemplateError('an address holds no control character, space, backslash or fragment');
  }
  const parts = partsOf(template);
  const [first, ...others] = parts;
  let rest: Part[];
  let start: Address['start'];
  if (first !== undefined && typeof first !== 'string') {
    if (typeof others[0] === 'string' && !others[0].startsWith('/')) {
      throw new TemplateError('after a whole address only a path may follow');
    }
    if (others[0] !== undefined && typeof others[0] !== 'string') {
      throw new TemplateError('after a whole address only a path may follow');
    }
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

/** The whole value must match, whatever anchors the pattern itself has. */
export function patternExpression(pattern: string): RegExp {
  return new RegExp(`^(?:${pattern})$`, 'u');
}

/** Whether a host, as `URL.hostname` spells it, is this machine: localhost, 127.0.0.0/8 or [::1]. */
export function isLoopbackHost(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d+){3}$/.test(hostname);
}

/** The declared field behind a placeholder. */
export function fieldOf(fields: TemplateFields, { source, name }: Placeholder): TemplateField | undefined {
  const record = fields[source];
  return record !== undefined && Object.hasOwn(record, name) ? record[name] : undefined;
}

/** A placeholder as people write it: `connectionConfig.subdomain`. */
export function nameOf({ source, name }: Placeholder): string {
  return `${source}.${name}`;
}
