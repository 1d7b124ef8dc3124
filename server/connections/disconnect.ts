import { setTimeout as pause } from 'node:timers/promises';
import { actorOf, writeAudit } from '../activity/audit.ts';
import type { Credentials } from '../auth-modes/mode.ts';
import type { Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Caller } from '../http/caller.ts';
import { findIntegration, type Integration } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { Vault } from '../vault.ts';
import { connectionEvent } from './event.ts';
import { type ConnectionHooks, noHooks } from './hooks.ts';
import { isLeasedAfterEnd } from './lease.ts';
import { openKept } from './previous-refresh-tokens.ts';
import type { ConnectionReader, LiveConnection } from './reader.ts';
import { lockUnit, unitOf } from './revocation-lock.ts';
import type { RevocationOutcome } from './revocation-queue.ts';
import { queueRevocation } from './revocation-store.ts';
import { type RevocationDeps, sendRevocation } from './revocations.ts';
import { fromRow, selectConnections } from './rows.ts';
import { countSharedGrants, isGrantShared } from './shared-grants.ts';
import { endConnection } from './status-transitions.ts';
import {
  type Connection,
  type ConnectionHead,
  destroyConnection,
  findHeadForUpdate,
  getConnection,
  unknownMessage,
} from './store.ts';

/**
 * The end of a connection, here and at its provider.
 *
 * Owns: whether a deletion also revokes the grant, and what that means for others who share it. Does not own: the
 * destruction of the data key (`store.ts`), when a revocation is sent (`revocations.ts`).
 */

/** `auto`: where nobody else loses access; `always`: also where others do, who were counted; `never`. */
export const revokeChoices = ['auto', 'always', 'never'] as const;
export type RevokeChoice = (typeof revokeChoices)[number];

/** As a revocation ends; `none` where the provider takes none, there is no token, or none was wanted. */
type Disconnected = { revocation: RevocationOutcome | 'none' };

/** How long a caller waits for the provider; the job goes on where that is not enough. */
const patienceMs = 4_000;
const pollMs = 50;

/**
 * Deletes a connection: its data key is destroyed at once, event and audit entry in the same transaction. Then its
 * grant is revoked at the provider, as `revoke` says. Nothing that the provider does makes the deletion fail.
 *
 * Throws `unknown_connection`, and `revocation_ends_others` (409, `payload.others`), with nothing changed, where a
 * forced revocation would end a number of other connections that is not the confirmed one.
 */
export async function disconnect(
  deps: RevocationDeps & { reader: ConnectionReader; hooks?: ConnectionHooks },
  {
    at,
    caller,
    revoke,
    confirmedOthers,
  }: {
    at: { environmentId: number; integrationKey: string; connectionId: string };
    caller: Caller;
    revoke: RevokeChoice;
    confirmedOthers: number;
  },
): Promise<Disconnected> {
  const { db, reading, reader, hooks = noHooks } = deps;
  const integration = await findIntegration(db, {
    ...reading,
    environmentId: at.environmentId,
    key: at.integrationKey,
  });
  if (integration === undefined) throw new AppError('unknown_connection', unknownMessage(at));
  // Before anything is locked: it takes as long as the application's own code.
  await hooks.beforeDelete(await liveOf(deps, { at, integration }));
  const { plan, ended, connection } = await destroyWhole(deps, {
    ...{ at, integration, caller, revoke, confirmedOthers },
  });
  reader.forget(at);
  for (const other of ended) reader.forget(other);
  if (typeof plan === 'string') return { revocation: plan };
  const id = plan.revocationId;
  return { revocation: await attempt(deps, { id, connection: { ...connection, integration } }) };
}

/** Also of an integration whose calls are refused at the moment. Throws `unknown_connection`. */
async function liveOf(
  { db, reading: { vault } }: RevocationDeps,
  { at, integration }: { at: Parameters<typeof disconnect>[1]['at']; integration: Integration },
): Promise<LiveConnection> {
  return { ...(await getConnection(db, { ...at, vault })), integration };
}

type Plan = 'none' | 'shared' | { revocationId: number };
type Others = { id: number; environmentId: number }[];
type Destroyed = { plan: Plan; ended: ConnectionHead[]; connection: Connection };

async function destroyWhole(
  deps: RevocationDeps,
  given: Parameters<typeof disconnect>[1] & { integration: Integration },
): Promise<Destroyed> {
  for (;;) {
    const destroyed = await deps.db.transaction((tx) => destroy(tx, { ...deps, ...given }));
    if (destroyed !== undefined) return destroyed;
  }
}

