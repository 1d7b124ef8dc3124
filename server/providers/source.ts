/**
 * Reads provider files and keeps, for each value, where it stood, so that a fault can be told with file and line.
 *
 * A file may say `extends: <other file>`: mappings are merged key by key and all the way down, everything else
 * (texts, numbers, lists) is replaced as a whole, and `null` takes a key away. A base may extend another. A file
 * that says `abstract: true` is only there to be extended.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type Document, isMap, isNode, isPair, isScalar, isSeq, LineCounter, parseDocument } from 'yaml';
import { readParsed } from './parsed.ts';

export type Fault = { readonly file: string; readonly line: number; readonly message: string };
type Source = {
  readonly file: string;
  readonly content: Record<string, unknown>;
  /** The same with its lines: only faults need it. */
  readonly parsed: () => Parsed;
};
type Parsed = { readonly document: Document; readonly lines: LineCounter };
/** One file's content with its bases merged in, and where each part of it stands. */
type MergedSource = {
  readonly name: string;
  readonly isAbstract: boolean;
  readonly content: Record<string, unknown>;
  /** The file and line (from 1) of a value, or of the nearest mapping around it when it is missing. */
  locate(path: readonly PropertyKey[]): { file: string; line: number };
};

const NAME = /^[a-z0-9][a-z0-9-]*$/;

/** All `*.yaml` files of a folder, merged. Faults of syntax and of `extends` come back beside them. */
export function readSources(directory: string): { sources: MergedSource[]; faults: Fault[] } {
  const faults: Fault[] = [];
  const known = readParsed(directory);
  const byName = new Map<string, Source>();
  for (const file of readdirSync(directory)
    .filter((name) => name.endsWith('.yaml'))
    .sort()) {
    const name = basename(file, '.yaml');
    const text = readFileSync(join(directory, file), 'utf8');
    const content = known(file, text);
    const source =
      content === undefined ? sourceOf(file, text) : { file, content, parsed: () => parse(text) };
    if ('faults' in source) faults.push(...source.faults);
    else if (!NAME.test(name))
      faults.push({ file, line: 1, message: 'the name must be lower-case with hyphens' });
    else byName.set(name, source);
  }
  const sources: MergedSource[] = [];
  for (const [name, source] of byName) {
    const chain = chainOf(name, byName);
    if (typeof chain === 'string') {
      faults.push({ file: source.file, line: lineOf(source, ['extends']).line, message: chain });
    } else {
      sources.push(merge(name, chain));
    }
  }
  return { sources, faults };
}

function parse(text: string): Parsed {
  const lines = new LineCounter();
  return {
    document: parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true }),
    lines,
  };
}

function sourceOf(file: string, text: string): Source | { faults: Fault[] } {
  const parsed = parse(text);
  const { document, lines } = parsed;
  if (document.errors.length > 0) {
    return {
      faults: document.errors.map((error) => ({
        file,
        line: lines.linePos(error.pos[0]).line,
        message: error.message,
      })),
    };
  }
  const content: unknown = document.toJS();
  if (!isRecord(content)) return { faults: [{ file, line: 1, message: 'the file must hold a mapping' }] };
  return { file, content, parsed: () => parsed };
}

/** The file and its bases, itself first; or what is wrong with them. */
function chainOf(name: string, byName: ReadonlyMap<string, Source>): Source[] | string {
  const chain: Source[] = [];
  let next: unknown = name;
  while (next !== undefined) {
    const source = typeof next === 'string' ? byName.get(next) : undefined;
    if (source === undefined) return `extends "${String(next)}", which is no readable file here`;
    if (chain.includes(source)) return `extends itself by way of "${String(next)}"`;
    chain.push(source);
    next = source.content.extends;
  }
  return chain;
}

function merge(name: string, chain: readonly Source[]): MergedSource {
  const merged = chain.reduceRight<Record<string, unknown>>(
    (base, source) => mergeMaps(base, source.content),
    {},
  );
  const { extends: _base, abstract: _abstract, ...content } = merged;
  return {
    name,
    isAbstract: chain[0]?.content.abstract === true,
    content,
    locate(path) {
      const places = chain.map((source) => ({ file: source.file, ...lineOf(source, path) }));
      const best = places.reduce((a, b) => (b.depth > a.depth ? b : a));
      return { file: best.file, line: best.line };
    },
  };
}

function mergeMaps(base: Record<string, unknown>, over: Record<string, unknown>): Record<string, unknown> {
  const merged = new Map(Object.entries(base));
  for (const [key, value] of Object.entries(over)) {
    const before = merged.get(key);
    if (value === null) merged.delete(key);
    else if (isRecord(value)) merged.set(key, mergeMaps(isRecord(before) ? before : {}, value));
    else merged.set(key, value);
  }
  return Object.fromEntries(merged);
}

/** The line of a path in one file and how many of its steps the file holds. */
function lineOf(source: Source, path: readonly PropertyKey[]): { line: number; depth: number } {
  const { document, lines } = source.parsed();
  let node: unknown = document.contents;
  let offset = 0;
  let depth = 0;
  for (const step of path) {
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
