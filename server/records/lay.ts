import type { JsonObject } from './canonical.ts';
import { changedFields, ignoredFields } from './ignore.ts';
import { merge } from './merge.ts';

/** Stored payloads, each with the parts that are laid over it, in their order; all of them JSON text. */
export type Layers = { stored: string; parts: string[] }[];

/** What came of a payload: its text, the form that is hashed, and the names of the fields that changed; undefined: equal. */
export type Laid = { text: string; canonical: string; names: string[] } | undefined;

/** Objects are merged at every depth; everything else is replaced. It needs nothing of the process, so any thread may do it. */
export function layParts(layers: Layers, ignoreFields: readonly string[]): Laid[] {
  const ignored = ignoredFields(ignoreFields);
  return layers.map(({ stored, parts }) => {
    const fields = JSON.parse(stored) as JsonObject;
    const merged = parts.reduce((under, part) => merge(under, JSON.parse(part) as JsonObject), fields);
    const canonical = ignored.canonical(merged);
    if (canonical === ignored.canonical(fields)) return undefined;
    return { text: JSON.stringify(merged), canonical, names: changedFields(fields, merged) };
  });
}
