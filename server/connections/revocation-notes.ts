import { writeAudit } from '../activity/audit.ts';
import type { Credentials } from '../auth-modes/mode.ts';
import { type Db, first, type Tx } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import { queueEvent } from '../events/outbox.ts';
import {
  clientOf,
  type Integration,
  type IntegrationReading,
  type OAuthClient,
} from '../integrations/store.ts';
import type { TemplateValues } from '../providers/template-grammar.ts';
import { connectionEvent } from './event.ts';
import { findSharers, isExchanging, lockUnit, sendingMs, unitOf } from './revocation-unit.ts';
import type { Connection } from './store.ts';
import { templateValues } from './values.ts';

/**
 * Notes of revocations that are to be sent.
 *
 * Owns: the table `revocation`, that none ends a grant which somebody has come to use, that each is forgotten with a
 * word to the application unless it was carried out. Does not own: sending them (`revocations.ts`).
 */

/**
 * `done`: the grant has ended; `queued`: it is tried again; `shared`: it stays, since a living connection needs it;
 * `failed`: the provider has refused for so long that it was given up.
 */
export type RevocationOutcome = 'done' | 'queued' | 'shared' | 'failed';

const giveUpAfterMs = 3 * 24 * 3600_000;
/** The longest pause between two attempts, whatever the provider asks for. */
export const longestWaitMs = 6 * 3600_000;

type Sealed = {
  provider: string;
  isTest: boolean;
  token: string;
  client: OAuthClient;
  values: TemplateValues;
  event: Record<string, unknown>;
};
type Row = {
  id: number;
  environmentId: number;
  unit: string | null;
  accountId: string | null;
  isForced: boolean;
  secrets: Buffer;
  attempts: number;
  evidence: Record<string, unknown> | null;
  sendingUntil: Date | null;
  createdAt: Date;
};
/** One that may be sent, opened. */
export type Revocation = Sealed & Omit<Row, 'secrets'>;

/** The token that stands for the whole grant; undefined where there is nothing to end at the provider. */
export function revocableToken(credentials: Credentials, integration: Integration): string | undefined {
  if (credentials.type !== 'OAUTH2' || integration.provider.revocation === undefined) return undefined;
  // A test integration whose sandbox is off has the real provider's addresses, and no client.
  if (integration.client === undefined) return undefined;
  return credentials.refresh_token ?? credentials.access_token;
}

/**
 * Notes, in the transaction that destroys the connection, that its grant is to end; the note's id. It holds what that
 * takes, sealed with the key of the environment, until it is done.
 */
export async function queueRevocation(
  tx: Tx,
  {
    connection,
    integration,
    token,
    isForced,
    reading,
    at,
  }: {
    connection: Connection;
    integration: Integration;
    token: string;
    isForced: boolean;
    reading: IntegrationReading;
    at: Date;
  },
): Promise<number> {
  const { environmentId } = connection;
  const key = await environmentKey(tx, { environmentId, vault: reading.vault });
  const sealed: Sealed = {
    provider: integration.provider.name,
    isTest: integration.isTest,
    token,
    client: clientOf(integration),
    values: templateValues({ ...connection, integration }),
    event: connectionEvent(connection),
  };
  const [row] = await tx.query<{ id: number }>(
    `insert into revocation (environment_id, unit, account_id, is_forced, secrets, next_at, created_at)
     values ($1, $2, $3, $4, $5, $6, $6)
     returning id`,
    [
      environmentId,
      unitOf(integration) ?? null,
      connection.account?.id ?? null,
      isForced,
      key.sealJson(sealed, 'revocation'),
      at,
    ],
  );
  return row!.id;
}

/**
 * Decides, under the lock of the unit, whether it may be sent now, and marks that this node does: then it must be over
 * within `sendingMs`. What it comes to otherwise is written.
 */
