/**
 * Keeps push channels for the connections whose syncs subscribe to changes: requests them, renews them at half their
 * lifetime, and replaces them if the address or the account has changed.
 *
 * Does not own: how channels end (`channel-ends.ts`), the rows (`channel-store.ts`), the calls to the provider
 * (`channel-request.ts`), or the messages (`channel-messages.ts`). A channel only makes a sync run sooner: without a channel,
 * it runs by its schedule.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { isIP } from 'node:net';
import { forEachLimited } from '../../concurrency.ts';
import type { LiveConnection } from '../../connections/store/reader.ts';
import { findHeadForUpdate, holdConnection, queueConnectionEvent } from '../../connections/store/store.ts';
import { AppError } from '../../errors.ts';
import type { Job } from '../../jobs/jobs.ts';
import type { Logger } from '../../log.ts';
import { isPublicAddress } from '../../outbound/addresses.ts';
import type { Catalog } from '../../providers/catalog.ts';
import type { ChannelRules } from '../../providers/definition.ts';
import { TemplateError } from '../../providers/template.ts';
import { type EndDeps, endChannel } from './channel-ends.ts';
import { channelParameter, runNoticed, secretContext } from './channel-messages.ts';
import {
  type CallFault,
  callWithRenewal,
  isGone,
  isRequestable,
  type Opened,
  openChannel,
  ownSecret,
  type ProviderCall,
  renewChannel,
} from './channel-request.ts';
import * as store from './channel-store.ts';

type WatchDeps = EndDeps & {
  catalog: Pick<Catalog, 'listWith'>;
  webhookBaseUrl: string;
  isSandboxOn: boolean;
};

/** Metadata is read again after this time, since it may name other targets. */
const lookAgainMs = 10 * 60_000;
const maxAtOnce = 50;
const maxTargets = 50;
const firstWaitMs = 60_000;
const longestWaitMs = 60 * 60_000;

/** Does what is due. If several nodes run it at once, each row is done by one of them. */
export function watchJob(deps: WatchDeps): Job<Record<string, never>> {
  const { db, catalog, isSandboxOn, log, now } = deps;

  return {
    name: 'webhooks.channels',
    async run(_, signal) {
      const providers = catalog.listWith('channels');
      const at = now();
      await store.endWatching(db, at);
      await store.beginWatching(db, { providers: providers.map(({ name }) => name), isSandboxOn, at });
      await store.deleteExpired(db, at);
      await store.endLost(db, at);
      const providerCalls = createProviderCalls();
      const rounds = createRounds({ log, signal });
      await rounds(
        () => store.listNoticed(db, { before: at, max: maxAtOnce }),
        (watch) => runNoticed(deps, watch),
      );
      await rounds(
        () => store.takeConnections(db, { at, againMs: lookAgainMs, max: maxAtOnce }),
        (place) => updateTargets(deps, place),
      );
      const ends = () =>
        rounds(
          () => store.takeEnding(db, { at: now(), max: maxAtOnce }),
          (channel) => providerCalls.during(channel, () => endChannel(deps, { channel, signal })),
        );
      const renewals = rounds(
        () => store.takeWatches(db, { at: now(), max: maxAtOnce }),
        (watch) => providerCalls.during(watch, () => renew(deps, watch, signal)),
      );
      // A provider that is slow to open channels does not delay the stops. Renewals end earlier channels.
      await Promise.all([ends(), renewals.then(ends)]);
    },
  };
}

/** Reads the metadata of a connection, and sets what is watched for it. */
async function updateTargets(deps: WatchDeps, place: store.WatchedConnection): Promise<void> {
  const { db, reader, now } = deps;
  const known = await reader.get(place);
  const rules = known.integration.provider.channels;
  if (rules === undefined) return;
  const of = { connection: place.id, at: now() };
  await db.transaction(async (tx) => {
    await store.setTargets(tx, { ...of, targets: targetsOf(known, rules) });
    const address = addressOf(deps, { ...place, id: '', rules });
    await store.replaceOutdated(tx, { ...of, address, grantedAt: known.grantedAt });
  });
}

/** The targets that the metadata names, or the whole account if it names none. */
function targetsOf(connection: LiveConnection, rules: ChannelRules): string[] {
  if (!isRequestable(connection, rules)) return [];
  const { metadata } = connection;
  const isTarget = rules.target && new RegExp(`^(?:${rules.target.pattern})$`, 'u');
  const named = rules.metadata
    .flatMap((name) => (Object.hasOwn(metadata, name) ? metadata[name] : []))
    .map((id) => (Number.isSafeInteger(id) ? String(id) : id))
    .filter((id): id is string => typeof id === 'string' && isTarget?.test(id) === true);
  const targets = [...new Set(named)].slice(0, maxTargets);
  return targets.length > 0 || rules.account === undefined ? targets : [''];
}

