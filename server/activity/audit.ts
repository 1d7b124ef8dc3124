import { type Queryable, tables } from '../db/pool.ts';
import type { Caller, TicketCaller } from '../http/caller.ts';

/**
 * Who changed what, append-only. An entry is written in the transaction of its cause, without a position: one
 * sequencer gives committed entries theirs, so that writers never wait for each other.
 */
export type AuditEntry = {
  /** Undefined for what concerns the installation as a whole. */
  environmentId: number | undefined;
  /** `key:12`, `key:12 ticket:...`, `session:7`, `user:...`, `command line`, `service`. */
  actor: string;
  /** `integration.created`, ... */
  action: string;
  /** What was changed, by the name the caller knows it by. */
  target: string;
  /** Facts worth keeping. Never a secret. */
  details?: Record<string, string | number | boolean | null>;
};

/** Appends one entry; call it inside the transaction of its cause. */
export async function writeAudit(tx: Queryable, entry: AuditEntry): Promise<void> {
  await tx.run(
    tables.insertInto('audit').values({
      environment_id: entry.environmentId ?? null,
      actor: entry.actor,
      action: entry.action,
      target: entry.target,
      details: JSON.stringify(entry.details ?? {}),
    }),
  );
}

/** How the audit log names a person. */
export function userActor({ userId }: { userId: string }): string {
  return `user:${userId}`;
}

/** How the audit log names a caller. */
export function actorOf(caller: Caller | TicketCaller): string {
  if (caller.kind === 'session') return `session:${caller.sessionId}`;
  if (caller.kind === 'user') return userActor(caller);
  return caller.kind === 'key' ? `key:${caller.keyId}` : `key:${caller.keyId} ticket:${caller.ticket.id}`;
}
