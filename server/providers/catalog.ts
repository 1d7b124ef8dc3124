/**
 * The provider catalogue: every definition of `providers/`, read and checked once at start.
 *
 * Owns: which providers exist and what the wire says of them. Does not own: the form of a definition
 * (`definition.ts`), placeholders (`template.ts`), the sandbox's endpoints (`sandbox.ts`), what an integration made
 * of a provider (`integrations/`).
 */
import { join } from 'node:path';
import type { z } from 'zod';
import { definitionSchema, type FormField, type ProviderDefinition } from './definition.ts';
import { type Fault, readSources } from './source.ts';

/** The definitions that come with the service. */
export const providersDirectory = join(import.meta.dirname, '../../providers');

/** The operator's files are wrong. The message lists every fault as `file:line: what`. */
export class CatalogError extends Error {
  readonly faults: readonly Fault[];
  constructor(faults: readonly Fault[]) {
    super(
      `The provider definitions have ${faults.length} fault${faults.length === 1 ? '' : 's'}:\n${faults
        .map(({ file, line, message }) => `  ${file}:${line}: ${message}`)
        .join('\n')}`,
    );
    this.name = 'CatalogError';
    this.faults = faults;
  }
}

/** No provider has this name. */
export class UnknownProviderError extends Error {
  constructor(name: string) {
    super(`no provider is called "${name}"`);
    this.name = 'UnknownProviderError';
  }
}

export type Catalog = {
  /** Throws UnknownProviderError. */
  get(name: string): ProviderDefinition;
  find(name: string): ProviderDefinition | undefined;
  /** In the order of their names; with `search` only those whose name holds that text, in any case. */
  list(search?: string): ProviderDefinition[];
};

/**
 * Reads all definitions of a folder. Throws one CatalogError that holds all faults of all files (a file whose
 * form is wrong shows those faults first, and its placeholders once the form is right).
 */
export function loadCatalog(directory: string): Catalog {
  const { sources, faults } = readSources(directory);
  const found = [...faults];
  const definitions = new Map<string, ProviderDefinition>();
  for (const source of sources.filter(({ isAbstract }) => !isAbstract)) {
    // Each definition is judged once: code made for the schema would take a quarter longer than it saves.
    const read = definitionSchema.safeParse(
      { logo: `${source.name}.svg`, ...source.content },
      { jitless: true },
    );
    if (read.success) {
      definitions.set(source.name, { ...read.data, name: source.name });
      continue;
    }
    for (const issue of read.error.issues) {
      for (const [path, message] of toldBy(issue)) {
        const name = path.map(String).join('.');
        found.push({ ...source.locate(path), message: name === '' ? message : `${name}: ${message}` });
      }
    }
  }
  const distinct = new Map(found.map((fault) => [`${fault.file}:${fault.line}:${fault.message}`, fault]));
  if (distinct.size > 0) throw new CatalogError([...distinct.values()]);
  return catalogOf(definitions);
}

/** What an issue says, and of which value. A key that nothing knows is told where it stands, not its mapping. */
function toldBy(issue: z.core.$ZodIssue): [PropertyKey[], string][] {
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => [[...issue.path, key], 'is no key that is known here']);
  const inner = issue.code === 'invalid_key' ? issue.issues[0]?.message : undefined;
  return [[issue.path, inner ?? issue.message]];
}

function catalogOf(definitions: ReadonlyMap<string, ProviderDefinition>): Catalog {
  const find = (name: string) => definitions.get(name);
  return {
    find,
    get(name) {
      const definition = find(name);
      if (definition === undefined) throw new UnknownProviderError(name);
      return definition;
    },
    list(search = '') {
      const wanted = search.toLowerCase();
      return [...definitions.values()]
        .filter(
          ({ name, display_name }) => name.includes(wanted) || display_name.toLowerCase().includes(wanted),
        )
        .sort((a, b) => (a.name < b.name ? -1 : 1));
    },
  };
}

/**
 * A provider as `GET /providers` shows it, under the keys that official clients read. `logosUrl` is where
 * `providers/logos/` is served, without a trailing slash.
 */
export function toWire(definition: ProviderDefinition, { logosUrl }: { logosUrl: string }) {
  const { authorization, token, refresh, scopes, api, verification } = definition;
  return {
    name: definition.name,
    display_name: definition.display_name,
    logo_url: `${logosUrl}/${definition.logo}`,
    categories: definition.categories,
    docs: definition.docs,
    verified: typeof definition.verified === 'string' ? null : definition.verified,
    ...(definition.sunset.length > 0 && { sunset: definition.sunset }),
    auth_mode: definition.auth_mode,
    ...(authorization && {
      authorization_url: authorization.url,
      authorization_params: { response_type: 'code', ...authorization.params },
      ...(authorization.pkce === 'none' && { disable_pkce: true }),
    }),
    ...(token && {
      token_url: token.url,
      ...(Object.keys(token.params).length > 0 && { token_params: token.params }),
      ...(token.auth_method === 'client_secret_basic' && { token_request_auth_method: 'basic' as const }),
    }),
    ...(refresh.url !== undefined && { refresh_url: refresh.url }),
    ...((definition.auth_mode === 'OAUTH2' || definition.auth_mode === 'OAUTH2_CC') && {
      scope_separator: scopes.separator,
      default_scopes: scopes.default,
      available_scopes: Object.keys(scopes.catalogue),
      scopes: Object.entries(scopes.catalogue).map(([scope, { sensitivity, description }]) => ({
        scope,
        sensitivity,
        description,
      })),
    }),
    proxy: {
      base_url: api.base_url,
      ...(Object.keys(api.headers).length > 0 && { headers: api.headers }),
      ...(api.paginate && { paginate: api.paginate }),
      ...(verification && { verification: { method: verification.method, endpoints: [verification.path] } }),
    },
    ...formOf('connection_config', definition.connection_config),
    ...formOf('integration_config', definition.integration_config),
    ...formOf('credentials', definition.credentials),
    has_sandbox: definition.sandbox !== undefined,
  };
}

function formOf(key: string, form: Readonly<Record<string, FormField>>) {
  const entries = Object.entries(form);
  if (entries.length === 0) return {};
  const wire = entries.map(([name, field], index) => [
    name,
    {
      type: 'string',
      title: field.title,
      description: field.description,
      ...(field.pattern !== undefined && { pattern: field.pattern }),
      ...(field.format !== undefined && { format: field.format }),
      ...(field.example !== undefined && { example: field.example }),
      optional: !field.required,
      secret: field.secret,
      order: index,
      automated: false,
    },
  ]);
  return { [key]: Object.fromEntries(wire) };
}
