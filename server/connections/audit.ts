import { actorOf, writeAudit } from '../activity/audit.ts';
import type { Queryable } from '../db/pool.ts';
import type { Caller } from '../http/caller.ts';
import type { Connection } from './store.ts';

/** Notes in the audit log what a caller did to a connection. */
export async function auditConnection(
  tx: Queryable,
  { caller, connection, action }: { caller: Caller; connection: Connection; action: string },
): Promise<void> {
  await writeAudit(tx, {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    action,
    target: `${connection.integrationKey}/${connection.connectionId}`,
  });
}
