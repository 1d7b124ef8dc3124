/**
 * Receives a provider's webhook: verifies it, finds its connections, and queues runs and events.
 *
 * Does not own: how a webhook is verified (`signature.ts`) and parsed (`webhook-payload.ts`), whether it is a repetition
 * (`replay-guard.ts`), the runs that it queues (`functions/runs/queue.ts`), or the event for the application (`forward.ts`).
 */
import { sql } from 'kysely';
import type { Brand } from '../../brand.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from '../../connections/store/reader.ts';
import { type ConnectionHead, headFrom, selectHeads } from '../../connections/store/store.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { queueWebhookRuns } from '../../functions/runs/queue.ts';
import type { Integration } from '../../integrations/store.ts';
import type { Logger } from '../../log.ts';
import type { WebhookSignature } from '../../providers/definition.ts';
import type { Vault } from '../../vault.ts';
import { forward, requireCapacity } from './forward.ts';
import { isFirstDelivery } from './replay-guard.ts';
import { faultOfBodyTime, faultOfSignature, type Sent, signedFacts } from './signature.ts';
import { type ReadWebhook, readWebhook } from './webhook-payload.ts';

export type ReceiveDeps = {
  db: Db;
  vault: Vault;
  brand: Brand;
  connections: Pick<ConnectionReader, 'get'>;
  /** Called when runs wait. */
  poke: () => void;
  log: Pick<Logger, 'info' | 'warn'>;
  now: () => Date;
  /** Whether functions run in this installation. */
  isOn: boolean;
};

/** The maximum number of connections of one webhook; more is an error of this service or of the sender. */
const maxConnections = 1_000;

/**
 * Returns the response for the provider. Throws `webhook_refused` (401) if the signature is not valid, `not_found` if the
 * integration accepts no webhooks, `invalid_json` and `invalid_content_type` if the webhook cannot be read, and
 * `unavailable` if the provider should send it again.
 */
export async function receive(
  deps: ReceiveDeps,
  { integration, sent }: { integration: Integration; sent: Sent },
): Promise<Record<string, unknown>> {
  const { log, now } = deps;
  const { provider } = integration;
  const rules = provider.webhook;
  if (rules === undefined) {
    // An address for security events accepts nothing else.
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
    log.warn({ integration: integration.key, refused: fault }, 'a webhook was rejected');
    throw new AppError('webhook_refused', fault);
  };
  refuseFor(faultOfSignature(rules.proof, { sent, secrets, now: at }));
  const notice = readWebhook(rules, sent);
  if (notice.challenge !== undefined) return { challenge: notice.challenge };
  const isVerified = secrets.length > 0;
  if (isVerified) refuseFor(faultOfBodyTime(rules.proof, notice.payload, at));
  const { connections, runs } = await distribute(deps, { integration, notice, sent, at, isVerified });
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

type Received = { integration: Integration; notice: ReadWebhook; sent: Sent; at: Date; isVerified: boolean };

/** Passes a webhook to the connections that it names. */
async function distribute(
  deps: ReceiveDeps,
  received: Received,
): Promise<{ connections: number; runs: number }> {
  const { db, connections, poke, isOn } = deps;
  const { integration, isVerified, at } = received;
  const isForwarded = integration.forwardWebhooks;
  const found = isOn || isForwarded ? await recipientsOf(db, received) : [];
  if (isForwarded && !isVerified && found.length > 0) await requireCapacity(db, { integration, at });
  let runs = 0;
  for (const head of found) {
    runs += await unlessDeleted(async () => {
      const connection = await connections.get(placeOf(head));
      return db.transaction((tx) => passOn(tx, deps, { ...received, connection }));
    });
  }
  if (runs > 0) poke();
  // If an unverified webhook names no connection, nothing of it is stored.
  if (isForwarded && isVerified && found.length === 0)
    await db.transaction((tx) => passOn(tx, deps, { ...received, connection: undefined }));
  return { connections: found.length, runs };
}

/** Forwards a webhook and queues the runs of its connection, if it has one. Returns how many runs wait. */
async function passOn(
  tx: Tx,
  deps: ReceiveDeps,
  received: Received & { connection: LiveConnection | undefined },
): Promise<number> {
  const { integration, connection, sent, notice, at } = received;
  const proof = integration.provider.webhook?.proof;
  // A webhook without a signed time may be repeated on purpose, for example by a button at the provider.
  const facts = proof && received.isVerified ? signedFacts(proof, sent) : undefined;
  const delivery = { integration, body: sent.body, at, connection: connection?.id ?? null };
  if (facts !== undefined && !(await isFirstDelivery(tx, { ...delivery, facts }))) return 0;
  if (integration.forwardWebhooks) await forward(tx, { integration, connection, notice, sent, at, by: deps });
  if (!deps.isOn || connection === undefined) return 0;
  return queueWebhookRuns(tx, { connection, type: notice.type, payload: notice.payload, at });
}

/** Returns 0 if the connection is deleted meanwhile. */
async function unlessDeleted(work: () => Promise<number>): Promise<number> {
  return work().catch((error: unknown) => {
    if (error instanceof AppError && error.code === 'unknown_connection') return 0;
    throw error;
  });
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