export async function takeRevocation(
  db: Db,
  { id, reading, now }: { id: number; reading: IntegrationReading; now: () => Date },
): Promise<Revocation | RevocationOutcome> {
  return db.transaction(async (tx) => {
    const [noted] = await tx.query<{ unit: string | null }>('select unit from revocation where id = $1', [
      id,
    ]);
    if (noted?.unit) await lockUnit(tx, noted.unit);
    const row = first(
      await tx.query<Row>(
        `select
           id, environment_id as "environmentId", unit, account_id as "accountId", is_forced as "isForced",
           secrets, attempts, evidence, sending_until as "sendingUntil", created_at as "createdAt"
         from revocation
         where id = $1
         for update`,
        [id],
      ),
    );
    if (row === undefined) return 'done';
    if (row.sendingUntil !== null && row.sendingUntil > now()) return 'queued';
    const key = await environmentKey(tx, { environmentId: row.environmentId, vault: reading.vault });
    const { secrets, ...known } = row;
    const taken: Revocation = { ...known, ...(key.openJson(secrets, 'revocation') as Sealed) };
    if (row.unit !== null && (await isNeeded(tx, { ...row, unit: row.unit, reading }))) {
      await forgetRevocation(tx, { taken, type: 'connection.revoke_dropped' });
      return 'shared';
    }
    // One that nobody has tried, since the service was down for so long, gets its attempt.
    if (row.attempts > 0 && isTooOld(row, now())) {
      await forgetRevocation(tx, { taken, type: 'connection.revoke_failed', more: outcomeOf(row) });
      return 'failed';
    }
    if (row.unit !== null && (await isExchanging(tx, { unit: row.unit, now: now() }))) return 'queued';
    const attempts = row.attempts + 1;
    await tx.query('update revocation set attempts = $2, sending_until = $3 where id = $1', [
      ...[id, attempts],
      new Date(now().getTime() + sendingMs),
    ]);
    return { ...taken, attempts };
  });
}

/** Whether it is given up unless it succeeds now. */
export function isTooOld({ createdAt }: Pick<Row, 'createdAt'>, at: Date): boolean {
  return at.getTime() - createdAt.getTime() >= giveUpAfterMs;
}

/** A forced one ends whatever was there when it was asked for, also what a refresh has kept alive. */
async function isNeeded(
  tx: Tx,
  {
    unit,
    accountId,
    isForced,
    createdAt,
    reading,
  }: Omit<Row, 'unit'> & { unit: string; reading: IntegrationReading },
): Promise<boolean> {
  const sharers = await findSharers(tx, { unit, accountId: accountId ?? undefined, reading });
  if (!isForced) return sharers.length > 0;
  return sharers.some(({ isCertain, grantedAt }) => isCertain && grantedAt > createdAt);
}

/**
 * One that cannot even be read comes up again after the others. Once it is too old the audit log tells of it: whose it
 * was cannot be read either.
 */
export async function putOffRevocation(db: Db, { id, now }: { id: number; now: Date }): Promise<void> {
  const at = now.getTime();
  await db.transaction(async (tx) => {
    const [gone] = await tx.query<{ environmentId: number }>(
      'delete from revocation where id = $1 and created_at <= $2 returning environment_id as "environmentId"',
      [id, new Date(at - giveUpAfterMs)],
    );
    if (gone === undefined) {
      await tx.query('update revocation set next_at = $2 where id = $1', [id, new Date(at + longestWaitMs)]);
      return;
    }
    await writeAudit(tx, {
      ...{ environmentId: gone.environmentId, actor: 'service', target: `revocation ${id}` },
      action: 'connection.revoke_failed',
    });
  });
}

/** What the event of one that was given up tells. */
export function outcomeOf({
  evidence,
  attempts,
}: Pick<Row, 'evidence' | 'attempts'>): Record<string, unknown> {
  return { evidence: evidence ?? {}, attempts };
}

/**
 * The end of a revocation, in the audit log, and unless it was carried out in an event. False where it was forgotten
 * already.
 */
export async function forgetRevocation(
  tx: Tx,
  {
    taken: { id, environmentId, event, attempts, isForced },
    type,
    more = {},
  }: {
    taken: Revocation;
    type: 'connection.revoked' | 'connection.revoke_dropped' | 'connection.revoke_failed';
    more?: Record<string, unknown>;
  },
): Promise<boolean> {
  const gone = await tx.query('delete from revocation where id = $1 returning id', [id]);
  if (gone.length === 0) return false;
  if (type !== 'connection.revoked') {
    await queueEvent(tx, { environmentId, type, data: { ...event, ...more } });
  }
  await writeAudit(tx, {
    ...{ environmentId, actor: 'service', action: type },
    target: `${event.provider_config_key}/${event.connection_id}`,
    details: { attempts, forced: isForced },
  });
  return true;
}
