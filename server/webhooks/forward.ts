/**
 * A verified webhook, forwarded to the application as an event, whose payload is kept sealed until it is sent.
 *
 * Does not own: how it is delivered (`deliveries/`), or to whom it is handed besides (`functions/runs/webhook-runs.ts`).
 */
import { type LiveConnection, placeOf } from '../connections/reader.ts';
import { holdConnection } from '../connections/store.ts';
import { first, type Queryable, type Tx } from '../db/pool.ts';
import { forwardedHeaders, keepWebhookBody } from '../deliveries/webhook-bodies.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Integration } from '../integrations/store.ts';
import type { Vault } from '../vault.ts';
import type { Sent } from './signature.ts';
import type { ReadWebhook } from './webhook-payload.ts';

type Forwarded = {
  integration: Integration;
  notice: ReadWebhook;
  sent: Sent;
  at: Date;
  /** Names of headers that begin so are ours alone. */
  brandPrefix: string;
};

const maxTypeCharacters = 255;
/** Of senders that prove nothing: anyone can be one, and what is told is kept. */
const maxUnprovedAMinute = 100;

/** Tells it as the connection's, in a transaction that ends where the connection is deleted meanwhile. */
export async function forwardTo(
  tx: Tx,
  { connection, ...forwarded }: Forwarded & { connection: LiveConnection },
): Promise<void> {
  await holdConnection(tx, connection.id);
  const { integrationKey: _, connectionId } = placeOf(connection);
  await tell(tx, forwarded, { connectionId, row: connection.id, key: connection.dataKey });
}

/** Tells it as one for no connection of ours. */
export async function forwardUnmatched(
  tx: Tx,
  { vault, ...forwarded }: Forwarded & { vault: Vault },
): Promise<void> {
  const { environmentId } = forwarded.integration;
  const key = await environmentKey(tx, { environmentId, vault });
  await tell(tx, forwarded, { connectionId: null, row: null, key });
}

async function tell(
  tx: Tx,
  { integration, notice: { type, payload }, sent, at, brandPrefix }: Forwarded,
  of: { connectionId: string | null; row: number | null; key: LiveConnection['dataKey'] },
): Promise<void> {
  const { id: integrationId, environmentId, provider } = integration;
  const eventId = await queueEvent(tx, {
    environmentId,
    type: 'webhook.received',
    data: {
      connection_id: of.connectionId,
      provider_config_key: integration.key,
      provider: provider.name,
      test: integration.isTest,
      type: type !== undefined && type.length <= maxTypeCharacters ? type : null,
    },
  });
  const proof = provider.webhook?.proof;
  // A secret that is sent as it is stays here.
  const besides = proof?.scheme === 'token' ? [proof.header.toLowerCase()] : [];
  await keepWebhookBody(tx, {
    ...{ eventId, environmentId, integrationId, connectionId: of.row, key: of.key, at },
    body: { payload, headers: forwardedHeaders(sent.headers, { besides, brandPrefix }) },
  });
}

/** Throws `unavailable` (503) where more than a hundred of them were kept within a minute. */
export async function requireCapacity(
  db: Queryable,
  { integration, at }: { integration: Integration; at: Date },
): Promise<void> {
  const row = first(
    await db.query<{ count: number }>(
      `select count(*)::integer as count
       from (
         select
         from webhook_body
         where integration_id = $1 and environment_id = $2 and received_at > $3
         limit $4
       ) as kept`,
      [integration.id, integration.environmentId, new Date(at.getTime() - 60_000), maxUnprovedAMinute],
    ),
  );
  if ((row?.count ?? 0) < maxUnprovedAMinute) return;
  throw new AppError(
    'unavailable',
    'Too many webhooks came unproved: set the webhook secret of the integration.',
    {
      retryAfterS: 60,
    },
  );
}
