/** A form in the search of the address. */
export type FormSearch = {
  method?: string | undefined;
  path?: string | undefined;
  fields?: Record<string, string> | undefined;
  query?: [string, string][] | undefined;
  headers?: [string, string][] | undefined;
  body?: string | undefined;
};

/** Reads it out of whatever stands there; the router loads this with every page, so it is small. */
export function formSearchOf(given: Record<string, unknown>): FormSearch {
  return {
    method: textOf(given.method),
    path: textOf(given.path),
    fields: fieldsOf(given.fields),
    query: pairsOf(given.query),
    headers: pairsOf(given.headers),
    body: textOf(given.body),
  };
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function fieldsOf(value: unknown): Record<string, string> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, String(one)]));
}

function pairsOf(value: unknown): [string, string][] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.filter(Array.isArray).map(([name, one]) => [String(name ?? ''), String(one ?? '')]);
}
