/**
 * Messages of push channels: their channel, and the syncs that run soon because of them.
 *
 * A message without content says only that something may have changed. So the number, the order and the repetition of such
 * messages make no difference, and no part of them is stored. A message with content is a webhook of the channel's connection;
 * `inbound/receive.ts` verifies and distributes it.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { queueSyncsSoon } from '../../functions/runs/queue.ts';
import type { Integration } from '../../integrations/store.ts';
import type { Logger } from '../../log.ts';
import type { ChannelRules, WebhookRules } from '../../providers/definition.ts';
import {
  answerUnverified,
  type ReceiveDeps,
  receive,
  secretsOf,
  type WebhookAnswer,
} from '../inbound/receive.ts';
import { faultOfSignature, type Sent } from '../inbound/signature.ts';
import { readPayload, textsAt } from '../inbound/webhook-payload.ts';
import { digestOf, findChannel, renewSoon, setNoticed, setResource, setSecret } from './channel-store.ts';

type MessageDeps = {
  db: Db;
  log: Pick<Logger, 'info'>;
  now: () => Date;
  /** Whether functions run in this installation. */
  isOn: boolean;
};

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const maxTypeCharacters = 255;

/** The query parameter with the channel's ID in the address of a provider that has no header for it. */
export const channelParameter = 'channel';
/** For which purpose the secret of a channel is sealed. */
export const secretContext = 'channel secret';

/** Whether a request is a message of a channel, and of which kind. */
export function channelMessageKind(
  { provider: { channels } }: Integration,
  { headers, url }: Sent,
): 'empty' | 'webhook' | undefined {
  if (channels === undefined) return undefined;
  if (channels.headers !== undefined)
    return headers[channels.headers.id.toLowerCase()] === undefined ? undefined : 'empty';
  return URL.parse(url)?.searchParams.has(channelParameter) ? 'webhook' : undefined;
}

/** Throws the same `not_found` for an unknown channel, an ended channel, and a wrong secret, so that a guess reveals nothing. */
export async function receiveMessage(
  { db, log, now, isOn }: MessageDeps,
  { integration, headers }: { integration: Integration; headers: IncomingHttpHeaders },
): Promise<Record<string, unknown>> {
  const rules = integration.provider.channels;
  if (rules?.headers === undefined) throw refusal();
  const names = rules.headers;
  const header = (name: keyof typeof names) => {
    const value = headers[names[name].toLowerCase()];
    return typeof value === 'string' ? value : '';
  };
  const [id, at] = [header('id'), now()];
  const channel = await findOf(db, { integration, id, at });
  const isAuthentic = timingSafeEqual(digestOf(header('token')), channel?.tokenDigest ?? randomBytes(32));
  if (channel === undefined || !isAuthentic) throw refusal();
  if (channel.state !== 'open') {
    const resourceId = header('resource');
    if (channel.state === 'asked' && resourceId !== '' && resourceId.length <= 255)
      await setResource(db, { id, resourceId });
    throw refusal();
  }
  const type = header('type');
  if (type !== rules.opening && isOn) {
    const { connection, target } = channel;
    const types = ['*', rules.kind, ...(type !== '' && type.length <= maxTypeCharacters ? [type] : [])];
    const syncs = await db.transaction((tx) => runSoon(tx, { connection, target, types, at }));
    log.info({ integration: integration.key, type, syncs }, 'a push channel reported a change');
  }
  return { status: 'success' };
}

function findOf(db: Db, { integration, id, at }: { integration: Integration; id: string; at: Date }) {
  const { id: integrationId, environmentId } = integration;
  return uuid.test(id) ? findChannel(db, { id, integrationId, environmentId, at }) : undefined;
}

/**
 * Receives a webhook for the connection of the channel in its address, verified with the channel's secret. Throws the same
 * `not_found` for an unknown, ended or not yet open channel, and `webhook_refused` as `receive` does.
 */
