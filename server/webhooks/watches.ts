/**
 * Keeps push channels for the connections whose syncs subscribe to changes: asked for, renewed at half their life, stopped
 * when nothing listens any more.
 *
 * Does not own: the rows (`channel-store.ts`), what is said to the provider (`channel-request.ts`), or what a message does
 * (`channel-notice.ts`). A channel only makes a sync run sooner: without one everything goes by the schedule.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { isIP } from 'node:net';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { ConnectionHooks } from '../connections/hooks.ts';
import type { ConnectionReader, LiveConnection } from '../connections/reader.ts';
import { holdConnection } from '../connections/store.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import { isPublicAddress } from '../outbound-addresses.ts';
import type { Catalog } from '../providers/catalog.ts';
import type { ChannelRules } from '../providers/definition-channels.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { listNoticed } from './channel-known.ts';
import { runNoticed } from './channel-notice.ts';
import { type Opened, openChannel, stopChannel } from './channel-request.ts';
import * as store from './channel-store.ts';

export type WatchDeps = {
  db: Db;
  catalog: Pick<Catalog, 'list'>;
  reader: Pick<ConnectionReader, 'get'>;
  credentials: Pick<CredentialSource, 'fresh' | 'renewed'>;
  fetchFor: (of: { isTest: boolean }) => Fetch;
  baseUrl: string;
  isSandboxOn: boolean;
  log: Pick<Logger, 'warn'>;
  now: () => Date;
};

/** Metadata are looked at again, since they may name something else by then. */
const lookAgainMs = 10 * 60_000;
const mostAtOnce = 50;
const mostTargets = 50;
const requestMs = 15_000;
/** Of a connection that is being deleted: somebody waits. */
const deletionMs = 4_000;
const firstWaitMs = 60_000;
const longestWaitMs = 60 * 60_000;

/** Does what is due. On several nodes at once each thing is done by one of them. */
export function watchJob(deps: WatchDeps): Job<Record<string, never>> {
  const { db, catalog, isSandboxOn, log, now } = deps;
  /** One that fails is logged, and stops none of the others. */
  async function each<T>(
    items: readonly T[],
    signal: AbortSignal,
    work: (item: T) => Promise<unknown>,
  ): Promise<void> {
    for (const item of items) {
      if (signal.aborted) return;
      await work(item).catch((error: unknown) => {
        if (error instanceof AppError && error.code === 'unavailable') throw error;
        log.warn({ err: error }, 'a push channel is looked at later');
      });
    }
  }
  return {
    name: 'webhooks.channels',
    async run(_, signal) {
      const providers = catalog.list().filter(({ channels }) => channels !== undefined);
      const at = now();
      await store.endWatching(db, at);
      await store.beginWatching(db, { providers: providers.map(({ name }) => name), isSandboxOn, at });
      await store.forgetExpired(db, at);
      const looks = await store.takeLooks(db, { at, againMs: lookAgainMs, most: mostAtOnce });
      await each(looks, signal, (place) => look(deps, place));
      const due = await store.takeWatches(db, { at: now(), most: mostAtOnce });
      await each(due, signal, (watch) => renew(deps, watch, signal));
      const ending = await store.takeEnding(db, { at: now(), most: mostAtOnce });
      await each(ending, signal, (channel) => stop(deps, { channel, signal }));
      await each(await listNoticed(db, mostAtOnce), signal, (watch) => runNoticed(deps, watch));
    },
  };
}

/** Ends the channels of a connection before it is deleted, as far as the provider answers soon. Never throws. */
export function endsChannels(hooks: ConnectionHooks, deps: WatchDeps): ConnectionHooks {
  return {
    ...hooks,
    async beforeDelete(connection) {
      await hooks.beforeDelete(connection);
      try {
        const of = { connection: connection.id, at: deps.now() };
        const channels = await deps.db.transaction((tx) => store.takeAllOf(tx, of));
        const signal = AbortSignal.timeout(deletionMs);
        const stopping = channels.map((channel) => stop(deps, { channel, signal }));
        const failed = (await Promise.allSettled(stopping)).filter(
          ({ status }) => status === 'rejected',
        ).length;
        if (failed > 0) deps.log.warn({ failed }, 'push channels of a deleted connection end by themselves');
      } catch (error) {
        deps.log.warn({ err: error }, 'a connection is deleted without the end of its push channels');
      }
    },
  };
}

async function look({ db, reader, now }: WatchDeps, place: store.Place & { id: number }): Promise<void> {
  const connection = await reader.get(place);
  const rules = connection.integration.provider.channels;
  if (rules === undefined) return;
  const targets = targetsOf(connection, rules);
  await db.transaction((tx) => store.setTargets(tx, { connection: place.id, targets, at: now() }));
}

/** What the metadata name; everything of the account where they name nothing. */
function targetsOf({ metadata }: LiveConnection, rules: ChannelRules): string[] {
  const named = rules.metadata
    .flatMap((name) => (Object.hasOwn(metadata, name) ? metadata[name] : []))
    .filter((id): id is string => typeof id === 'string' && /^[A-Za-z0-9_-]{1,200}$/.test(id));
  const targets = [...new Set(named)].slice(0, mostTargets);
  return targets.length > 0 || rules.account === undefined ? targets : [''];
}

