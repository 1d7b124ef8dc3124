/**
 * The effects of a verified security event.
 *
 * Owns: the table `security_event` and the column `connection.retry_at`, that each event takes effect once, and which
 * connections it is about. Does not own: its verification (`security-event-token.ts`), and how the state of a connection
 * changes (`connections/health/status-transitions.ts`).
 */
import { sql } from 'kysely';
import { writeAudit } from '../../activity/audit.ts';
import { isRenewable } from '../../auth-modes/modes.ts';
import { isRefusal } from '../../connections/health/health.ts';
import { endConnection } from '../../connections/health/status-transitions.ts';
import type { CredentialSource } from '../../connections/refresh/credentials.ts';
import type { ConnectionReader } from '../../connections/store/reader.ts';
import {
  type ConnectionHead,
  type ConnectionPlace,
  type Evidence,
  findHeadForUpdate,
  fromRow,
  headFrom,
  headOf,
  selectConnections,
  selectHeads,
} from '../../connections/store/store.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Integration, IntegrationReading } from '../../integrations/store.ts';
import { eachInTurn, type Job } from '../../jobs/jobs.ts';
import type { Logger } from '../../log.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { oldestMs, type Rules, type SecurityEventToken, type Subject } from './security-event-token.ts';

export type SecurityEventDeps = {
  db: Db;
  reading: IntegrationReading;
  reader: ConnectionReader;
  credentials: Pick<CredentialSource, 'refreshed'>;
  fetchFor: (of: { isTest: boolean }) => Fetch;
  log: Logger;
  now?: () => Date;
};

/**
 * Applies every event of the token, in one transaction, to the account's connections of all clients in the token's audience,
 * in all environments. An event about the account itself also applies to connections with their own client. A token that
 * came before has no effect. A connection that an event restores is refreshed afterwards in the background, until the
 * provider accepts or refuses it. Throws `unavailable` if another transaction changed the same connections at the same time:
 * then nothing is changed, and the sender sends the event again.
 */
export async function actOn(
  deps: SecurityEventDeps,
  { token, integration, rules }: { token: SecurityEventToken; integration: Integration; rules: Rules },
): Promise<void> {
  const { db, reading, reader, log, now = () => new Date() } = deps;
  const { ended, restored } = await db
    .transaction(async (tx) => {
      const ended: ConnectionHead[] = [];
      const restored: ConnectionHead[] = [];
      if (!(await isFirstDelivery(tx, { token, at: now() }))) return { ended, restored };
      const among = await integrationsOf(tx, { audience: token.audience, integration, reading });
      const given = among.addressed.length > 0 ? effectsOf(token, rules) : [];
      const look = { among, token, reading, log };
      await lockAll(tx, given, look);
      for (const { effect, evidence, ...about } of given) {
        if (effect === 'restores') {
          const found = await findEnded(tx, { ...look, ...about });
          await scheduleRetries(tx, found, now());
          restored.push(...found);
        } else {
          const found = await findAlive(tx, { ...look, ...about });
          ended.push(...(await end(tx, { found, evidence, at: now() })));
        }
      }
      return { ended, restored };
    })
    .catch(throwRepeatable);
  for (const connection of ended) reader.forget(connection);
  log.info(
    { events: token.events.map(({ type }) => type), ended: ended.length, restored: restored.length },
    'security event',
  );
  for (const found of restored) retryInBackground(deps, found);
}

/** Refreshes the connection in the background, until the provider accepts or refuses it, unless its user must reconnect it. */
export async function recheck(deps: SecurityEventDeps, connection: ConnectionHead): Promise<void> {
  const { db, now = () => new Date() } = deps;
  await db.transaction((tx) => scheduleRetries(tx, [connection], now()));
  retryInBackground(deps, connection);
}

function retryInBackground(deps: SecurityEventDeps, found: ConnectionHead): void {
  retry(deps, found).catch((error: unknown) =>
    deps.log.info({ err: error }, 'a restored connection could not be refreshed; a job retries it'),
  );
}

/** `isOfGrant`: the event is about the grant to the client, and not about the account itself. */
type About = { subject: Subject; isOfGrant: boolean };
type Effect = About & { effect: 'ends' | 'restores'; evidence: Evidence };

/** The types of OAuth Event Types 1.0; all other types are of OpenID RISC. */
const grantTypes = 'oauth/event-type/';

/** The effects of the events that have a known type and subject. */
function effectsOf({ events }: SecurityEventToken, rules: Rules): Effect[] {
  return events.flatMap(({ type, reason, subject }) => {
    const effect = rules.types[type];
    if (subject === undefined || effect === undefined || effect === 'none') return [];
    const evidence = { event: type, ...(reason !== undefined && { reason }) };
    return [{ effect, evidence, subject, isOfGrant: type.startsWith(grantTypes) }];
  });
}

