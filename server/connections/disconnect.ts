/**
 * The deletion of a connection and the revocation of its grant.
 *
 * Owns: whether a deletion revokes the grant, and the consequences for connections that share it. Does not own: the
 * destruction of the data key (`store/save.ts`), when a revocation is sent (`revocation/`).
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { Credentials } from '../auth-modes/modes.ts';
import type { Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/auth/caller.ts';
import { findIntegration, type Integration } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { Vault } from '../vault.ts';
import { endConnection } from './health/status-transitions.ts';
import { isLeasedAfterDeletion } from './refresh/lease.ts';
import { openKept } from './refresh/previous-refresh-tokens.ts';
import { lockUnit, unitOf } from './revocation/revocation-lock.ts';
import { queueRevocation, type RevocationOutcome } from './revocation/revocation-queue.ts';
import { type RevocationDeps, sendRevocation } from './revocation/revocations.ts';
import { countSharedGrants, isGrantShared } from './revocation/shared-grants.ts';
import { type ConnectionHooks, noHooks } from './store/hooks.ts';
import type { ConnectionReader, LiveConnection } from './store/reader.ts';
import { destroyConnection } from './store/save.ts';
import {
  auditConnection,
  type Connection,
  type ConnectionHead,
  type ConnectionPlace,
  findHeadForUpdate,
  fromRow,
  getConnection,
  queueConnectionEvent,
  selectConnections,
  unknownMessage,
} from './store/store.ts';

/**
 * `auto`: revoke if no other connection loses access; `always`: revoke also if a confirmed number of others does;
 * `never`.
 */
export const revokeChoices = ['auto', 'always', 'never'] as const;
export type RevokeChoice = (typeof revokeChoices)[number];

type DisconnectRequest = {
  at: ConnectionPlace;
  caller: Caller;
  revoke: RevokeChoice;
  confirmedOthers: number;
};

/** How long a caller waits for the provider. Then the job continues. */
const maxWaitMs = 4_000;
const pollMs = 50;

/**
 * Deletes a connection: destroys its data key and writes event and audit entry in one transaction. Then revokes its
 * grant at the provider, as `revoke` says. A failure of the provider does not fail the deletion.
 *
 * The result is `none` if the provider has no revocation, there is no token, or the caller wanted none.
 *
 * Throws `unknown_connection`. Throws `revocation_ends_others` (409, `payload.others`), with nothing changed, if a
 * forced revocation would end another number of other connections than the confirmed one.
 */
export async function disconnect(
  deps: RevocationDeps & { reader: ConnectionReader; hooks?: ConnectionHooks },
  request: DisconnectRequest,
): Promise<{ revocation: RevocationOutcome | 'none' }> {
  const { db, reading, reader, hooks = noHooks } = deps;
  const { at } = request;
  const integration = await findIntegration(db, {
    ...reading,
    environmentId: at.environmentId,
    key: at.integrationKey,
  });
  if (integration === undefined) throw new AppError('unknown_connection', unknownMessage(at));
  // Before any lock, because the customer's code may take long.
  await hooks.beforeDelete({ ...(await getConnection(db, { ...at, vault: reading.vault })), integration });
  let destroyed: Destroyed | undefined;
  do {
    destroyed = await db.transaction((tx) => destroy(tx, { ...deps, ...request, integration }));
  } while (destroyed === undefined);
  const { plan, ended, connection } = destroyed;
  reader.forget(at);
  for (const other of ended) reader.forget(other);
  if (typeof plan === 'string') return { revocation: plan };
  const id = plan.revocationId;
  return { revocation: await revokeNow(deps, { id, connection: { ...connection, integration } }) };
}

type Plan = 'none' | 'shared' | { revocationId: number };
type Others = { id: number; environmentId: number }[];
type Destroyed = { plan: Plan; ended: ConnectionHead[]; connection: Connection };