async function renew(deps: WatchDeps, watch: store.Watch, signal: AbortSignal): Promise<void> {
  const { db, log, now } = deps;
  const outcome = await ask(deps, watch, signal);
  const at = now();
  if (outcome.ok) {
    const renewAt = new Date((at.getTime() + outcome.expiresAt.getTime()) / 2);
    await db.transaction((tx) => store.noteOpen(tx, { ...outcome, watch, renewAt, at }));
    return;
  }
  const { fault, isRefused, isLasting, id } = outcome;
  const waitMs = isLasting ? longestWaitMs : Math.min(firstWaitMs * 2 ** watch.attempts, longestWaitMs);
  const nextAt = new Date(at.getTime() + waitMs);
  const isNews = await db.transaction((tx) => store.noteFault(tx, { id, watch, fault, nextAt, isRefused }));
  const { integrationKey: integration, connectionId: connection } = watch;
  if (isNews)
    log.warn({ integration, connection, fault: fault.code }, 'no push channel: syncs go by their schedule');
}

type Asked = { id: string | undefined } & Opened;

async function ask(
  deps: WatchDeps,
  watch: store.Watch,
  signal: AbortSignal,
): Promise<(Asked & { id: string }) | (Asked & { ok: false })> {
  try {
    const connection = await deps.reader.get(watch);
    const rules = connection.integration.provider.channels;
    const fault = rules === undefined ? none : faultBefore(deps, { connection, rules });
    if (rules === undefined || fault !== undefined) return refused(fault ?? none);
    return await askFor(deps, { watch, connection, rules, signal });
  } catch (error) {
    // What credentials and connection are told to be is told on, in the words of the catalogue.
    if (error instanceof AppError && error.code !== 'unavailable')
      return refused({ code: error.code, message: error.message });
    if (error instanceof TemplateError) return refused({ code: 'invalid_address', message: error.message });
    throw error;
  }
}

const none = { code: 'channel_unknown', message: 'The provider has no push channels.' };
const refused = (fault: store.WatchFault) => ({
  ...({ ok: false, id: undefined, fault, isRefused: true, isTokenRefused: false } as const),
  isLasting: fault.code === 'address_not_public' || fault.code === 'scope_missing',
});

/** The channel is written before it is asked for: a node that is killed in between leaves one that nobody believes. */
async function askFor(
  deps: WatchDeps,
  {
    watch,
    connection,
    rules,
    signal,
  }: { watch: store.Watch; connection: LiveConnection; rules: ChannelRules; signal: AbortSignal },
): Promise<Asked & { id: string }> {
  const { db, now, fetchFor } = deps;
  const id = randomUUID();
  const token = randomBytes(32).toString('base64url');
  const lifeS = watch.target === '' ? (rules.account ?? rules.target).life_s : rules.target.life_s;
  const at = now();
  const expiresAt = new Date(at.getTime() + lifeS * 1000);
  const address = await addressOf(deps, connection);
  let credentials = await deps.credentials.fresh(connection);
  await db.transaction(async (tx) => {
    await holdConnection(tx, connection.id);
    await store.noteAsked(tx, { id, token, watch, at, expiresAt });
  });
  const to = { connection, rules, fetch: fetchFor(connection.integration) };
  const channel = { id, token, target: watch.target, address, expiresAt };
  const limited = () => AbortSignal.any([signal, AbortSignal.timeout(requestMs)]);
  let opened = await openChannel({ ...to, credentials, signal: limited() }, channel);
  if (!opened.ok && opened.isTokenRefused) {
    const renewed = await deps.credentials.renewed(connection, credentials);
    if (renewed !== undefined) {
      credentials = renewed;
      opened = await openChannel({ ...to, credentials, signal: limited() }, channel);
    }
  }
  return { ...opened, id };
}

/** What would be in vain. */
function faultBefore(
  { baseUrl }: WatchDeps,
  { connection, rules }: { connection: LiveConnection; rules: ChannelRules },
): store.WatchFault | undefined {
  // The sandbox writes to this machine alone, and asks for no certificate.
  if (!connection.integration.isTest && !isReachedFromOutside(baseUrl))
    return {
      code: 'address_not_public',
      message:
        'The provider sends to public https addresses alone: set BASE_URL to one, or leave changes to the schedule.',
    };
  const granted = connection.scopesGranted;
  if (
    rules.scopes.length === 0 ||
    granted === undefined ||
    rules.scopes.some((scope) => granted.includes(scope))
  )
    return undefined;
  return { code: 'scope_missing', message: `The account has not allowed any of ${rules.scopes.join(', ')}.` };
}

/** A name that may lead there, or an address that does. Whether its certificate is good, the provider tells. */
export function isReachedFromOutside(baseUrl: string): boolean {
  const { protocol, hostname } = new URL(baseUrl);
  if (protocol !== 'https:') return false;
  const host = hostname.replace(/^\[|\]$/g, '');
  if (isIP(host) !== 0) return isPublicAddress(host);
  return (
    /\./.test(host) &&
    !/(^|\.)(localhost|local|internal|lan|home|test|example|invalid|home\.arpa)$/.test(host)
  );
}

async function addressOf(
  { db, baseUrl }: WatchDeps,
  { environmentId, integrationKey }: store.Place,
): Promise<string> {
  const [row] = await db.query<{ name: string }>('select name from environment where id = $1', [
    environmentId,
  ]);
  return `${baseUrl}/webhook/${encodeURIComponent(row?.name ?? '')}/${encodeURIComponent(integrationKey)}`;
}

async function stop(
  deps: WatchDeps,
  { channel, signal }: { channel: store.Channel; signal: AbortSignal },
): Promise<void> {
  const connection = await deps.reader.get(channel);
  const rules = connection.integration.provider.channels;
  if (rules === undefined) return;
  const credentials = await deps.credentials.fresh(connection);
  const isOver = await stopChannel(
    {
      ...{ connection, credentials, rules, fetch: deps.fetchFor(connection.integration) },
      signal: AbortSignal.any([signal, AbortSignal.timeout(requestMs)]),
    },
    { id: channel.id, resourceId: channel.resourceId },
  );
  if (isOver) await store.forgetChannel(deps.db, channel.id);
}
