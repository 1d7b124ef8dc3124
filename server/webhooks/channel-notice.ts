/**
 * A message of a push channel: its verification, and which syncs run soon because of it.
 *
 * The message says only that something may have changed. So its number, its order and its repetition make no difference,
 * and no part of it is stored.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueSyncsSoon } from '../functions/runs/webhook-runs.ts';
import type { Integration } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { ChannelRules } from '../providers/definition-channels.ts';
import { endOrphan, findChannel, noteNoticed } from './channel-known.ts';
import { digestOf } from './channel-store.ts';

type Deps = {
  db: Db;
  log: Pick<Logger, 'info'>;
  now: () => Date;
  /** Whether functions run at all. */
  isOn: boolean;
};

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const maxTypeCharacters = 255;

/** Whether a request is one of a channel at all. */
export function isChannelMessage({ provider }: Integration, headers: IncomingHttpHeaders): boolean {
  return provider.channels !== undefined && headers[provider.channels.headers.id.toLowerCase()] !== undefined;
}

/**
 * Throws `not_found` for a channel that is not ours, for one that has ended, and for a wrong secret, in the same words: who
 * guesses learns nothing.
 */
export async function receiveMessage(
  { db, log, now, isOn }: Deps,
  { integration, headers }: { integration: Integration; headers: IncomingHttpHeaders },
): Promise<Record<string, unknown>> {
  const rules = integration.provider.channels;
  if (rules === undefined) throw refusal();
  const said = (name: keyof ChannelRules['headers']) => {
    const value = headers[rules.headers[name].toLowerCase()];
    return typeof value === 'string' ? value : '';
  };
  const [id, at] = [said('id'), now()];
  const { id: integrationId, environmentId } = integration;
  const channel = uuid.test(id) ? await findChannel(db, { id, integrationId, environmentId, at }) : undefined;
  const isProved = timingSafeEqual(digestOf(said('token')), channel?.tokenDigest ?? randomBytes(32));
  if (channel === undefined || !isProved) throw refusal();
  if (channel.state !== 'open') {
    const resourceId = said('resource');
    if (channel.state === 'asked' && resourceId !== '' && resourceId.length <= 255)
      await endOrphan(db, { id, resourceId, at });
    throw refusal();
  }
  const type = said('type');
  if (type !== rules.opening && isOn) {
    const { connection, target } = channel;
    const types = ['*', rules.kind, ...(type !== '' && type.length <= maxTypeCharacters ? [type] : [])];
    const syncs = await db.transaction((tx) => runSoon(tx, { connection, target, types, at }));
    log.info({ integration: integration.key, type, syncs }, 'a push channel told of a change');
  }
  return { status: 'success' };
}

/** For a notice that came while a run went on. */
export async function runNoticed(
  { db, now }: Pick<Deps, 'db' | 'now'>,
  { connection, target }: { connection: number; target: string },
): Promise<void> {
  await db.transaction(async (tx) => {
    const at = now();
    // First the runs, then the note, as for a message; what is held of the runs keeps a message from coming in between.
    const { running } = await queueSyncsSoon(tx, { connection, types: undefined, at });
    // Those whose run goes on for long keep no other from its turn.
    await noteNoticed(tx, { connection, target, at: running === 0 ? null : at });
  });
}

/** How many wait by it. Where one runs already, what it has read may be older than the change: it runs once more. */
async function runSoon(
  tx: Tx,
  of: { connection: number; target: string; types: readonly string[] | undefined; at: Date },
): Promise<number> {
  const { waiting, running } = await queueSyncsSoon(tx, of);
  if (running > 0) await noteNoticed(tx, of);
  return waiting;
}

const refusal = () => new AppError('not_found', 'There is no such channel.');