/** Undefined, with nothing changed, if another account or another client was connected since. */
async function destroy(
  tx: Tx,
  given: RevocationDeps & DisconnectRequest & { integration: Integration },
): Promise<Destroyed | undefined> {
  const { reading, log, now = () => new Date(), at, integration, caller, revoke, confirmedOthers } = given;
  const { vault } = reading;
  const before = await getConnection(tx, { ...at, vault });
  const unit = unitOf(before.credentials, integration);
  if (unit !== undefined) await lockUnit(tx, unit);
  const isWanted = revoke !== 'never' && isRevocable(before.credentials, integration);
  const isForced = revoke === 'always';
  const query = unit !== undefined && {
    unit,
    accountId: before.account?.id,
    exceptId: before.id,
    reading,
  };
  const others =
    query && isWanted && isForced ? await countSharedGrants(tx, query) : { count: 0, certain: [] as Others };
  if (isForced && others.count !== confirmedOthers) throw endsOthers(others.count);
  const isShared = query && isWanted && !isForced && (await isGrantShared(tx, query));

  // In the order of their IDs, as all transactions lock several connections.
  const locked = [before, ...others.certain];
  await tx.query('select from connection where id = any($1) order by id for update', [
    locked.map(({ id }) => id),
  ]);
  // Read again under the lock: a refresh may have stored a newer token.
  const connection = await getConnection(tx, { ...at, vault });
  const isUnchanged = connection.id === before.id && connection.account?.id === before.account?.id;
  if (!isUnchanged || unitOf(connection.credentials, integration) !== unit) return undefined;
  const tokens =
    isWanted && !isShared && isRevocable(connection.credentials, integration)
      ? await listGrantTokens(tx, { connections: locked, vault, log })
      : [];
  const ended = isForced ? await endOthers(tx, { others: others.certain, caller, at: now() }) : [];
  let plan: Plan = 'none';
  if (isShared) plan = 'shared';
  else if (tokens.length > 0) {
    const revocation = { connection, integration, tokens, isForced, vault, at: now() };
    plan = { revocationId: await queueRevocation(tx, revocation) };
  }
  await destroyConnection(tx, { id: connection.id, at: now() });
  await queueConnectionEvent(tx, connection, { type: 'connection.deleted' });
  const details = { revocation: typeof plan === 'string' ? plan : 'queued', ended_others: ended.length };
  await auditConnection(tx, connection, { caller, action: 'connection.deleted', details });
  return { plan, ended, connection };
}

/** Connections of the same account lose access, so they end at once instead of at their next refresh. */
async function endOthers(
  tx: Tx,
  { others, caller, at }: { others: Others; caller: Caller; at: Date },
): Promise<ConnectionHead[]> {
  const cause = 'revoked_by_disconnect';
  const ended: ConnectionHead[] = [];
  for (const found of others) {
    const other = await findHeadForUpdate(tx, found);
    if (other === undefined) continue;
    if (!(await endConnection(tx, { connection: other, cause, evidence: {}, at }))) continue;
    // In the other connection's environment: the caller may belong to another one.
    await auditConnection(tx, other, { caller, action: 'connection.ended', details: { cause } });
    ended.push(other);
  }
  return ended;
}

/** Never throws: the deletion is done, and after a failure the job sends the revocation. */
async function revokeNow(
  deps: RevocationDeps,
  { id, connection }: { id: number; connection: LiveConnection },
): Promise<RevocationOutcome> {
  const signal = AbortSignal.timeout(maxWaitMs);
  try {
    // The token of a running refresh must be revoked, too.
    while (
      connection.integration.provider.refresh.rotates &&
      (await isLeasedAfterDeletion(deps.db, connection))
    ) {
      if (signal.aborted) return 'queued';
      await pause(pollMs);
    }
    return await sendRevocation(deps, { id, signal });
  } catch (error) {
    deps.log.warn({ err: error }, 'a grant could not be revoked immediately; a job retries it');
    return 'queued';
  }
}

function endsOthers(others: number): AppError {
  const message =
    others === 0
      ? 'The revocation would end no other connection. Send confirm_others=0, or omit it.'
      : `The revocation would also end ${others} other connection(s) of this installation, which share the account's ` +
        `grant or may share it. Send confirm_others=${others} to confirm.`;
  return new AppError('revocation_ends_others', message, { payload: { others } });
}

function isRevocable(credentials: Credentials, { provider, client }: Integration): boolean {
  // Without the sandbox a test integration has the real provider's addresses, and no client.
  return credentials.type === 'OAUTH2' && provider.revocation !== undefined && client !== undefined;
}

/**
 * The tokens of these locked connections, in their order: of each the current token, then the kept ones, one of which
 * may be the valid one. A connection that cannot be opened has none.
 */
async function listGrantTokens(
  tx: Tx,
  { connections, vault, log }: { connections: readonly { id: number }[]; vault: Vault; log: Logger },
): Promise<string[]> {
  const ids = connections.map(({ id }) => id);
  const rows = await tx.run(
    selectConnections().select('connection.kept_tokens').where('connection.id', 'in', ids),
  );
  const tokensOf = ({ kept_tokens: kept, ...row }: (typeof rows)[number]): string[] => {
    try {
      const connection = fromRow(row, vault);
      const { credentials } = connection;
      if (credentials.type !== 'OAUTH2') return [];
      const { refresh_token: refreshToken, access_token: accessToken } = credentials;
      return [refreshToken ?? accessToken, ...openKept(connection, kept)];
    } catch (error) {
      log.warn({ err: error, connection: row.connectionId }, 'credentials cannot be decrypted');
      return [];
    }
  };
  const inOrder = rows.toSorted((one, other) => ids.indexOf(one.id) - ids.indexOf(other.id));
  return [...new Set(inOrder.flatMap(tokensOf))];
}
