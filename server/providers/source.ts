/**
 * Reads provider files and keeps the place of each value, so that a fault has a file and a line.
 *
 * A file may contain `extends: <other file>`: mappings are merged key by key at all depths, everything else (texts,
 * numbers, lists) is replaced as a whole, and `null` removes a key. A base may extend another one. A file with
 * `abstract: true` is only a base.
 *
 * A file whose only key is `definitions` is a collection: a mapping from names to definitions, each as if it were a file.
 *
 * The operator's own folder is read in the same way. `extends` in one of its files means a file of this folder, otherwise
 * one that ships; a file that extends its own name extends the one that ships. Files that ship extend only each other.
 *
 * Its folder `updates` has the definitions of a signed update (`update.ts`). They replace those that ship, and are replaced by
 * the operator's own.
 *
 * `providers/parsed.jsonl` holds the files as JSON, one a line, so that a start need not parse a hundred YAML files. A
 * line is used only if the hash of its file is unchanged; other files are read as YAML.
 */

import { hash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import {
  type Document,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  parse,
  parseDocument,
} from 'yaml';

export type Fault = { readonly file: string; readonly line: number; readonly message: string };
type Source = {
  readonly name: string;
  /** As faults show it: of the operator's files with the folder. */
  readonly file: string;
  /** The path of the definition in its file: empty, unless the file is a collection. */
  readonly at: readonly string[];
  readonly content: Record<string, unknown>;
  /** Whether the content is that of `parsed.jsonl`, whose author has checked it with the schema. */
  readonly isChecked: boolean;
  /** The document with its lines, which only faults need. */
  readonly parsed: () => Parsed;
};
type Parsed = { readonly document: Document; readonly lines: LineCounter };
/** The content of a file with its bases merged in, and the place of each part. */
type MergedSource = {
  readonly name: string;
  readonly isAbstract: boolean;
  /** Whether it is in the operator's folder. */
  readonly isOwn: boolean;
  /** Whether it is of an update (`update.ts`). */
  readonly isUpdate: boolean;
  /** Whether it was checked with the schema when it was packaged. */
  readonly isChecked: boolean;
  readonly content: Record<string, unknown>;
  /** The file and line (from 1) of a value; of the nearest mapping around it if it is missing. */
  locate(path: readonly PropertyKey[]): { file: string; line: number };
};

/** The name of a provider, which is also that of its file. */
export const providerName = /^[a-z0-9][a-z0-9-]*$/;

/** All `*.yaml` files of a folder, merged, and the faults of syntax and of `extends`. */
export function readSources(directory: string): { sources: MergedSource[]; faults: Fault[] } {
  return mergeSources(readFolder(directory));
}

/**
 * As `readSources`, with the operator's folder beside the one that ships. Throws a sentence if the operator's folder cannot
 * be read.
 */
export function readSourcesWith(
  own: string,
  { shipped, updates }: { shipped: string; updates: string },
): { sources: MergedSource[]; faults: Fault[] } {
  const updated = existsSync(updates) ? readOwnFolder(updates) : undefined;
  return mergeSources(readFolder(shipped), { own: readOwnFolder(own), updated });
}

/**
 * One definition from a text. `extends` means a definition whose content `contentOf` returns. `file` is what faults name.
 */
export function readText(
  { name, file, text }: { name: string; file: string; text: string },
  { contentOf }: { contentOf: (name: string) => Record<string, unknown> | undefined },
): { sources: MergedSource[]; faults: Fault[] } {
  const refused = (message: string) => ({ sources: [], faults: [{ file, line: 1, message }] });
  const nested = 'has too many aliases, or is nested too deeply';
  let read: Read;
  try {
    read = sourcesOf({ name, file, text });
  } catch (error) {
    if (!(error instanceof ReferenceError || error instanceof RangeError)) throw error;
    return refused(nested);
  }
  // The parser reports an exhausted stack as a fault of syntax.
  if (read.faults.some(({ message }) => message.includes('call stack'))) return refused(nested);
  const [source, ...others] = read.sources;
  if (read.faults.length > 0 || source === undefined) return { sources: [], faults: [...read.faults] };
  if (others.length > 0 || source.at.length > 0 || source.content.abstract !== undefined)
    return refused('must be one definition, without `definitions` or `abstract`');
  const baseOf = (base: string): Source | undefined => {
    const content = contentOf(base);
    return (
      content && { name: base, file, at: [], content, isChecked: true, parsed: () => parsedWithLines('') }
    );
  };
  const chain = chainOf(source, baseOf);
  return typeof chain === 'string'
    ? { sources: [], faults: [{ file, line: lineOf(source, ['extends']).line, message: chain }] }
    : { sources: [{ ...merge(name, chain), isOwn: false, isUpdate: false }], faults: [] };
}

type Folder = { readonly byName: ReadonlyMap<string, Source>; readonly faults: readonly Fault[] };

function readFolder(directory: string): Folder {
  const known = readParsed(directory);
  const byName = new Map<string, Source>();
  const faults: Fault[] = [];
  for (const file of yamlFilesOf(directory)) {
    const name = basename(file, '.yaml');
    const text = readFileSync(join(directory, file), 'utf8');
    const content = known(file, text);
    const read =
      content === undefined
        ? sourcesOf({ name, file, text })
        : definitionsOf({ name, file, content, isChecked: true, parsed: () => parsedWithLines(text) });
    faults.push(...read.faults, ...addSources(byName, read.sources));
  }
  return { byName, faults };
}

/** Reports files that no definition can come from, so that none is missing without a reason. */
function readOwnFolder(directory: string): Folder {
  const byName = new Map<string, Source>();
  const faults: Fault[] = [];
  for (const entry of ownFilesOf(directory)) {
    const file = join(directory, entry);
    const name = basename(entry, '.yaml');
    const text = readOwnFile(file);
    if (entry.endsWith('.yml'))
      faults.push({ file, line: 1, message: 'the name of the file must end with .yaml' });
    else if (typeof text === 'object') faults.push({ file, line: 1, message: text.fault });
    else {
      const read = sourcesOf({ name, file, text });
      faults.push(...read.faults, ...addSources(byName, read.sources));
    }
  }
  return { byName, faults };
}

/** Adds sources to those of their folder. Returns faults for names that the folder has already. */
function addSources(byName: Map<string, Source>, sources: readonly Source[]): Fault[] {
  const faults: Fault[] = [];
  for (const source of sources) {
    const other = byName.get(source.name);
    if (other === undefined) byName.set(source.name, source);
    else
      faults.push({
        file: source.file,
        line: lineOf(source, []).line,
        message: `"${source.name}" is also defined in ${other.file}`,
      });
  }
  return faults;
}

function ownFilesOf(directory: string): string[] {
  try {
    return readdirSync(directory)
      .filter((name) => /\.ya?ml$/.test(name))
      .sort();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Error(`TRELLIS_PROVIDERS_DIR: the folder ${directory} cannot be read (${code})`);
  }
}

function readOwnFile(file: string): string | { fault: string } {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    return { fault: `the file cannot be read (${(error as NodeJS.ErrnoException).code})` };
  }
}

