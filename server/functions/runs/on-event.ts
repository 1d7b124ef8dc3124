/**
 * Event functions: code of the application for a connection that is to be created, was created, or is to be deleted.
 *
 * Owns: which functions run, when and for how long, and the consequence of a failure. Does not own: the execution of a run
 * (`worker.ts`, `execute.ts`).
 */
import { ownClientOf } from '../../auth-modes/modes.ts';
import type { ConnectionHooks, UnsavedConnection } from '../../connections/store/hooks.ts';
import type { ConnectionReader, LiveConnection } from '../../connections/store/reader.ts';
import type { Db, Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Logger } from '../../log.ts';
import type { Vault } from '../../vault.ts';
import { noRow } from '../context/service-call.ts';
import type { Definition } from '../deploys/definition.ts';
import { type DeployedFunction, listFunctions } from '../deploys/store.ts';
import { type ExecuteDeps, execute, measuredRun } from './execute.ts';
import { beginRun, queueRun } from './queue.ts';
import { createRunLog } from './run-log.ts';
import { type Ending, settle } from './settle.ts';
import type { Runner } from './worker.ts';

type OnEventDeps = {
  db: Db;
  validate: ValidateConnection;
  runner: Pick<Runner, 'runNow' | 'poke'>;
  log: Pick<Logger, 'warn'>;
  now: () => Date;
  /** Called in the transaction that creates a connection. */
  startSyncs: ConnectionHooks['afterCreate'];
  /** Called in the transaction that stores new credentials of a connection. */
  resumeSyncs: ConnectionHooks['afterReconnect'];
};

/** The user waits for the validation on the connect page. */
export const validateMs = 30_000;
/** The limit for all functions together. The deletion continues after it. */
const deleteMs = 20_000;
const priority = 15;
const maxAttempts = 3;

export function createOnEvents({
  db,
  validate,
  runner,
  log,
  now,
  startSyncs,
  resumeSyncs,
}: OnEventDeps): ConnectionHooks {
  return {
    async validate(candidate) {
      const { environmentId, key: integrationKey } = candidate.integration;
      const found = await functionsFor(db, { environmentId, integrationKey, event: 'validate-connection' });
      for (const one of found) requireAccepted(one, await validate({ candidate, found: one }));
    },

    async afterCreate(tx, { connection, at }) {
      await startSyncs(tx, { connection, at });
      const event = 'post-connection-creation';
      for (const found of await functionsFor(tx, { ...connection, event })) {
        await queueRun(tx, {
          connection,
          found,
          priority,
          maxAttempts,
          input: null,
          now: at,
          kind: 'on_event',
          trigger: 'connection',
        });
      }
    },

    afterReconnect: resumeSyncs,

    afterCommit: () => runner.poke(),

    async beforeDelete(connection) {
      const signal = AbortSignal.timeout(deleteMs);
      try {
        const event = 'pre-connection-deletion';
        for (const found of await functionsFor(db, { ...connection, event })) {
          if (signal.aborted) return;
          const environment = await environmentNameOf(db, connection.environmentId);
          const run = { connection, found, environment, kind: 'on_event', priority, input: null } as const;
          await runner.runNow(await beginRun(db, { ...run, now: now() }), signal);
        }
      } catch (error) {
        log.warn(
          { err: error },
          'a connection is deleted, but its functions did not run before the deletion',
        );
      }
    },
  };
}

/** Throws `connection_validation_failed` with the error of the code, or if the code could not be called. */
function requireAccepted({ name }: DeployedFunction, ending: Ending | undefined): void {
  if (ending?.state === 'succeeded') return;
  const isRefusal =
    ending?.state === 'held' ||
    (ending?.state === 'failed' && ending.error.code !== 'internal' && !ending.mayPass);
  const reason = isRefusal
    ? ending.error.message
    : 'The function that validates the connection could not be called.';
  const refusal = new AppError(
    'connection_validation_failed',
    `The connection was refused by ${name}: ${reason}`,
    { payload: { function: name } },
  );
  refusal.quotesCode = isRefusal;
  throw refusal;
}

/** Calls one validation function for a connection that is not stored yet. Undefined if the call was not possible. */
export type ValidateConnection = (of: {
  candidate: UnsavedConnection;
  found: DeployedFunction;
}) => Promise<Ending | undefined>;

