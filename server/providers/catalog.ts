/**
 * The provider catalogue: every definition of `providers/`, and those of the operator's folder (TRELLIS_PROVIDERS_DIR). A
 * service reads both again without a restart (`openCatalog`).
 *
 * Definitions are checked at the start, except those that were checked when `providers/parsed.jsonl` was written: these are
 * read when they are first used, because to read six hundred of them takes longer than the rest of the start.
 *
 * Does not own: the form of a definition (`definition.ts`), placeholders (`template.ts`), the sandbox's endpoints
 * (`sandbox.ts`), the settings of an integration (`integrations/`).
 */
import { join } from 'node:path';
import type { z } from 'zod';
import { type AuthModeTable, definitionSchema, type ProviderDefinition } from './definition.ts';
import { type Fault, readSources, readSourcesWith, readText } from './source.ts';
import { updatesIn } from './update.ts';

/** Two repeats without an end, for a value of 1024 characters. */
const maxWays = 1024 ** 2;

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
  /** As `list`, only those that have this field, such as `channels`. It reads no others. */
  listWith(field: string): ProviderDefinition[];
  /** All `api.root_aliases`. It reads no definition, because every start needs them. */
  rootAliases(): string[];
  /**
   * The definition that a text describes, which may extend one of the catalogue, and its content with that of its bases.
   * The catalogue does not get it. Throws a CatalogError with the lines of the text.
   */
  read(given: { name: string; text: string }): { definition: ProviderDefinition; content: Content };
};

type Content = Readonly<Record<string, unknown>>;

/** `updated`: the definitions of the applied update. */
type OwnDefinitions = { count: number; replaced: string[]; updated: number };

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
 * The definitions that ship, those of the applied update, and those of the operator's folder; undefined: there is none.
 * `updates` is the folder of the update. Throws as `loadCatalog`, and a
 * sentence if the folder cannot be read.
 */
