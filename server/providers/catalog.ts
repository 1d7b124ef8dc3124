/**
 * The provider catalogue: every definition of `providers/`, read and checked once at start.
 *
 * Does not own: the form of a definition (`definition.ts`), placeholders (`template.ts`), the sandbox's endpoints
 * (`sandbox.ts`), the settings of an integration (`integrations/`).
 */
import { join } from 'node:path';
import type { z } from 'zod';
import { type AuthModeTable, definitionSchema, type ProviderDefinition } from './definition.ts';
import { type Fault, readSources } from './source.ts';

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

/**
 * Reads all definitions of a folder, which may use these auth modes. Throws one CatalogError with the faults of all
 * files. A file with faults in its form reports those first, and those of its placeholders once the form is valid.
 */
export function loadCatalog(directory: string, modes: AuthModeTable): Catalog {
  const schema = definitionSchema(modes);
  const { sources, faults } = readSources(directory);
  const found = [...faults];
  const definitions = new Map<string, ProviderDefinition>();
  for (const source of sources.filter(({ isAbstract }) => !isAbstract)) {
    // Each definition is parsed once: compiling the schema would take a quarter longer than it saves.
    const read = schema.safeParse({ logo: `${source.name}.svg`, ...source.content }, { jitless: true });
    if (read.success) {
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
  return catalogOf(definitions, modes);
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