async function renew(
  deps: WatchDeps,
  watch: store.Watch,
  signal: AbortSignal,
): Promise<'answered' | 'unanswered'> {
  const { db, log, now } = deps;
  const outcome = await requestChannel(deps, watch, signal);
  const at = now();
  if (outcome.ok) {
    const renewAt = new Date((at.getTime() + outcome.expiresAt.getTime()) / 2);
    await db.transaction((tx) =>
      outcome.isExtended
        ? store.extend(tx, { ...outcome, watch, renewAt })
        : store.markOpen(tx, { ...outcome, watch, renewAt, at }),
    );
    return 'answered';
  }
  const { fault, isLasting, id } = outcome;
  const isUnanswered = fault.code === 'channel_unanswered';
  const waitMs = isLasting ? longestWaitMs : Math.min(firstWaitMs * 2 ** watch.attempts, longestWaitMs);
  const nextAt = new Date(at.getTime() + waitMs);
  const isNews = await db.transaction(async (tx) => {
    const isFirst = await store.storeFault(tx, { id, watch, fault, nextAt, isUnanswered });
    // The other causes concern the installation or the connection, and are reported as such.
    const isOfChannel = fault.code.startsWith('channel_') || fault.code === 'scope_missing';
    const head =
      isFirst && isOfChannel ? await findHeadForUpdate(tx, { ...watch, id: watch.connection }) : undefined;
    if (head !== undefined)
      await queueConnectionEvent(tx, head, {
        type: 'connection.subscription_failed',
        code: fault.code,
        message: fault.message,
        target: watch.target === '' ? null : watch.target,
      });
    return isFirst;
  });
  const { integrationKey: integration, connectionId: connection } = watch;
  if (isNews)
    log.warn(
      { integration, connection, fault: fault.code },
      'no push channel could be created: syncs run only on their schedule',
    );
  return isUnanswered ? 'unanswered' : 'answered';
}

/** `secret` is sealed. `isExtended`: a channel that was open before. */
type Requested =
  | (Omit<Extract<Opened, { ok: true }>, 'secret'> & {
      id: string;
      secret: Buffer | undefined;
      isExtended: boolean;
    })
  | (Pick<CallFault, 'ok' | 'fault' | 'isLasting'> & { id: string | undefined });

async function requestChannel(deps: WatchDeps, watch: store.Watch, signal: AbortSignal): Promise<Requested> {
  try {
    const connection = await deps.reader.get(watch);
    const rules = connection.integration.provider.channels;
    const fault = rules === undefined ? none : faultBefore(deps, { connection, rules });
    if (rules === undefined || fault !== undefined) return refused(fault ?? none);
    const of = { watch, connection, rules, fetch: deps.fetchFor(connection.integration), signal };
    return (await extendOpen(deps, of)) ?? (await openStored(deps, of));
  } catch (error) {
    // Faults of the connection and its credentials are stored with their code and message.
    if (error instanceof AppError && error.code !== 'unavailable')
      return refused({ code: error.code, message: error.message });
    if (error instanceof TemplateError) return refused({ code: 'invalid_address', message: error.message });
    throw error;
  }
}

const none = { code: 'channel_unknown', message: 'The provider has no push channels.' };
const refused = (fault: store.WatchFault) => ({
  ...({ ok: false, id: undefined, fault } as const),
  isLasting: fault.code === 'address_not_public' || fault.code === 'scope_missing',
});

type Renewal = Omit<ProviderCall, 'credentials'> & { watch: store.Watch };

function lifeOf({ watch, rules }: Renewal, at: Date): Date {
  const { life_s: lifeS } = (watch.target === '' ? rules.account : rules.target) ?? { life_s: 0 };
  return new Date(at.getTime() + lifeS * 1000);
}

/** Undefined if a new channel is needed: the provider renews none, there is none, or it is for another address or grant. */
async function extendOpen(deps: WatchDeps, of: Renewal): Promise<Requested | undefined> {
  const { db, now } = deps;
  const { watch, connection, rules } = of;
  const { renewal } = rules;
  if (renewal === undefined) return undefined;
  const at = now();
  const open = await store.findOpen(db, { ...watch, at });
  const isValid = open?.address === addressOf(deps, { ...watch, id: open?.id ?? '', rules });
  if (open === undefined || !isValid || open.askedAt < connection.grantedAt) return undefined;
  const { id, resourceId } = open;
  const channel = { id, resourceId, target: watch.target, expiresAt: lifeOf(of, at), now: at, renewal };
  const renewed = await callWithRenewal(deps.credentials, of, (to) => renewChannel(to, channel));
  if (renewed.ok) return { ...renewed, id, secret: undefined, isExtended: true };
  if (!isGone(renewed)) return { ...renewed, id: undefined };
  await store.deleteChannel(db, id);
  return undefined;
}