export function openCatalog(
  own: string | undefined,
  modes: AuthModeTable,
  { updates = own && updatesIn(own) }: { updates?: string | undefined } = {},
): LiveCatalog {
  const read = () =>
    readDefinitions(
      own === undefined || updates === undefined
        ? readSources(providersDirectory)
        : readSourcesWith(own, { shipped: providersDirectory, updates }),
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
    listWith: (field) => current.listWith(field),
    rootAliases: () => current.rootAliases(),
    read: (given) => current.read(given),
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
type Source = Sources['sources'][number];

/** A definition that is read when it is first used. */
type Entry = {
  readonly content: Content;
  /** Throws a CatalogError if a checked definition is invalid nevertheless. */
  readonly definition: () => ProviderDefinition;
};

function readDefinitions({ sources, faults }: Sources, modes: AuthModeTable) {
  const schema = definitionSchema(modes);
  const found = [...faults];
  const definitions = new Map<string, Entry>();
  const own: OwnDefinitions = { count: 0, replaced: [], updated: 0 };
  const aliases: string[] = [];
  const read = (source: Source) => parseSource(source, schema);
  // Those that ship come first.
  for (const source of sources.filter(({ isAbstract }) => !isAbstract)) {
    const { name, content } = source;
    if (source.isChecked) {
      definitions.set(name, { content, definition: once(() => definitionOrThrow(read(source))) });
      aliases.push(...rootAliasesOf(content));
      continue;
    }
    const definition = read(source);
    if (Array.isArray(definition)) {
      found.push(...definition);
      continue;
    }
    if (source.isOwn || source.isUpdate) {
      const shipped = definitions.get(name)?.definition();
      own[source.isOwn ? 'count' : 'updated'] += 1;
      for (const [path, message] of ownFaults(definition, { shipped, aliases }))
        found.push({ ...source.locate(path), message: `${path.join('.')}: ${message}` });
      if (shipped !== undefined && source.isOwn) own.replaced.push(name);
    } else aliases.push(...definition.api.root_aliases);
    definitions.set(name, { content, definition: () => definition });
  }
  const distinct = new Map(found.map((fault) => [`${fault.file}:${fault.line}:${fault.message}`, fault]));
  if (distinct.size > 0) throw new CatalogError([...distinct.values()]);
  return { definitions, own };
}

function parseSource(
  source: Pick<Source, 'name' | 'content' | 'locate'>,
  schema: ReturnType<typeof definitionSchema>,
): ProviderDefinition | Fault[] {
  // Each definition is parsed once: compiling the schema would take a quarter longer than it saves.
  const result = schema.safeParse({ logo: `${source.name}.svg`, ...source.content }, { jitless: true });
  if (result.success) return { ...result.data, name: source.name };
  return result.error.issues.flatMap((issue) =>
    issuesOf(issue).map(([path, message]) => {
      const name = path.map(String).join('.');
      return { ...source.locate(path), message: name === '' ? message : `${name}: ${message}` };
    }),
  );
}

/** The definition of a content that `Catalog.read` returned. Throws a CatalogError if this version refuses it. */
export function definitionOf(
  { name, content }: { name: string; content: Content },
  modes: AuthModeTable,
): ProviderDefinition {
  const locate = () => ({ file: name, line: 1 });
  return definitionOrThrow(parseSource({ name, content, locate }, definitionSchema(modes)));
}

function definitionOrThrow(read: ProviderDefinition | Fault[]): ProviderDefinition {
  if (Array.isArray(read)) throw new CatalogError(read);
  return read;
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

function rootAliasesOf(content: Content): string[] {
  return (valueAt(content, 'api.root_aliases') as string[] | undefined) ?? [];
}

function valueAt(content: unknown, field: string): unknown {
  return field
    .split('.')
    .reduce((at: unknown, key) => (at as Record<string, unknown> | undefined)?.[key], content);
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

/**
 * The faults of a definition of one environment that would be none in a file. It must not affect other environments, and
 * its patterns, which are run by the service, must be fast for every value.
 */
function environmentFaults(own: ProviderDefinition): [path: (string | number)[], message: string][] {
  const faults: [(string | number)[], string][] = [];
  const onlyInFiles: [string[], boolean][] = [
    [['api', 'root_aliases'], own.api.root_aliases.length > 0],
    [['api', 'quota'], own.api.quota !== undefined],
    [['api', 'errors', 'account_quota'], own.api.errors.account_quota !== undefined],
    [['channels'], own.channels !== undefined],
    [['security_events'], own.security_events !== undefined],
  ];
  for (const [path, isSet] of onlyInFiles)
    if (isSet) faults.push([path, 'is only allowed in a file of a definition; `null` removes it']);
  if (own.revocation !== undefined && own.revocation.unit !== 'token')
    faults.push([['revocation', 'unit'], 'must be token: other units are only allowed in a file']);
  const patterns: [string[], Record<string, { pattern?: string | undefined; max_length?: number }>][] = [
    [['connection_config'], own.connection_config],
    [['integration_config'], own.integration_config],
    [['credentials'], own.credentials],
    [['authorization', 'browser_params'], own.authorization?.browser_params ?? {}],
  ];
  for (const [path, fields] of patterns)
    for (const [name, { pattern, max_length: length = 1024 }] of Object.entries(fields))
      if (pattern !== undefined && waysToMatch(pattern, length) > maxWays)
        faults.push([
          [...path, name, 'pattern'],
          'may be slow: it must not repeat a group, and may have two repeats without an end, or one for values over 1024 characters',
        ]);
  return faults;
}

/** The number of ways in which a value of this length can match, at most: the time of the slowest match grows with it. */
function waysToMatch(pattern: string, length: number): number {
  const signs = pattern.replace(/\\(?:[pPu]\{[^}]*\}|[^1-9k])|\[(?:\\.|[^\]\\])*\]/gu, 'x');
  let at = 0;
  const alternatives = (): number => {
    let ways = sequence();
    while (signs[at] === '|') {
      at += 1;
      ways += sequence();
    }
    return ways;
  };
  const sequence = (): number => {
    let ways = 1;
    while (at < signs.length && signs[at] !== '|' && signs[at] !== ')') ways *= repeated();
    return ways;
  };
  const repeated = (): number => {
    const isGroup = signs[at] === '(';
    // A reference to a group, a quantifier of another form, and a group that looks ahead or behind.
    if (signs[at] === '\\' || signs[at] === '{' || (signs.startsWith('(?', at) && signs[at + 2] !== ':')) {
      at = signs.length;
      return Infinity;
    }
    at += isGroup ? (signs[at + 1] === '?' ? 3 : 1) : 1;
    const inner = isGroup ? alternatives() : 1;
    if (isGroup) at += 1;
    const [quantifier, from, to] = /^(?:[*+?]|\{(\d+)(?:,(\d*))?\})\??/.exec(signs.slice(at)) ?? [];
    if (quantifier === undefined) return inner;
    at += quantifier.length;
    if (quantifier.startsWith('?')) return inner + 1;
    if (isGroup) return Infinity;
    if (from === undefined || to === '') return length;
    return to === undefined ? 1 : Number(to) - Number(from) + 1;
  };
  const ways = alternatives();
  return at < signs.length ? Infinity : ways;
}

/** The path and the message of an issue. An unknown key is reported at its own place, not at that of its mapping. */
function issuesOf(issue: z.core.$ZodIssue): [PropertyKey[], string][] {
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => [[...issue.path, key], 'is no key that is known here']);
  const inner = issue.code === 'invalid_key' ? issue.issues[0]?.message : undefined;
  return [[issue.path, inner ?? issue.message]];
}

/** Throws UnknownProviderError. */
export function getProvider(name: string, find: Catalog['find']): ProviderDefinition {
  const definition = find(name);
  if (definition === undefined) throw new UnknownProviderError(name);
  return definition;
}

function catalogOf(entries: ReadonlyMap<string, Entry>, modes: AuthModeTable): Catalog {
  const find = (name: string) => entries.get(name)?.definition();
  const sorted = [...entries].sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    modes,
    find,
    get: (name) => getProvider(name, find),
    list(search = '') {
      const wanted = search.toLowerCase();
      return sorted
        .filter(
          ([name, { content }]) =>
            name.includes(wanted) || String(content.display_name).toLowerCase().includes(wanted),
        )
        .map(([, { definition }]) => definition());
    },
    listWith: (field) =>
      sorted
        .filter(([, { content }]) => valueAt(content, field) !== undefined)
        .map(([, { definition }]) => definition()),
    rootAliases: () => sorted.flatMap(([, { content }]) => rootAliasesOf(content)),
    read({ name, text }) {
      const contentOf = (base: string) => entries.get(base)?.content;
      const { sources, faults } = readText({ name, file: name, text }, { contentOf });
      const [source] = sources;
      if (source === undefined) throw new CatalogError(faults);
      const { content } = source;
      const definition = definitionOrThrow(parseSource(source, definitionSchema(modes)));
      const found = environmentFaults(definition).map(([path, message]) => ({
        ...source.locate(path),
        message: `${path.join('.')}: ${message}`,
      }));
      if (found.length > 0) throw new CatalogError(found);
      return { definition, content };
    },
  };
}
