/**
 * The queue of grants that are to be revoked after their connection was deleted.
 *
 * Owns: the table `revocation`, the column `revokes_late_tokens`, when a revocation may be sent and how it ends: it
 * never ends a grant that another connection needs by then, and an event reports each revocation that is not carried
 * out. Does not own: sending (`revocations.ts`), whether a deletion revokes the grant (`disconnect.ts`).
 */
import { writeAudit } from '../../activity/audit.ts';
import { ownClientOf } from '../../auth-modes/modes.ts';
import { type Db, first, type Tx } from '../../db/pool.ts';
import { environmentKey } from '../../environments/store.ts';
import type { ConnectionSubject } from '../../events/event-types.ts';
import { queueEvent } from '../../events/outbox.ts';
import {
  clientOf,
  type Integration,
  type IntegrationReading,
  type OAuthClient,
} from '../../integrations/store.ts';
import type { TemplateValues } from '../../providers/template.ts';
import type { Vault } from '../../vault.ts';
import { type LiveConnection, templateValues } from '../store/reader.ts';
import { type Connection, connectionEvent, type Evidence } from '../store/store.ts';
import { isExchanging, lockUnit, sendingMs, unitOf } from './revocation-lock.ts';
import { isGrantShared, isGrantSharedSince } from './shared-grants.ts';

/**
 * `done`: the grant has ended; `queued`: it is tried again; `shared`: it stays, because a living connection needs it;
 * `failed`: the provider refused it until it was given up.
 */
export type RevocationOutcome = 'done' | 'queued' | 'shared' | 'failed';

const giveUpAfterMs = 3 * 24 * 3600_000;
/** The longest pause between two attempts, also if the provider requests a longer one. */
export const longestWaitMs = 6 * 3600_000;

const context = 'revocation';

/** The sealed part of a queued revocation. */
type RevocationSecrets = {
  provider: string;
  isTest: boolean;
  /** Tokens of the grant, sent in this order until the provider says that one has ended the grant. */
  tokens: string[];
  client: OAuthClient;
  values: TemplateValues;
  event: ConnectionSubject;
};
/** The plain-text part: nothing about a person. */
type RevocationSubject = Pick<
  ConnectionSubject,
  'connection_id' | 'provider_config_key' | 'provider' | 'test'
>;

type RevocationRow = {
  id: number;
  environmentId: number;
  unit: string | null;
  accountId: string | null;
  isForced: boolean;
  secrets: Buffer;
  attempts: number;
  evidence: Evidence | null;
  isUnderWay: boolean;
  createdAt: Date;
};
/** An opened revocation that may be sent. */
export type Revocation = Omit<RevocationRow, 'secrets'> & { secrets: RevocationSecrets };

/** A revocation cannot be opened: its key is missing, or the bytes are damaged. */
export class UnreadableRevocation extends Error {}

/**
 * Queues the revocation of a connection's grant and returns its ID. Call it in the transaction that destroys the
 * connection. The row has the secrets, sealed with the environment's key, until the revocation ends. `tokens` are
 * sent in this order; a token that a running refresh still brings comes first (`revokeLate`).
 */
export async function queueRevocation(
  tx: Tx,
  given: {
    connection: Connection;
    integration: Integration;
    tokens: string[];
    isForced: boolean;
    vault: Vault;
    at: Date;
  },
): Promise<number> {
  const { connection, integration, tokens, isForced, vault, at } = given;
  const { environmentId } = connection;
  const key = await environmentKey(tx, { environmentId, vault });
  const secrets: RevocationSecrets = {
    provider: integration.provider.name,
    isTest: integration.isTest,
    tokens,
    client: ownClientOf(connection.credentials) ?? clientOf(integration),
    values: templateValues({ ...connection, integration }),
    event: connectionEvent(connection),
  };
  const { connection_id, provider_config_key, provider, test } = secrets.event;
  const about: RevocationSubject = { connection_id, provider_config_key, provider, test };
  const [row] = await tx.query<{ id: number }>(
    `insert into revocation
       (environment_id, connection, about, unit, account_id, is_forced, secrets, next_at, created_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $8)
     returning id`,
    [
      environmentId,
      connection.id,
      JSON.stringify(about),
      unitOf(connection.credentials, integration) ?? null,
      connection.account?.id ?? null,
      isForced,
      key.sealJson(secrets, context),
      at,
    ],
  );
  await tx.query('update connection set revokes_late_tokens = true where id = $1 and environment_id = $2', [
    connection.id,
    environmentId,
  ]);
  return row!.id;
}

