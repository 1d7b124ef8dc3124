/**
 * The parts that every node has, whatever its role: the reader of connections and the source of their credentials, the
 * means of the proxy, the activity log.
 *
 * Does not own: authentication and the list of routes (`routes.ts`), functions (`functions.ts`), background jobs
 * (`jobs.ts`).
 */
import { createActivity, noActivity } from '../activity/writer.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { Config } from '../config/config.ts';
import { createCredentialSource } from '../connections/credentials.ts';
import { createObserver } from '../connections/observe.ts';
import { createConnectionReader } from '../connections/reader.ts';
import { createStatusTransitions } from '../connections/status-transitions.ts';
import type { Db } from '../db/pool.ts';
import { createDeliverer } from '../deliveries/worker.ts';
import type { App } from '../http/server.ts';
import type { Integration, TestClient } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { Outbound } from '../outbound.ts';
import type { Catalog } from '../providers/catalog.ts';
import { createQuota } from '../proxy/quota/quota.ts';
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
  now?: () => Date;
};

export type Parts = ReturnType<typeof createParts>;

/** Nothing of it runs by itself. */
export function createParts({ now: clock, ...deps }: PartsDeps) {
  const { config, log, db, vault, catalog, outbound, testClient } = deps;
  const now = clock ?? (() => new Date());
  // Read several times a call: a number needs no object.
  const nowMs = clock === undefined ? Date.now : () => clock().getTime();
  // What counts a second must not be set back as the time of day can be; a given clock counts both.
  const steadyMs = clock === undefined ? () => performance.now() : nowMs;
  const { brand, baseUrl } = config;
  const reading = { vault, catalog, testClient };
  const aliases = catalog.list().flatMap((definition) => definition.api.root_aliases);
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
  });
  const observer = createObserver({ db, log, reader, now });
  const quota = createQuota({ db });
  const proxying = {
    ...{ brand, log, isRootAlias, credentials, outbound, observer, quota, activity },
    connections: reader,
  };
  const deliverer = createDeliverer({
    ...{ db, vault, brand, log, activity, nowMs },
    fetch: outbound.fetchFor({ isTest: false, purpose: 'endpoints' }),
    authModeOf: (provider) => catalog.find(provider)?.auth_mode,
  });
  return {
    ...{ config, log, db, vault, catalog, outbound, testClient, brand, baseUrl },
    ...{ now, nowMs, steadyMs, reading, isRootAlias, reader, fetchFor, transitions, activity, credentials },
    ...{ observer, quota, proxying, deliverer },
    isSandboxOn: testClient !== undefined,
  };
}

/** They end with the server; `settled` is awaited with them. To be called before other hooks are added. */
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
    // What they came to is logged, too.
    await activity.stop();
  });
}

/** Sends what is due as long as the server listens. */
export function deliverWhile(app: App, { deliverer, config }: Parts): void {
  app.addHook('onListen', async () => deliverer.start());
  let delivered: Promise<void> | undefined;
  app.addHook('preClose', async () => {
    delivered = deliverer.stop(config.drainMs);
  });
  app.addHook('onClose', () => delivered);
}
