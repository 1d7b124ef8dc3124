/**
 * Forwards a verified webhook to the application: as an event, whose payload is stored sealed until it is sent.
 *
 * Does not own: the delivery (`deliveries/`), and the runs that the webhook starts (`functions/runs/queue.ts`).
 */
import type { Brand } from '../../brand.ts';
import type { LiveConnection } from '../../connections/store/reader.ts';
import { holdConnection } from '../../connections/store/store.ts';
import { first, type Queryable, type Tx } from '../../db/pool.ts';
import { forwardedHeaders, keepWebhookBody } from '../../deliveries/webhook-bodies.ts';
import { environmentKey } from '../../environments/store.ts';
import { AppError } from '../../errors.ts';
import { queueEvent } from '../../events/outbox.ts';
import type { Integration } from '../../integrations/store.ts';
import type { Vault } from '../../vault.ts';
import type { Sent } from './signature.ts';
import type { ReadWebhook } from './webhook-payload.ts';

const maxTypeCharacters = 255;
/** The maximum from unverified senders: any sender can be one, and each payload is stored. */
const maxUnverifiedAMinute = 100;

/**
 * Queues the event in a transaction that fails if the connection is deleted meanwhile. Without `connection`, the webhook
 * names no connection of the service.
 */
export async function forward(
  tx: Tx,
  of: {
    integration: Integration;
    connection: LiveConnection | undefined;
    notice: ReadWebhook;
    sent: Sent;
    at: Date;
    by: { vault: Vault; brand: Brand };
  },
): Promise<void> {
  const { integration, connection, sent, at } = of;
  const { type, payload } = of.notice;
  const { id: integrationId, environmentId, provider } = integration;
  if (connection !== undefined) await holdConnection(tx, connection.id);
  const key = connection?.dataKey ?? (await environmentKey(tx, { environmentId, vault: of.by.vault }));
  const eventId = await queueEvent(tx, {
    environmentId,
    type: 'webhook.received',
    data: {
      connection_id: connection?.connectionId ?? null,
      provider_config_key: integration.key,
      provider: provider.name,
      test: integration.isTest,
      type: type !== undefined && type.length <= maxTypeCharacters ? type : null,
    },
  });
  const proof = provider.webhook?.proof;
  // A header that contains the secret itself, or a token with which any body is accepted, is not forwarded.
  const isBearer = proof?.scheme === 'token' || proof?.scheme === 'jwt' || proof?.scheme === 'id_token';
  const secretHeader = isBearer ? proof.header : undefined;
  const besides = secretHeader === undefined ? [] : [secretHeader.toLowerCase()];
  const brandPrefix = of.by.brand.header('').toLowerCase();
  await keepWebhookBody(tx, {
    eventId,
    environmentId,
    integrationId,
    connectionId: connection?.id ?? null,
    key,
    at,
    body: { payload, headers: forwardedHeaders(sent.headers, { besides, brandPrefix }) },
  });
}

/** Throws `unavailable` (503) if more than a hundred webhooks of the integration were stored within a minute. */
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
      [integration.id, integration.environmentId, new Date(at.getTime() - 60_000), maxUnverifiedAMinute],
    ),
  );
  if ((row?.count ?? 0) < maxUnverifiedAMinute) return;
  throw new AppError(
    'unavailable',
    'Too many webhooks without a signature: set the webhook secret of the integration.',
    { retryAfterS: 60 },
  );
}
