/**
 * Receives a provider's webhook: verifies it, finds its connections, and queues runs and events.
 *
 * Does not own: how a webhook is verified (`signature.ts`) and parsed (`webhook-payload.ts`), whether it is a repetition
 * (`replay-guard.ts`), the runs that it queues (`functions/runs/webhook-runs.ts`), or the event for the application (`forward.ts`).
 */
import { sql } from 'kysely';
import type { Brand } from '../brand.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from '../connections/reader.ts';
import { headFrom, selectHeads } from '../connections/rows.ts';
import type { ConnectionHead } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueWebhookRuns } from '../functions/runs/webhook-runs.ts';
import type { Integration } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { WebhookSignature } from '../providers/definition-webhook.ts';
import type { Vault } from '../vault.ts';
import { forwardTo, forwardUnmatched, requireCapacity } from './forward.ts';
import { isFirstDelivery } from './replay-guard.ts';
import { faultOfBodyTime, faultOfSignature, type Sent, signedFacts } from './signature.ts';
import { type ReadWebhook, readWebhook } from './webhook-payload.ts';

export type ReceiveDeps = {
  db: Db;
  vault: Vault;
  brand: Brand;
  connections: Pick<ConnectionReader, 'get'>;
  /** Told that runs wait. */
  poke: () => void;
  log: Pick<Logger, 'info' | 'warn'>;
  now: () => Date;
  /** Whether functions run at all. */
  isOn: boolean;
};

/** The maximum of connections of one webhook; more is an error of this service or of the sender. */
const maxConnections = 1_000;

/**
 * Answers what the provider is to read. Throws `webhook_refused` (401) where it is not proved, `not_found` where the
 * integration takes none, `invalid_json` and `invalid_content_type` where it cannot be read, and `unavailable` where it is
 * to be sent again.
 */
export async function receive(
  deps: ReceiveDeps,
  { integration, sent }: { integration: Integration; sent: Sent },
): Promise<Record<string, unknown>> {
  const { log, now } = deps;
  const { provider } = integration;
  const rules = provider.webhook;
  if (rules === undefined) {
    // An address that takes security events takes nothing else.
    if (provider.security_events !== undefined)
      throw new AppError(
        'invalid_content_type',
        'Send a security event as `Content-Type: application/secevent+jwt`.',
      );
    throw new AppError('not_found', `${provider.display_name} sends no webhooks to this integration.`);
  }
  const at = now();
  const secrets = secretsOf(integration, { proof: rules.proof, at });
  const refuseFor = (fault: string | undefined) => {
    if (fault === undefined) return;
    log.warn({ integration: integration.key, refused: fault }, 'a webhook was refused');
    throw new AppError('webhook_refused', fault);
  };
  refuseFor(faultOfSignature(rules.proof, { sent, secrets, now: at }));
  const notice = readWebhook(rules, sent);
  if (notice.challenge !== undefined) return { challenge: notice.challenge };
  const isProved = secrets.length > 0;
  if (isProved) refuseFor(faultOfBodyTime(rules.proof, notice.payload, at));
  const { connections, runs } = await handOn(deps, { integration, notice, sent, at, isProved });
  log.info({ integration: integration.key, type: notice.type, connections, runs }, 'webhook');
  return { status: 'success' };
}

function secretsOf(
  { webhookSecret, formerWebhookSecret: former, client }: Integration,
  { proof, at }: { proof: WebhookSignature; at: Date },
): string[] {
  const secrets =
    proof.key === 'client_secret'
      ? [client?.clientSecret]
      : [webhookSecret, former && former.until > at ? former.secret : undefined];
  return secrets.filter((secret) => secret !== undefined && secret !== '') as string[];
}

async function handOn(
  deps: ReceiveDeps,
  given: { integration: Integration; notice: ReadWebhook; sent: Sent; at: Date; isProved: boolean },
): Promise<{ connections: number; runs: number }> {
  const { db, connections, poke, isOn } = deps;
  const { integration, isProved, at } = given;
  const isForwarded = integration.forwardWebhooks;
  const found = isOn || isForwarded ? await recipientsOf(db, given) : [];
  if (isForwarded && !isProved && found.length > 0) await requireCapacity(db, { integration, at });
  let runs = 0;
  for (const head of found) {
    const connection = await liveOf(connections, head);
    if (connection !== undefined) runs += await handTo(deps, { ...given, connection });
  }
  if (runs > 0) poke();
  // Nothing is kept of a stranger who names nobody.
  if (isForwarded && isProved && found.length === 0) await forwardStray(deps, given);
  return { connections: found.length, runs };
}

type Handed = Parameters<typeof handOn>[1];

/** How many runs wait by it. Nothing where the connection is deleted meanwhile. */
async function handTo(
  deps: ReceiveDeps,
  { connection, ...given }: Handed & { connection: LiveConnection },
): Promise<number> {
  const { integration, notice, at } = given;
  try {
    return await deps.db.transaction(async (tx) => {
      if (!(await isNews(tx, { ...given, connection: connection.id }))) return 0;
      if (integration.forwardWebhooks) await forwardTo(tx, { ...forwarded(deps, given), connection });
      if (!deps.isOn) return 0;
      return queueWebhookRuns(tx, { connection, type: notice.type, payload: notice.payload, at });
    });
  } catch (error) {
    if (isGone(error)) return 0;
    throw error;
  }
}

async function forwardStray(deps: ReceiveDeps, given: Handed): Promise<void> {
  await deps.db.transaction(async (tx) => {
    if (!(await isNews(tx, { ...given, connection: null }))) return;
    await forwardUnmatched(tx, { ...forwarded(deps, given), vault: deps.vault });
  });
}

/** What bears no time may be sent again on purpose, such as by a button of the provider's. */
async function isNews(
  tx: Tx,
  { integration, sent, at, connection, isProved }: Handed & { connection: number | null },
): Promise<boolean> {
  const proof = integration.provider.webhook?.proof;
  const facts = proof && isProved ? signedFacts(proof, sent) : undefined;
  if (facts === undefined) return true;
  return isFirstDelivery(tx, { integration, facts, body: sent.body, at, connection });
}

const forwarded = ({ brand }: ReceiveDeps, { integration, notice, sent, at }: Handed) => ({
  ...{ integration, notice, sent, at },
  brandPrefix: brand.header('').toLowerCase(),
});

/** Undefined where it was deleted meanwhile. */
async function liveOf(
  connections: ReceiveDeps['connections'],
  head: ConnectionHead,
): Promise<LiveConnection | undefined> {
  try {
    return await connections.get(placeOf(head));
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

function isGone(error: unknown): boolean {
  return error instanceof AppError && error.code === 'unknown_connection';
}

async function recipientsOf(
  db: Db,
  { integration, notice: { recipient } }: { integration: Integration; notice: ReadWebhook },
): Promise<ConnectionHead[]> {
  if (recipient === undefined) return [];
  const { id } = recipient;
  const ofIntegration = selectHeads()
    .where('connection.environment_id', '=', integration.environmentId)
    .where('connection.integration_id', '=', integration.id)
    .orderBy('connection.id')
    .limit(maxConnections);
  const condition = {
    connection_id: sql<boolean>`connection.connection_id = ${id}`,
    account: sql<boolean>`connection.account_id = ${id}`,
    tag: sql<boolean>`connection.tags ->> ${recipient.by === 'tag' ? recipient.tag : ''} = ${id}`,
  }[recipient.by];
  return (await db.run(ofIntegration.where(condition))).map(headFrom);
}
