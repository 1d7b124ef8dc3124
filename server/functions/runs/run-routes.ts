/** Routes for runs: list, read, read the log while a run is under way, cancel. */
import { z } from 'zod';
import { connectionId } from '../../connections/routes/wire.ts';
import type { Db, Queryable } from '../../db/pool.ts';
import { type Caller, hasScope } from '../../http/auth/caller.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { DataKey, Vault } from '../../vault.ts';
import { functionName } from '../deploys/definition.ts';
import { functionType, kindOf } from '../wire.ts';
import { attemptAt } from './run-log.ts';
import { cancelRun, getRun, listRuns, type RunView, runKinds, runStates } from './runs.ts';
import { goneText, keyReader, openError, openLine, type RunError } from './sealed-output.ts';

/** `open` throws if functions are turned off. */
type RunRoutesDeps = { db: Db; vault: Vault; now: () => Date; poke: () => void; open: () => Promise<void> };

const counts = z.object({
  added: z.number(),
  updated: z.number(),
  deleted: z.number(),
  unchanged: z.number(),
});
const runWire = z.object({
  id: z.string(),
  provider_config_key: z.string(),
  /** Null if the connection is deleted. */
  connection_id: z.string().nullable(),
  account_email: z.string().nullable(),
  function: z.string(),
  version: z.number(),
  kind: z.enum(['sync', 'webhook', 'action', 'on-event']),
  variant: z.string(),
  trigger: z.string(),
  state: z.enum(runStates),
  cancel_requested: z.boolean(),
  /** The first is 1; 0 before the run begins. */
  attempt: z.number(),
  most_attempts: z.number(),
  queued_at: z.string(),
  /** The run does not begin before this time. */
  not_before: z.string(),
  started_at: z.string().nullable(),
  ended_at: z.string().nullable(),
  /** `payload`, with the thrown error and its stack, is only for callers with functions:write. */
  error: z.object({ code: z.string(), message: z.string(), payload: z.unknown().optional() }).nullable(),
  /** By model. */
  counts: z.record(z.string(), counts),
  /** The attempts before the last one, oldest first, with the end and the error of each. */
  earlier_attempts: z.array(
    z.object({
      attempt: z.number(),
      ended_at: z.string(),
      error: z.object({ code: z.string(), message: z.string() }),
    }),
  ),
});
const lineWire = z.object({
  position: z.number(),
  attempt: z.number(),
  at: z.string(),
  level: z.string(),
  message: z.string(),
  /** A line of the code whose connection was deleted: the message states this. */
  deleted: z.boolean(),
});
nameSchemas({ Run: runWire, RunCounts: counts, RunLine: lineWire });
const one = z.object({ id: z.uuid() });

export function runRoutes(app: App, { db, vault, now, poke, open }: RunRoutesDeps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;
  const write = { config: { access: { by: 'key', scope: 'functions:write' } }, preParsing: open } as const;

  app.get(
    '/functions/runs',
    {
      ...read,
      schema: {
        operationId: 'listRuns',
        summary: 'List runs, newest first',
        description: 'Runs of syncs, actions and event functions, for as long as they are kept.',
        errors: ['functions_off'],
        querystring: z.strictObject({
          provider_config_key: integrationKey.optional(),
          connection_id: connectionId.optional(),
          function: functionName.optional(),
          /** The type of the function. */
          type: functionType.optional(),
          kind: z.enum(['sync', 'webhook', 'action', 'on-event']).optional(),
          state: z.enum(runStates).optional(),
          cursor: z.uuid().optional(),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
        }),
        response: { 200: z.object({ runs: z.array(runWire), next_cursor: z.string().nullable() }) },
      },
    },
    async ({ query, caller }) => {
      const { provider_config_key, connection_id, kind, type, cursor, limit, ...rest } = query;
      const found = await listRuns(db, {
        ...rest,
        environmentId: caller.environmentId,
        integrationKey: provider_config_key,
        connectionId: connection_id,
        functionKind: type && kindOf(type),
        kind: runKinds.find((one) => wireKind(one) === kind),
        before: cursor,
        limit: limit + 1,
      });
      const keys = keyReader(vault);
      const runs = found.slice(0, limit).map((run) => toWire(run, { caller, keys }));
      return { runs, next_cursor: found.length > limit ? (runs.at(-1)?.id ?? null) : null };
    },
  );

  app.get(
    '/functions/runs/:id',
    {
      ...read,
      schema: {
        operationId: 'getRun',
        summary: 'Get a run',
        description: 'Its state, its attempts, the records that it saved, and its error.',
        errors: ['functions_off', 'not_found'],
        params: one,
        response: { 200: runWire },
      },
    },
    async ({ params: { id }, caller }) =>
      toWire(await getRun(db, { environmentId: caller.environmentId, id }), {
        caller,
        keys: keyReader(vault),
      }),
  );

  app.get(
    '/functions/runs/:id/lines',
    {
      ...read,
      schema: {
        operationId: 'listRunLines',
        list: { items: 'lines', by: { parameter: 'after', next: 'next_after' } },
        summary: 'List the log lines of a run',
        description:
          'The lines after a position. While the run continues, new lines appear about once a second. With `text`, only ' +
          'lines that contain it, regardless of case: a call examines `limit` lines, and `next_after` is the position from ' +
          'which the next call continues.',
        errors: ['functions_off', 'not_found'],
        params: one,
        querystring: z.strictObject({
          after: z.coerce.number().int().min(-1).max(2_147_483_647).default(-1),
          text: z.string().min(1).max(200).optional(),
          limit: z.coerce.number().int().min(1).max(maxLines).default(maxLines),
        }),
        response: {
          200: z.object({
            lines: z.array(lineWire),
            has_more: z.boolean(),
            /** The `after` of the next call; null: there are no more lines. */
            next_after: z.number().nullable(),
          }),
        },
      },
    },
    async ({ params: { id }, query: { after, text, limit }, caller }) => {
      const { environmentId } = caller;
      const { wrappedKey } = await getRun(db, { environmentId, id });
      const key = keyReader(vault)(wrappedKey);
      const { lines, nextAfter } = await linesOf(db, { environmentId, id, after, text, limit, key });
      return {
        lines: lines.map(({ at, isDeleted, ...line }) => ({
          ...line,
          attempt: attemptAt(line.position),
          at: at.toISOString(),
          deleted: isDeleted,
        })),
        has_more: nextAfter !== undefined,
        next_after: nextAfter ?? null,
      };
    },
  );

  app.post(
    '/functions/runs/:id/cancel',
    {
      ...write,
      schema: {
        operationId: 'cancelRun',
        summary: 'Cancel a run',
        description:
          'The run ends within seconds. The records that it saved stay, and the next run continues from its checkpoint.',
        errors: ['functions_off', 'not_found'],
        params: one,
        response: { 200: runWire },
      },
    },
    async ({ params: { id }, caller }) => {
      const { environmentId } = caller;
      await db.transaction((tx) => cancelRun(tx, { environmentId, id, at: now() }));
      poke();
      return toWire(await getRun(db, { environmentId, id }), { caller, keys: keyReader(vault) });
    },
  );
}