function yamlFilesOf(directory: string): string[] {
  return readdirSync(directory)
    .filter((name) => name.endsWith('.yaml'))
    .sort();
}

function mergeSources(
  shipped: Folder,
  { own, updated }: { own?: Folder; updated?: Folder | undefined } = {},
): { sources: MergedSource[]; faults: Fault[] } {
  const faults = [...shipped.faults, ...(updated?.faults ?? []), ...(own?.faults ?? [])];
  const sources: MergedSource[] = [];
  const ownSources = new Set(own?.byName.values());
  const updatedSources = new Set(updated?.byName.values());
  /** A definition that ships is based on the update of its base, if there is one. */
  const baseOf = (name: string, from: Source) => {
    const isOther = name !== from.name;
    return (
      (isOther && ownSources.has(from) ? own?.byName.get(name) : undefined) ??
      (isOther || ownSources.has(from) ? updated?.byName.get(name) : undefined) ??
      shipped.byName.get(name)
    );
  };
  for (const source of [...shipped.byName.values(), ...updatedSources, ...ownSources]) {
    const chain = chainOf(source, baseOf);
    if (typeof chain !== 'string')
      sources.push({
        ...merge(source.name, chain),
        isOwn: ownSources.has(source),
        isUpdate: updatedSources.has(source),
      });
    else faults.push({ file: source.file, line: lineOf(source, ['extends']).line, message: chain });
  }
  return { sources, faults };
}

function parsedWithLines(text: string): Parsed {
  const lines = new LineCounter();
  return {
    document: parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true }),
    lines,
  };
}

type Read = { readonly sources: readonly Source[]; readonly faults: readonly Fault[] };

function sourcesOf({ name, file, text }: { name: string; file: string; text: string }): Read {
  const parsed = parsedWithLines(text);
  const { document, lines } = parsed;
  if (document.errors.length > 0) {
    const faults = document.errors.map((error) => ({
      file,
      line: lines.linePos(error.pos[0]).line,
      message: error.message,
    }));
    return { sources: [], faults };
  }
  return definitionsOf({
    name,
    file,
    content: document.toJS() as unknown,
    isChecked: false,
    parsed: () => parsed,
  });
}

/** The definition of a file, or all definitions of a collection. */
function definitionsOf({
  name,
  file,
  content,
  isChecked,
  parsed,
}: Pick<Source, 'name' | 'file' | 'isChecked' | 'parsed'> & { content: unknown }): Read {
  const collection = collectionOf(content);
  const entries: [name: string, content: unknown, at: string[]][] =
    collection === undefined
      ? [[name, content, []]]
      : Object.entries(collection).map(([key, entry]) => [key, entry, ['definitions', key]]);
  const sources: Source[] = [];
  const faults: Fault[] = [];
  for (const [key, entry, at] of entries) {
    const source = { name: key, file, at, content: isRecord(entry) ? entry : {}, isChecked, parsed };
    const message = isRecord(entry)
      ? providerName.test(key)
        ? undefined
        : 'the name must be lower-case with hyphens'
      : `the ${at.length === 0 ? 'file' : 'entry'} must hold a mapping`;
    if (message === undefined) sources.push(source);
    else faults.push({ file, line: lineOf(source, []).line, message });
  }
  return { sources, faults };
}

