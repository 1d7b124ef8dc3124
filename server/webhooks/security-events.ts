import { setImmediate as nextTurn } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import { fromRow, headFrom, selectConnections, selectHeads } from '../connections/rows.ts';
import { endConnection } from '../connections/states.ts';
import { type ConnectionHead, findHeadForUpdate } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import type { Integration, IntegrationReading } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import { oldestMs, type Rules, type SecurityEventToken, type Subject } from './verify.ts';

/**
 * What a believed security event does.
 *
 * Owns: the table `security_event`, that each event is acted upon once, and which connections it is about. Does not
 * own: whether it is believed (`verify.ts`), how a change of state is written (`connections/states.ts`).
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

/** How many connections are opened at a time to find the one with a certain token. */
const chunk = 200;

/**
 * Acts on every event of the token, in one transaction, for the account's connections to any of the clients it is
 * addressed to, whatever their environment. A token that came before does nothing. What an event restores is tried
 * again afterwards, in the background.
 */
export async function actOn(
  deps: SecurityEventDeps,
  { token, integration, rules }: { token: SecurityEventToken; integration: Integration; rules: Rules },
): Promise<void> {
  const { db, reading, reader, log, now = () => new Date() } = deps;
  const { ended, restored } = await db.transaction(async (tx) => {
    const ended: ConnectionHead[] = [];
    const restored: ConnectionHead[] = [];
    if (!(await isFirst(tx, { token, at: now() }))) return { ended, restored };
    const integrations = await integrationsOf(tx, { audience: token.audience, integration, reading });
    for (const { type, reason, subject } of integrations.length > 0 ? token.events : []) {
      const effect = rules.types[type];
      if (subject === undefined || effect === undefined || effect === 'none') continue;
      if (effect === 'restores') restored.push(...(await findEnded(tx, { integrations, subject })));
      else {
        const evidence = { event: type, ...(reason !== undefined && { reason }) };
        for (const found of await findAlive(tx, { integrations, subject, token, reading })) {
          const connection = await findHeadForUpdate(tx, found);
          if (connection === undefined) continue;
          const change = { connection, cause: 'security_event' as const, evidence, at: now() };
          if (await endConnection(tx, change)) ended.push(connection);
        }
      }
    }
    return { ended, restored };
  });
  for (const connection of ended) reader.forget(connection);
  log.info(
    { events: token.events.map(({ type }) => type), ended: ended.length, restored: restored.length },
    'security event',
  );
  for (const found of restored) {
    tryAgain(deps, found).catch((error: unknown) =>
      log.info({ err: error }, 'a restored account does not work yet'),
    );
  }
}

/** Notes the token; false where it was noted before. Those that are too old to be taken again are forgotten. */
async function isFirst(tx: Tx, { token, at }: { token: SecurityEventToken; at: Date }): Promise<boolean> {
  await tx.query('delete from security_event where received_at < $1', [
    new Date(at.getTime() - 2 * oldestMs),
  ]);
  const noted = await tx.query(
    'insert into security_event (issuer, jti, received_at) values ($1, $2, $3) on conflict do nothing returning jti',
    [token.issuer, token.jti, at],
  );
  return noted.length > 0;
}

/** In every environment: a client that the token is addressed to may be used in several. */
async function integrationsOf(
  tx: Tx,
  {
    audience,
    integration,
    reading,
  }: { audience: string[]; integration: Integration; reading: IntegrationReading },
): Promise<number[]> {
  const { catalog, testClient } = reading;
  const isForTestClient = testClient !== undefined && audience.includes(testClient.clientId);
  const rows = await tx.query<{ id: number; provider: string }>(
    `select id, provider
     from integration
     where is_test = $1 and case when is_test then $2 else client_id = any($3) end`,
    [integration.isTest, isForTestClient, audience],
  );
  const issuerOf = (provider: string) => catalog.find(provider)?.security_events?.issuers[0];
  const issuer = issuerOf(integration.provider.name);
  return rows.filter(({ provider }) => issuerOf(provider) === issuer).map(({ id }) => id);
}

/** Those whose grant is not of a later day than the event, which may have been delivered late. */
async function findAlive(
  tx: Tx,
  {
    integrations,
    subject,
    token,
    reading,
  }: { integrations: number[]; subject: Subject; token: SecurityEventToken; reading: IntegrationReading },
): Promise<ConnectionHead[]> {
  // The token tells whole seconds.
  const until = new Date(token.issuedAt.getTime() + 1000);
  const ofAnyone = selectConnections()
    .where('connection.integration_id', 'in', integrations)
    .where('connection.status', '<>', 'needs_reauth')
    .where('connection.granted_at', '<', until)
    .orderBy('connection.id');
  if (subject.kind === 'account') {
    return (await tx.run(ofAnyone.where('connection.account_id', '=', subject.id))).map(headFrom);
  }
  const holders: ConnectionHead[] = [];
  for (let after = 0; ; ) {
    const rows = await tx.run(ofAnyone.where('connection.id', '>', after).limit(chunk));
    for (const row of rows) {
      const { credentials, ...connection } = fromRow(row, reading.vault);
      const refreshToken = credentials.type === 'OAUTH2' ? credentials.refresh_token : undefined;
      if (refreshToken !== undefined && subject.matches(refreshToken)) holders.push(connection);
    }
    if (rows.length < chunk) return holders;
    after = rows.at(-1)!.id;
    await nextTurn();
  }
}

/** Those that an event has ended, and nothing else since. */
async function findEnded(
  tx: Tx,
  { integrations, subject }: { integrations: number[]; subject: Subject },
): Promise<ConnectionHead[]> {
  if (subject.kind !== 'account') return [];
  const rows = await tx.run(
    selectHeads()
      .where('connection.integration_id', 'in', integrations)
      .where('connection.account_id', '=', subject.id)
      .where(sql`connection.fault->>'cause'`, '=', 'security_event')
      .orderBy('connection.id'),
  );
  return rows.map(headFrom);
}

/** One refresh: where it succeeds the connection is active again. */
async function tryAgain({ reader, credentials }: SecurityEventDeps, found: ConnectionHead): Promise<void> {
  reader.forget(found);
  await credentials.refreshed(await reader.get(found));
}
