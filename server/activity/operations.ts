/**
 * The activity log: what was done through the service, to be looked up for some days.
 *
 * Owns: what an operation is, and reading. Neighbours: `writer.ts` writes in batches, `partitions.ts` makes and drops
 * days, `redact.ts` says what may be kept, `routes.ts` serves. Does not own: who changed what (`audit.ts`), which is
 * written in the transaction of its cause and kept.
 */
import { type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { timeOfId } from './operation-id.ts';

/** What a room logs. Never a secret: it is kept in plain text. */
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
export const operationTypes = ['proxy'] as const;
export type OperationType = (typeof operationTypes)[number];
export const operationStatuses = ['success', 'failed'] as const;
export type OperationStatus = (typeof operationStatuses)[number];
export type OperationDetails = Readonly<Record<string, string | number | boolean | null>>;
export type OperationMessage = {
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly details?: OperationDetails;
};

export type OperationFilter = {
  readonly environmentId: number;
  readonly integration?: string | undefined;
  readonly connection?: string | undefined;
  readonly type?: OperationType | undefined;
  readonly status?: OperationStatus | undefined;
  /** Part of the path, whatever its case. */
  readonly text?: string | undefined;
  /** Inclusive. */
  readonly from?: Date | undefined;
  /** Exclusive. */
  readonly to?: Date | undefined;
};

const columns = [
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

/** Newest first; those before the operation `before`, where it is given. */
export async function listOperations(
  db: Queryable,
  { filter, before, limit }: { filter: OperationFilter; before?: string | undefined; limit: number },
) {
  let rows = selected(filter)
    .select(columns)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(limit);
  if (before !== undefined) {
    const at = timeOfId(before);
    // The first condition alone picks the partitions.
    rows = rows
      .where('created_at', '<=', at)
      .where(({ eb, refTuple, tuple }) => eb(refTuple('created_at', 'id'), '<', tuple(at, before)));
  }
  return db.run(rows);
}

/** With its messages. Throws `not_found` (404) where the environment has no such operation, or no longer. */
export async function getOperation(
  db: Queryable,
  { environmentId, id }: { environmentId: number; id: string },
) {
  const at = timeOfId(id);
  const [operation] = await db.run(
    tables
      .selectFrom('operation')
      .select(columns)
      .where('environment_id', '=', environmentId)
      .where('created_at', '=', at)
      .where('id', '=', id),
  );
  if (operation === undefined) throw new AppError('not_found', 'There is no such operation, or no longer.');
  const messages = await db.run(
    tables
      .selectFrom('operation_message')
      .select(['level', 'message', 'details'])
      .where('created_at', '=', at)
      .where('operation_id', '=', id)
      .orderBy('position'),
  );
  return { ...operation, messages };
}

/** How many there were in each hour, by status; hours without any are left out. Oldest first. */
export async function countOperations(
  db: Queryable,
  filter: OperationFilter,
): Promise<{ hour: Date; status: string; count: number }[]> {
  return db.run(
    selected(filter)
      .select(({ fn, val, cast, ref }) => [
        fn<Date>('date_trunc', [cast(val('hour'), 'text'), ref('created_at'), cast(val('UTC'), 'text')]).as(
          'hour',
        ),
        'status',
        fn.countAll<number>().as('count'),
      ])
      .groupBy(['hour', 'status'])
      .orderBy('hour')
      .orderBy('status'),
  );
}

function selected(filter: OperationFilter) {
  const { environmentId, integration, connection, type, status, text, from, to } = filter;
  let rows = tables.selectFrom('operation').where('environment_id', '=', environmentId);
  if (integration !== undefined) rows = rows.where('integration', '=', integration);
  if (connection !== undefined) rows = rows.where('connection', '=', connection);
  if (type !== undefined) rows = rows.where('type', '=', type);
  if (status !== undefined) rows = rows.where('status', '=', status);
  if (from !== undefined) rows = rows.where('created_at', '>=', from);
  if (to !== undefined) rows = rows.where('created_at', '<', to);
  if (text !== undefined) {
    rows = rows.where(({ eb, fn, val }) =>
      eb(fn<number>('strpos', [fn('lower', ['path']), fn('lower', [val(text)])]), '>', 0),
    );
  }
  return rows;
}
