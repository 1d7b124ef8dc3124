/**
 * Log lines and errors of customer code in the database: sealed, so that they cannot be read after the deletion of the
 * connection. Messages of this service about a run are plain text.
 *
 * Owns: the choice of the key, and the form of a stored error. Does not own: the rows (`run-log.ts`, `settle.ts`).
 */
import type { LiveConnection } from '../../connections/store/reader.ts';
import type { Queryable } from '../../db/pool.ts';
import { environmentKey } from '../../environments/store.ts';
import type { DataKey, Vault } from '../../vault.ts';
import { noRow } from '../context/service-call.ts';

export type RunError = { code: string; message: string; payload?: unknown };

/** The form of `run.error`. `sealed` is base64 of `{message, payload?}`; then `message` is a note for older versions. */
export type StoredError = RunError & { sealed?: string };

/** A key and its owner: the row of a connection, or null for the environment. */
export type SealingKey = { dataKey: DataKey; connectionRow: number | null };

const lineContext = 'run line';
const errorContext = 'run error';
/** Replaces text whose key was destroyed. */
export const goneText = 'Deleted with the connection.';
const sealedText = 'Sealed. Nodes of a newer version show it.';

/** A run for a connection that is not stored uses the key of its environment: the candidate's own key is not kept. */
export async function sealingKeyOf(
  q: Queryable,
  { connection, vault }: { connection: LiveConnection; vault: Vault },
): Promise<SealingKey> {
  const { id, environmentId, dataKey } = connection;
  if (id !== noRow) return { dataKey, connectionRow: id };
  return { dataKey: await environmentKey(q, { environmentId, vault }), connectionRow: null };
}

/** An error of this service has no key, and stays plain text. */
export function storedError({ code, ...thrown }: RunError, by: SealingKey | undefined): StoredError {
  if (by === undefined) return { code, ...thrown };
  const sealed = by.dataKey.sealJson(thrown, errorContext).toString('base64');
  return { code, message: sealedText, sealed };
}

/** `key` is undefined if it was destroyed. */
export function openError({ sealed, ...stored }: StoredError, key: DataKey | undefined): RunError {
  if (sealed === undefined) return stored;
  const opened = openedBy(key, { sealed, context: errorContext });
  if (opened === undefined) return { code: stored.code, message: goneText };
  return { code: stored.code, ...(JSON.parse(opened) as Omit<RunError, 'code'>) };
}

export function sealLines(texts: readonly string[], { dataKey }: SealingKey): Buffer[] {
  return dataKey.sealMany(texts.map((plain) => ({ plain, context: lineContext })));
}

/** Undefined if the key was destroyed. */
export function openLine(sealed: Buffer, key: DataKey | undefined): string | undefined {
  return openedBy(key, { sealed, context: lineContext });
}

/**
 * `sealed`: bytes, or their base64. Undefined also for another key or for invalid data: one unreadable row must not make the
 * others unreadable.
 */
function openedBy(
  key: DataKey | undefined,
  { sealed, context }: { sealed: Buffer | string; context: string },
): string | undefined {
  try {
    const bytes = typeof sealed === 'string' ? Buffer.from(sealed, 'base64') : sealed;
    return key?.open(bytes, context).toString('utf8');
  } catch {
    return undefined;
  }
}

/** Unwraps each key once. For one request only: an unwrapped key must not outlive its connection for long. */
export function keyReader(vault: Vault): (wrapped: Buffer | null) => DataKey | undefined {
  const keys = new Map<string, DataKey>();
  return (wrapped) => {
    if (wrapped === null) return undefined;
    const name = wrapped.toString('base64');
    const key = keys.get(name) ?? vault.unwrap(wrapped);
    keys.set(name, key);
    return key;
  };
}

/**
 * SQL for the wrapped key of a row of `run`; null if it was destroyed. A join would make the planner choose another path to
 * the rows.
 */
export const wrappedKeySql = `(
    select wrapped
    from data_key
    where data_key.id = case
      when run.connection_id is null then (select data_key from environment where environment.id = run.environment_id)
      else (select data_key from connection as own where own.id = run.connection_id)
    end
  )`;
