/**
 * The parts of every node, in each role: connections and their credentials, the proxy's dependencies, the activity log.
 * Authentication and routes are in `routes.ts`, functions in `functions.ts`, background jobs in `jobs.ts`.
 */
import { createActivity, noActivity } from '../activity/writer.ts';
import type { Config } from '../config/config.ts';
import { createObserver } from '../connections/health/observe.ts';
import { createStatusTransitions } from '../connections/health/status-transitions.ts';
import { createCredentialSource } from '../connections/refresh/credentials.ts';
import { createConnectionReader } from '../connections/store/reader.ts';
import type { Db } from '../db/pool.ts';
import { createDeliverer } from '../deliveries/worker.ts';
import type { App } from '../http/server.ts';
import type { Integration, TestClient } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { Fetch, Outbound } from '../outbound/outbound.ts';
import type { Catalog } from '../providers/catalog.ts';
import { catalogOfEnvironment } from '../providers/environment-definitions.ts';
import { createQuota } from '../proxy/quota/quota.ts';
import { createMailer } from '../users/mail.ts';
import type { Vault } from '../vault.ts';

export type PartsDeps = {
  config: Config;
  log: Logger;
  db: Db;
  vault: Vault;
  catalog: Catalog;
  outbound: Outbound;
  /** Undefined while the sandbox is off. */
  testClient: TestClient | undefined;
  /** Filled with the row IDs of the connections that this node refreshes. */
  refreshing?: Set<number>;
  now?: () => Date;
};

export type Parts = ReturnType<typeof createParts>;

/** The parts start nothing automatically. */
export function createParts({ now: clock, refreshing = new Set(), ...deps }: PartsDeps) {
  const { config, log, db, vault, catalog, outbound, testClient } = deps;
  const now = clock ?? (() => new Date());
  // Each call reads it several times, and a number needs no object.
  const nowMs = clock === undefined ? Date.now : () => clock().getTime();
  // Caches and limits need a clock that is never set back. A given clock serves as both.
  const steadyMs = clock === undefined ? () => performance.now() : nowMs;
  const { brand, baseUrl, callbackBaseUrl = baseUrl, webhookBaseUrl = baseUrl } = config;
  const reading = { vault, catalog, testClient };
  const aliases = catalog.rootAliases();
  const isRootAlias = (path: string) =>
    aliases.some((alias) => path === alias || path.startsWith(`${alias}/`));
  const reader = createConnectionReader({ db, reading, clock: steadyMs });
  const fetchFor = (integration: Integration): Fetch => outbound.fetchFor({ isTest: integration.isTest });
  const transitions = createStatusTransitions({ db, log, reader, now });
  const activity = config.activity.isOn
    ? createActivity({ db, log, settings: config.activity, nowMs })
    : noActivity;
  const credentials = createCredentialSource({
    db,
    reader,
    fetchFor,
    transitions,
    vault,
    log,
    activity,
    now,
    refreshing,
  });
  const observer = createObserver({ db, log, reader, now });
  const quota = createQuota({ db });
  const proxying = {
    brand,
    log,
    isRootAlias,
    credentials,
    outbound,
    observer,
    quota,
    activity,
    connections: reader,
  };
  const mailer = createMailer({ smtp: config.smtp, log });
  const deliverer = createDeliverer({
    db,
    vault,
    brand,
    baseUrl,
    log,
    activity,
    mailer,
    nowMs,
    fetch: outbound.fetchFor({ isTest: false, purpose: 'endpoints' }),
    authModeOf: async ({ environmentId, provider }) => {
      const known = await catalogOfEnvironment(db, { catalog, environmentId, names: [provider] });
      return known.find(provider)?.auth_mode;
    },
  });
  return {
    config,
    log,
    db,
    vault,
    catalog,
    outbound,
    testClient,
    brand,
    baseUrl,
    callbackBaseUrl,
    webhookBaseUrl,
    now,
    nowMs,
    steadyMs,
    reading,
    isRootAlias,
    reader,
    fetchFor,
    transitions,
    activity,
    credentials,
    observer,
    quota,
    proxying,
    mailer,
    deliverer,
    isSandboxOn: testClient !== undefined,
  };
}

/** Ends the parts with the server, and awaits `settled`. To be called before other hooks are added. */
export function endParts(
  app: App,
  { config, credentials, observer, quota, activity }: Parts,
  settled: () => Promise<unknown>,
): void {
  let endsAt = 0;
  app.addHook('preClose', async () => {
    endsAt = performance.now() + config.drainMs;
    quota.refuse();
  });
  app.addHook('onClose', async () => {
    const stopped = credentials.stop(endsAt - performance.now());
    await Promise.all([settled(), stopped, observer.settled(), quota.stop()]);
    // The others log their results.
    await activity.stop();
  });
}

/** Sends due deliveries as long as the server listens. */
export function deliverWhile(app: App, { deliverer, config }: Parts): void {
  app.addHook('onListen', async () => deliverer.start());
  let delivered: Promise<void> | undefined;
  app.addHook('preClose', async () => {
    delivered = deliverer.stop(config.drainMs);
  });
  app.addHook('onClose', () => delivered);
}
