/**
 * Receives a provider's webhook: verifies it, finds its connections, and queues runs and events.
 *
 * Does not own: how a webhook is verified (`signature.ts`) and parsed (`webhook-payload.ts`), whether it is a repetition
 * (`replay-guard.ts`), the runs that it queues (`functions/runs/queue.ts`), or the event for the application (`forward.ts`).
 */
import { createHmac } from 'node:crypto';
import { sql } from 'kysely';
import type { Brand } from '../../brand.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from '../../connections/store/reader.ts';
import { type ConnectionHead, findHead, headFrom, selectHeads } from '../../connections/store/store.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { queueWebhookRuns } from '../../functions/runs/queue.ts';
import type { Integration } from '../../integrations/store.ts';
import type { Logger } from '../../log.ts';
import type { WebhookRules, WebhookSignature } from '../../providers/definition.ts';
import type { Vault } from '../../vault.ts';
import { forward, requireCapacity } from './forward.ts';
import type { PublishedKeys } from './published-keys.ts';
import { isFirstDelivery } from './replay-guard.ts';
import { coversBytes, faultOfBodyTime, faultOfSignature, type Sent, signedFacts } from './signature.ts';
import {
  challengeIn,
  type Payload,
  type ReadWebhook,
  readPayload,
  readWebhook,
  requireFewValues,
} from './webhook-payload.ts';

export type ReceiveDeps = {
  db: Db;
  vault: Vault;
  brand: Brand;
  connections: Pick<ConnectionReader, 'get'>;
  keys: PublishedKeys;
  /** Called when runs wait. */
  poke: () => void;
  /** Renews the credentials of a connection in the background, whatever its state. */
  recheck: (connection: ConnectionHead) => Promise<void>;
  log: Pick<Logger, 'info' | 'warn'>;
  now: () => Date;
  /** Whether functions run in this installation. */
  isOn: boolean;
};

/** The maximum number of connections of one webhook; more is an error of this service or of the sender. */
const maxConnections = 1_000;

/** The maximum size of a test of the address in bytes. Larger requests are webhooks. */
const maxTestBytes = 16 * 1024;

/** The response for the provider. An undefined body is none. */
export type WebhookAnswer = { status: 200 | 204; headers?: Record<string, string>; body?: string | object };

/**
 * Returns the response for the provider. Throws `webhook_refused` (401) if the signature is not valid, `not_found` if the
 * integration accepts no webhooks, `invalid_json` and `invalid_content_type` if the webhook cannot be read, and
 * `unavailable` if the provider should send it again.
 */
export async function receive(
  deps: ReceiveDeps,
  { integration, sent, channel }: { integration: Integration; sent: Sent; channel?: Channel },
): Promise<WebhookAnswer> {
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
    throw notFound(integration);
  }
  const at = now();
  const secrets = channel?.secrets ?? secretsOf(integration, { proof: rules.proof, at });
  const refuseFor = (fault: string | undefined) => {
    if (fault === undefined) return;
    log.warn({ integration: integration.key, refused: fault }, 'a webhook was rejected');
    throw new AppError('webhook_refused', fault);
  };
  const { proof, challenge } = rules;
  const isUnproved = challenge?.method === 'POST' && !challenge.proved;
  // Nothing of an unproved body is read, unless the definition has a place in it: then only what is parsed quickly.
  const hasProofInside = proof.scheme === 'token' && proof.body !== undefined;
  const isOfFields = 'signed' in proof && proof.signed.includes('{form}');
  if (hasProofInside || isOfFields) requireFewValues(sent);
  const isReadFirst =
    hasProofInside ||
    (isUnproved &&
      challenge.from !== undefined &&
      'body' in challenge.from &&
      sent.body.length <= maxTestBytes);
  let payload: Payload = isReadFirst ? readPayload(sent, rules) : {};
  const test = () => answerTo(rules, { method: 'POST', sent, payload, secret: secrets[0] });
  const unproved = isUnproved ? test() : undefined;
  if (unproved !== undefined) return unproved;
  const { isTest } = integration;
  const published = secrets.length > 0 ? await deps.keys.find(proof, { sent, isTest }) : undefined;
  refuseFor(faultOfSignature(proof, { sent, secrets, now: at, payload, published }));
  if (!isReadFirst) payload = readPayload(sent, rules);
  const proved = test();
  if (proved !== undefined) return proved;
  const isVerified = secrets.length > 0;
  if (isVerified) refuseFor(faultOfBodyTime(proof, payload, at));
  const notice = readWebhook(rules, { sent, payload });
  const { connections, runs } = await distribute(deps, {
    integration,
    notice,
    sent,
    at,
    isVerified,
    channel,
  });
  await channel?.onAccepted(notice);
  log.info({ integration: integration.key, type: notice.type, connections, runs }, 'webhook');
  if (rules.answer_status === 204) return { status: 204 };
  return { status: 200, ...(rules.answer_body === 'json' && { body: { status: 'success' } }) };
}

/** A push channel: one of its secrets verifies the webhooks, and its connection receives them. */
export type Channel = {
  secrets: string[];
  connection: { id: number; environmentId: number };
  /** Called once the effects of the webhook are stored. */
  onAccepted: (notice: ReadWebhook) => Promise<void>;
};

