/**
 * The provider catalogue: every definition of `providers/`, and those of the operator's folder (TRELLIS_PROVIDERS_DIR),
 * checked at start. A service reads both again without a restart (`openCatalog`).
 *
 * Does not own: the form of a definition (`definition.ts`), placeholders (`template.ts`), the sandbox's endpoints
 * (`sandbox.ts`), the settings of an integration (`integrations/`).
 */
import { join } from 'node:path';
import type { z } from 'zod';
import { type AuthModeTable, definitionSchema, type ProviderDefinition } from './definition.ts';
import { type Fault, readSources, readSourcesWith } from './source.ts';

/** The definitions that ship with the service. */
export const providersDirectory = join(import.meta.dirname, '../../providers');

/** The operator's files are invalid. The message lists every fault as `file:line: message`. */
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
  /** The auth modes that definitions may name. */
  readonly modes: AuthModeTable;
  /** Throws UnknownProviderError. */
  get(name: string): ProviderDefinition;
  find(name: string): ProviderDefinition | undefined;
  /** Ordered by name; with `search`, only those whose name contains that text, in any case. */
  list(search?: string): ProviderDefinition[];
};

type OwnDefinitions = { count: number; replaced: string[] };

/** A catalogue whose definitions can be read again. All methods then use the new definitions. */
export type LiveCatalog = Catalog & {
  /** How many definitions are the operator's, and which of them replace one that ships. */
  own(): OwnDefinitions;
  /**
   * Reads all files again. Throws as `openCatalog`, or the error of `accept`, which may refuse the new catalogue; the
   * previous definitions then stay.
   */
  reload(accept: (next: Catalog) => Promise<void>): Promise<void>;
};

/**
 * Reads all definitions of a folder, which may use these auth modes. Throws one CatalogError with the faults of all
 * files. A file with faults in its form reports those first, and those of its placeholders once the form is valid.
 */
export function loadCatalog(directory: string, modes: AuthModeTable): Catalog {
  return catalogOf(readDefinitions(readSources(directory), modes).definitions, modes);
}

/**
 * The definitions that ship and those of the operator's folder; undefined: there is none. Throws as `loadCatalog`, and a
 * sentence if the folder cannot be read.
 */
export function openCatalog(own: string | undefined, modes: AuthModeTable): LiveCatalog {
  const read = () =>
    readDefinitions(
      own === undefined
        ? readSources(providersDirectory)
        : readSourcesWith(own, { shipped: providersDirectory }),
      modes,
    );
  const first = read();
  let { own: ofOperator } = first;
  let current = catalogOf(first.definitions, modes);
  return {
    modes,
    own: () => ofOperator,
    find: (name) => current.find(name),
    get: (name) => current.get(name),
    list: (search) => current.list(search),
    async reload(accept) {
      const next = read();
      const catalog = catalogOf(next.definitions, modes);
      await accept(catalog);
      current = catalog;
      ofOperator = next.own;
    },
  };
}

type Sources = ReturnType<typeof readSources>;

function readDefinitions({ sources, faults }: Sources, modes: AuthModeTable) {
  const schema = definitionSchema(modes);
  const found = [...faults];
  const definitions = new Map<string, ProviderDefinition>();
  const own: OwnDefinitions = { count: 0, replaced: [] };
  const aliases: string[] = [];
  // Those that ship come first.
  for (const source of sources.filter(({ isAbstract }) => !isAbstract)) {
    // Each definition is parsed once: compiling the schema would take a quarter longer than it saves.
    const read = schema.safeParse({ logo: `${source.name}.svg`, ...source.content }, { jitless: true });
    if (read.success) {
      const shipped = definitions.get(source.name);
      if (source.isOwn) {
        own.count += 1;
        for (const [path, message] of ownFaults(read.data, { shipped, aliases }))
          found.push({ ...source.locate(path), message: `${path.join('.')}: ${message}` });
        if (shipped !== undefined) own.replaced.push(source.name);
      } else aliases.push(...read.data.api.root_aliases);
      definitions.set(source.name, { ...read.data, name: source.name });
      continue;
    }
    for (const issue of read.error.issues) {
      for (const [path, message] of issuesOf(issue)) {
        const name = path.map(String).join('.');
        found.push({ ...source.locate(path), message: name === '' ? message : `${name}: ${message}` });
      }
    }
  }
  const distinct = new Map(found.map((fault) => [`${fault.file}:${fault.line}:${fault.message}`, fault]));
  if (distinct.size > 0) throw new CatalogError([...distinct.values()]);
  return { definitions, own };
}

/** The faults of an operator's definition that would be none in one that ships. */
function ownFaults(
  own: Omit<ProviderDefinition, 'name'>,
  { shipped, aliases }: { shipped: ProviderDefinition | undefined; aliases: readonly string[] },
): [path: string[], message: string][] {
  const faults: [string[], string][] = [];
  // Clients and credentials that are stored for the provider have the form of its auth mode.
  if (shipped !== undefined && shipped.auth_mode !== own.auth_mode)
    faults.push([
      ['auth_mode'],
      `must be ${shipped.auth_mode}, as in the definition that ships by this name`,
    ]);
  // Any other path at the root may be one of the service's own routes, now or in a later version.
  if (own.api.root_aliases.some((path) => !aliases.includes(path)))
    faults.push([['api', 'root_aliases'], 'may only hold paths of definitions that ship']);
  return faults;
}

/** The path and the message of an issue. An unknown key is reported at its own place, not at that of its mapping. */
function issuesOf(issue: z.core.$ZodIssue): [PropertyKey[], string][] {
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => [[...issue.path, key], 'is no key that is known here']);
  const inner = issue.code === 'invalid_key' ? issue.issues[0]?.message : undefined;
  return [[issue.path, inner ?? issue.message]];
}

function catalogOf(definitions: ReadonlyMap<string, ProviderDefinition>, modes: AuthModeTable): Catalog {
  const find = (name: string) => definitions.get(name);
  return {
    modes,
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
