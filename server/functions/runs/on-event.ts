/**
 * Event functions: what the application's code does when a connection is made, is about to be, or ends.
 *
 * Owns: which of them run when, for how long, and what their failure means. Does not own: how a run is carried out
 * (`worker.ts`, `execute.ts`).
 */
import type { ConnectionHooks, UnsavedConnection } from '../../connections/hooks.ts';
import type { Db, Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Logger } from '../../log.ts';
import type { Definition } from '../deploys/definition.ts';
import { type DeployedFunction, listFunctions } from '../deploys/store.ts';
import { beginRun, queueRun } from './asked-run.ts';
import { type ExecuteDeps, execute } from './execute.ts';
import { measuredRun } from './measured-run.ts';
import { createRunLog } from './run-log.ts';
import { type Ending, settle } from './settle.ts';
import type { UnsavedConnections } from './unsaved-connections.ts';
import type { Runner } from './worker.ts';

type Deps = {
  db: Db;
  judge: Judge;
  runner: Pick<Runner, 'runNow' | 'poke'>;
  log: Pick<Logger, 'warn'>;
  now: () => Date;
  /** In the transaction that makes a connection: its syncs, for one. */
  startSyncs: ConnectionHooks['afterCreate'];
  /** In the transaction that gives a connection new credentials. */
  resumeSyncs: ConnectionHooks['afterReconnect'];
};

/** The user who connects waits for the validation, in front of a page. */
export const validateMs = 30_000;
/** All functions together; the deletion goes on then. */
const deleteMs = 20_000;
const priority = 15;
const maxAttempts = 3;

export function createOnEvents({
  db,
  judge,
  runner,
  log,
  now,
  startSyncs,
  resumeSyncs,
}: Deps): ConnectionHooks {
  return {
    async validate(candidate) {
      const { environmentId, key: integrationKey } = candidate.integration;
      const found = await functionsFor(db, { environmentId, integrationKey, event: 'validate-connection' });
      for (const one of found) requireAccepted(one, await judge({ candidate, found: one }));
    },

    async afterCreate(tx, { connection, at }) {
      await startSyncs(tx, { connection, at });
      const event = 'post-connection-creation';
      for (const found of await functionsFor(tx, { ...connection, event })) {
        await queueRun(tx, {
          ...{ connection, found, priority, maxAttempts, input: null, now: at },
          ...{ kind: 'on_event', trigger: 'connection' },
        });
      }
    },

    afterReconnect: resumeSyncs,

    created: () => runner.poke(),

    async beforeDelete(connection) {
      const signal = AbortSignal.timeout(deleteMs);
      try {
        const event = 'pre-connection-deletion';
        for (const found of await functionsFor(db, { ...connection, event })) {
          if (signal.aborted) return;
          const environment = await nameOf(db, connection.environmentId);
          const asked = { connection, found, environment, kind: 'on_event', priority, input: null } as const;
          await runner.runNow(await beginRun(db, { ...asked, now: now() }), signal);
        }
      } catch (error) {
        log.warn({ err: error }, 'a connection is deleted without what its functions were to do before');
      }
    },
  };
}

/** Throws `connection_validation_failed` with what the code threw, and where it could not be asked. */
function requireAccepted({ name }: DeployedFunction, ending: Ending | undefined): void {
  if (ending?.state === 'succeeded') return;
  const isRefusal =
    ending?.state === 'held' ||
    (ending?.state === 'failed' && ending.error.code !== 'internal' && !ending.mayPass);
  const said = isRefusal ? ending.error.message : 'The function that is to judge it could not be asked.';
  throw new AppError('connection_validation_failed', `The connection was refused by ${name}: ${said}`, {
    payload: { function: name },
  });
}

/** Asks one function about a connection that is not stored yet. Undefined where it could not be asked. */
export type Judge = (asked: {
  candidate: UnsavedConnection;
  found: DeployedFunction;
}) => Promise<Ending | undefined>;

/** In a process of this node. */
export function judgeHere({
  candidates,
  log,
  now,
  ...deps
}: ExecuteDeps & { candidates: UnsavedConnections; log: Pick<Logger, 'warn'>; now: () => Date }): Judge {
  const { db } = deps;
  const ofCandidate: ExecuteDeps = { ...deps, reader: candidates.reader };
  return async ({ candidate, found }) => {
    const environment = await nameOf(db, candidate.integration.environmentId);
    return candidates.during(candidate, async (live) => {
      const connection = { ...live, id: null };
      const asked = { connection, found, environment, kind: 'on_event', priority, input: null } as const;
      // Nobody renews it: it ends before its lease does. What a lost node leaves behind `run-sweep.ts` ends.
      const claim = await beginRun(db, { ...asked, leaseMs: 2 * validateMs, now: now() });
      const lines = createRunLog({
        ...{ db, runId: claim.id, attempt: 1, now },
        onFailure: (err) => log.warn({ err }, 'lines of a run were not kept'),
      });
      const counts = {};
      const order = { claim, counts, signal: AbortSignal.timeout(validateMs), log: lines.write };
      const ending = await measuredRun(claim, {
        work: () => execute(ofCandidate, order),
        outcomeOf: ({ state }) => state,
      });
      await lines.end();
      await settle(db, { claim, ending, counts, now: now(), random: 0 });
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

async function nameOf(db: Queryable, environmentId: number): Promise<string> {
  const [row] = await db.query<{ name: string }>('select name from environment where id = $1', [
    environmentId,
  ]);
  if (row === undefined) throw new AppError('not_found', 'The environment was deleted.');
  return row.name;
}
