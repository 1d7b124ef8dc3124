/**
 * Keeps push channels for the connections whose syncs subscribe to changes: requests them, renews them at half their
 * lifetime, and replaces them if the address or the account has changed.
 *
 * Does not own: how they end (`channel-ends.ts`), the rows (`channel-store.ts`), what is said to the provider (`channel-request.ts`), or what a message does
 * (`channel-notice.ts`). A channel only makes a sync run sooner: without one everything goes by the schedule.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { isIP } from 'node:net';
import { limitConcurrency } from '../concurrency.ts';
import type { LiveConnection } from '../connections/reader.ts';
import { holdConnection } from '../connections/store.ts';
import { AppError } from '../errors.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import { isPublicAddress } from '../outbound-addresses.ts';
import type { Catalog } from '../providers/catalog.ts';
import type { ChannelRules } from '../providers/definition-channels.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { type EndDeps, endChannel } from './channel-ends.ts';
import { listNoticed } from './channel-known.ts';
import { runNoticed } from './channel-notice.ts';
import { type Opened, openChannel } from './channel-request.ts';
import * as store from './channel-store.ts';

type WatchDeps = EndDeps & {
  catalog: Pick<Catalog, 'list'>;
  baseUrl: string;
  isSandboxOn: boolean;
};

/** Metadata are looked at again, since they may name something else by then. */
const lookAgainMs = 10 * 60_000;
const maxAtOnce = 50;
const maxTargets = 50;
const requestMs = 15_000;
const firstWaitMs = 60_000;
const longestWaitMs = 60 * 60_000;

/** Does what is due. On several nodes at once each thing is done by one of them. */
export function watchJob(deps: WatchDeps): Job<Record<string, never>> {
  const { db, catalog, isSandboxOn, log, now } = deps;

  return {
    name: 'webhooks.channels',
    async run(_, signal) {
      const providers = catalog.list().filter(({ channels }) => channels !== undefined);
      const at = now();
      await store.endWatching(db, at);
      await store.beginWatching(db, { providers: providers.map(({ name }) => name), isSandboxOn, at });
      await store.forgetExpired(db, at);
      const silence = noteSilence();
      const rounds = createRounds({ log, signal });
      await rounds(
        () => listNoticed(db, { before: at, max: maxAtOnce }),
        (watch) => runNoticed(deps, watch),
      );
      await rounds(
        () => store.takeLooks(db, { at, againMs: lookAgainMs, max: maxAtOnce }),
        (place) => look(deps, place),
      );
      const ends = () =>
        rounds(
          () => store.takeEnding(db, { at: now(), max: maxAtOnce }),
          (channel) => silence.during(channel, () => endChannel(deps, { channel, signal })),
        );
      const renewals = rounds(
        () => store.takeWatches(db, { at: now(), max: maxAtOnce }),
        (watch) => silence.during(watch, () => renew(deps, watch, signal)),
      );
      // A provider that is slow to open channels keeps none from being stopped; those that were renewed end others.
      await Promise.all([ends(), renewals.then(ends)]);
    },
  };
}

async function look(deps: WatchDeps, place: store.Looked): Promise<void> {
  const { db, reader, now } = deps;
  const known = await reader.get(place);
  const rules = known.integration.provider.channels;
  if (rules === undefined) return;
  const of = { connection: place.id, at: now() };
  await db.transaction(async (tx) => {
    await store.setTargets(tx, { ...of, targets: targetsOf(known, rules) });
    await store.replaceOutdated(tx, { ...of, address: addressOf(deps, place), grantedAt: known.grantedAt });
  });
}

/** What the metadata name; everything of the account where they name nothing. */
function targetsOf({ metadata }: LiveConnection, rules: ChannelRules): string[] {
  const named = rules.metadata
    .flatMap((name) => (Object.hasOwn(metadata, name) ? metadata[name] : []))
    .filter((id): id is string => typeof id === 'string' && /^[A-Za-z0-9_-]{1,200}$/.test(id));
  const targets = [...new Set(named)].slice(0, maxTargets);
  return targets.length > 0 || rules.account === undefined ? targets : [''];
}

