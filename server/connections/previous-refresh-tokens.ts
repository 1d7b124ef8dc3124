import type { Credentials } from '../auth-modes/mode.ts';
import { first, type Tx } from '../db/pool.ts';
import type { Lease } from './lease.ts';
import type { Connection } from './store.ts';
import { digestColumns } from './token-digests.ts';

/**
 * Refresh tokens beside the one in use, sealed: the one before it, until its successor has been used, and those of
 * answers that came when another node had stored its own. They are tried before a connection is called dead.
 *
 * Owns: the column `kept_tokens`. Does not own: when they are tried (`refresh.ts`).
 */
const context = 'kept tokens';

/** The kept tokens, the newest first. */
export function openKept({ dataKey }: Connection, sealed: Buffer | null | undefined): string[] {
  return sealed ? (dataKey.openJson(sealed, context) as string[]) : [];
}

/** Whether a token is among those kept. Call it while the connection is locked. */
export async function isKept(
  tx: Tx,
  { connection, token }: { connection: Connection; token: string },
): Promise<boolean> {
  const row = first(
    await tx.query<{ kept: Buffer | null }>(
      'select kept_tokens as kept from connection where id = $1 and environment_id = $2',
      [connection.id, connection.environmentId],
    ),
  );
  return openKept(connection, row?.kept).includes(token);
}

/** As they are stored; null for none. */
export function sealKept({ dataKey }: Connection, tokens: readonly string[]): Buffer | null {
  return tokens.length === 0 ? null : dataKey.sealJson(tokens, context);
}

/**
 * What to keep once `used` was accepted and `given`, if anything, came in its place. Whatever was kept when the
 * refresh began is done with, since a successor of it has been used; what another node added meanwhile is not.
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

/** What stands in a connection while it is locked. */
type Locked = {
  version: number;
  credentials: Credentials;
  refreshToken: string | undefined;
  kept: string[];
};

/**
 * Locks the connection until the transaction ends and returns its current state. Undefined if the connection was
 * deleted, or was connected again since the lease was taken: then tokens of the old grant are of no use.
 */
export async function lockGrant(
  tx: Tx,
  { connection, lease }: { connection: Connection; lease: Lease },
): Promise<Locked | undefined> {
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
    refreshToken: credentials.type === 'OAUTH2' ? credentials.refresh_token : undefined,
    kept: openKept(connection, row.kept),
  };
}

/**
 * Puts the successor of the stored refresh token in its place; the other credentials stay, and the token that was
 * used is kept. Call it under `lockGrant`.
 */
export async function putSuccessor(
  tx: Tx,
  { connection, token, locked }: { connection: Connection; token: string; locked: Locked },
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

/** Adds a token to those kept. Call it under `lockGrant`. */
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