/** Undefined, with nothing changed, where somebody connected another account or by another client meanwhile. */
async function destroy(
  tx: Tx,
  {
    reading,
    log,
    now = () => new Date(),
    at,
    integration,
    caller,
    revoke,
    confirmedOthers,
  }: RevocationDeps & Parameters<typeof disconnect>[1] & { integration: Integration },
): Promise<Destroyed | undefined> {
  const { vault } = reading;
  const seen = await getConnection(tx, { ...at, vault });
  const unit = unitOf(seen.credentials, integration);
  if (unit !== undefined) await lockUnit(tx, unit);
  const isWanted = revoke !== 'never' && isRevocable(seen.credentials, integration);
  const isForced = revoke === 'always';
  const asked = unit !== undefined && { unit, accountId: seen.account?.id, exceptId: seen.id, reading };
  const others =
    asked && isWanted && isForced ? await countSharedGrants(tx, asked) : { count: 0, certain: [] as Others };
  if (isForced && others.count !== confirmedOthers) throw endsOthers(others.count);
  const isShared = asked && isWanted && !isForced && (await isGrantShared(tx, asked));

  // In the order of their IDs, as everyone does who locks several.
  const locked = [seen, ...others.certain];
  await tx.query('select from connection where id = any($1) order by id for update', [
    locked.map(({ id }) => id),
  ]);
  // Read again under the lock: a refresh may have stored the successor of the token.
  const connection = await getConnection(tx, { ...at, vault });
  const isAsSeen = connection.id === seen.id && connection.account?.id === seen.account?.id;
  if (!isAsSeen || unitOf(connection.credentials, integration) !== unit) return undefined;
  const tokens =
    isWanted && !isShared && isRevocable(connection.credentials, integration)
      ? await listGrantTokens(tx, { connections: locked, vault, log })
      : [];
  const ended = isForced ? await endOthers(tx, { others: others.certain, caller, at: now() }) : [];
  let plan: Plan = 'none';
  if (isShared) plan = 'shared';
  else if (tokens.length > 0) {
    const given = { connection, integration, tokens, isForced, vault, at: now() };
    plan = { revocationId: await queueRevocation(tx, given) };
  }
  await destroyConnection(tx, { id: connection.id, at: now() });
  await queueEvent(tx, {
    environmentId: connection.environmentId,
    type: 'connection.deleted',
    data: connectionEvent(connection),
  });
  await writeAudit(tx, {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    action: 'connection.deleted',
    target: `${at.integrationKey}/${at.connectionId}`,
    details: { revocation: typeof plan === 'string' ? plan : 'queued', ended_others: ended.length },
  });
  return { plan, ended, connection };
}

/** Those of the same account are known to lose access, so they are told at once instead of at their next refresh. */
async function endOthers(
  tx: Tx,
  { others, caller, at }: { others: Others; caller: Caller; at: Date },
): Promise<ConnectionHead[]> {
  const ended: ConnectionHead[] = [];
  for (const { id, environmentId } of others) {
    const other = await findHeadForUpdate(tx, { id, environmentId });
    if (other === undefined) continue;
    const change = { connection: other, cause: 'revoked_by_disconnect' as const, evidence: {}, at };
    if (!(await endConnection(tx, change))) continue;
    // Where it is looked for: the caller may be of another environment.
    await writeAudit(tx, {
      environmentId,
      actor: actorOf(caller),
      action: 'connection.ended',
      target: `${other.integrationKey}/${other.connectionId}`,
      details: { cause: 'revoked_by_disconnect' },
    });
    ended.push(other);
  }
  return ended;
}

/** Whatever goes wrong, the deletion is done and the note stays for the job. */
async function attempt(
  deps: RevocationDeps,
  { id, connection }: { id: number; connection: LiveConnection },
): Promise<RevocationOutcome> {
  const signal = AbortSignal.timeout(patienceMs);
  try {
    // The token of a refresh that was under way is revoked, too.
    while (connection.integration.provider.refresh.rotates && (await isLeasedAfterEnd(deps.db, connection))) {
      if (signal.aborted) return 'queued';
      await pause(pollMs);
    }
    return await sendRevocation(deps, { id, signal });
  } catch (error) {
    deps.log.warn({ err: error }, 'a revocation is left to the job');
    return 'queued';
  }
}

function endsOthers(others: number): AppError {
  const message =
    others === 0
      ? 'The revocation would end no other connection. Send confirm_others=0, or leave it out.'
      : `The revocation would also end ${others} other connection(s) of this installation, which share the account's ` +
        `grant or may share it. Send confirm_others=${others} if that is meant.`;
  return new AppError('revocation_ends_others', message, { payload: { others } });
}

/** Which tokens a revocation names: those of the grants that are to end. */

/** Whether there is something to end at the provider. */
function isRevocable(credentials: Credentials, { provider, client }: Integration): boolean {
  // A test integration whose sandbox is off has the real provider's addresses, and no client.
  return credentials.type === 'OAUTH2' && provider.revocation !== undefined && client !== undefined;
}

/**
 * The tokens that stand for the grants of these connections, which are locked, in their order: of each the one in use,
 * then those that are kept beside it and may be the good one. A connection that cannot be opened has none.
 */
async function listGrantTokens(
  tx: Tx,
  { connections, vault, log }: { connections: readonly { id: number }[]; vault: Vault; log: Logger },
): Promise<string[]> {
  const ids = connections.map(({ id }) => id);
  const rows = await tx.run(
    selectConnections().select('connection.kept_tokens').where('connection.id', 'in', ids),
  );
  const tokensOf = (row: (typeof rows)[number]): string[] => {
    try {
      const connection = fromRow(row, vault);
      const { credentials } = connection;
      if (credentials.type !== 'OAUTH2') return [];
      const { refresh_token: refreshToken, access_token: accessToken } = credentials;
      return [refreshToken ?? accessToken, ...openKept(connection, row.kept_tokens)];
    } catch (error) {
      log.warn({ err: error, connection: row.connection_id }, 'credentials cannot be opened');
      return [];
    }
  };
  const inOrder = rows.toSorted((one, other) => ids.indexOf(one.id) - ids.indexOf(other.id));
  return [...new Set(inOrder.flatMap(tokensOf))];
}