export async function receiveChannelWebhook(
  deps: ReceiveDeps,
  { integration, sent }: { integration: Integration; sent: Sent },
): Promise<WebhookAnswer> {
  const { db, now, connections } = deps;
  const { channels: rules, webhook } = integration.provider;
  const at = now();
  const id = URL.parse(sent.url)?.searchParams.get(channelParameter) ?? '';
  const channel = await findOf(db, { integration, id, at });
  if (rules === undefined || webhook === undefined || channel === undefined) throw refusal();
  const { dataKey } = await connections.get(channel);
  const secret = channel.secret === null ? undefined : dataKey.openJson(channel.secret, secretContext);
  const handed = rules.handshake && sent.headers[rules.handshake.toLowerCase()];
  if (typeof handed === 'string') {
    const sealed = dataKey.sealJson(handed, secretContext);
    const isFirst =
      secret === undefined && (await db.transaction((tx) => setSecret(tx, { id, secret: sealed })));
    if (!isFirst && secret !== handed) throw refusal();
    return answerUnverified(webhook, sent) ?? { status: webhook.answer_status };
  }
  // The provider tests the address while it creates the channel.
  const test = answerUnverified(webhook, sent);
  if (test !== undefined) return test;
  if (channel.state !== 'open') {
    if (channel.state === 'asked')
      await storeRevealedResource(deps, { rules, webhook, channel: { id, secret }, sent });
    throw refusal();
  }
  if (typeof secret !== 'string') throw refusal();
  return receive(deps, {
    integration,
    sent,
    channel: {
      secrets: [
        secret,
        ...(rules.accepts_webhook_secret ? secretsOf(integration, { proof: webhook.proof, at }) : []),
      ],
      connection: { id: channel.connection, environmentId: channel.environmentId },
      async onAccepted({ type, payload }) {
        const { connection, target } = channel;
        const isAboutChannel = rules.lifecycle && textsAt(rules.lifecycle, { sent, payload }).length > 0;
        const types = ['*', rules.kind, ...(type === undefined ? [] : [type])];
        if (isAboutChannel) await renewSoon(db, { connection, target, at });
        if (!deps.isOn) return;
        const of = { connection, target, types: isAboutChannel ? undefined : types, at };
        await db.transaction((tx) => runSoon(tx, of));
      },
    },
  });
}

/**
 * Stores the provider's ID of a channel whose creation response is missing, if this message has it. `watches.ts` then stops the
 * channel.
 */
async function storeRevealedResource(
  { db, now }: ReceiveDeps,
  of: { rules: ChannelRules; webhook: WebhookRules; channel: { id: string; secret: unknown }; sent: Sent },
): Promise<void> {
  const { rules, webhook, channel, sent } = of;
  if (rules.resource === undefined) return;
  const payload = readPayload(sent, webhook);
  // A secret that the provider made was lost with the response. The sender knows the channel's ID, which is secret, too.
  if (typeof channel.secret === 'string') {
    const secrets = [channel.secret];
    if (faultOfSignature(webhook.proof, { sent, secrets, now: now(), payload }) !== undefined) return;
  }
  const [resourceId] = textsAt(rules.resource, { sent, payload });
  if (resourceId !== undefined && resourceId.length <= 255)
    await setResource(db, { id: channel.id, resourceId });
}

/** Queues the runs for a message that came while a run went on. */
export async function runNoticed(
  { db, now }: Pick<MessageDeps, 'db' | 'now'>,
  { connection, target }: { connection: number; target: string },
): Promise<void> {
  await db.transaction(async (tx) => {
    const at = now();
    // The runs come first, as for a message. Their locks delay a message that arrives in between.
    const { running } = await queueSyncsSoon(tx, { connection, types: undefined, at });
    // With the present time, a watch whose run goes on for long does not delay the others.
    await setNoticed(tx, { connection, target, at: running === 0 ? null : at });
  });
}

/** Returns how many syncs wait to run. A sync that runs now may have read older data than the change: it runs again. */
async function runSoon(
  tx: Tx,
  of: { connection: number; target: string; types: readonly string[] | undefined; at: Date },
): Promise<number> {
  const { waiting, running } = await queueSyncsSoon(tx, of);
  if (running > 0) await setNoticed(tx, of);
  return waiting;
}

const refusal = () => new AppError('not_found', 'There is no such channel.');
