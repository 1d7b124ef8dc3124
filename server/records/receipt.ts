import { actorOf, writeAudit } from '../activity/audit.ts';
import type { Connection } from '../connections/store.ts';
import type { Tx } from '../db/pool.ts';
import type { Caller } from '../http/caller.ts';
import { cursorWriter } from './cursor.ts';

/** Who lets records go, and whose they are, in the words of the audit log. */
export type Remover = {
  /** Undefined where the connection is gone to the last row. */
  environmentId: number | undefined;
  /** `key:12`; `retention` and `service` act by themselves. */
  actor: string;
  /** `<integration ID>/<connection ID>`. */
  target: string;
};

/** A caller who lets records of a connection go. */
export function removerOf(
  caller: Caller,
  connection: Pick<Connection, 'integrationKey' | 'connectionId'>,
): Remover {
  return {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    target: `${connection.integrationKey}/${connection.connectionId}`,
  };
}

export type Receipt = {
  action: 'records.pruned' | 'records.tombstones_removed' | 'records.destroyed';
  dataset: { id: number; model: string; variant: string };
  /** The position up to which records were pruned or removed. */
  until: number;
  count: number;
  /** Sealed bytes of the payloads that went. */
  bytes: number;
};

/** Notes in the audit log what went, in the transaction that let it go. */
export async function writeReceipt(tx: Tx, by: Remover, receipt: Receipt): Promise<void> {
  const { action, dataset, until, count, bytes } = receipt;
  await writeAudit(tx, {
    environmentId: by.environmentId,
    actor: by.actor,
    action,
    target: by.target,
    details: {
      model: dataset.model,
      variant: dataset.variant,
      until_cursor: cursorWriter(dataset.id)(until),
      count,
      bytes,
    },
  });
}