function wireKind(kind: RunView['kind']) {
  return kind === 'on_event' ? 'on-event' : kind;
}

function toWire(
  run: RunView,
  { caller, keys }: { caller: Caller; keys: ReturnType<typeof keyReader> },
): z.input<typeof runWire> {
  const key = keys(run.wrappedKey);
  return {
    id: run.id,
    provider_config_key: run.integrationKey,
    connection_id: run.connectionId,
    account_email: run.accountEmail,
    function: run.function,
    version: run.version,
    kind: wireKind(run.kind),
    variant: run.variant,
    trigger: run.trigger,
    state: run.state,
    cancel_requested: run.isCancelRequested,
    attempt: run.attempt,
    most_attempts: run.maxAttempts,
    queued_at: run.queuedAt.toISOString(),
    not_before: run.notBefore.toISOString(),
    started_at: run.startedAt?.toISOString() ?? null,
    ended_at: run.endedAt?.toISOString() ?? null,
    error: run.error && errorWire(openError(run.error, key), caller),
    counts: run.counts,
    earlier_attempts: run.earlier.map(({ ended_at: endedAt, error, ...rest }) => ({
      ...rest,
      error: openError(error, key),
      ended_at: new Date(endedAt).toISOString(),
    })),
  };
}

/** The thrown error may include data of the account. */
function errorWire({ code, message, payload }: RunError, caller: Caller) {
  const isShown = payload !== undefined && hasScope(caller, 'functions:write');
  return { code, message, ...(isShown && { payload }) };
}

type RunLine = {
  position: number;
  at: Date;
  level: string;
  message: string;
  /** A line of the code, whose key was destroyed. */
  isDeleted: boolean;
};

/** The maximum number of lines that one call decrypts; each takes some 20 µs. */
const maxLines = 1_000;

/**
 * Lines after a position, in their order; with `text`, only the lines that include it. `key` is the run's, undefined if it was
 * destroyed. `nextAfter` is the position for the next call; undefined: there are no more lines.
 */
export async function linesOf(
  q: Queryable,
  {
    environmentId,
    id,
    after,
    text,
    limit = maxLines,
    key,
  }: {
    environmentId: number;
    id: string;
    after: number;
    text: string | undefined;
    limit?: number;
    key: DataKey | undefined;
  },
): Promise<{ lines: RunLine[]; nextAfter: number | undefined }> {
  const found = await q.query<Omit<RunLine, 'isDeleted'> & { sealed: Buffer | null }>(
    `select line.position, line.at, line.level, line.message, line.sealed
     from run_line line
     join run on run.id = line.run_id
     where run.environment_id = $1 and run.id = $2 and line.position > $3
     order by line.position
     limit $4`,
    [environmentId, id, after, limit + 1],
  );
  const looked = found.slice(0, limit);
  const nextAfter = found.length > limit ? looked.at(-1)?.position : undefined;
  const lines = looked.map(({ sealed, ...line }) => {
    if (sealed === null) return { ...line, isDeleted: false };
    const opened = openLine(sealed, key);
    return { ...line, message: opened ?? goneText, isDeleted: opened === undefined };
  });
  if (text === undefined) return { lines, nextAfter };
  const wanted = text.toLowerCase();
  const fits = ({ message, isDeleted }: RunLine) => !isDeleted && message.toLowerCase().includes(wanted);
  return { lines: lines.filter(fits), nextAfter };
}
