/**
 * Sealed refresh tokens beside the current one: the previous token, until its successor was used, and tokens of
 * answers that arrived after another node had stored its own. They are tried before a connection counts as dead.
 *
 * Owns: the column `kept_tokens`. Does not own: when they are tried (`refresh.ts`).
 */
import { type Credentials, refreshTokenOf } from '../../auth-modes/modes.ts';
import { first, type Tx } from '../../db/pool.ts';
import { digestColumns } from '../store/save.ts';
import type { Connection } from '../store/store.ts';
import type { Lease, Leased } from './lease.ts';

const context = 'kept tokens';

/** The kept tokens, the newest first. */
export function openKept({ dataKey }: Connection, sealed: Buffer | null | undefined): string[] {
  return sealed ? (dataKey.openJson(sealed, context) as string[]) : [];
}

/**
 * Whether the refresh token of `credentials` is a previous one of the connection, so that the stored tokens are
 * newer. The caller holds the lock of the connection.
 */
export async function isSuperseded(
  tx: Tx,
  { connection, credentials }: { connection: Connection; credentials: Credentials },
): Promise<boolean> {
  const token = refreshTokenOf(credentials);
  if (token === undefined) return false;
  const row = first(
    await tx.query<{ kept: Buffer | null }>(
      'select kept_tokens as kept from connection where id = $1 and environment_id = $2',
      [connection.id, connection.environmentId],
    ),
  );
  return openKept(connection, row?.kept).includes(token);
}

/** The stored form; null without tokens. */
export function sealKept({ dataKey }: Connection, tokens: readonly string[]): Buffer | null {
  return tokens.length === 0 ? null : dataKey.sealJson(tokens, context);
}

/**
 * The tokens to keep after the provider accepted `used` and returned `given`, if anything. Tokens that were kept at
 * the start of the refresh are dropped, because a successor has been used; tokens that another node added since stay.
 */
export function keptAfter(
  connection: Connection,
  {
    lease,
    now,
    used,
    given,
  }: { lease: Lease; now: readonly string[]; used: string; given: string | undefined },
): string[] {
  const before = openKept(connection, lease.keptTokens);
  const previous = given === undefined || given === used ? [] : [used];
  return [
    ...previous,
    ...now.filter((token) => !before.includes(token) && token !== used && token !== given),
  ];
}

/** The state of a locked connection. */
type LockedGrant = {
  version: number;
  credentials: Credentials;
  refreshToken: string | undefined;
  kept: string[];
};

/**
 * Locks the connection until the transaction ends and returns its current state. Undefined if the connection was
 * deleted, or connected again since the lease was taken: then tokens of the old grant are useless.
 */
export async function lockGrant(tx: Tx, { connection, lease }: Leased): Promise<LockedGrant | undefined> {
  const row = first(
    await tx.query<{ version: number; credentials: Buffer; kept: Buffer | null }>(
      `select credentials_version as version, credentials, kept_tokens as kept
       from connection
       where id = $1
         and environment_id = $2
         and deleted_at is null
         and extract(epoch from granted_at)::text = $3
       for no key update`,
      [connection.id, connection.environmentId, lease.grant],
    ),
  );
  if (row === undefined) return undefined;
  const credentials = connection.dataKey.openJson(row.credentials, 'credentials') as Credentials;
  return {
    version: row.version,
    credentials,
    refreshToken: refreshTokenOf(credentials),
    kept: openKept(connection, row.kept),
  };
}

/**
 * Replaces the stored refresh token with its successor and keeps the old one; the other credentials stay. Call it
 * under `lockGrant`.
 */
export async function storeSuccessor(
  tx: Tx,
  { connection, token, locked }: { connection: Connection; token: string; locked: LockedGrant },
): Promise<void> {
  const { credentials, refreshToken = token, kept } = locked;
  const left = [refreshToken, ...kept].filter((other) => other !== token);
  const successor = { ...credentials, refresh_token: token };
  const digests = digestColumns(successor);
  await tx.query(
    `update connection
     set credentials = $3, kept_tokens = $4, refresh_prefix_digest = $5, refresh_token_digest = $6,
       credentials_version = credentials_version + 1
     where id = $1 and environment_id = $2`,
    [
      connection.id,
      connection.environmentId,
      connection.dataKey.sealJson(successor, 'credentials'),
      sealKept(connection, left),
      digests.refresh_prefix_digest,
      digests.refresh_token_digest,
    ],
  );
}

/** Adds a kept token. Call it under `lockGrant`. */
export async function keepRefreshToken(
  tx: Tx,
  { connection, token, kept }: { connection: Connection; token: string; kept: readonly string[] },
): Promise<void> {
  await tx.query('update connection set kept_tokens = $3 where id = $1 and environment_id = $2', [
    connection.id,
    connection.environmentId,
    sealKept(connection, [token, ...kept.filter((other) => other !== token)]),
  ]);
}
