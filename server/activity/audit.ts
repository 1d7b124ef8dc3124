import { writeToOutbox } from '../db/dataset-outbox.ts';
import { type Queryable, type Tx, tables } from '../db/pool.ts';

/**
 * The audit log: changes and their actors, append-only. An entry is written in the transaction of its cause, without a
 * position: one sequencer assigns positions to committed entries, so writers never wait for each other.
 */
export type AuditEntry = {
  /** Undefined for entries about the whole installation. */
  environmentId: number | undefined;
  /** `key:12`, `key:12 ticket:...`, `session:7`, `user:...`, `command line`, `service`. */
  actor: string;
  /** `integration.created`, ... */
  action: string;
  /** The name by which the caller knows the changed object. */
  target: string;
  /** Facts worth keeping. Never a secret. */
  details?: Record<string, string | number | boolean | null>;
};

/** Appends one entry; call it inside the transaction of its cause. */
export async function writeAudit(tx: Queryable, entry: AuditEntry): Promise<void> {
  const { details, ...columns } = columnsOf(entry);
  await tx.run(tables.insertInto('audit').values({ ...columns, details: JSON.stringify(details) }));
}

/** What a step of retention has removed. `retained` has the sums that were not reported yet. */
export type RetainedTotals = { payloads: number; bytes: number; tombstones: number };

/**
 * As `writeAudit`, in a transaction about the records of a dataset. The entry is written with the commit. `retained` is added
 * to the table of that name when the entry arrives in the log, once as the entry itself.
 */
export function writeDatasetAudit(
  tx: Tx,
  datasetId: number,
  { retained, ...entry }: AuditEntry & { retained?: RetainedTotals | undefined },
): void {
  const columns = { ...columnsOf(entry), ...(retained && { retained }) };
  writeToOutbox(tx, { datasetId, sequence: 'audit', columns });
}

function columnsOf({ environmentId, actor, action, target, details = {} }: AuditEntry) {
  return { environment_id: environmentId ?? null, actor, action, target, details };
}

type InstallationEntry = Omit<AuditEntry, 'environmentId' | 'actor'>;

/** Appends an entry about the whole installation, for a user of the dashboard. */
export async function writeUserAudit(
  tx: Queryable,
  { person, ...entry }: InstallationEntry & { person: { userId: string } },
): Promise<void> {
  await writeAudit(tx, { environmentId: undefined, actor: `user:${person.userId}`, ...entry });
}

/** The actor of a command of the operator. */
export const commandLine = 'command line';

/** Appends an entry of a command; about the whole installation, unless an environment is given. */
export async function writeCommandAudit(
  tx: Queryable,
  entry: InstallationEntry & { environmentId?: number },
): Promise<void> {
  await writeAudit(tx, { environmentId: undefined, actor: commandLine, ...entry });
}
