import type { SuggestedApi, Suggestion } from './calls.ts';
import type { FormSearch } from './form-search.ts';

export type Pair = { name: string; value: string };
/** What is filled in; everything but secrets stands in the address, too. */
export type Form = {
  method: string;
  /** Behind /proxy, with `{placeholders}`; a query may stand in it. */
  path: string;
  fields: Record<string, string>;
  query: Pair[];
  headers: Pair[];
  body: string;
};
/** A call as it goes out. */
export type ProxiedRequest = { method: string; target: string; headers: [string, string][]; body?: string };

export const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'] as const;

export const emptyForm: Form = { method: 'GET', path: '', fields: {}, query: [], headers: [], body: '' };

/** Their names, each once, in the order in which they stand in the path. */
export function placeholdersIn(path: string): string[] {
  return [...new Set(Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => name!))];
}

export function hasBody(method: string): boolean {
  return method !== 'GET' && method !== 'HEAD';
}

/** What keeps a form from being sent, in words; undefined where nothing does. */
export function flawOf(form: Form): string | undefined {
  if (!form.path.startsWith('/')) return 'The path begins with a slash.';
  const missing = placeholdersIn(form.path).filter((name) => (form.fields[name] ?? '').trim() === '');
  if (missing.length > 0) return `Fill in ${missing.join(' and ')}.`;
  const odd = form.headers.find(({ name }) => name !== '' && !/^[!#$%&'*+.^`|~\w-]+$/.test(name));
  if (odd !== undefined) return `"${odd.name}" is no name of a header.`;
  // A header's value goes out as bytes of Latin-1 (Fetch standard, §2.2.2).
  const wide = form.headers.find(({ value }) => /[^\t\x20-\x7e\xa0-\xff]/.test(value));
  if (wide !== undefined) return `The value of ${wide.name} has characters that no header can carry.`;
  return isJson(form) ? flawOfJson(form.body) : undefined;
}

/** What is wrong with a body, as the parser says it; undefined for none at all. */
export function flawOfJson(body: string): string | undefined {
  if (body.trim() === '') return undefined;
  try {
    JSON.parse(body);
    return undefined;
  } catch (error) {
    return `The body is no JSON: ${(error as Error).message}`;
  }
}

/** Bodies are JSON unless a header says otherwise. */
function isJson({ method, headers }: Form): boolean {
  const type = headers.find(({ name }) => name.toLowerCase() === 'content-type')?.value;
  return hasBody(method) && (type === undefined || /\bjson\b/i.test(type));
}

/** Placeholders filled in and encoded; parameters without a value are left out. */
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

/** Of a spreadsheet or a file the ID alone, though the whole address was pasted. */
function filledIn(name: string, value: string): string {
  const id = /^https:\/\/[^/]*\.google\.com\/.*\/d\/([\w-]+)/.exec(value.trim())?.[1];
  return name.endsWith('Id') && id !== undefined ? id : value.trim();
}

/** What may not stand in an address as it is; escapes that are there stay. */
function encodeOdd(path: string): string {
  return path.replace(/[^\w\-.~!$&'()*+,;=:@%/?]/gu, encodeURIComponent);
}

/** A suggestion filled in; what was typed for placeholders of the same name stays. */
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

/** The suggestion that a form is of; of two with one method and path the parameter `alt` decides. */
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

/** Whether a header or parameter of that name may hold a secret, and so stays out of addresses and copied code. */
export function isSecret(name: string): boolean {
  return secretName.test(name) && !harmless.test(name);
}

/** For the address: another user who opens it sees the same call, without its body and without values named like secrets. */
export function searchOfForm(form: Form): FormSearch {
  const told = (pairs: Pair[]) => {
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
    query: told(form.query),
    headers: told(form.headers),
  };
}

/** Secret values of a query that was typed into the path. */
export function withoutSecrets(path: string): string {
  return path.replace(/([?&;])([^=&;#]+)=([^&;#]*)/g, (whole, mark: string, name: string) =>
    isSecret(name) ? `${mark}${name}=` : whole,
  );
}

/**
 * A body with `instead` in the place of texts whose fields are named like secrets; undefined where that cannot be told,
 * since it is no JSON.
 */
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
