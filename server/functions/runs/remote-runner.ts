/**
 * For a node that runs no customer code: has another node run it, by a remote call, while a caller waits.
 *
 * Neighbours: `remote-handlers.ts` is the other side, and `nodes/remote-calls.ts` transports the calls.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { UnsavedConnection } from '../../connections/store/hooks.ts';
import { type Db, mayPass } from '../../db/pool.ts';
import { environmentKey } from '../../environments/store.ts';
import type { RemoteCallEnd, RemoteCalls } from '../../nodes/remote-calls.ts';
import type { DataKey, Vault } from '../../vault.ts';
import type { Describe, Description } from '../deploys/examine.ts';
import type { Claim } from './claims.ts';
import { type ValidateConnection, validateMs } from './on-event.ts';
import { openError, type StoredError } from './sealed-output.ts';
import { cancelled, type Ending, findEnding, settle } from './settle.ts';
import type { Runner } from './worker.ts';

/** Context in which the environment's key seals a request. It also seals the error in an answer. */
export const remoteCallContext = 'errand';

/** Nodes of earlier versions do not set this, and get errors in plain text. */
type CallingNode = { opensErrors?: true };
/** Messages between nodes, which may be of different versions. */
export type RunRequest = Pick<Claim, 'id' | 'owner'> & CallingNode;
export type ValidateRequest = Omit<UnsavedConnection, 'integration' | 'accessExpiresAt'> &
  CallingNode & {
    functionId: number;
    integrationKey: string;
    accessExpiresAt: string | null;
  };
export type DescribeRequest = { code: string };
/** Without the output, which is in the run's row. Null: the ending is not known. */
export type EndingAnswer = {
  ending: (Exclude<Ending, { state: 'succeeded' }> & { error: StoredError }) | { state: 'succeeded' } | null;
};

export const asBytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

/** How long an ending is polled while the database is away, and the pause between two polls. */
const [maxAwayMs, againMs] = [10_000, 250];
/** Another node, if there is one, takes over the run of a lost node within this time. */
const takenOverS = 3;

const untaken: Ending = {
  state: 'failed',
  error: {
    code: 'function_unavailable',
    message: 'No node that runs functions claimed the run. Nothing was done.',
  },
  mayPass: true,
};

const hungUp: Ending = {
  ...cancelled,
  error: {
    ...cancelled.error,
    message: 'The caller closed the connection. The effects of the run until then remain.',
  },
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
      const settleAs = (ending: Ending) => settle(db, { claim, ending, now: now(), random: 0 });
      const end = await remoteCalls
        .ask({ environmentId, kind: 'run', request, signal })
        .catch(async (error) => {
          // The remote call may still appear: a node that takes it then finds that the run is over.
          await settleAs(untaken).catch(() => {});
          throw error;
        });
      if ('answer' in end) {
        const keyOf = () => environmentKey(db, { environmentId, vault });
        const ending = await endingFrom(end, keyOf).catch(() => undefined);
        // The row has the output, and an ending that the answer lacks or that this node cannot decrypt.
        const isInRow = ending === undefined || ending.state === 'succeeded';
        return isInRow ? awaitEnding(db, { id, vault, signal }) : ending;
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

/** Calls functions that validate connections before they are stored. */
export function validateRemotely({
  db,
  vault,
  remoteCalls,
}: {
  db: Db;
  vault: Vault;
  remoteCalls: RemoteCalls;
}): ValidateConnection {
  return async ({ candidate: { integration, accessExpiresAt, ...candidate }, found }) => {
    const { environmentId, key: integrationKey } = integration;
    const key = await environmentKey(db, { environmentId, vault });
    const order: ValidateRequest = {
      ...candidate,
      integrationKey,
      functionId: found.id,
      accessExpiresAt: accessExpiresAt?.toISOString() ?? null,
      opensErrors: true,
    };
    const end = await remoteCalls.ask({
      environmentId,
      kind: 'judge',
      request: key.sealJson(order, remoteCallContext),
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
        message: 'No node that runs functions claimed the run.',
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
 * Waits for the ending in the row of a run whose node did not report it. Undefined if no node holds the run any more, if the
 * database is away for too long, or if `signal` ends the wait.
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
      const isInVain = !mayPass(error) || signal?.aborted || performance.now() - knownAtMs > maxAwayMs;
      if (isInVain) return undefined;
    }
  }
}
