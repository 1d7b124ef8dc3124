/** What has lately come of functions, for lists of them. */
import type { Queryable } from '../db/pool.ts';
import type { RunState } from './runs/runs.ts';

type LatestRun = {
  id: string;
  state: RunState;
  queuedAt: Date;
  endedAt: Date | null;
};
export type Lately = { lastRun: LatestRun | null; failures: number };

/** More than these are not counted. */
const maxFailures = 1_000;

/** Of each of these functions its newest run, and how many of its runs have failed since `since`. */
export async function latelyOf(
  q: Queryable,
  {
    environmentId,
    functionIds,
    since,
  }: { environmentId: number; functionIds: readonly number[]; since: Date },
): Promise<Map<number, Lately>> {
  const rows = await q.query<{ id: number; last: Record<string, string | null> | null; failures: number }>(
    `select
       function.id,
       (
         select to_jsonb(last)
         from (
           select run.id, run.state, run.queued_at, run.ended_at
           from run
           where run.function_id = function.id
           order by run.id desc
           limit 1
         ) as last
       ) as last,
       (
         select count(*)
         from (
           select
           from run
           where run.function_id = function.id and run.state = 'failed' and run.ended_at > $3
           limit ${maxFailures}
         ) as failed
       ) as failures
     from function
     where function.environment_id = $1 and function.id = any($2)`,
    [environmentId, functionIds, since],
  );
  return new Map(rows.map(({ id, last, failures }) => [id, { lastRun: last && runOf(last), failures }]));
}

function runOf({
  id,
  state,
  queued_at: queuedAt,
  ended_at: endedAt,
}: Record<string, string | null>): LatestRun {
  return {
    id: id!,
    state: state as RunState,
    queuedAt: new Date(queuedAt!),
    endedAt: endedAt ? new Date(endedAt) : null,
  };
}
