import { writeAudit } from '../activity/audit.ts';
import type { Credentials } from '../auth-modes/mode.ts';
import { revokeToken } from '../auth-modes/revocation.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import { type Db, first, type Tx } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import {
  clientOf,
  type Integration,
  type IntegrationReading,
  type OAuthClient,
} from '../integrations/store.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import { withSandbox } from '../providers/sandbox.ts';
import { TemplateError, type TemplateValues } from '../providers/template-grammar.ts';
import { connectionEvent } from './event.ts';
import { forgetTokens } from './grants.ts';
import { findSharers, isExchanging, lockUnit, sweepExchanges, unitOf } from './revocation-unit.ts';
import type { Connection } from './store.ts';
import { templateValues } from './values.ts';

/**
 * Grants of deleted connections, ended at their provider.
 *
 * Owns: the table `revocation`, that each is sent until the provider has answered or three days have passed, and that
 * none ends a grant that somebody still uses. Does not own: whether a deletion wants one (`disconnect.ts`), the
 * protocol (`auth-modes/revocation.ts`), what ends together (`revocation-unit.ts`).
 */
export type RevocationDeps = {
  db: Db;
  reading: IntegrationReading;
  fetchFor: (of: { isTest: boolean }) => Fetch;
  log: Logger;
  now?: () => Date;
};

/**
 * `done`: the grant has ended; `queued`: it is tried again; `shared`: it stays, since a living connection needs it;
 * `failed`: the provider has refused for so long that it was given up.
 */
export type RevocationOutcome = 'done' | 'queued' | 'shared' | 'failed';

const day = 24 * 3600_000;
const giveUpAfterMs = 3 * day;
const firstWaitMs = 60_000;
const longestWaitMs = 6 * 3600_000;
/** Longer than a request may take; after it the node that sends is taken to be lost. */
const sendingMs = 45_000;
const requestMs = 30_000;
const mostAtOnce = 100;

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
  sendingUntil: Date | null;
  createdAt: Date;
};
type Taken = Sealed & Pick<Row, 'id' | 'environmentId' | 'unit' | 'accountId' | 'attempts' | 'createdAt'>;

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
 * Sends a revocation once, unless a living connection has come to need the grant since it was noted: then it is
 * dropped. A failure leaves it to the job. `signal` ends the wait for the provider.
 */
export async function sendRevocation(
  deps: RevocationDeps,
  { id, signal }: { id: number; signal: AbortSignal },
): Promise<RevocationOutcome> {
  const taken = await take(deps, id);
  if (typeof taken === 'string') return taken;
  const fault = await send(deps, { taken, signal });
  return settle(deps, { taken, fault });
}

/** Sends what is due, and what an outage had put off. */
export function revocationJob(deps: RevocationDeps): Job<Record<string, never>> {
  const { db, now = () => new Date() } = deps;
  return {
    name: 'connections.revocations',
    async run(_, stopping) {
      await sweepExchanges(db, now());
      const due = await db.query<{ id: number }>(
        'select id from revocation where next_at <= $1 order by next_at limit $2',
        [now(), mostAtOnce],
      );
      for (const { id } of due) {
        if (stopping.aborted) return;
        const signal = AbortSignal.any([stopping, AbortSignal.timeout(requestMs)]);
        await sendRevocation(deps, { id, signal });
      }
    },
  };
}

/** Decides, under the lock of the unit, whether it may be sent now, and marks that this node does. */
async function take(
  { db, reading, now = () => new Date() }: RevocationDeps,
  id: number,
): Promise<Taken | RevocationOutcome> {
  return db.transaction(async (tx) => {
    const [noted] = await tx.query<{ unit: string | null }>('select unit from revocation where id = $1', [
      id,
    ]);
    if (noted?.unit) await lockUnit(tx, noted.unit);
    const row = first(
      await tx.query<Row>(
        `select
           id, environment_id as "environmentId", unit, account_id as "accountId", is_forced as "isForced",
           secrets, attempts, sending_until as "sendingUntil", created_at as "createdAt"
         from revocation
         where id = $1
         for update`,
        [id],
      ),
    );
    if (row === undefined) return 'done';
    if (row.sendingUntil !== null && row.sendingUntil > now()) return 'queued';
    if (row.unit !== null) {
      if (await isNeeded(tx, { ...row, unit: row.unit, reading })) {
        await tx.query('delete from revocation where id = $1', [id]);
        return 'shared';
      }
      if (await isExchanging(tx, { unit: row.unit, now: now() })) return 'queued';
    }
    await tx.query('update revocation set attempts = attempts + 1, sending_until = $2 where id = $1', [
      id,
      new Date(now().getTime() + sendingMs),
    ]);
    const key = await environmentKey(tx, { environmentId: row.environmentId, vault: reading.vault });
    return { ...row, ...(key.openJson(row.secrets, 'revocation') as Sealed), attempts: row.attempts + 1 };
  });
}

