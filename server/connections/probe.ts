import type { Db } from '../db/pool.ts';
import { claimProbe, type DueProbe, listDueProbes } from '../integrations/probes.ts';
import { eachInTurn } from '../jobs/each.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import type { CredentialSource } from './credentials.ts';
import type { ConnectionReader, LiveConnection } from './reader.ts';
import { listLeft, resume } from './suspension.ts';

/** Integrations that one run looks at. */
const maxAtOnce = 20;
/** Connections of an integration of which one has to be readable. */
const maxCandidates = 5;

/**
 * Finds out whether a provider accepts an integration's client again, also while nobody calls: one refresh of one of
 * its connections, at intervals that grow from a minute to an hour. What the refresh shows is written where every
 * refresh is judged (`status-transitions.ts`). Also ends partial faults that nobody shows any more (`suspension.ts`), where those who
 * released the last connections stood in each other's way.
 */
export function probeJob({
  db,
  reader,
  credentials,
  isSandboxOn,
  log,
  now = () => new Date(),
}: {
  db: Db;
  reader: Pick<ConnectionReader, 'get'>;
  credentials: Pick<CredentialSource, 'refreshedLiving'>;
  /** Test integrations are left alone while it is not. */
  isSandboxOn: boolean;
  log: Logger;
  now?: () => Date;
}): Job<Record<string, never>> {
  async function probe(integration: DueProbe): Promise<void> {
    try {
      const connection = await readFirst(integration, await listCandidates(db, integration));
      // A refusal has been judged and written by the time it is thrown; it is what is expected here.
      if (connection !== undefined) await credentials.refreshedLiving(connection).catch(() => {});
    } finally {
      // Unless the refresh took its turn or cleared the fault: whatever happened, the next one waits.
      await claimProbe(db, { integration, at: now() });
    }
  }

  /** One that was deleted meanwhile, or cannot be opened, is passed over. */
  async function readFirst(
    { environmentId, key }: DueProbe,
    ids: string[],
  ): Promise<LiveConnection | undefined> {
    for (const connectionId of ids) {
      try {
        return await reader.get({ environmentId, integrationKey: key, connectionId });
      } catch (error) {
        log.warn({ err: error, integration: key, connection: connectionId }, 'a connection was not probed');
      }
    }
    return undefined;
  }

  return {
    name: 'connections.probe',
    async run(_ids, signal) {
      const due = await listDueProbes(db, { at: now(), isSandboxOn, limit: maxAtOnce });
      const each = { job: 'connections.probe', log, signal };
      await eachInTurn(due, { ...each, work: probe });
      const left = await listLeft(db, maxAtOnce);
      await eachInTurn(left, {
        ...each,
        work: (of) => db.transaction((tx) => resume(tx, { ...of, at: now() })),
      });
    },
  };
}

/**
 * Of those that have the integration's client. Others at each probe, and those that failed least first: one that fails for itself keeps nobody waiting. Last those
 * whose token the client may not use, since that answer proves nothing.
 */
async function listCandidates(db: Db, { id, environmentId, probes }: DueProbe): Promise<string[]> {
  const found = await db.query<{ connection_id: string }>(
    `select connection_id
     from connection
     where integration_id = $1
       and environment_id = $2
       and deleted_at is null
       and status = 'active'
       and access_expires_at is not null
       and not has_own_client
     order by withheld_until is not null, refresh_failures, md5((id + $3)::text)
     limit $4`,
    [id, environmentId, probes, maxCandidates],
  );
  return found.map((row) => row.connection_id);
}
