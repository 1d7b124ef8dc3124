/**
 * What the code of a function writes and throws, as the database keeps it: sealed, so that nobody can read it once the
 * connection is deleted. What this service says of a run is plain text.
 *
 * Owns: which key seals, the form of a stored error. Does not own: the rows (`run-log.ts`, `settle.ts`).
 */
import type { LiveConnection } from '../../connections/reader.ts';
import type { Queryable } from '../../db/pool.ts';
import { environmentKey } from '../../environments/store.ts';
import type { DataKey, Vault } from '../../vault.ts';
import { noRow } from '../context/context.ts';

export type RunError = { code: string; message: string; payload?: unknown };

/** As `run.error` holds it. `sealed` is base64 of `{message, payload?}`, and `message` says so to services that do not know it. */
export type StoredError = RunError & { sealed?: string };

/** What seals, and whose it is: a connection's row; null: the environment's. */
export type SealingKey = { dataKey: DataKey; connectionRow: number | null };

const lineContext = 'run line';
const errorContext = 'run error';
/** In the place of what a destroyed key has sealed. */
export const goneText = 'Deleted with the connection.';
const sealedText = 'Sealed. Nodes of a newer version show it.';

/** A run without a connection yet uses the key of its environment: nothing opens what the candidate's own seals. */
export async function sealingKeyOf(
  q: Queryable,
  { connection, vault }: { connection: LiveConnection; vault: Vault },
): Promise<SealingKey> {
  const { id, environmentId, dataKey } = connection;
  if (id !== noRow) return { dataKey, connectionRow: id };
  return { dataKey: await environmentKey(q, { environmentId, vault }), connectionRow: null };
}

/** Of an error of this service, which has no key: as it is. */
export function storedError({ code, ...thrown }: RunError, by: SealingKey | undefined): StoredError {
  if (by === undefined) return { code, ...thrown };
  const sealed = by.dataKey.sealJson(thrown, errorContext).toString('base64');
  return { code, message: sealedText, sealed };
}

/** `key` undefined: it was destroyed. */
export function openError({ sealed, ...stored }: StoredError, key: DataKey | undefined): RunError {
  if (sealed === undefined) return stored;
  const opened = openedBy(key, { sealed, context: errorContext });
  if (opened === undefined) return { code: stored.code, message: goneText };
  return { code: stored.code, ...(JSON.parse(opened) as Omit<RunError, 'code'>) };
}

export function sealLines(texts: readonly string[], { dataKey }: SealingKey): Buffer[] {
  return dataKey.sealMany(texts.map((plain) => ({ plain, context: lineContext })));
}

/** Undefined where its key was destroyed. */
export function openLine(sealed: Buffer, key: DataKey | undefined): string | undefined {
  return openedBy(key, { sealed, context: lineContext });
}

/**
 * `sealed`: bytes, or their base64. Undefined also where another key sealed it, or it is neither: a row that cannot be read must not
 * keep the others from being read.
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

/** Unwraps each key once. For one request, since an unwrapped key must not outlive its connection for long. */
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
 * Of a row of `run`: the wrapped key of what it has sealed; null where it was destroyed. No join, which would have the planner
 * choose another way to the rows.
 */
export const wrappedKeySql = `(
    select wrapped
    from data_key
    where data_key.id = case
      when run.connection_id is null then (select data_key from environment where environment.id = run.environment_id)
      else (select data_key from connection as own where own.id = run.connection_id)
    end
  )`;
