import { writeAudit } from '../activity/audit.ts';
import type { Connection } from '../connections/store.ts';
import type { Queryable, Tx } from '../db/pool.ts';
import { readOwner } from '../environments/key-replacements.ts';
import { AppError } from '../errors.ts';
import { type Caller, hasScope } from '../http/caller.ts';
import { type Remover, removerOf } from './receipt.ts';

/**
 * Who may move or remove a consumer: the key that created it and the keys that replace that key. Anyone else needs
 * records:write, so that a key that only reads cannot make retention remove what another application has not read.
 */

/** A caller that acknowledges or removes consumers. `service` may do both with every consumer, and owns none. */
export type Mover =
  | 'service'
  | (Remover & { environmentId: number; keyId: number | undefined; mayRead: boolean; mayWrite: boolean });

export function moverOf(
  caller: Caller,
  connection: Pick<Connection, 'integrationKey' | 'connectionId'>,
): Mover {
  return {
    ...removerOf(caller, connection),
    environmentId: caller.environmentId,
    keyId: caller.kind === 'key' ? caller.keyId : undefined,
    mayRead: hasScope(caller, 'records:read'),
    mayWrite: hasScope(caller, 'records:write'),
  };
}

type Ownership = {
  /** The owner that the caller's key stands for; undefined for a caller that is not a key. */
  callerKeyId: number | undefined;
  /** `nobody`: no key has owned the consumer yet, or none of those that did is valid. */
  owner: 'caller' | 'another' | 'nobody';
};

/** Of a consumer with this owner, or of one that is to be created. The service may move every consumer: its ownership is not read. */
export async function readOwnership(
  q: Queryable,
  { by, ownerKeyId, now }: { by: Mover; ownerKeyId: number | null; now: Date },
): Promise<Ownership> {
  if (by === 'service') return { callerKeyId: undefined, owner: 'nobody' };
  const { environmentId, keyId } = by;
  const { firstKeyId, isOwned } = await readOwner(q, { environmentId, keyId, ownerKeyId, now });
  if (ownerKeyId !== null && firstKeyId === ownerKeyId) return { callerKeyId: firstKeyId, owner: 'caller' };
  return { callerKeyId: firstKeyId, owner: isOwned ? 'another' : 'nobody' };
}

/** Throws `forbidden` or `consumer_without_owner` for a caller that may not move or remove the consumer. */
export function requireMover(
  by: Mover,
  { owner, name, cursor }: Pick<Ownership, 'owner'> & { name: string; cursor: string | undefined },
): void {
  if (by === 'service' || by.mayWrite || owner === 'caller') return;
  if (owner === 'another')
    throw new AppError(
      'forbidden',
      `The consumer "${name}" belongs to another key. To move or remove it takes a key with the scope records:write.`,
    );
  throw new AppError('consumer_without_owner', undefined, { payload: { cursor: cursor ?? null } });
}

/** Adds an entry about the consumer to the audit log. */
export async function auditConsumer(
  tx: Tx,
  by: Exclude<Mover, 'service'>,
  entry: {
    action: 'consumer.owner_changed' | 'consumer.moved' | 'consumer.removed';
    at: { name: string; model: string; variant: string };
    details?: Record<string, string | number | null>;
  },
): Promise<void> {
  const { environmentId, actor, target } = by;
  const { name, model, variant } = entry.at;
  const { action, details } = entry;
  await writeAudit(tx, {
    environmentId,
    actor,
    target,
    action,
    details: { name, model, variant, ...details },
  });
}
