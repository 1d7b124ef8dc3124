import type { Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { holdsScope, type KeyCaller, lacking, type UserCaller } from '../http/caller.ts';
import { findKeysForUpdate, type Key } from './keys.ts';

/** Who makes keys, or changes them, and what that one may do. */
export type Maker = Pick<KeyCaller | UserCaller, 'scopes' | 'proxyRules' | 'expiresAt'> & {
  /** Undefined: a person. */
  key: Key | undefined;
};

/**
 * Who is calling, as of this moment, and those of the keys `ids` that there are: nobody changes one of them until the
 * transaction ends. What a node remembers of a key is up to a second old, and what the key has lost since it cannot
 * give. Throws `unknown_account` where the caller's key was revoked or has expired, and `forbidden` where it may
 * not manage keys any more; what `requireRole` throws of a person.
 */
export async function findMaker(
  tx: Tx,
  {
    caller,
    ids = [],
    now,
    requireRole,
  }: {
    caller: KeyCaller | UserCaller;
    ids?: readonly number[];
    now: Date;
    requireRole: (tx: Tx, user: UserCaller) => Promise<void>;
  },
): Promise<{ maker: Maker; keys: ReadonlyMap<number, Key> }> {
  const { environmentId } = caller;
  if (caller.kind === 'user') {
    await requireRole(tx, caller);
    const keys = ids.length > 0 ? await findKeysForUpdate(tx, { ids, environmentId }) : new Map();
    return { maker: { ...caller, key: undefined }, keys };
  }
  const keys = await findKeysForUpdate(tx, { ids: [...ids, caller.keyId], environmentId });
  const key = keys.get(caller.keyId);
  if (key === undefined || (key.expiresAt !== undefined && key.expiresAt <= now))
    throw new AppError('unknown_account');
  const scopes = new Set(key.scopes);
  if (!holdsScope(scopes, 'keys')) throw lacking('keys');
  return { maker: { scopes, proxyRules: key.proxyRules, expiresAt: key.expiresAt, key }, keys };
}
