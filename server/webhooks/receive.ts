/**
 * A provider's webhook: whether it is believed, whom it is for, and what follows.
 *
 * Does not own: how one is proved (`proof.ts`) and read (`notice.ts`), or the runs that it queues
 * (`functions/webhook-runs.ts`).
 */
import { sql } from 'kysely';
import { type ConnectionReader, type LiveConnection, placeOf } from '../connections/reader.ts';
import { headFrom, selectHeads } from '../connections/rows.ts';
import type { ConnectionHead } from '../connections/store.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueWebhookRuns } from '../functions/webhook-runs.ts';
import type { Integration } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { WebhookProof } from '../providers/definition-webhook.ts';
import { type Notice, readNotice } from './notice.ts';
import { faultOfProof, type Sent } from './proof.ts';

export type ReceiveDeps = {
  db: Db;
  connections: Pick<ConnectionReader, 'get'>;
  /** Told that runs wait. */
  poke: () => void;
  log: Pick<Logger, 'info' | 'warn'>;
  now: () => Date;
  /** Whether functions run at all. */
  isOn: boolean;
};

/** An account may have as many; more is a mistake of ours or of whoever names them. */
const mostConnections = 1_000;

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
  const fault = faultOfProof(rules.proof, { sent, secret: secretOf(integration, rules.proof), now: now() });
  if (fault !== undefined) {
    log.warn({ integration: integration.key, refused: fault }, 'a webhook was refused');
    throw new AppError('webhook_refused', fault);
  }
  const notice = readNotice(rules, sent);
  if (notice.challenge !== undefined) return { challenge: notice.challenge };
  const { connections, runs } = await handOn(deps, { integration, notice });
  log.info({ integration: integration.key, type: notice.type, connections, runs }, 'webhook');
  return { status: 'success' };
}

function secretOf({ webhookSecret, client }: Integration, proof: WebhookProof): string | undefined {
  return proof.key === 'webhook_secret' ? webhookSecret : client?.clientSecret;
}

async function handOn(
  { db, connections, poke, isOn, now }: ReceiveDeps,
  { integration, notice }: { integration: Integration; notice: Notice },
): Promise<{ connections: number; runs: number }> {
  const found = isOn ? await recipientsOf(db, { integration, notice }) : [];
  let runs = 0;
  for (const head of found) {
    const connection = await liveOf(connections, head);
    if (connection === undefined) continue;
    const { type, payload } = notice;
    runs += await db.transaction((tx) => queueWebhookRuns(tx, { connection, type, payload, at: now() }));
  }
  if (runs > 0) poke();
  return { connections: found.length, runs };
}

/** Undefined where it was deleted meanwhile. */
async function liveOf(
  connections: ReceiveDeps['connections'],
  head: ConnectionHead,
): Promise<LiveConnection | undefined> {
  try {
    return await connections.get(placeOf(head));
  } catch (error) {
    if (error instanceof AppError && error.code === 'unknown_connection') return undefined;
    throw error;
  }
}

async function recipientsOf(
  db: Db,
  { integration, notice: { recipient } }: { integration: Integration; notice: Notice },
): Promise<ConnectionHead[]> {
  if (recipient === undefined) return [];
  const { id } = recipient;
  const ofIntegration = selectHeads()
    .where('connection.environment_id', '=', integration.environmentId)
    .where('connection.integration_id', '=', integration.id)
    .orderBy('connection.id')
    .limit(mostConnections);
  const condition = {
    connection_id: sql<boolean>`connection.connection_id = ${id}`,
    account: sql<boolean>`connection.account_id = ${id}`,
    tag: sql<boolean>`connection.tags ->> ${recipient.by === 'tag' ? recipient.tag : ''} = ${id}`,
  }[recipient.by];
  return (await db.run(ofIntegration.where(condition))).map(headFrom);
}