/**
 * Revokes a refresh token that arrived after its connection was deleted. It joins the queued revocation, or gets its
 * own if that is done or being sent. Does nothing if the deletion kept the grant.
 */
export async function revokeLate(
  tx: Tx,
  given: { connection: LiveConnection; token: string | undefined; vault: Vault; at: Date },
): Promise<void> {
  const { connection, token, vault, at } = given;
  if (token === undefined) return;
  const { environmentId, integration } = connection;
  const [deleted] = await tx.query<{ isWanted: boolean }>(
    `select revokes_late_tokens as "isWanted"
     from connection
     where id = $1 and environment_id = $2 and deleted_at is not null`,
    [connection.id, environmentId],
  );
  if (!deleted?.isWanted) return;
  const [queued] = await tx.query<{ id: number; secrets: Buffer }>(
    `select id, secrets
     from revocation
     where connection = $1 and environment_id = $2 and sending_until is null
     order by id desc
     limit 1
     for update`,
    [connection.id, environmentId],
  );
  if (queued === undefined) {
    await queueRevocation(tx, { connection, integration, tokens: [token], isForced: false, vault, at });
    return;
  }
  const key = await environmentKey(tx, { environmentId, vault });
  const secrets = key.openJson(queued.secrets, context) as RevocationSecrets;
  await tx.query('update revocation set secrets = $2 where id = $1', [
    queued.id,
    key.sealJson(
      { ...secrets, tokens: [token, ...secrets.tokens.filter((other) => other !== token)] },
      context,
    ),
  ]);
}

/**
 * Decides, under the lock of the unit, whether a revocation may be sent now. If so, marks that this node sends it,
 * which must end within `sendingMs`. Otherwise writes the outcome. Throws `UnreadableRevocation`.
 */
export async function takeRevocation(
  db: Db,
  { id, reading, now }: { id: number; reading: IntegrationReading; now: () => Date },
): Promise<Revocation | RevocationOutcome> {
  return db.transaction(async (tx) => {
    const [queued] = await tx.query<{ unit: string | null }>('select unit from revocation where id = $1', [
      id,
    ]);
    if (queued?.unit) await lockUnit(tx, queued.unit);
    const row = first(
      await tx.query<RevocationRow & { dataKey: Buffer }>(
        `select
           revocation.id, environment_id as "environmentId", unit, account_id as "accountId",
           is_forced as "isForced", secrets, attempts, evidence,
           coalesce(sending_until > clock_timestamp(), false) as "isUnderWay",
           revocation.created_at as "createdAt", data_key.wrapped as "dataKey"
         from revocation
         join environment on environment.id = environment_id
         join data_key on data_key.id = environment.data_key
         where revocation.id = $1
         for update of revocation`,
        [id],
      ),
    );
    if (row === undefined) return 'done';
    if (row.isUnderWay) return 'queued';
    const { dataKey, ...known } = row;
    const taken: Revocation = { ...known, secrets: openSecrets(row, reading.vault) };
    if (row.unit !== null && (await isNeeded(tx, { ...row, unit: row.unit, reading }))) {
      await endRevocation(tx, { taken, type: 'connection.revoke_dropped' });
      return 'shared';
    }
    // A revocation without an attempt, because the service was down for so long, gets one.
    if (row.attempts > 0 && isTooOld(row, now())) {
      await endRevocation(tx, { taken, type: 'connection.revoke_failed', evidence: row.evidence });
      return 'failed';
    }
    if (row.unit !== null && (await isExchanging(tx, row.unit))) return 'queued';
    const attempts = row.attempts + 1;
    await tx.query(
      `update revocation
       set attempts = $2, sending_until = clock_timestamp() + make_interval(secs => $3)
       where id = $1`,
      [id, attempts, sendingMs / 1000],
    );
    return { ...taken, attempts };
  });
}

/** The revocation is given up unless it succeeds now. */
export function isTooOld({ createdAt }: Pick<RevocationRow, 'createdAt'>, at: Date): boolean {
  return at.getTime() - createdAt.getTime() >= giveUpAfterMs;
}

