/**
 * Stops push channels that are no longer needed: when they are due, and before their connection is deleted.
 *
 * Does not own: which channels end (`channel-store.ts`), or the calls to the provider (`channel-request.ts`).
 */
import type { CredentialSource } from '../../connections/refresh/credentials.ts';
import type { ConnectionHooks } from '../../connections/store/hooks.ts';
import type { ConnectionReader } from '../../connections/store/reader.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Logger } from '../../log.ts';
import { TemplateError } from '../../providers/template.ts';
import { type CallFault, callWithRenewal, type ProviderCall, stopChannel } from './channel-request.ts';
import * as store from './channel-store.ts';

export type EndDeps = {
  db: Db;
  reader: Pick<ConnectionReader, 'get'>;
  credentials: Pick<CredentialSource, 'fresh' | 'renewed'>;
  fetchFor: (of: { isTest: boolean }) => ProviderCall['fetch'];
  log: Pick<Logger, 'warn'>;
  now: () => Date;
};

/** The time limit while a connection is being deleted, since a caller waits. */
const deletionMs = 4_000;
/**
 * A channel expires within a week. A provider that is down, or that refuses the connection, is not called each minute for
 * that.
 */
const againMs = 60 * 60_000;

/** Ends the channels of a connection before it is deleted, if the provider answers soon. Never throws. */
export function endsChannels(hooks: ConnectionHooks, deps: EndDeps): ConnectionHooks {
  return {
    ...hooks,
    async beforeDelete(connection) {
      await hooks.beforeDelete(connection);
      const signal = AbortSignal.timeout(deletionMs);
      const tooLong = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
      // A refresh, or a wait for a lock, does not react to the signal.
      await Promise.race([endAllOf(deps, connection.id, signal), tooLong]);
    },
  };
}

async function endAllOf(deps: EndDeps, connection: number, signal: AbortSignal): Promise<void> {
  const { db, log, now } = deps;
  try {
    const channels = await db.transaction((tx) => store.takeAllOf(tx, { connection, at: now() }));
    const ends = await Promise.allSettled(channels.map((channel) => stop(deps, { channel, signal })));
    const failed = ends.filter((end) => end.status === 'rejected' || !end.value.ok).length;
    if (failed > 0) log.warn({ failed }, 'push channels of a deleted connection were not stopped and expire');
  } catch (error) {
    log.warn({ err: error }, 'a connection is deleted, but its push channels could not be stopped');
  }
}

/** Stops a channel, or postpones its end if the provider does not confirm it. Returns whether the provider has answered. */
export async function endChannel(
  deps: EndDeps,
  { channel, signal }: { channel: store.Channel; signal: AbortSignal },
): Promise<'answered' | 'unanswered'> {
  const { db, now } = deps;
  const outcome = await stop(deps, { channel, signal }).catch((error: unknown) => {
    // The connection does not work, is suspended or has lost a setting, which is reported elsewhere.
    if (error instanceof TemplateError || (error instanceof AppError && error.code !== 'unavailable'))
      return undefined;
    throw error;
  });
  if (outcome?.ok) await store.deleteChannel(db, channel.id);
  else await store.postponeEnd(db, { id: channel.id, until: new Date(now().getTime() + againMs) });
  return outcome?.ok === false && outcome.fault.code === 'channel_unanswered' ? 'unanswered' : 'answered';
}

async function stop(
  deps: EndDeps,
  { channel, signal }: { channel: store.Channel; signal: AbortSignal },
): Promise<{ ok: true } | CallFault> {
  const connection = await deps.reader.get(channel);
  const rules = connection.integration.provider.channels;
  // The provider's definition has no channels any more.
  if (rules === undefined) return { ok: true };
  const to = { connection, rules, fetch: deps.fetchFor(connection.integration), signal };
  return callWithRenewal(deps.credentials, to, (call) => stopChannel(call, channel));
}