/**
 * Locks the connections of all events in the order of their IDs, as every transaction does that locks several. So tokens that
 * name the same accounts in another order cause no deadlock.
 */
async function lockAll(tx: Tx, effects: Effect[], look: Omit<Look, keyof About>): Promise<void> {
  const ids = new Set<number>();
  for (const { effect, evidence: _, ...about } of effects) {
    const found = await (effect === 'ends'
      ? findAlive(tx, { ...look, ...about })
      : findEnded(tx, { ...look, ...about }));
    for (const { id } of found) ids.add(id);
  }
  await tx.query('select from connection where id = any($1) order by id for no key update', [[...ids]]);
}

/** Ends the connections that still work, each with an event and an audit entry, and returns them. */
async function end(
  tx: Tx,
  { found, evidence, at }: { found: ConnectionHead[]; evidence: Evidence; at: Date },
): Promise<ConnectionHead[]> {
  const ended: ConnectionHead[] = [];
  for (const place of found) {
    const connection = await findHeadForUpdate(tx, place);
    if (connection === undefined) continue;
    if (!(await endConnection(tx, { connection, cause: 'security_event', evidence, at }))) continue;
    await writeAudit(tx, {
      environmentId: connection.environmentId,
      actor: 'service',
      action: 'connection.ended',
      target: `${connection.integrationKey}/${connection.connectionId}`,
      details: { cause: 'security_event' },
    });
    ended.push(connection);
  }
  return ended;
}

/** A deadlock or a serialization failure (PostgreSQL's class 40): the same work may succeed a moment later. */
function throwRepeatable(error: unknown): never {
  const { code } = error as { code?: unknown };
  if (code !== '40P01' && code !== '40001') throw error;
  throw new AppError('unavailable', 'Other requests change the same connections. Send the event again.', {
    cause: error,
    retryAfterS: 1,
  });
}

/** Stores the token, and returns whether it is new. Deletes tokens that are too old to be accepted again. */
async function isFirstDelivery(
  tx: Tx,
  { token, at }: { token: SecurityEventToken; at: Date },
): Promise<boolean> {
  await tx.query('delete from security_event where received_at < $1', [
    new Date(at.getTime() - 2 * oldestMs),
  ]);
  const inserted = await tx.query(
    'insert into security_event (issuer, jti, received_at) values ($1, $2, $3) on conflict do nothing returning jti',
    [token.issuer, token.jti, at],
  );
  return inserted.length > 0;
}

type Among = {
  /** The integrations whose client is in the audience. */
  addressed: number[];
  /** All integrations of the issuer: a client in the audience may be the own client of a connection. */
  all: number[];
};
type Found = { id: number; provider: string; clientId: string | null };

/** Finds the integrations in all environments: several may use one client. */
async function integrationsOf(
  tx: Tx,
  by: { audience: string[]; integration: Integration; reading: IntegrationReading },
): Promise<Among> {
  const { audience, integration } = by;
  const { catalog, testClient } = by.reading;
  const isForTestClient = testClient !== undefined && audience.includes(testClient.clientId);
  if (integration.isTest && !isForTestClient) return { addressed: [], all: [] };
  const issuerOf = (provider: string) => catalog.find(provider)?.security_events?.issuers[0];
  const issuer = issuerOf(integration.provider.name);
  const rows = await tx.query<Found>(
    'select id, provider, client_id as "clientId" from integration where is_test = $1',
    [integration.isTest],
  );
  const all = rows.filter(({ provider }) => issuerOf(provider) === issuer);
  const isAddressed = ({ clientId }: Found) =>
    integration.isTest || (clientId !== null && audience.includes(clientId));
  return { addressed: all.filter(isAddressed).map(({ id }) => id), all: all.map(({ id }) => id) };
}

type Look = About & { among: Among; token: SecurityEventToken; reading: IntegrationReading; log: Logger };

/**
 * Whether the audience has the client of the connection: the integration's client, or the connection's own. An event about a
 * grant to the integration's client does not apply to connections with their own client.
 */
function isMeant({ among: { addressed, all }, token: { audience }, isOfGrant }: Look) {
  const ofIntegration = sql<boolean>`connection.integration_id = any(${addressed})`;
  const byIntegration = isOfGrant
    ? sql<boolean>`(${ofIntegration} and not connection.has_own_client)`
    : ofIntegration;
  return sql<boolean>`connection.integration_id = any(${all})
    and (${byIntegration} or connection.own_client_id = any(${audience}))`;
}