/** A forced revocation ends all grants that existed when it was requested; only a later grant prevents it. */
async function isNeeded(
  tx: Tx,
  given: Omit<RevocationRow, 'unit'> & { unit: string; reading: IntegrationReading },
): Promise<boolean> {
  const { unit, accountId, isForced, createdAt, reading } = given;
  if (!isForced) return isGrantShared(tx, { unit, accountId: accountId ?? undefined, reading });
  return accountId !== null && isGrantSharedSince(tx, { unit, accountId, reading, since: createdAt });
}

/**
 * Records an attempt that has not ended the grant: the remaining tokens and the time of the next attempt.
 * `isUnderWay`: the provider may still carry out the request.
 */
export async function recordAttempt(
  db: Db,
  given: {
    taken: Revocation;
    left: string[];
    evidence: Evidence;
    isUnderWay: boolean;
    nextAt: Date;
    vault: Vault;
  },
): Promise<void> {
  const { taken, left, evidence, isUnderWay, nextAt, vault } = given;
  await db.transaction(async (tx) => {
    await tx.query(
      `update revocation
       set sending_until = case when $2 then sending_until end, next_at = $3, evidence = $4
       where id = $1`,
      [taken.id, isUnderWay, nextAt, JSON.stringify(evidence)],
    );
    const { id, environmentId, secrets } = taken;
    if (left.length === secrets.tokens.length) return;
    const key = await environmentKey(tx, { environmentId, vault });
    const sealed = key.sealJson({ ...secrets, tokens: left }, context);
    await tx.query('update revocation set secrets = $2 where id = $1', [id, sealed]);
  });
}

/** Postpones a revocation that cannot be opened, so that the others come first; gives it up when it is too old. */
export async function putOffUnreadable(db: Db, { id, now }: { id: number; now: Date }): Promise<void> {
  const at = now.getTime();
  await db.transaction(async (tx) => {
    const [deleted] = await tx.query<{ environmentId: number; about: RevocationSubject; attempts: number }>(
      `delete from revocation
       where id = $1 and created_at <= $2
       returning environment_id as "environmentId", about, attempts`,
      [id, new Date(at - giveUpAfterMs)],
    );
    if (deleted === undefined) {
      await tx.query('update revocation set next_at = $2 where id = $1', [id, new Date(at + longestWaitMs)]);
      return;
    }
    const { environmentId, about, attempts } = deleted;
    await queueEvent(tx, {
      environmentId,
      type: 'connection.revoke_failed',
      data: {
        ...about,
        account: null,
        tags: {},
        end_user: null,
        evidence: { error: 'secrets_unreadable' },
        attempts,
      },
    });
    await writeAudit(tx, {
      environmentId,
      actor: 'service',
      action: 'connection.revoke_failed',
      target: `${about.provider_config_key}/${about.connection_id}`,
    });
  });
}

/**
 * Removes a revocation from the queue, with an audit entry, and with an event unless it was carried out. `evidence` is
 * for the event of a revocation that is given up. False if it was already removed.
 */
export async function endRevocation(
  tx: Tx,
  {
    taken: { id, environmentId, secrets, attempts, isForced },
    type,
    evidence,
  }: {
    taken: Revocation;
    type: 'connection.revoked' | 'connection.revoke_dropped' | 'connection.revoke_failed';
    evidence?: Evidence | null;
  },
): Promise<boolean> {
  const deleted = await tx.query('delete from revocation where id = $1 returning id', [id]);
  if (deleted.length === 0) return false;
  const { event } = secrets;
  if (type === 'connection.revoke_dropped') await queueEvent(tx, { environmentId, type, data: event });
  if (type === 'connection.revoke_failed')
    await queueEvent(tx, { environmentId, type, data: { ...event, evidence: evidence ?? {}, attempts } });
  await writeAudit(tx, {
    environmentId,
    actor: 'service',
    action: type,
    target: `${event.provider_config_key}/${event.connection_id}`,
    details: { attempts, forced: isForced },
  });
  return true;
}

/** `dataKey`: the environment's, wrapped. Throws `UnreadableRevocation`. */
function openSecrets(
  { secrets, dataKey }: { secrets: Buffer; dataKey: Buffer },
  vault: Vault,
): RevocationSecrets {
  try {
    return vault.unwrap(dataKey).openJson(secrets, context) as RevocationSecrets;
  } catch (error) {
    throw new UnreadableRevocation('a revocation cannot be opened', { cause: error });
  }
}
