/**
 * Messages of push channels: their verification, and the syncs that run soon because of them.
 *
 * A message says only that something may have changed. So the number, the order and the repetition of messages make no
 * difference, and no part of a message is stored.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { queueSyncsSoon } from '../../functions/runs/queue.ts';
import type { Integration } from '../../integrations/store.ts';
import type { Logger } from '../../log.ts';
import type { ChannelRules } from '../../providers/definition.ts';
import { digestOf, endOrphan, findChannel, setNoticed } from './channel-store.ts';

type MessageDeps = {
  db: Db;
  log: Pick<Logger, 'info'>;
  now: () => Date;
  /** Whether functions run in this installation. */
  isOn: boolean;
};

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const maxTypeCharacters = 255;

/** Whether a request is a message of a channel. */
export function isChannelMessage({ provider }: Integration, headers: IncomingHttpHeaders): boolean {
  return provider.channels !== undefined && headers[provider.channels.headers.id.toLowerCase()] !== undefined;
}

/** Throws the same `not_found` for an unknown channel, an ended channel, and a wrong secret, so that a guess reveals nothing. */
export async function receiveMessage(
  { db, log, now, isOn }: MessageDeps,
  { integration, headers }: { integration: Integration; headers: IncomingHttpHeaders },
): Promise<Record<string, unknown>> {
  const rules = integration.provider.channels;
  if (rules === undefined) throw refusal();
  const header = (name: keyof ChannelRules['headers']) => {
    const value = headers[rules.headers[name].toLowerCase()];
    return typeof value === 'string' ? value : '';
  };
  const [id, at] = [header('id'), now()];
  const { id: integrationId, environmentId } = integration;
  const channel = uuid.test(id) ? await findChannel(db, { id, integrationId, environmentId, at }) : undefined;
  const isProved = timingSafeEqual(digestOf(header('token')), channel?.tokenDigest ?? randomBytes(32));
  if (channel === undefined || !isProved) throw refusal();
  if (channel.state !== 'open') {
    const resourceId = header('resource');
    if (channel.state === 'asked' && resourceId !== '' && resourceId.length <= 255)
      await endOrphan(db, { id, resourceId, at });
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
