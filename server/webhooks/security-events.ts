import { sql } from 'kysely';
import { writeAudit } from '../activity/audit.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { Evidence } from '../connections/health.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import { fromRow, headFrom, selectConnections, selectHeads } from '../connections/rows.ts';
import { endConnection } from '../connections/status-transitions.ts';
import { type ConnectionHead, findHeadForUpdate } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Integration, IntegrationReading } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import { noteRetries, retry } from './retries.ts';
import { oldestMs, type Rules, type SecurityEventToken, type Subject } from './security-event-token.ts';

/**
 * The effects of a verified security event.
 *
 * Owns: the table `security_event`, that each event takes effect once, and which connections it is about. Does not
 * own: its verification (`security-event-token.ts`), how a change of state is written (`connections/status-transitions.ts`).
 */
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
 * Acts on every event of the token, in one transaction, for the account's connections to any of the clients it is
 * addressed to, whatever their environment. What happened to the account itself counts for connections with a client of
 * their own, too. A token that came before does nothing. What an event restores is tried
 * again afterwards, in the background, until the provider has judged (`retries.ts`). Throws `unavailable` where others
 * changed the same connections at the same moment: nothing is done then, and the sender comes again.
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
          await noteRetries(tx, { connections: found, at: now() });
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
  for (const found of restored) {
    retry(deps, found).catch((error: unknown) =>
      log.info({ err: error }, 'a restored account is left to the job'),
    );
  }
}

/** `isOfGrant`: it is about what the account has granted to the client, and not about the account. */
type About = { subject: Subject; isOfGrant: boolean };
type Effect = About & { effect: 'ends' | 'restores'; evidence: Evidence };

/** OAuth Event Types 1.0, in contrast to those of OpenID RISC. */
const grantTypes = 'oauth/event-type/';

/** Of the events that mean something to us and are about somebody. */
function effectsOf({ events }: SecurityEventToken, rules: Rules): Effect[] {
  return events.flatMap(({ type, reason, subject }) => {
    const effect = rules.types[type];
    if (subject === undefined || effect === undefined || effect === 'none') return [];
    const evidence = { event: type, ...(reason !== undefined && { reason }) };
    return [{ effect, evidence, subject, isOfGrant: type.startsWith(grantTypes) }];
  });
}

/**
 * Locks the connections of all the events, in the order of their IDs, as everyone does who locks several: of tokens that
 * name the same accounts in another order none waits for one that waits for it.
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

/** Ends those that are still alive, each with its event and its entry in the audit log; answers which. */
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
      ...{ environmentId: connection.environmentId, actor: 'service', action: 'connection.ended' },
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
  throw new AppError('unavailable', 'Others change the same connections. Send the event again.', {
    ...{ cause: error, retryAfterS: 1 },
  });
}

/** Notes the token; false where it was noted before. Those that are too old to be taken again are forgotten. */
async function isFirstDelivery(
  tx: Tx,
  { token, at }: { token: SecurityEventToken; at: Date },
): Promise<boolean> {
  await tx.query('delete from security_event where received_at < $1', [
    new Date(at.getTime() - 2 * oldestMs),
  ]);
  const noted = await tx.query(
    'insert into security_event (issuer, jti, received_at) values ($1, $2, $3) on conflict do nothing returning jti',
    [token.issuer, token.jti, at],
  );
  return noted.length > 0;
}

type Among = {
  /** Those whose client the token is addressed to. */
  addressed: number[];
  /** All at the issuer: a client that the token is addressed to may be a connection's own. */
  all: number[];
};
type Found = { id: number; provider: string; clientId: string | null };

/** In every environment: a client may be used in several. */
async function integrationsOf(
  tx: Tx,
  {
    audience,
    integration,
    reading,
  }: { audience: string[]; integration: Integration; reading: IntegrationReading },
): Promise<Among> {
  const { catalog, testClient } = reading;
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
 * The connections that the token is addressed to: by their integration's client, or by their own. A grant to a client of
 * the connection's own is none of what the integration's has; one whose client is not known tells by its next refresh.
 */
function isMeant({ among: { addressed, all }, token: { audience }, isOfGrant }: Look) {
  const ofIntegration = sql<boolean>`connection.integration_id = any(${addressed})`;
  const byIntegration = isOfGrant
    ? sql<boolean>`(${ofIntegration} and not connection.has_own_client)`
    : ofIntegration;
  return sql<boolean>`connection.integration_id = any(${all})
    and (${byIntegration} or connection.own_client_id = any(${audience}))`;
}

/** Those whose grant is not of a later day than the event, which may have been delivered late. */
async function findAlive(tx: Tx, look: Look): Promise<ConnectionHead[]> {
  const { subject, token, reading, log } = look;
  // The token tells whole seconds.
  const until = new Date(token.issuedAt.getTime() + 1000);
  const ofAnyone = selectConnections()
    .where(isMeant(look))
    .where('connection.status', '<>', 'needs_reauth')
    .where('connection.granted_at', '<', until)
    .orderBy('connection.id');
  if (subject.kind === 'account') {
    return (await tx.run(ofAnyone.where('connection.account_id', '=', subject.id))).map(headFrom);
  }
  const column = subject.digest.of === 'prefix' ? 'refresh_prefix_digest' : 'refresh_token_digest';
  const rows = await tx.run(ofAnyone.where(`connection.${column}`, '=', subject.digest.value));
  return rows.filter((row) => isHolder(row)).map(headFrom);

  /** One that cannot be opened keeps no event from the others. */
  function isHolder(row: (typeof rows)[number]): boolean {
    try {
      const { credentials } = fromRow(row, reading.vault);
      const refreshToken = credentials.type === 'OAUTH2' ? credentials.refresh_token : undefined;
      return subject.kind === 'token' && refreshToken !== undefined && subject.matches(refreshToken);
    } catch (error) {
      log.warn({ err: error, connection: row.connection_id }, 'credentials cannot be opened');
      return false;
    }
  }
}

/** Those that an event has ended, and nothing else since. */
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
