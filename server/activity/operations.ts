/**
 * The activity log: what was done through the service, to be looked up for some days.
 *
 * Owns: what an operation is, and reading one. Neighbours: `writer.ts` writes in batches, `tally.ts` counts them,
 * `counts.ts` reads counts, `partitions.ts` makes and drops days, `redact.ts` masks secrets, `logged.ts` logs for other
 * modules, `search.ts` looks up, `tail-route.ts` follows,
 * `routes.ts` serves. Does not own: who changed what (`audit.ts`), which is written in the transaction of its cause and
 * kept.
 */
import type { Selectable } from 'kysely';
import { type Queryable, tables } from '../db/pool.ts';
import type { Operation as Stored } from '../db/tables.ts';
import { AppError } from '../errors.ts';
import type { DataKey, Vault } from '../vault.ts';
import { timeOfId } from './operation-id.ts';

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
  /** How many were made to the provider: replays, retries and redirects included. */
  readonly requests?: number | undefined;
  readonly retries?: number | undefined;
  /** Of the bodies: sent in the last request, and received for the caller. */
  readonly requestBytes?: number | undefined;
  readonly answerBytes?: number | undefined;
  /** Until there were credentials, and in quotas' lines. */
  readonly credentialsMs?: number | undefined;
  readonly quotaMs?: number | undefined;
  /** Of the last request: until a connection was open and free, from there to its answer's head, and to its end. */
  readonly connectMs?: number | undefined;
  readonly firstByteMs?: number | undefined;
  readonly bodyMs?: number | undefined;
  readonly details?: OperationDetails | undefined;
  readonly messages?: readonly OperationMessage[] | undefined;
};
/** What is logged, and what one entry of it stands for. docs/activity.md is compared with it. */
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
  /** In the place of a message that the code of a function wrote, which is empty then. */
  readonly sealed?: SealedMessage;
};
/** `connectionRow`: whose key sealed it; null: the environment's. */
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

/** All that is told of one. */
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

/** With its messages. Throws `not_found` (404) where the environment has no such operation, or no longer. */
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
  if (operation === undefined) throw new AppError('not_found', 'There is no such operation, or no longer.');
  const rows = await db.query<StoredMessage>(
    `select told.level, told.message, told.details, told.sealed, data_key.wrapped
     from operation_message as told
     left join environment on environment.id = $1
     left join connection on connection.id = told.connection_id
     left join data_key
       on data_key.id = case when told.connection_id is null then environment.data_key else connection.data_key end
     where told.created_at = $2 and told.operation_id = $3
     order by told.position`,
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
/** In the place of what a destroyed key has sealed. */
const goneText = 'Deleted with the connection.';

export function sealMessage(
  message: string,
  { dataKey, connectionRow }: { dataKey: DataKey; connectionRow: number | null },
): SealedMessage {
  return { body: dataKey.seal(message, messageContext), connectionRow };
}

/** Undefined where another key sealed it: one message must not keep the others from being read. */
function openMessage(sealed: Buffer, key: DataKey): string | undefined {
  try {
    return key.open(sealed, messageContext).toString('utf8');
  } catch {
    return undefined;
  }
}
