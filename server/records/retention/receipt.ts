import { type RetainedTotals, writeDatasetAudit } from '../../activity/audit.ts';
import type { Connection } from '../../connections/store/store.ts';
import type { Tx } from '../../db/pool.ts';
import { actorOf, type Caller } from '../../http/auth/caller.ts';
import { cursorWriter } from '../cursor.ts';

/** The caller that removes records, and their connection, in the form of the audit log. */
export type Remover = {
  /** Undefined if the row of the connection is gone. */
  environmentId: number | undefined;
  /** For example `key:12`; `retention` and `service` are the service itself. */
  actor: string;
  /** `<integration ID>/<connection ID>`. */
  target: string;
};

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
  /** Sealed bytes of the removed payloads. */
  bytes: number;
};

/**
 * Writes to the audit log what was removed, in the transaction that removes it. `retained`: what the report of retention adds
 * up, once the entry is in the log.
 */
export function writeReceipt(
  tx: Tx,
  by: Remover,
  { retained, ...receipt }: Receipt & { retained?: RetainedTotals },
): void {
  const { action, until, count, bytes } = receipt;
  const { id, model, variant } = receipt.dataset;
  const { environmentId, actor, target } = by;
  const details = { model, variant, until_cursor: cursorWriter(id)(until), count, bytes };
  writeDatasetAudit(tx, id, { environmentId, actor, action, target, details, retained });
}
