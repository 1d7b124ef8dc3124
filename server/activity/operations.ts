/**
 * The activity log: the operations of the service, kept for some days.
 *
 * Owns: the type of an operation, its IDs, and reading one. Neighbours: `writer.ts` writes in batches, `tally.ts` counts
 * them, `counts.ts` reads counts, `partitions.ts` makes and drops days, `search.ts` and `series.ts` read many,
 * `tail-route.ts` follows, `routes.ts` serves. Does not own: the audit log (`audit.ts`), whose entries are written in the
 * transaction of their cause and kept.
 */

import { randomFillSync } from 'node:crypto';
import type { Selectable } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import type { Operation as Stored } from '../db/tables.ts';
import { AppError } from '../errors.ts';
import type { DataKey, Vault } from '../vault.ts';
import type { ConnectionName } from './accounts.ts';

/** An operation that a module logs. It holds no secret: everything is stored in plain text, except texts that the code of functions wrote. */
export type Operation = {
  readonly environmentId: number;
  readonly type: OperationType;
  readonly status: OperationStatus;
  /** IDs as callers know them, at the time. */
  readonly integration?: string | undefined;
  readonly connection?: string | undefined;
  /** As `actorOf` writes it. */
  readonly actor?: string | undefined;
  readonly requestId?: string | undefined;
  readonly durationMs?: number | undefined;
  readonly method?: string | undefined;
  /** Through `redactedTarget`. */
  readonly path?: string | undefined;
  readonly httpStatus?: number | undefined;
  readonly errorCode?: string | undefined;
  /** Number of requests to the provider, including replays, retries and redirects. */
  readonly requests?: number | undefined;
  readonly retries?: number | undefined;
  /** Of the bodies: sent in the last request, and received for the caller. */
  readonly requestBytes?: number | undefined;
  readonly answerBytes?: number | undefined;
  /** Times until there were credentials, and in queues of quotas. */
  readonly credentialsMs?: number | undefined;
  readonly quotaMs?: number | undefined;
  /** Times of the last request: to an open connection, from there to the response's head, and to its end. */
  readonly connectMs?: number | undefined;
  readonly firstByteMs?: number | undefined;
  readonly bodyMs?: number | undefined;
  readonly details?: OperationDetails | undefined;
  readonly messages?: readonly OperationMessage[] | undefined;
};
/** The types of operations, and the meaning of one entry. A test compares docs/guides/activity.md with them. */
export const operationTypes = {
  proxy: 'a call through the proxy',
  connect: 'a trip or a form that made or renewed a connection, or did not',
  refresh: 'an attempt to renew the credentials of a connection',
  delivery: 'an attempt to deliver an event to an endpoint',
  'records.save': 'a call that saved records',
  'records.update': 'a call that updated records in part',
  'records.delete': 'a call that deleted records',
  'records.prune': 'a call that pruned payloads',
  'records.retention': 'the records that retention pruned or removed in the environment in one run',
  run: 'a run of a function',
  key_rotation: 'a run of `trellis keys rotate`, in each environment',
} as const;
export type OperationType = keyof typeof operationTypes;
export const operationTypeNames = Object.keys(operationTypes) as OperationType[];
export const operationStatuses = ['success', 'failed'] as const;
type OperationStatus = (typeof operationStatuses)[number];
export type OperationDetails = Readonly<Record<string, string | number | boolean | null>>;
export type OperationMessage = {
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly details?: OperationDetails;
  /** Replaces the text of a message that the code of a function wrote; `message` is empty then. */
  readonly sealed?: SealedMessage;
};
/** `connectionRow`: the connection whose key sealed it; null: the environment's key. */
export type SealedMessage = { readonly body: Buffer; readonly connectionRow: number | null };
type ShownMessage = Pick<OperationMessage, 'level' | 'message'> & {
  details: unknown;
  /** Its connection was deleted, and the message says so. */
  isDeleted: boolean;
};

export type OperationFilter = {
  readonly environmentId: number;
  readonly integration?: string | undefined;
  readonly connection?: string | undefined;
  /** Any of these connections; see `accounts.ts`. */
  readonly accounts?: readonly ConnectionName[] | undefined;
  readonly type?: OperationType | undefined;
  readonly status?: OperationStatus | undefined;
  /** Part of the path, of the error code or of a message, whatever its case. */
  readonly text?: string | undefined;
  /** The ID of an endpoint: its deliveries. */
  readonly endpoint?: number | undefined;
  /** Names of a sync and of its variant: their runs. */
  readonly sync?: string | undefined;
  readonly variant?: string | undefined;
  /** Inclusive. */
  readonly from?: Date | undefined;
  /** Exclusive. */
  readonly to?: Date | undefined;
};