/** Those who lost access to a forced revocation are marked; whoever is alive has a grant of a later day. */
async function isNeeded(
  tx: Tx,
  { unit, accountId, isForced, reading }: Row & { unit: string; reading: IntegrationReading },
): Promise<boolean> {
  const sharers = await findSharers(tx, { unit, accountId: accountId ?? undefined, reading });
  return sharers.some(({ isCertain }) => isCertain || !isForced);
}

/** The fault, or undefined when the grant has ended. */
async function send(
  { reading, fetchFor, log }: RevocationDeps,
  { taken, signal }: { taken: Taken; signal: AbortSignal },
): Promise<TokenFault | undefined> {
  const { catalog, testClient } = reading;
  const { provider, isTest, token, client, values } = taken;
  const definition = catalog.find(provider);
  // Test tokens go to the sandbox or nowhere.
  if (definition === undefined || (isTest && testClient === undefined)) {
    return { kind: 'transient', error: 'provider_unavailable' };
  }
  try {
    const outcome = await revokeToken({
      definition: isTest && testClient ? withSandbox(definition, testClient.url) : definition,
      client: { ...client, scopes: [] },
      values,
      token,
      fetch: fetchFor({ isTest }),
      signal,
    });
    return outcome.ok ? undefined : outcome.fault;
  } catch (error) {
    if (!(error instanceof AppError || error instanceof TemplateError)) throw error;
    log.warn({ err: error }, 'a revocation cannot be sent');
    return { kind: 'protocol', error: error instanceof AppError ? error.code : 'invalid_address' };
  }
}

async function settle(
  { db, now = () => new Date() }: RevocationDeps,
  { taken, fault }: { taken: Taken; fault: TokenFault | undefined },
): Promise<RevocationOutcome> {
  const { id, environmentId, event, attempts, createdAt } = taken;
  const target = `${event.provider_config_key}/${event.connection_id}`;
  const audit = { environmentId, actor: 'service', target };
  if (fault === undefined) {
    await db.transaction(async (tx) => {
      const gone = await tx.query('delete from revocation where id = $1 returning id', [id]);
      if (gone.length === 0) return;
      await writeAudit(tx, { ...audit, action: 'connection.revoked' });
      const { unit, accountId } = taken;
      if (unit !== null && accountId !== null) await forgetTokens(tx, { unit, accountId });
    });
    return 'done';
  }
  const evidence = {
    ...(fault.error !== undefined && { error: fault.error }),
    ...(fault.httpStatus !== undefined && { http_status: fault.httpStatus }),
  };
  if (now().getTime() - createdAt.getTime() < giveUpAfterMs) {
    const waitMs = Math.max(
      fault.retryAfterMs ?? 0,
      Math.min(firstWaitMs * 2 ** (attempts - 1), longestWaitMs),
    );
    await db.query('update revocation set sending_until = null, next_at = $2, evidence = $3 where id = $1', [
      id,
      new Date(now().getTime() + waitMs),
      JSON.stringify(evidence),
    ]);
    return 'queued';
  }
  await db.transaction(async (tx) => {
    const gone = await tx.query('delete from revocation where id = $1 returning id', [id]);
    if (gone.length === 0) return;
    const data = { ...event, evidence, attempts };
    await queueEvent(tx, { environmentId, type: 'connection.revoke_failed', data });
    await writeAudit(tx, { ...audit, action: 'connection.revoke_failed', details: { attempts } });
  });
  return 'failed';
}
