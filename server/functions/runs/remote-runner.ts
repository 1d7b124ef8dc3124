/**
 * For a node that runs no code of customers: what would run here is asked of a node that does, while somebody waits.
 *
 * Neighbours: `remote-handlers.ts` is the other side; `nodes/remote-calls.ts` carries it.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { UnsavedConnection } from '../../connections/hooks.ts';
import { type Db, mayPass } from '../../db/pool.ts';
import { environmentKey } from '../../environments/store.ts';
import type { RemoteCallEnd, RemoteCalls } from '../../nodes/remote-calls.ts';
import type { DataKey, Vault } from '../../vault.ts';
import type { Describe, Description } from '../deploys/examine.ts';
import type { Claim } from './claims.ts';
import { type Judge, validateMs } from './on-event.ts';
import { openError, type StoredError } from './sealed-output.ts';
import { cancelled, type Ending, settle } from './settle.ts';
import { findEnding } from './settle-while-held.ts';
import type { Runner } from './worker.ts';

/** Seals what is asked of another node, with the environment's key, which seals the error of an answer too. */
export const remoteCallContext = 'errand';

/** Nodes of versions before this one do not say it, and get errors in plain text. */
type Asker = { opensErrors?: true };
/** What crosses between nodes; they may be of different versions. */
export type RunRequest = Pick<Claim, 'id' | 'owner'> & Asker;
export type JudgeRequest = Omit<UnsavedConnection, 'integration' | 'accessExpiresAt'> &
  Asker & {
    functionId: number;
    integrationKey: string;
    accessExpiresAt: string | null;
  };
export type DescribeRequest = { code: string };
/** Without the output, which is in the run's row. Null: nothing can be told. */
export type EndingAnswer = {
  ending: (Exclude<Ending, { state: 'succeeded' }> & { error: StoredError }) | { state: 'succeeded' } | null;
};

export const asBytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

/** How long what a run came to is asked for while the database is away, and between two looks. */
const [maxAskedMs, againMs] = [10_000, 250];
/** Of a run whose node is gone: another one ends it within a look or two, where there is another one. */
const takenOverS = 3;

const untaken: Ending = {
  state: 'failed',
  error: { code: 'function_unavailable', message: 'No node that runs functions took it. Nothing was done.' },
  mayPass: true,
};

const hungUp: Ending = {
  ...cancelled,
  error: { ...cancelled.error, message: 'Its caller hung up. What it did until then is done.' },
};

/** Runs with a waiting caller. A queued run needs no remote call: the workers find it in the queue. */
export function runRemotely({
  db,
  vault,
  remoteCalls,
  now,
}: {
  db: Db;
  vault: Vault;
  remoteCalls: RemoteCalls;
  now: () => Date;
}): Pick<Runner, 'runNow' | 'poke'> {
  return {
    poke: () => {},
    async runNow(claim, signal) {
      const { id, owner, environmentId } = claim;
      const request = asBytes({ id, owner, opensErrors: true } satisfies RunRequest);
      const settleAs = (ending: Ending) =>
        settle(db, { claim, ending, counts: claim.counts, now: now(), random: 0 });
      const end = await remoteCalls
        .ask({ environmentId, kind: 'run', request, signal })
        .catch(async (error) => {
          // The remote call may still appear: a node that takes it then finds the run over.
          await settleAs(untaken).catch(() => {});
          throw error;
        });
      if ('answer' in end) {
        const keyOf = () => environmentKey(db, { environmentId, vault });
        const ending = await endingFrom(end, keyOf).catch(() => undefined);
        // Its output is in its row, and so is what the node that had it could not tell, or this one could not open.
        const isToldThere = ending === undefined || ending.state === 'succeeded';
        return isToldThere ? awaitEnding(db, { id, vault, signal }) : ending;
      }
      // The node that had the run writes that it was cancelled.
      if (end.none === 'cancelled') return cancelled;
      if (end.none === 'lost') {
        const ending = await awaitEnding(db, { id, vault, signal });
        if (ending !== undefined || !signal?.aborted) return ending;
        // A node that still runs it finds that the run is over, and ends it.
        await settleAs(hungUp);
        return hungUp;
      }
      const ending = signal?.aborted ? cancelled : untaken;
      await settleAs(ending);
      return ending;
    },
  };
}

/** Functions that judge connections before they are stored. */
export function judgeRemotely({
  db,
  vault,
  remoteCalls,
}: {
  db: Db;
  vault: Vault;
  remoteCalls: RemoteCalls;
}): Judge {
  return async ({ candidate: { integration, accessExpiresAt, ...candidate }, found }) => {
    const { environmentId, key: integrationKey } = integration;
    const key = await environmentKey(db, { environmentId, vault });
    const asked: JudgeRequest = {
      ...candidate,
      ...{ integrationKey, functionId: found.id, accessExpiresAt: accessExpiresAt?.toISOString() ?? null },
      opensErrors: true,
    };
    const end = await remoteCalls.ask({
      ...{ environmentId, kind: 'judge', request: key.sealJson(asked, remoteCallContext) },
      signal: AbortSignal.timeout(2 * validateMs),
    });
    return endingFrom(end, async () => key);
  };
}

/** Describes bundles that are to be deployed. */
export function describeRemotely(remoteCalls: RemoteCalls): Describe {
  return async ({ environmentId, code, signal }) => {
    const request = asBytes({ code } satisfies DescribeRequest);
    const end = await remoteCalls.ask({ environmentId, kind: 'describe', request, signal });
    if ('answer' in end) return JSON.parse(end.answer.toString()) as Description;
    return {
      failure: {
        cause: signal.aborted ? 'cancelled' : 'unavailable',
        message: 'No node that runs functions looked at it.',
      },
    };
  };
}

async function endingFrom(end: RemoteCallEnd, keyOf: () => Promise<DataKey>): Promise<Ending | undefined> {
  if (!('answer' in end)) return undefined;
  const { ending } = JSON.parse(end.answer.toString()) as EndingAnswer;
  if (ending === null) return undefined;
  if (ending.state === 'succeeded') return { ...ending, output: null };
  if (ending.error.sealed === undefined) return ending;
  return { ...ending, error: openError(ending.error, await keyOf()) };
}

/**
 * Of a run that its node told nothing of: what it came to, as its row says once it is over. Undefined where nobody has it any
 * more, the database does not say, or `signal` ends the wait.
 */
async function awaitEnding(
  db: Db,
  { id, vault, signal }: { id: string; vault: Vault; signal: AbortSignal | undefined },
): Promise<Ending | undefined> {
  for (let knownAtMs = performance.now(); ; await pause(againMs)) {
    try {
      const { ending, isLeft } = await findEnding(db, { id, vault, leftAfterS: takenOverS });
      if (ending !== undefined || isLeft || signal?.aborted) return ending;
      knownAtMs = performance.now();
    } catch (error) {
      const isInVain = !mayPass(error) || signal?.aborted || performance.now() - knownAtMs > maxAskedMs;
      if (isInVain) return undefined;
    }
  }
}
