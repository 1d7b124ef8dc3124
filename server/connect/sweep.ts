/**
 * The cleanup after connect sessions.
 *
 * Owns: the one report of an authorization that never ended or was interrupted, and the removal of expired rows. A
 * provider shows most of its refusals on its own pages and does not send the user back, so a missing callback is the
 * only sign of them.
 */
import type { Operation } from '../activity/operations.ts';
import { type Activity, noActivity } from '../activity/writer.ts';
import { type Db, first, type Queryable } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import { eachInTurn, type Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import type { Vault } from '../vault.ts';
import { type ConnectFailure, type FlowFacts, flowFailed, queueFailure } from './failures.ts';
import { type SessionSettings, sessionLifeMs } from './sessions.ts';

type SweepDeps = { db: Db; vault: Vault; log: Logger; activity?: Activity; now?: () => Date };
type Abandoned = { id: number; environmentId: number };
type Attempt = { begunAt: Date; isTaken: boolean; key: string; providerName: string; isTest: boolean };

const sweepJobName = 'connect.sweep';
const maxAtOnce = 200;
/** Short, because any refused request for a page can store a notice. */
const noticeLifeMs = 2 * 60_000;

/**
 * Raises `connection.connect_abandoned` for sessions that have expired unused with an unfinished attempt, and deletes
 * expired rows. An expired session is kept for its lifetime once more: a user who was at the provider when the session
 * expired may still return, and the page can say that it has expired.
 */
export async function sweepConnect(
  { db, vault, log, activity = noActivity, now = () => new Date() }: SweepDeps,
  signal: AbortSignal = AbortSignal.timeout(60_000),
): Promise<void> {
  const at = now();
  const found = await db.query<Abandoned>(
    `select id, environment_id as "environmentId"
     from connect_session
     where expires_at <= $1
       and used_at is null
       and exists (select from auth_attempt where session_id = connect_session.id)
       and not exists (select from auth_attempt where session_id = connect_session.id and expires_at > $1)
     order by expires_at
     limit $2`,
    [at, maxAtOnce],
  );
  await eachInTurn(found, {
    job: sweepJobName,
    log,
    signal,
    async work(session) {
      const failed = await db.transaction((tx) => reportAbandoned(tx, { session, vault, log, at }));
      if (failed !== undefined) activity.log(failed);
    },
  });
  await db.query(
    `delete from auth_attempt
     using connect_session
     where connect_session.id = auth_attempt.session_id
       and auth_attempt.expires_at <= $1
       and connect_session.used_at is not null`,
    [at],
  );
  await db.query(
    `delete from connect_session
     where expires_at <= $1
       and not exists (select from auth_attempt where session_id = connect_session.id)`,
    [new Date(at.getTime() - sessionLifeMs)],
  );
  // Notices of clients that have disconnected: a waiting one reads them twice a second.
  await db.query('delete from connect_notice where created_at <= $1', [
    new Date(at.getTime() - noticeLifeMs),
  ]);
}

/** Each minute on one node. */
export function sweepJob(deps: SweepDeps): Job<Record<string, never>> {
  return { name: sweepJobName, run: (_, signal) => sweepConnect(deps, signal) };
}

/** The statement that finds the attempts deletes them, so only one transaction reports them, once. */
async function reportAbandoned(
  tx: Queryable,
  { session, vault, log, at }: { session: Abandoned; vault: Vault; log: Logger; at: Date },
): Promise<Operation | undefined> {
  const attempts = await tx.query<Attempt>(
    `delete from auth_attempt
     using integration
     where session_id = $1
       and auth_attempt.environment_id = $2
       and expires_at <= $3
       and integration.id = auth_attempt.integration_id
     returning
       auth_attempt.created_at as "begunAt", integration.key, integration.provider as "providerName",
       integration.is_test as "isTest", auth_attempt.taken_at is not null as "isTaken"`,
    [session.id, session.environmentId, at],
  );
  const row = first(
    await tx.query<{ settings: Buffer }>(
      'select settings from connect_session where id = $1 and environment_id = $2 and used_at is null',
      [session.id, session.environmentId],
    ),
  );
  const [latest] = attempts.toSorted((one, other) => other.begunAt.getTime() - one.begunAt.getTime());
  if (latest === undefined || row === undefined) return undefined;
  let settings: SessionSettings;
  try {
    const key = await environmentKey(tx, { environmentId: session.environmentId, vault });
    settings = key.openJson(row.settings, 'connect session') as SessionSettings;
  } catch (error) {
    // The settings cannot be read, now or later. The attempts are removed without a report.
    log.warn({ err: error, session: session.id }, 'a connect session cannot be decrypted');
    return undefined;
  }
  const facts: FlowFacts & ConnectFailure = {
    environmentId: session.environmentId,
    settings,
    integration: latest,
    begunAt: latest.begunAt,
    cause: latest.isTaken ? 'cut_off' : 'nothing_came_back',
    evidence: {},
  };
  await queueFailure(tx, 'connection.connect_abandoned', facts);
  return flowFailed(facts, at);
}
