import type { Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { holdsScope, type KeyCaller, lacking, type UserCaller } from '../http/caller.ts';
import { findKeysForUpdate, type Key } from './keys.ts';

/** Who makes keys, or changes them, and what that one may do. */
type Maker = Pick<KeyCaller | UserCaller, 'scopes' | 'proxyRules' | 'expiresAt'>;

/**
 * Who is calling, as of this moment, and those of the keys `ids` that there are: nobody changes one of them until the
 * transaction ends. What a node remembers of a key is up to a second old, and what the key has lost since it cannot
 * give. Throws `unknown_account` where the caller's key was revoked or has expired, and `forbidden` where it may
 * not manage keys any more or has a rate limit: with further keys it could call more often than that limit. Throws what
 * `requireRole` throws of a person.
 */
export async function findMaker(
  tx: Tx,
  {
    caller,
    ids = [],
    now,
    perKey,
    requireRole,
  }: {
    caller: KeyCaller | UserCaller;
    ids?: readonly number[];
    now: Date;
    /** Calls a minute of a key that has no limit of its own; undefined: no limit. */
    perKey: number | undefined;
    requireRole: (tx: Tx, user: UserCaller) => Promise<void>;
  },
): Promise<{ maker: Maker; keys: ReadonlyMap<number, Key> }> {
  const { environmentId } = caller;
  if (caller.kind === 'user') {
    await requireRole(tx, caller);
    const keys = ids.length > 0 ? await findKeysForUpdate(tx, { ids, environmentId }) : new Map();
    return { maker: caller, keys };
  }
  const keys = await findKeysForUpdate(tx, { ids: [...ids, caller.keyId], environmentId });
  const key = keys.get(caller.keyId);
  if (key === undefined || (key.expiresAt !== undefined && key.expiresAt <= now))
    throw new AppError('unknown_account');
  const scopes = new Set(key.scopes);
  if (!holdsScope(scopes, 'keys')) throw lacking('keys');
  if ((key.rateLimit ?? perKey) !== undefined)
    throw new AppError(
      'forbidden',
      'A key with a rate limit cannot create or change keys. Use a key without one, the dashboard, or `trellis key create`.',
    );
  return { maker: { scopes, proxyRules: key.proxyRules, expiresAt: key.expiresAt }, keys };
}