/** The channel is stored before it is requested: a node that is killed in between leaves a channel whose messages are refused. */
async function openStored(deps: WatchDeps, of: Renewal): Promise<Requested> {
  const { db, now } = deps;
  const { watch, connection, rules } = of;
  const id = randomUUID();
  const token = randomBytes(32).toString('base64url');
  const at = now();
  const channel = {
    id,
    token,
    target: watch.target,
    expiresAt: lifeOf(of, at),
    address: addressOf(deps, { ...watch, id, rules }),
  };
  const isOurs = rules.headers === undefined && rules.handshake === undefined && !rules.response.secret;
  const seal = (text: string) => connection.dataKey.sealJson(text, secretContext);
  await db.transaction(async (tx) => {
    await holdConnection(tx, connection.id);
    await store.insertChannel(tx, {
      ...channel,
      watch,
      at,
      secret: isOurs ? seal(ownSecret(rules, token)) : null,
      resourceId: rules.response.resource === undefined ? id : null,
    });
  });
  const opened = await callWithRenewal(deps.credentials, of, (to) =>
    openChannel(to, { ...channel, now: at }),
  );
  if (!opened.ok) return { ...opened, id };
  const { secret } = opened;
  return { ...opened, id, secret: secret === undefined ? undefined : seal(secret), isExtended: false };
}

/** Why a request would certainly fail. */
function faultBefore(
  { webhookBaseUrl }: WatchDeps,
  { connection, rules }: { connection: LiveConnection; rules: ChannelRules },
): store.WatchFault | undefined {
  // The sandbox sends only to this machine, and needs no certificate.
  if (!connection.integration.isTest && !isReachedFromOutside(webhookBaseUrl))
    return {
      code: 'address_not_public',
      message:
        'The provider sends only to public https addresses: set BASE_URL or TRELLIS_WEBHOOK_BASE_URL to a public https address, or rely on the schedule.',
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

/** Whether the host is a public address, or a name that may be public. Only the provider checks the certificate. */
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

/** The address that the provider sends messages to, with the channel's ID if no header of a message has it. */
function addressOf(
  { webhookBaseUrl }: WatchDeps,
  {
    environment,
    integrationKey,
    id,
    rules,
  }: { environment: string; integrationKey: string; id: string; rules: ChannelRules },
): string {
  const address = `${webhookBaseUrl}/webhook/${encodeURIComponent(environment)}/${encodeURIComponent(integrationKey)}`;
  return rules.headers === undefined ? `${address}?${channelParameter}=${id}` : address;
}

const maxBeside = 8;
/** The maximum number of portions, so that a thousand due connections do not use up the provider's quota. */
const maxRounds = 12;
/** After this time no portion begins: the job runs every minute. */
const enoughMs = 40_000;

/**
 * Returns a function that passes what `take` returns to `work`, portion by portion, until a portion is empty, `maxRounds` is
 * reached, the time is over, or `signal` aborts. A failure is logged and does not stop the others. Throws if the database
 * is not available. `take` must return no item twice.
 */
function createRounds({ log, signal }: { log: Pick<Logger, 'warn'>; signal: AbortSignal }) {
  const begunMs = performance.now();
  return async <T>(take: () => Promise<readonly T[]>, work: (item: T) => Promise<unknown>): Promise<void> => {
    const one = async (item: T) => {
      if (signal.aborted) return;
      await work(item).catch((error: unknown) => {
        if (error instanceof AppError && error.code === 'unavailable') throw error;
        log.warn({ err: error }, 'a push channel could not be checked; it is retried later');
      });
    };
    for (let round = 0; round < maxRounds; round++) {
      if (signal.aborted || performance.now() - begunMs > enoughMs) return;
      const items = await take();
      await forEachLimited(items, maxBeside, one);
      if (items.length === 0) return;
    }
  };
}

const maxUnanswered = 3;

/**
 * Skips an integration for the rest of a job after its provider did not answer three calls in a row: otherwise a provider
 * that hangs would take all the time of the job.
 */
function createProviderCalls() {
  const unanswered = new Map<string, number>();
  return {
    async during(
      { environmentId, integrationKey }: { environmentId: number; integrationKey: string },
      call: () => Promise<'answered' | 'unanswered'>,
    ): Promise<void> {
      const key = `${environmentId}/${integrationKey}`;
      if ((unanswered.get(key) ?? 0) >= maxUnanswered) return;
      const answer = await call();
      const count = unanswered.get(key) ?? 0;
      if (answer === 'unanswered') unanswered.set(key, count + 1);
      else if (count < maxUnanswered) unanswered.delete(key);
    },
  };
}