async function renew(
  deps: WatchDeps,
  watch: store.Watch,
  signal: AbortSignal,
): Promise<'asked' | 'unanswered'> {
  const { db, log, now } = deps;
  const outcome = await ask(deps, watch, signal);
  const at = now();
  if (outcome.ok) {
    const renewAt = new Date((at.getTime() + outcome.expiresAt.getTime()) / 2);
    await db.transaction((tx) => store.noteOpen(tx, { ...outcome, watch, renewAt, at }));
    return 'asked';
  }
  const { fault, isRefused, isLasting, id } = outcome;
  const waitMs = isLasting ? longestWaitMs : Math.min(firstWaitMs * 2 ** watch.attempts, longestWaitMs);
  const nextAt = new Date(at.getTime() + waitMs);
  const isNews = await db.transaction((tx) => store.noteFault(tx, { id, watch, fault, nextAt, isRefused }));
  const { integrationKey: integration, connectionId: connection } = watch;
  if (isNews)
    log.warn({ integration, connection, fault: fault.code }, 'no push channel: syncs go by their schedule');
  return isRefused ? 'asked' : 'unanswered';
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

/** The channel is stored before it is requested: a node that is killed in between leaves a channel whose messages are refused. */
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
  const address = addressOf(deps, watch);
  let credentials = await deps.credentials.fresh(connection);
  await db.transaction(async (tx) => {
    await holdConnection(tx, connection.id);
    await store.noteAsked(tx, { id, token, address, watch, at, expiresAt });
  });
  const to = { connection, rules, fetch: fetchFor(connection.integration) };
  const channel = { id, token, target: watch.target, address, expiresAt, now: at };
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
function isReachedFromOutside(baseUrl: string): boolean {
  const { protocol, hostname } = new URL(baseUrl);
  if (protocol !== 'https:') return false;
  const host = hostname.replace(/^\[|\]$/g, '');
  if (isIP(host) !== 0) return isPublicAddress(host);
  return (
    /\./.test(host) &&
    !/(^|\.)(localhost|local|internal|lan|home|test|example|invalid|home\.arpa)$/.test(host)
  );
}

/** Where the provider is to send to. */
function addressOf(
  { baseUrl }: WatchDeps,
  { environment, integrationKey }: store.Watch | store.Looked,
): string {
  return `${baseUrl}/webhook/${encodeURIComponent(environment)}/${encodeURIComponent(integrationKey)}`;
}

/** What a job that has a minute does for many connections: in portions, a few at a time. */

const maxBeside = 8;
/** Of portions, so that a thousand connections that want something at once do not take the provider's quota from calls. */
const maxRounds = 12;
/** After that no portion is begun. */
const enoughMs = 40_000;

/**
 * Lets `work` do what `take` gives, a portion after the other until one is empty, there were enough, or `signal` says so. One
 * that fails is logged, and stops none of the others. Throws where the database is away. `take` gives nothing twice.
 */
function createRounds({ log, signal }: { log: Pick<Logger, 'warn'>; signal: AbortSignal }) {
  const begunMs = performance.now();
  return async <T>(take: () => Promise<readonly T[]>, work: (item: T) => Promise<unknown>): Promise<void> => {
    const inTurn = limitConcurrency(maxBeside);
    const away: unknown[] = [];
    const one = async (item: T) => {
      if (signal.aborted || away.length > 0) return;
      await work(item).catch((error: unknown) => {
        if (error instanceof AppError && error.code === 'unavailable') away.push(error);
        else log.warn({ err: error }, 'a push channel is looked at later');
      });
    };
    for (let round = 0; round < maxRounds; round++) {
      if (signal.aborted || performance.now() - begunMs > enoughMs) return;
      const items = await take();
      await Promise.all(items.map((item) => inTurn(() => one(item))));
      if (away.length > 0) throw away[0];
      if (items.length === 0) return;
    }
  };
}

const maxUnanswered = 3;

/**
 * Leaves the connections of an integration alone, for the rest of a job, whose provider has let three calls in a row
 * unanswered: else one that hangs would take the others' minute.
 */
function noteSilence() {
  const unanswered = new Map<string, number>();
  return {
    async during(
      { environmentId, integrationKey }: { environmentId: number; integrationKey: string },
      ask: () => Promise<'asked' | 'unanswered'>,
    ): Promise<void> {
      const key = `${environmentId}/${integrationKey}`;
      const before = unanswered.get(key) ?? 0;
      if (before >= maxUnanswered) return;
      if ((await ask()) === 'unanswered') unanswered.set(key, (unanswered.get(key) ?? 0) + 1);
      else if ((unanswered.get(key) ?? 0) < maxUnanswered) unanswered.delete(key);
    },
  };
}
