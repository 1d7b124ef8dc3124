/**
 * Stops push channels that nobody listens to any more: when their turn comes, and before their connection is deleted.
 *
 * Does not own: which ones end (`channel-store.ts`), or what is said to the provider (`channel-request.ts`).
 */
import type { CredentialSource } from '../connections/credentials.ts';
import type { ConnectionHooks } from '../connections/hooks.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { type StopOutcome, stopChannel, type ToProvider } from './channel-request.ts';
import * as store from './channel-store.ts';

export type EndDeps = {
  db: Db;
  reader: Pick<ConnectionReader, 'get'>;
  credentials: Pick<CredentialSource, 'fresh' | 'renewed'>;
  fetchFor: (of: { isTest: boolean }) => ToProvider['fetch'];
  log: Pick<Logger, 'warn'>;
  now: () => Date;
};

const requestMs = 15_000;
/** Of a connection that is being deleted: somebody waits. */
const deletionMs = 4_000;
/** It ends by itself within a week; a provider that is down, or a connection that is dead, is not asked each minute for that. */
const againMs = 60 * 60_000;

/** Ends the channels of a connection before it is deleted, as far as the provider answers soon. Never throws. */
export function endsChannels(hooks: ConnectionHooks, deps: EndDeps): ConnectionHooks {
  return {
    ...hooks,
    async beforeDelete(connection) {
      await hooks.beforeDelete(connection);
      const signal = AbortSignal.timeout(deletionMs);
      const tooLong = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
      // What waits for a token, or for a lock, hears of no signal.
      await Promise.race([endAllOf(deps, connection.id, signal), tooLong]);
    },
  };
}

async function endAllOf(deps: EndDeps, connection: number, signal: AbortSignal): Promise<void> {
  const { db, log, now } = deps;
  try {
    const channels = await db.transaction((tx) => store.takeAllOf(tx, { connection, at: now() }));
    const ends = await Promise.all(
      channels.map((channel) => stop(deps, { channel, signal }).catch(() => 'unanswered')),
    );
    const failed = ends.filter((end) => end !== 'over').length;
    if (failed > 0) log.warn({ failed }, 'push channels of a deleted connection end by themselves');
  } catch (error) {
    log.warn({ err: error }, 'a connection is deleted without the end of its push channels');
  }
}

/** Stops one; where that is not possible now it is tried again later. Answers whether the provider was there to be asked. */
export async function endChannel(
  deps: EndDeps,
  { channel, signal }: { channel: store.Channel; signal: AbortSignal },
): Promise<'asked' | 'unanswered'> {
  const { db, now } = deps;
  const outcome = await stop(deps, { channel, signal }).catch((error: unknown) => {
    // The connection is dead, or paused; that is told elsewhere.
    if (error instanceof AppError && error.code !== 'unavailable') return 'later' as const;
    throw error;
  });
  if (outcome === 'over') await store.forgetChannel(db, channel.id);
  else await store.postponeEnd(db, { id: channel.id, until: new Date(now().getTime() + againMs) });
  return outcome === 'unanswered' ? outcome : 'asked';
}

async function stop(
  deps: EndDeps,
  { channel, signal }: { channel: store.Channel; signal: AbortSignal },
): Promise<StopOutcome> {
  const connection = await deps.reader.get(channel);
  const rules = connection.integration.provider.channels;
  // Of a provider that has none any more.
  if (rules === undefined) return 'over';
  const known = { id: channel.id, resourceId: channel.resourceId };
  const to = { connection, rules, fetch: deps.fetchFor(connection.integration) };
  const limited = () => AbortSignal.any([signal, AbortSignal.timeout(requestMs)]);
  const credentials = await deps.credentials.fresh(connection);
  const outcome = await stopChannel({ ...to, credentials, signal: limited() }, known);
  if (outcome !== 'token_refused') return outcome;
  const renewed = await deps.credentials.renewed(connection, credentials);
  if (renewed === undefined) return outcome;
  return stopChannel({ ...to, credentials: renewed, signal: limited() }, known);
}
