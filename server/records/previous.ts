import type { DataKey } from '../vault.ts';
import type { JsonObject } from './canonical.ts';
import { changedFields } from './ignore.ts';
import { contextOf } from './seal-batch.ts';

/**
 * What is kept of the payload that stood before a record's last change, in the row of its payload and gone with it: JSON
 * text, sealed as a payload is. An object is that payload; an array is only the names of the fields that changed.
 */

/** The names alone, by record, sealed. */
export function sealNames(
  names: ReadonlyMap<string, readonly string[]>,
  { dataKey, datasetId }: { dataKey: DataKey; datasetId: number },
): Map<string, Buffer> {
  const sealed = dataKey.sealMany(
    [...names].map(([id, some]) => ({ plain: JSON.stringify(some), context: contextOf(datasetId, id) })),
  );
  return new Map([...names.keys()].map((id, index) => [id, sealed[index] as Buffer]));
}

/**
 * What the last change changed, as JSON text: `fields` are the names of the fields at the top level that differ, ignored
 * ones included; `previous` holds the former values of those that had one, and is null where the names alone are kept.
 * Takes the JSON text of both payloads.
 */
export function changesText(previous: Buffer, payload: Buffer): string {
  const before = JSON.parse(previous.toString('utf8')) as JsonObject | string[];
  if (Array.isArray(before)) return JSON.stringify({ fields: before, previous: null });
  const fields = changedFields(before, JSON.parse(payload.toString('utf8')) as JsonObject);
  const former = fields.filter((name) => Object.hasOwn(before, name)).map((name) => [name, before[name]]);
  return JSON.stringify({ fields, previous: Object.fromEntries(former) });
}