/** The response to a POST that only tests the address, and that needs no proof. The body is not read. */
export function answerUnverified(rules: WebhookRules, sent: Sent): WebhookAnswer | undefined {
  const { challenge } = rules;
  if (challenge?.proved !== false || (challenge.from !== undefined && 'body' in challenge.from))
    return undefined;
  return answerTo(rules, { method: 'POST', sent, payload: {}, secret: undefined });
}

/** The response to a GET, which only tests the address. Throws `not_found` if the provider sends none. */
export function receiveTest({ integration, sent }: { integration: Integration; sent: Sent }): WebhookAnswer {
  const { webhook } = integration.provider;
  const answer = webhook && answerTo(webhook, { method: 'GET', sent, payload: {}, secret: undefined });
  if (answer === undefined) throw notFound(integration);
  return answer;
}

/** Undefined if the request is not a test of the address. */
function answerTo(
  rules: WebhookRules,
  of: { method: 'GET' | 'POST'; sent: Sent; payload: Payload; secret: string | undefined },
): WebhookAnswer | undefined {
  const value = challengeIn(rules, of);
  const answer = rules.challenge?.answer;
  if (value === undefined || answer === undefined) return undefined;
  if ('empty' in answer) return { status: rules.answer_status };
  if ('text' in answer) return { status: 200, body: value };
  // Node refuses a header with other characters.
  if ('header' in answer)
    return { status: 200, headers: /^[\x20-\x7e]*$/.test(value) ? { [answer.header]: value } : {} };
  // A value in which a signed text fits would be signed for a sender that knows only the former secret.
  if (Object.values(answer.json).includes('{hmac}') && !/^[\w-]{1,128}$/.test(value)) return undefined;
  const hmac = of.secret === undefined ? '' : createHmac('sha256', of.secret).update(value).digest('hex');
  const fields = Object.entries(answer.json).map(([name, from]) => [name, from === '{value}' ? value : hmac]);
  return { status: 200, body: Object.fromEntries(fields) as object };
}

const notFound = ({ provider }: Integration) =>
  new AppError('not_found', `${provider.display_name} sends no webhooks to this integration.`);

/** The integration's secrets for the proof, the current one first. */
export function secretsOf(
  { webhookSecret, formerWebhookSecret: former, client }: Integration,
  { proof, at }: { proof: WebhookSignature; at: Date },
): string[] {
  const secrets =
    proof.key === 'client_secret'
      ? [client?.clientSecret]
      : [webhookSecret, former && former.until > at ? former.secret : undefined];
  return secrets.filter((secret) => secret !== undefined && secret !== '') as string[];
}

type Received = {
  integration: Integration;
  notice: ReadWebhook;
  sent: Sent;
  at: Date;
  isVerified: boolean;
  channel?: Channel | undefined;
};

/** Passes a webhook to the connections that it names. */
async function distribute(
  deps: ReceiveDeps,
  received: Received,
): Promise<{ connections: number; runs: number }> {
  const { db, connections, poke, isOn } = deps;
  const { integration, isVerified, at } = received;
  const isForwarded = integration.forwardWebhooks;
  const { mustRecheck } = received.notice;
  const found = isOn || isForwarded || mustRecheck ? await recipientsOf(db, received) : [];
  if (isForwarded && !isVerified && found.length > 0) await requireCapacity(db, { integration, at });
  let runs = 0;
  for (const head of found) {
    runs += await unlessDeleted(async () => {
      const connection = await connections.get(placeOf(head));
      return db.transaction((tx) => passOn(tx, deps, { ...received, connection }));
    });
    if (mustRecheck) await deps.recheck(head);
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
  const body = proof && coversBytes(proof) ? sent.body : Buffer.alloc(0);
  const delivery = { integration, body, at, connection: connection?.id ?? null };
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
  { integration, notice: { recipients }, channel }: Pick<Received, 'integration' | 'notice' | 'channel'>,
): Promise<ConnectionHead[]> {
  if (channel !== undefined) {
    const head = await findHead(db, channel.connection);
    return head === undefined ? [] : [head];
  }
  if (recipients.length === 0) return [];
  const conditions = recipients.map((recipient) => {
    const { ids } = recipient;
    if (recipient.by === 'tag')
      return sql<boolean>`connection.tags ->> ${recipient.tag} = any(${ids}::text[])`;
    return {
      connection_id: sql<boolean>`connection.connection_id = any(${ids}::text[])`,
      account: sql<boolean>`connection.account_id = any(${ids}::text[])`,
      email: sql<boolean>`lower(connection.account_email) = any(${ids.map((id) => id.toLowerCase())}::text[])`,
    }[recipient.by];
  });
  const found = await db.run(
    selectHeads()
      .where('connection.environment_id', '=', integration.environmentId)
      .where('connection.integration_id', '=', integration.id)
      .where(sql<boolean>`(${sql.join(conditions, sql` or `)})`)
      .orderBy('connection.id')
      .limit(maxConnections),
  );
  return found.map(headFrom);
}
