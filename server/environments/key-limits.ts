import type { Tx } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import { type Key, noteKey, updateKey } from './keys.ts';

/**
 * Calls a minute that one key gives another. People and the command line give what they like; a key that has a limit, of its
 * own or that of TRELLIS_RATE_LIMIT, gives of what it has, so that all the keys that it makes call together no more
 * often than it did alone.
 */

/** `otherwise`: calls a minute of a key that has no limit of its own. */
type Limits = { otherwise: number | undefined };

/**
 * Takes what a new key is given off the key that makes it, and answers what that one is from then on; undefined where it
 * has no limit. `maker` is locked in this transaction. Throws `invalid_body` where it is not said how much is given, and
 * `forbidden` where there is not so much.
 */
export async function giveLimit(
  tx: Tx,
  {
    maker,
    environmentId,
    actor,
    rateLimit,
    otherwise,
  }: Limits & { maker: Key; environmentId: number; actor: string; rateLimit: number | undefined },
): Promise<Key | undefined> {
  const limit = maker.rateLimit ?? otherwise;
  if (limit === undefined) return undefined;
  if (rateLimit === undefined)
    throw fieldError(
      'invalid_body',
      ['rate_limit'],
      `must say how many of the ${limit} calls a minute of this key the new one gets`,
    );
  if (maker.isSetting)
    throw new AppError(
      'forbidden',
      'The key of the setting TRELLIS_SECRET_KEY gives no calls away: the next start would make it whole again.',
    );
  if (rateLimit >= limit)
    throw new AppError(
      'forbidden',
      `A key gives no more than it has: this one makes ${limit} calls a minute, and has to keep one.`,
    );
  const key = { ...maker, rateLimit: limit - rateLimit };
  await updateKey(tx, { key, environmentId });
  await noteKey(tx, { environmentId, actor, action: 'key.changed', key });
  return key;
}

/** Throws `forbidden` where a key that has a limit would let a key, be it itself, call more often than before. */
export function requireNotRaised({
  maker,
  before,
  key,
  otherwise,
}: Limits & Record<'maker' | 'before' | 'key', { rateLimit?: number | undefined }>): void {
  const limitOf = ({ rateLimit }: typeof key) => rateLimit ?? otherwise ?? Number.POSITIVE_INFINITY;
  if (limitOf(maker) === Number.POSITIVE_INFINITY || limitOf(key) <= limitOf(before)) return;
  throw new AppError(
    'forbidden',
    'A key that has a limit of calls raises none: people do that in the dashboard.',
  );
}