function collectionOf(content: unknown): Record<string, unknown> | undefined {
  if (!isRecord(content) || Object.keys(content).join() !== 'definitions') return undefined;
  return isRecord(content.definitions) ? content.definitions : undefined;
}

/** The file and its bases, itself first; or a message about a fault in them. */
function chainOf(
  source: Source,
  baseOf: (name: string, from: Source) => Source | undefined,
): Source[] | string {
  const chain = [source];
  for (;;) {
    const from = chain.at(-1)!;
    const name = from.content.extends;
    if (name === undefined) return chain;
    const base = typeof name === 'string' ? baseOf(name, from) : undefined;
    if (base === undefined) return `extends "${String(name)}", which is no readable file here`;
    if (chain.includes(base)) return `extends itself by way of "${String(name)}"`;
    chain.push(base);
  }
}

function merge(name: string, chain: readonly Source[]): Omit<MergedSource, 'isOwn' | 'isUpdate'> {
  const merged = chain.reduceRight<Record<string, unknown>>(
    (base, source) => mergeMaps(base, source.content),
    {},
  );
  const { extends: _base, abstract: _abstract, ...content } = merged;
  return {
    name,
    isAbstract: chain[0]?.content.abstract === true,
    isChecked: chain.every((source) => source.isChecked),
    content,
    locate(path) {
      const places = chain.map((source) => ({ file: source.file, ...lineOf(source, path) }));
      const best = places.reduce((a, b) => (b.depth > a.depth ? b : a));
      return { file: best.file, line: best.line };
    },
  };
}

function mergeMaps(base: Record<string, unknown>, over: Record<string, unknown>): Record<string, unknown> {
  // Most maps have no base: to copy them would take half of the time of reading all definitions.
  if (Object.keys(base).length === 0 && !hasNull(over)) return over;
  const merged = new Map(Object.entries(base));
  for (const [key, value] of Object.entries(over)) {
    const before = merged.get(key);
    if (value === null) merged.delete(key);
    else if (isRecord(value)) merged.set(key, mergeMaps(isRecord(before) ? before : {}, value));
    else merged.set(key, value);
  }
  return Object.fromEntries(merged);
}

function hasNull(value: unknown): boolean {
  return value === null || (isRecord(value) && Object.values(value).some(hasNull));
}

/** The line of a path in one file, and how many of its steps the file contains. */
function lineOf(source: Source, path: readonly PropertyKey[]): { line: number; depth: number } {
  const { document, lines } = source.parsed();
  let node: unknown = document.contents;
  let offset = 0;
  let depth = 0;
  for (const step of [...source.at, ...path]) {
    if (isMap(node)) {
      const pair = node.items.find(
        (item) => isPair(item) && isScalar(item.key) && String(item.key.value) === String(step),
      );
      if (!pair || !isScalar(pair.key)) break;
      offset = pair.key.range?.[0] ?? offset;
      node = pair.value;
    } else if (isSeq(node)) {
      const item: unknown = node.items[Number(step)];
      if (!isNode(item)) break;
      offset = item.range?.[0] ?? offset;
      node = item;
    } else {
      break;
    }
    depth += 1;
  }
  return { line: lines.linePos(offset).line, depth };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const parsedFile = 'parsed.jsonl';
type Content = Record<string, unknown>;

/** The content of a file with this text, if the folder's `parsed.jsonl` has that text. */
function readParsed(directory: string): (file: string, text: string) => Content | undefined {
  const known = new Map<string, Content>();
  let lines: string;
  try {
    lines = readFileSync(join(directory, parsedFile), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return () => undefined;
    throw error;
  }
  for (const line of lines.split('\n')) {
    const entry = parsedLine(line);
    if (entry !== undefined) known.set(`${entry[0]} ${entry[1]}`, entry[2]);
  }
  return (file, text) => known.get(`${file} ${hash('sha256', text)}`);
}

/** The text for `parsed.jsonl`, from the YAML files of its folder. */
export function parsedText(directory: string): string {
  const lines = yamlFilesOf(directory).map((file) => {
    const text = readFileSync(join(directory, file), 'utf8');
    return `${JSON.stringify([file, hash('sha256', text), parse(text)])}\n`;
  });
  return lines.join('');
}

/** Undefined for an unreadable line, whose file is then read as YAML. */
function parsedLine(line: string): [string, string, Content] | undefined {
  try {
    const entry: unknown = JSON.parse(line);
    return Array.isArray(entry) && entry.length === 3 ? (entry as [string, string, Content]) : undefined;
  } catch {
    return undefined;
  }
}