/** Finds the connections that the event ends: those whose grant is not newer than the event, which may arrive late. */
async function findAlive(tx: Tx, look: Look): Promise<ConnectionHead[]> {
  const { subject, token, reading, log } = look;
  // The time in the token has whole seconds.
  const until = new Date(token.issuedAt.getTime() + 1000);
  const ofAnyone = selectConnections()
    .where(isMeant(look))
    .where('connection.status', '<>', 'needs_reauth')
    .where('connection.granted_at', '<', until)
    .orderBy('connection.id');
  if (subject.kind === 'account') {
    return (await tx.run(ofAnyone.where('connection.account_id', '=', subject.id))).map(headOf);
  }
  const column = subject.digest.of === 'prefix' ? 'refresh_prefix_digest' : 'refresh_token_digest';
  const rows = await tx.run(ofAnyone.where(`connection.${column}`, '=', subject.digest.value));
  return rows.filter((row) => isHolder(row)).map(headOf);

  /** If the credentials of a connection cannot be decrypted, the event still applies to the others. */
  function isHolder(row: (typeof rows)[number]): boolean {
    try {
      const { credentials } = fromRow(row, reading.vault);
      const refreshToken = credentials.type === 'OAUTH2' ? credentials.refresh_token : undefined;
      return subject.kind === 'token' && refreshToken !== undefined && subject.matches(refreshToken);
    } catch (error) {
      log.warn({ err: error, connection: row.connectionId }, 'credentials cannot be decrypted');
      return false;
    }
  }
}

/** Finds the connections that a security event has ended, if nothing has changed their state since. */
async function findEnded(tx: Tx, look: Look): Promise<ConnectionHead[]> {
  const { subject } = look;
  if (subject.kind !== 'account') return [];
  const rows = await tx.run(
    selectHeads()
      .where(isMeant(look))
      .where('connection.account_id', '=', subject.id)
      .where(sql`connection.fault->>'cause'`, '=', 'security_event')
      .orderBy('connection.id'),
  );
  return rows.map(headFrom);
}

type RetryDeps = Pick<SecurityEventDeps, 'db' | 'reader' | 'credentials' | 'log' | 'now'>;
type RestoredConnection = ConnectionPlace & { id: number };

/** The job retries a connection after this time, if the node that received the event has not done so. */
const firstWaitMs = 60_000;
const waitMs = 5 * 60_000;
/** The maximum number of connections that a run of the job retries, one after the other. */
const maxAtOnce = 20;

async function scheduleRetries(tx: Tx, connections: readonly { id: number }[], at: Date): Promise<void> {
  await tx.query('update connection set retry_at = $2 where id = any($1) and deleted_at is null', [
    connections.map(({ id }) => id),
    new Date(at.getTime() + firstWaitMs),
  ]);
}

/**
 * Refreshes a connection once, unless its user must reconnect it for another reason. The provider's response decides its
 * status.
 */
async function retry(
  { db, reader, credentials, now = () => new Date() }: RetryDeps,
  place: RestoredConnection,
): Promise<void> {
  const schedule = (at: Date | null) =>
    db.query('update connection set retry_at = $3 where id = $1 and environment_id = $2', [
      place.id,
      place.environmentId,
      at,
    ]);
  // After any failure, the next attempt comes after those of other connections.
  await schedule(new Date(now().getTime() + waitMs));
  reader.forget(place);
  try {
    const connection = await reader.get(place);
    const isOver = connection.status === 'needs_reauth' && connection.fault?.cause !== 'security_event';
    if (!isOver && isRenewable(connection.credentials)) await credentials.refreshed(connection);
  } catch (error) {
    if (!(error instanceof AppError && isRefusal(error))) throw error;
  }
  await schedule(null);
}

/** Retries restored connections whose first attempt was interrupted, or neither accepted nor refused. */
export function retryJob(deps: RetryDeps): Job<Record<string, never>> {
  const { db, log, now = () => new Date() } = deps;
  return {
    name: 'webhooks.retries',
    async run(_, signal) {
      const due = await db.query<RestoredConnection>(
        `select
           connection.id, connection.environment_id as "environmentId", integration.key as "integrationKey",
           connection.connection_id as "connectionId"
         from connection
         join integration on integration.id = connection.integration_id
         where connection.retry_at <= $1
           and connection.deleted_at is null
         order by connection.retry_at
         limit $2`,
        [now(), maxAtOnce],
      );
      await eachInTurn(due, { job: 'webhooks.retries', log, signal, work: (place) => retry(deps, place) });
    },
  };
}
