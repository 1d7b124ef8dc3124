/** Runs for people and programs: list, look at one, read its log while it goes on, cancel. */
import { z } from 'zod';
import { connectionId } from '../../connections/wire.ts';
import type { Db, Queryable } from '../../db/pool.ts';
import { type Caller, hasScope } from '../../http/caller.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { DataKey, Vault } from '../../vault.ts';
import { functionName } from '../deploys/definition.ts';
import { kindOf } from '../wire.ts';
import { listRuns } from './run-list.ts';
import { cancelRun, getRun, type RunView, runKinds, runStates } from './runs.ts';
import { goneText, keyReader, openError, openLine, type RunError } from './sealed-output.ts';

type Deps = { db: Db; vault: Vault; now: () => Date; poke: () => void; open: () => Promise<void> };

const counts = z.object({
  added: z.number(),
  updated: z.number(),
  deleted: z.number(),
  unchanged: z.number(),
});
const runWire = z.object({
  id: z.string(),
  provider_config_key: z.string(),
  /** Null where the connection is gone. */
  connection_id: z.string().nullable(),
  function: z.string(),
  version: z.number(),
  kind: z.enum(['sync', 'webhook', 'action', 'on-event']),
  variant: z.string(),
  trigger: z.string(),
  state: z.enum(runStates),
  cancel_requested: z.boolean(),
  /** 1 at first; 0 where it has not begun. */
  attempt: z.number(),
  most_attempts: z.number(),
  queued_at: z.string(),
  /** It does not begin before. */
  not_before: z.string(),
  started_at: z.string().nullable(),
  ended_at: z.string().nullable(),
  /** `payload`, what the code threw and its stack, is for callers with functions:write alone. */
  error: z.object({ code: z.string(), message: z.string(), payload: z.unknown().optional() }).nullable(),
  /** By model. */
  counts: z.record(z.string(), counts),
  /** Attempts before the last one, the oldest first: when and by what each ended. */
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
  at: z.string(),
  level: z.string(),
  message: z.string(),
  /** The code wrote it, and its connection was deleted: the message says so. */
  deleted: z.boolean(),
});
const one = z.object({ id: z.uuid() });

export function runRoutes(app: App, { db, vault, now, poke, open }: Deps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;
  const write = { config: { access: { by: 'key', scope: 'functions:write' } }, preParsing: open } as const;

  app.get(
    '/functions/runs',
    {
      ...read,
      schema: {
        operationId: 'listRuns',
        summary: 'Runs, newest first',
        description: 'Of syncs, actions and event functions, as long as they are kept.',
        errors: ['functions_off'],
        querystring: z.strictObject({
          provider_config_key: integrationKey.optional(),
          connection_id: connectionId.optional(),
          function: functionName.optional(),
          /** Of the function. */
          type: z.enum(['sync', 'action', 'on-event']).optional(),
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
        functionKind: kindOf(type),
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
        summary: 'A run',
        description: 'Its state, its attempts, what it saved and what it failed of.',
        errors: ['functions_off', 'not_found'],
        params: one,
        response: { 200: runWire },
      },
    },
    async ({ params: { id }, caller }) =>
      toWire(await getRun(db, { environmentId: caller.environmentId, id }), {
        ...{ caller, keys: keyReader(vault) },
      }),
  );

  app.get(
    '/functions/runs/:id/lines',
    {
      ...read,
      schema: {
        operationId: 'listRunLines',
        summary: "Lines of a run's log",
        description:
          'Those after a position; while the run goes on more come about each second. With `text` those that hold it, ' +
          'whatever the case of its letters: a call looks at 1,000 lines, and `next_after` says where the next one goes on.',
        errors: ['functions_off', 'not_found'],
        params: one,
        querystring: z.strictObject({
          after: z.coerce.number().int().min(-1).max(2_147_483_647).default(-1),
          text: z.string().min(1).max(200).optional(),
        }),
        response: {
          200: z.object({
            lines: z.array(lineWire),
            has_more: z.boolean(),
            /** The `after` of the next call; null where there is no more. */
            next_after: z.number().nullable(),
          }),
        },
      },
    },
    async ({ params: { id }, query: { after, text }, caller }) => {
      const { environmentId } = caller;
      const { wrappedKey } = await getRun(db, { environmentId, id });
      const key = keyReader(vault)(wrappedKey);
      const { lines, nextAfter } = await linesOf(db, { ...{ environmentId, id, after, text, key } });
      return {
        lines: lines.map(({ at, isDeleted, ...line }) => ({
          ...line,
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
          'It ends within seconds; what it has saved stays, and the next run goes on from its checkpoint.',
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
    error: run.error && errorOf(openError(run.error, key), caller),
    counts: run.counts,
    earlier_attempts: run.earlier.map(({ ended_at: endedAt, error, ...rest }) => ({
      ...rest,
      error: openError(error, key),
      ended_at: new Date(endedAt).toISOString(),
    })),
  };
}

/** What the code threw may hold what the account holds. */
function errorOf({ code, message, payload }: RunError, caller: Caller) {
  const isShown = payload !== undefined && hasScope(caller, 'functions:write');
  return { code, message, ...(isShown && { payload }) };
}

/** Reading the log of a run. */

type RunLine = {
  position: number;
  at: Date;
  level: string;
  message: string;
  /** The code wrote it, and the key that sealed it was destroyed. */
  isDeleted: boolean;
};

/** Looked at in one call: to open one takes some 20 µs. */
const maxLines = 1_000;

/**
 * Lines after a position, in their order; those that hold `text` where it is given. `key` is the run's, undefined where it was
 * destroyed. `nextAfter`: where the next call goes on; undefined: there are no more.
 */
export async function linesOf(
  q: Queryable,
  {
    text,
    key,
    ...of
  }: {
    environmentId: number;
    id: string;
    after: number;
    text: string | undefined;
    key: DataKey | undefined;
  },
): Promise<{ lines: RunLine[]; nextAfter: number | undefined }> {
  const found = await findLines(q, { ...of, limit: maxLines + 1 });
  const looked = found.slice(0, maxLines);
  const nextAfter = found.length > maxLines ? looked.at(-1)?.position : undefined;
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

type Stored = Omit<RunLine, 'isDeleted'> & { sealed: Buffer | null };

function findLines(
  q: Queryable,
  { environmentId, id, after, limit }: { environmentId: number; id: string; after: number; limit: number },
): Promise<Stored[]> {
  return q.query<Stored>(
    `select line.position, line.at, line.level, line.message, line.sealed
     from run_line line
     join run on run.id = line.run_id
     where run.environment_id = $1 and run.id = $2 and line.position > $3
     order by line.position
     limit $4`,
    [environmentId, id, after, limit],
  );
}
