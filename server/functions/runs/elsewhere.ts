/**
 * For a node that runs no code of customers: what would run here is asked of a node that does, while somebody waits.
 *
 * Neighbours: `errand-kinds.ts` is the other side; `nodes/errands.ts` carries it.
 */
import type { Candidate } from '../../connections/hooks.ts';
import { type Db, first } from '../../db/pool.ts';
import { environmentKey } from '../../environments/store.ts';
import type { ErrandEnd, Errands } from '../../nodes/errands.ts';
import type { Vault } from '../../vault.ts';
import type { Runtime } from '../isolation/runtime.ts';
import type { Claim } from './claims.ts';
import { type Judge, validateMs } from './on-event.ts';
import { cancelled, type Ending, settle } from './settle.ts';
import type { Runner } from './worker.ts';

/** Seals what is asked of another node, with the environment's key. */
export const errandContext = 'errand';

/** What crosses between nodes; they may be of different versions. */
export type RunRequest = Pick<Claim, 'id' | 'owner'>;
export type JudgeRequest = Omit<Candidate, 'integration' | 'accessExpiresAt'> & {
  functionId: number;
  integrationKey: string;
  accessExpiresAt: string | null;
};
export type DescribeRequest = { code: string };
/** Without the output, which is in the run's row. Null: nothing can be told. */
export type EndingAnswer = {
  ending: Exclude<Ending, { state: 'succeeded' }> | { state: 'succeeded' } | null;
};

export const asBytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

const untaken: Ending = {
  state: 'failed',
  error: { code: 'function_unavailable', message: 'No node that runs functions took it. Nothing was done.' },
  mayPass: true,
};

/** Runs that somebody waits for. What is queued needs nobody's word: it is found by those who look for it. */
export function runElsewhere({
  db,
  errands,
  now,
}: {
  db: Db;
  errands: Errands;
  now: () => Date;
}): Pick<Runner, 'runNow' | 'poke'> {
  return {
    poke: () => {},
    async runNow(claim, signal) {
      const { id, owner, environmentId } = claim;
      const request = asBytes({ id, owner } satisfies RunRequest);
      const end = await errands.ask({ environmentId, kind: 'run', request, signal });
      if ('answer' in end) {
        const ending = endingFrom(end);
        return ending?.state === 'succeeded' ? { ...ending, output: await outputOf(db, id) } : ending;
      }
      // Who had it writes that it was cancelled.
      if (end.none === 'cancelled') return cancelled;
      if (end.none === 'lost') return undefined;
      const ending = signal?.aborted ? cancelled : untaken;
      await settle(db, { claim, ending, counts: claim.counts, now: now(), random: 0 });
      return ending;
    },
  };
}

/** Functions that judge connections before they are stored. */
export function judgeElsewhere({ db, vault, errands }: { db: Db; vault: Vault; errands: Errands }): Judge {
  return async ({ candidate: { integration, accessExpiresAt, ...candidate }, found }) => {
    const { environmentId, key: integrationKey } = integration;
    const key = await environmentKey(db, { environmentId, vault });
    const asked: JudgeRequest = {
      ...candidate,
      ...{ integrationKey, functionId: found.id, accessExpiresAt: accessExpiresAt?.toISOString() ?? null },
    };
    const end = await errands.ask({
      ...{ environmentId, kind: 'judge', request: key.sealJson(asked, errandContext) },
      signal: AbortSignal.timeout(2 * validateMs),
    });
    return endingFrom(end);
  };
}

/** Looks at bundles that are to be deployed; it runs nothing else. */
export function describeElsewhere(errands: Errands): Pick<Runtime, 'run'> {
  return {
    async run({ environmentId, bundle, kind, signal }) {
      if (kind !== 'describe') throw new Error('this node runs no functions');
      const request = asBytes({ code: bundle.code } satisfies DescribeRequest);
      const end = await errands.ask({ environmentId, kind, request, signal });
      if ('answer' in end) return JSON.parse(end.answer.toString());
      return {
        failure: {
          cause: signal?.aborted ? 'cancelled' : 'unavailable',
          message: 'No node that runs functions looked at it.',
        },
      };
    },
  };
}

function endingFrom(end: ErrandEnd): Ending | undefined {
  if (!('answer' in end)) return undefined;
  const { ending } = JSON.parse(end.answer.toString()) as EndingAnswer;
  if (ending === null) return undefined;
  return ending.state === 'succeeded' ? { ...ending, output: null } : ending;
}

async function outputOf(db: Db, id: string): Promise<Buffer | null> {
  const rows = await db.query<{ output: Buffer | null }>('select output from run where id = $1', [id]);
  return first(rows)?.output ?? null;
}
