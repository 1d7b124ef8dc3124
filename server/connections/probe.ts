import type { Db } from '../db/pool.ts';
import { claimProbe, type DueProbe, listDueProbes, noteProven } from '../integrations/fault.ts';
import type { Job } from '../jobs/jobs.ts';
import type { CredentialSource } from './credentials.ts';
import type { ConnectionReader } from './reader.ts';

/** Integrations that one run looks at. */
const mostAtOnce = 20;

/**
 * Finds out whether a provider accepts an integration's client again, also while nobody calls: one refresh of one of
 * its connections, at intervals that grow from a minute to an hour. What the refresh shows is written where every
 * refresh is judged (`states.ts`).
 */
export function probeJob({
  db,
  reader,
  credentials,
  now = () => new Date(),
}: {
  db: Db;
  reader: Pick<ConnectionReader, 'get'>;
  credentials: Pick<CredentialSource, 'refreshed'>;
  now?: () => Date;
}): Job<Record<string, never>> {
  async function probe(integration: DueProbe): Promise<void> {
    const { environmentId, key } = integration;
    const named = onlyConnectionOf(integration);
    const connectionId = await pick(db, { integration, named });
    if (connectionId === undefined && named !== undefined) {
      // The one token that was refused is gone, and nothing else was wrong.
      await db.transaction((tx) => noteProven(tx, { integration, at: now(), refreshOf: named }));
      return;
    }
    if (connectionId !== undefined) {
      const connection = await reader.get({ environmentId, integrationKey: key, connectionId });
      // A refusal has been judged and written by the time it is thrown; it is what is expected here.
      await credentials.refreshed(connection).catch(() => {});
    }
    // Unless the refresh took its turn or cleared the fault: whatever happened, the next one waits.
    await claimProbe(db, { integration, at: now() });
  }

  return {
    name: 'connections.probe',
    async run(_ids, signal) {
      for (const integration of await listDueProbes(db, { at: now(), limit: mostAtOnce })) {
        if (signal.aborted) return;
        await probe(integration);
      }
    },
  };
}

/** Set where the fault was said of one connection's token alone. */
function onlyConnectionOf({ fault }: DueProbe): string | undefined {
  return fault.cause === 'client_not_allowed' ? String(fault.evidence.connection_id) : undefined;
}

/** The named connection, else the one whose token is the most due; undefined where none can be refreshed. */
async function pick(
  db: Db,
  { integration, named }: { integration: DueProbe; named: string | undefined },
): Promise<string | undefined> {
  const [found] = await db.query<{ connection_id: string }>(
    `select connection_id
     from connection
     where integration_id = $1
       and environment_id = $2
       and deleted_at is null
       and status = 'active'
       and access_expires_at is not null
       and ($3::text is null or connection_id = $3)
     order by access_expires_at
     limit 1`,
    [integration.id, integration.environmentId, named ?? null],
  );
  return found?.connection_id;
}