/** The columns of an operation on the wire. */
export const operationColumns = [
  'id',
  'created_at',
  'type',
  'status',
  'integration',
  'connection',
  'actor',
  'request_id',
  'duration_ms',
  'method',
  'path',
  'http_status',
  'error_code',
  'requests',
  'retries',
  'request_bytes',
  'answer_bytes',
  'credentials_ms',
  'quota_ms',
  'connect_ms',
  'first_byte_ms',
  'body_ms',
  'details',
] as const;

export type OperationRow = Pick<Selectable<Stored>, (typeof operationColumns)[number]>;

/** With its messages. Throws `not_found` (404) if the environment does not have the operation, or no longer. */
export async function getOperation(
  db: Queryable,
  { environmentId, id, vault }: { environmentId: number; id: string; vault: Vault },
) {
  const at = timeOfId(id);
  const [operation] = await db.run(
    tables
      .selectFrom('operation')
      .select(operationColumns)
      .where('environment_id', '=', environmentId)
      .where('created_at', '=', at)
      .where('id', '=', id),
  );
  if (operation === undefined)
    throw new AppError('not_found', 'The operation does not exist, or no longer exists.');
  const rows = await db.query<StoredMessage>(
    `select line.level, line.message, line.details, line.sealed, data_key.wrapped
     from operation_message as line
     left join environment on environment.id = $1
     left join connection on connection.id = line.connection_id
     left join data_key
       on data_key.id = case when line.connection_id is null then environment.data_key else connection.data_key end
     where line.created_at = $2 and line.operation_id = $3
     order by line.position`,
    [environmentId, at, id],
  );
  return { ...operation, messages: rows.map((row) => shown(row, vault)) };
}

type StoredMessage = Omit<ShownMessage, 'isDeleted'> & { sealed: Buffer | null; wrapped: Buffer | null };

function shown({ sealed, wrapped, ...message }: StoredMessage, vault: Vault): ShownMessage {
  if (sealed === null) return { ...message, isDeleted: false };
  const opened = wrapped === null ? undefined : openMessage(sealed, vault.unwrap(wrapped));
  return { ...message, message: opened ?? goneText, isDeleted: opened === undefined };
}

const messageContext = 'operation message';
/** Replaces a text whose key was destroyed. */
const goneText = 'Deleted with the connection.';

export function sealMessage(
  message: string,
  { dataKey, connectionRow }: { dataKey: DataKey; connectionRow: number | null },
): SealedMessage {
  return { body: dataKey.seal(message, messageContext), connectionRow };
}

/** Undefined if another key sealed it: one message must not block the others. */
function openMessage(sealed: Buffer, key: DataKey): string | undefined {
  try {
    return key.open(sealed, messageContext).toString('utf8');
  } catch {
    return undefined;
  }
}

/**
 * Ids of operations: UUIDs of version 7 (RFC 9562 §5.7) with a counter behind the time (§6.2, method 1), so that those of
 * one node ascend in the order in which they were given out. The rest is random, and the same for all of a node.
 */
export class OperationIds {
  readonly #id = randomFillSync(Buffer.alloc(16));
  #epochMs = 0;
  #counter = 0;

  constructor() {
    this.#id[8] = 0x80 | (this.#id[8]! & 0x3f);
  }

  /** The time in the id that was given out last, in ms. */
  get epochMs(): number {
    return this.#epochMs;
  }

  /** 16 bytes, valid until the next call. Their time is this one, or that of the ID before if that is later. */
  next(epochMs: number): Buffer {
    this.#counter += 1;
    if (epochMs > this.#epochMs) this.#begin(epochMs);
    else if (this.#counter > 0xfff) this.#begin(this.#epochMs + 1);
    this.#id[6] = 0x70 | (this.#counter >> 8);
    this.#id[7] = this.#counter & 0xff;
    return this.#id;
  }

  #begin(epochMs: number): void {
    this.#epochMs = epochMs;
    this.#counter = 0;
    this.#id.writeUIntBE(epochMs, 0, 6);
  }
}

/** The time of an operation, from its ID. */
export function timeOfId(id: string): Date {
  return new Date(Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16));
}

/** 48 bits of milliseconds: the year 10889. */
const latestMs = 2 ** 48 - 1;

/**
 * The lowest ID of a time: IDs of earlier entries are lower, all others are not. No entry is older than 1970.
 */
export function firstIdOf(epochMs: number): string {
  const hex = Math.min(Math.max(epochMs, 0), latestMs).toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}
