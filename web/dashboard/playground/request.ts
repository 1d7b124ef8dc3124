import type { FormSearch } from '../search.ts';
import type { SuggestedApi, Suggestion } from './calls.ts';

export type Pair = { name: string; value: string };
/** The request form. All fields except secrets are also in the address. */
export type Form = {
  method: string;
  /** The path after /proxy, with `{placeholders}` and an optional query. */
  path: string;
  fields: Record<string, string>;
  query: Pair[];
  headers: Pair[];
  body: string;
};
/** The call that is sent. */
export type ProxiedRequest = { method: string; target: string; headers: [string, string][]; body?: string };

export const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'] as const;

export const emptyForm: Form = { method: 'GET', path: '', fields: {}, query: [], headers: [], body: '' };

/** The names of the placeholders, each once, in the order of the path. */
export function placeholdersIn(path: string): string[] {
  return [...new Set(Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => name!))];
}

export function hasBody(method: string): boolean {
  return method !== 'GET' && method !== 'HEAD';
}

/** The reason why a form cannot be sent; undefined without one. */
export function flawOf(form: Form): string | undefined {
  if (!form.path.startsWith('/')) return 'The path begins with a slash.';
  const missing = placeholdersIn(form.path).filter((name) => (form.fields[name] ?? '').trim() === '');
  if (missing.length > 0) return `Fill in ${missing.join(' and ')}.`;
  const odd = form.headers.find(({ name }) => name !== '' && !/^[!#$%&'*+.^`|~\w-]+$/.test(name));
  if (odd !== undefined) return `"${odd.name}" is no name of a header.`;
  // Header values are sent as Latin-1 (Fetch standard, §2.2.2).
  const wide = form.headers.find(({ value }) => /[^\t\x20-\x7e\xa0-\xff]/.test(value));
  if (wide !== undefined) return `The value of ${wide.name} has characters that no header can carry.`;
  return isJson(form) ? flawOfJson(form.body) : undefined;
}

/** The parse error of a body; undefined without one. */
export function flawOfJson(body: string): string | undefined {
  if (body.trim() === '') return undefined;
  try {
    JSON.parse(body);
    return undefined;
  } catch (error) {
    return `The body is no JSON: ${(error as Error).message}`;
  }
}

/** Bodies are JSON unless a header gives another type. */
function isJson({ method, headers }: Form): boolean {
  const type = headers.find(({ name }) => name.toLowerCase() === 'content-type')?.value;
  return hasBody(method) && (type === undefined || /\bjson\b/i.test(type));
}

/** Fills in and encodes placeholders, and omits parameters without a value. */
export function requestOf(form: Form): ProxiedRequest {
  const path = form.path.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(filledIn(name, form.fields[name] ?? '')),
  );
  const query = form.query
    .filter(({ name, value }) => name.trim() !== '' && value !== '')
    .map(({ name, value }) => `${encodeURIComponent(name.trim())}=${encodeURIComponent(value)}`)
    .join('&');
  const join = query === '' ? '' : path.includes('?') ? '&' : '?';
  const headers = form.headers
    .filter(({ name, value }) => name.trim() !== '' && value !== '')
    .map(({ name, value }): [string, string] => [name.trim(), value]);
  const body = hasBody(form.method) && form.body.trim() !== '' ? form.body : undefined;
  if (body !== undefined && !headers.some(([name]) => name.toLowerCase() === 'content-type')) {
    headers.push(['Content-Type', 'application/json']);
  }
  const target = encodeOdd(path) + join + query;
  return { method: form.method, target, headers, ...(body !== undefined && { body }) };
}

/** Extracts the ID from the address of a spreadsheet or file. */
function filledIn(name: string, value: string): string {
  const id = /^https:\/\/[^/]*\.google\.com\/.*\/d\/([\w-]+)/.exec(value.trim())?.[1];
  return name.endsWith('Id') && id !== undefined ? id : value.trim();
}

/** Encodes characters that are not allowed in an address; existing escapes are kept. */
function encodeOdd(path: string): string {
  return path.replace(/[^\w\-.~!$&'()*+,;=:@%/?]/gu, encodeURIComponent);
}

/** The form of a suggestion; values of placeholders with the same name are kept. */
export function formOf(suggestion: Suggestion, former: Form): Form {
  const names = placeholdersIn(suggestion.path);
  return {
    method: suggestion.method,
    path: suggestion.path,
    fields: Object.fromEntries(names.map((name) => [name, former.fields[name] ?? ''])),
    query: suggestion.query?.map((pair) => ({ ...pair })) ?? [],
    headers: former.headers,
    body: suggestion.body === undefined ? '' : JSON.stringify(suggestion.body, null, 2),
  };
}

/** The suggestion of a form. The parameter `alt` distinguishes two with the same method and path. */
export function suggestionOf(form: Form, api: SuggestedApi | null | undefined): Suggestion | undefined {
  const altOf = (query: Pair[] = []) => query.find(({ name }) => name === 'alt')?.value;
  const found = api?.calls.filter(({ method, path }) => method === form.method && path === form.path) ?? [];
  return found.find(({ query }) => altOf(query) === altOf(form.query)) ?? found[0];
}

export function formOfSearch(search: FormSearch): Form {
  const pairs = (given: [string, string][] = []) => given.map(([name, value]) => ({ name, value }));
  return {
    method: search.method ?? 'GET',
    path: search.path ?? '',
    fields: search.fields ?? {},
    query: pairs(search.query),
    headers: pairs(search.headers),
    body: search.body ?? '',
  };
}

const secretName =
  /auth(?!or(?!iz))|cookie|secret|token|passw|credential|session|signature|(^|[-_.])(api)?[-_]?key$|^sig$/i;
const harmless = /^(pageToken|nextPageToken|syncToken|Idempotency-Key)$/i;

/** Whether a header or parameter with this name may hold a secret, which is removed from addresses and copied code. */
export function isSecret(name: string): boolean {
  return secretName.test(name) && !harmless.test(name);
}

/** The form for the address, without the body and without the values of secrets. */
export function searchOfForm(form: Form): FormSearch {
  const withoutValues = (pairs: Pair[]) => {
    const kept = pairs
      .filter(({ name }) => name !== '')
      .map(({ name, value }): [string, string] => [name, isSecret(name) ? '' : value]);
    return kept.length > 0 ? kept : undefined;
  };
  const fields = Object.entries(form.fields).filter(([name, value]) => value !== '' && !isSecret(name));
  return {
    method: form.method === 'GET' ? undefined : form.method,
    path: form.path === '' ? undefined : withoutSecrets(form.path),
    fields: fields.length > 0 ? Object.fromEntries(fields) : undefined,
    query: withoutValues(form.query),
    headers: withoutValues(form.headers),
  };
}

/** Removes secret values from a query in the path. */
export function withoutSecrets(path: string): string {
  return path.replace(/([?&;])([^=&;#]+)=([^&;#]*)/g, (whole, mark: string, name: string) =>
    isSecret(name) ? `${mark}${name}=` : whole,
  );
}

/** A body with `instead` in place of strings whose names mark secrets; undefined if it is not JSON. */
export function harmlessBody(body: string, instead: string): string | undefined {
  if (body.trim() === '') return '';
  let isChanged = false;
  const read = (name: string, value: unknown) => {
    if (typeof value !== 'string' || value === '' || !isSecret(name)) return value;
    isChanged = true;
    return instead;
  };
  try {
    const value = JSON.parse(body, read) as unknown;
    return isChanged ? JSON.stringify(value, null, 2) : body;
  } catch {
    return undefined;
  }
}