/** Calls the function on this node. */
export function validateHere({
  candidates,
  log,
  now,
  ...deps
}: ExecuteDeps & {
  candidates: UnsavedConnections;
  log: Pick<Logger, 'warn'>;
  now: () => Date;
}): ValidateConnection {
  const { db } = deps;
  const ofCandidate: ExecuteDeps = { ...deps, reader: candidates.reader };
  return async ({ candidate, found }) => {
    const environment = await environmentNameOf(db, candidate.integration.environmentId);
    return candidates.during(candidate, async (live) => {
      const connection = { ...live, id: null };
      const run = { connection, found, environment, kind: 'on_event', priority, input: null } as const;
      // The lease is not renewed: it outlasts the run. `runSweepJob` ends runs of lost nodes.
      const claim = await beginRun(db, { ...run, leaseMs: 2 * validateMs, now: now() });
      const lines = createRunLog({
        db,
        runId: claim.id,
        attempt: 1,
        now,
        onFailure: (err) => log.warn({ err }, 'log lines of a run could not be stored'),
      });
      const order = { claim, signal: AbortSignal.timeout(validateMs), log: lines.write };
      const ending = await measuredRun(claim, {
        work: () => execute(ofCandidate, order),
        outcomeOf: ({ state }) => state,
      });
      await lines.end();
      await settle(db, { claim, ending, now: now(), random: 0 });
      return ending;
    });
  };
}

export async function functionsFor(
  db: Queryable,
  {
    environmentId,
    integrationKey,
    event,
  }: { environmentId: number; integrationKey: string; event: Definition['event'] },
): Promise<DeployedFunction[]> {
  const all = await listFunctions(db, { environmentId, integrationKey, kind: 'on_event' });
  return all.filter(({ isEnabled, definition }) => isEnabled && definition.event === event);
}

async function environmentNameOf(db: Queryable, environmentId: number): Promise<string> {
  const [row] = await db.query<{ name: string }>('select name from environment where id = $1', [
    environmentId,
  ]);
  if (row === undefined) throw new AppError('not_found', 'The environment was deleted.');
  return row.name;
}

type UnsavedConnections = {
  /** The given reader, which also returns candidates. */
  reader: ConnectionReader;
  /**
   * The reader returns the candidate during `work`. Its ID must not be that of a stored connection. If another candidate has
   * the ID at the moment, it gets a random one.
   */
  during<T>(candidate: UnsavedConnection, work: (connection: LiveConnection) => Promise<T>): Promise<T>;
};

/** Connections that are not stored yet, for the code that validates them. Their IDs are random, or of no connection. */
export function createUnsavedConnections(
  reader: ConnectionReader,
  { vault, now }: { vault: Vault; now: () => Date },
): UnsavedConnections {
  const known = new Map<string, LiveConnection>();
  const keyOf = (at: { environmentId: number; integrationKey: string; connectionId: string }) =>
    JSON.stringify([at.environmentId, at.integrationKey, at.connectionId]);
  return {
    reader: {
      ...reader,
      get: async (at) => known.get(keyOf(at)) ?? reader.get(at),
      known: (at) => known.get(keyOf(at)) ?? reader.known(at),
      reread: async (connection) => known.get(keyOf(connection)) ?? reader.reread(connection),
    },
    async during(candidate, work) {
      const wanted = liveFrom(candidate, { vault, at: now() });
      const isTaken = known.has(keyOf(wanted));
      const connection = isTaken ? { ...wanted, connectionId: crypto.randomUUID() } : wanted;
      const key = keyOf(connection);
      known.set(key, connection);
      try {
        return await work(connection);
      } finally {
        known.delete(key);
      }
    },
  };
}

function liveFrom(candidate: UnsavedConnection, { vault, at }: { vault: Vault; at: Date }): LiveConnection {
  const { integration } = candidate;
  return {
    ...candidate,
    // No statement finds a row with this ID.
    id: noRow,
    environmentId: integration.environmentId,
    integrationId: integration.id,
    integrationKey: integration.key,
    providerName: integration.provider.name,
    isTest: integration.isTest,
    // Nothing that this key seals is stored.
    dataKey: vault.createDataKey().key,
    credentialsVersion: 1,
    status: 'active',
    grantedAt: at,
    refreshedAt: at,
    createdAt: at,
    updatedAt: at,
    scopesRequested: undefined,
    refreshExpiresAt: undefined,
    tokenSlots: undefined,
    refreshNotBefore: undefined,
    renewedAt: undefined,
    fault: undefined,
    outage: undefined,
    suspension: undefined,
    suspendedUntil: undefined,
    scopesLacking: undefined,
    hasOwnClient: ownClientOf(candidate.credentials) !== undefined,
    integrationFault: undefined,
    webhookUrlOverride: undefined,
    lastFetchedAt: undefined,
    lastUsedAt: undefined,
    isUnverified: false,
  };
}
