import { join } from 'node:path';
import { auditRoutes } from './activity/audit-routes.ts';
import { keepDays } from './activity/partitions.ts';
import { activityRoutes } from './activity/routes.ts';
import { tailRoute } from './activity/tail-route.ts';
import { createActivity, noActivity } from './activity/writer.ts';
import type { Fetch } from './auth-modes/token-response.ts';
import type { Config } from './config.ts';
import { connectRoutes } from './connect/routes.ts';
import { createSessionReader } from './connect/sessions.ts';
import { sweepJob } from './connect/sweep.ts';
import { createCredentialSource } from './connections/credentials.ts';
import { disconnectRoutes } from './connections/disconnect-routes.ts';
import { expiryJob } from './connections/expiry.ts';
import { tokenSlotsJob } from './connections/grants.ts';
import { noHooks } from './connections/hooks.ts';
import { keepaliveJob } from './connections/keepalive.ts';
import { countByIntegration, noConnections } from './connections/list.ts';
import { createObserver } from './connections/observe.ts';
import { probeJob } from './connections/probe.ts';
import { createConnectionReader } from './connections/reader.ts';
import { revocationJob } from './connections/revocations.ts';
import { connectionRoutes } from './connections/routes.ts';
import { createStates } from './connections/states.ts';
import type { Db } from './db/pool.ts';
import { deliveryRoutes } from './deliveries/delivery-routes.ts';
import { endpointRoutes, guardOverrides } from './deliveries/endpoint-routes.ts';
import { settingsRoutes } from './deliveries/settings-routes.ts';
import { deliverySweepJob } from './deliveries/sweep.ts';
import { createDeliverer } from './deliveries/worker.ts';
import { createKeyReader } from './environments/key-reader.ts';
import { keyRoutes } from './environments/key-routes.ts';
import { environmentRoutes } from './environments/routes.ts';
import { variableRoutes } from './environments/variable-routes.ts';
import { AppError } from './errors.ts';
import { eventRetentionJob } from './events/retention.ts';
import { eventRoutes } from './events/routes.ts';
import { actionRoutes } from './functions/actions/action-routes.ts';
import { createActions } from './functions/actions/actions.ts';
import { mcpRoutes } from './functions/actions/mcp-routes.ts';
import { configRoutes } from './functions/config-routes.ts';
import { createInnerProxy } from './functions/context/inner-proxy.ts';
import { deployRoutes } from './functions/deploys/deploy-routes.ts';
import { createShipped } from './functions/deploys/shipped.ts';
import { shippedRoutes } from './functions/deploys/shipped-routes.ts';
import { bundleSweepJob } from './functions/deploys/sweep.ts';
import { sdkParts } from './functions/isolation/harness-text.ts';
import { createRuntime } from './functions/isolation/runtime.ts';
import { overviewRoutes } from './functions/overview-routes.ts';
import { functionRoutes } from './functions/routes.ts';
import { createCandidates } from './functions/runs/candidates.ts';
import { createOnEvents } from './functions/runs/on-event.ts';
import { runRoutes } from './functions/runs/run-routes.ts';
import { runSweepJob } from './functions/runs/run-sweep.ts';
import { startNewSyncs, startSyncsOf } from './functions/runs/schedule.ts';
import { createRunner } from './functions/runs/worker.ts';
import { syncRoutes } from './functions/syncs/sync-routes.ts';
import { createFunctionsFolder } from './functions-folder.ts';
import { proxyCallerOf } from './http/authorize.ts';
import { healthRoutes } from './http/health.ts';
import { createLoopbackGuard } from './http/loopback-only.ts';
import { createPersonDoor } from './http/person-door.ts';
import { type App, createHttp } from './http/server.ts';
import { staticRoutes, type Web } from './http/static.ts';
import { integrationRoutes } from './integrations/routes.ts';
import type { Integration, TestClient } from './integrations/store.ts';
import type { Job } from './jobs/jobs.ts';
import type { Logger } from './log.ts';
import type { Outbound } from './outbound.ts';
import type { Catalog } from './providers/catalog.ts';
import { providerRoutes } from './providers/routes.ts';
import { createProxy } from './proxy/proxy.ts';
import { quotaSweepJob } from './proxy/quota/ledger.ts';
import { createQuota } from './proxy/quota/quota.ts';
import { quotaUse } from './proxy/quota/use.ts';
import { ticketRoutes } from './proxy/ticket-routes.ts';
import { recordJobs } from './records/jobs.ts';
import { recordRoutes } from './records/routes.ts';
import { setUpRoutes } from './setup/routes.ts';
import { bundleShipped } from './shipped-functions.ts';
import { invitationRoutes } from './users/invitation-routes.ts';
import { createMailer } from './users/mail.ts';
import { everybodysRights, storedRights } from './users/members.ts';
import { createPasswords } from './users/passwords.ts';
import { createPersonReader, everybodyIsOwner } from './users/person-reader.ts';
import { createRefusedSignIns } from './users/refused-sign-ins.ts';
import { userRoutes } from './users/routes.ts';
import { createSignIn } from './users/sign-in.ts';
import { signInSecret } from './users/sign-in-key.ts';
import { signInRoutes } from './users/sign-in-routes.ts';
import { signInSweepJob } from './users/sweep.ts';
import type { Vault } from './vault.ts';
import { builtWeb } from './web-build.ts';
import { endsChannels } from './webhooks/channel-ends.ts';
import { retryJob } from './webhooks/retries.ts';
import { webhookRoutes } from './webhooks/routes.ts';
import { seenSweepJob } from './webhooks/seen.ts';
import { watchJob } from './webhooks/watches.ts';

/** Where the provider definitions and their logos lie. */
export const providersDirectory = join(import.meta.dirname, '../providers');

/** Runs of functions at once: from the queue, and beside it of those that somebody waits for. */
const mostQueued = 8;
const mostWaitedFor = 4;

export type AppDeps = {
  config: Config;
  log: Logger;
  db: Db;
  vault: Vault;
  catalog: Catalog;
  outbound: Outbound;
  /** Undefined while the sandbox is off. */
  testClient: TestClient | undefined;
  /** Sets off the removal of a deleted connection's records. Never awaited. */
  afterConnectionDeleted: () => void;
  /** Runs a job each minute on one node. Without it nothing is done by itself. */
  everyMinute?: (job: Job<Record<string, never>>) => Promise<void>;
  now?: () => Date;
  /** Absent: what was built is served, and nothing is built. */
  web?: Web;
};

/**
 * The service's HTTP interface, all rooms wired together; it does not listen yet.
 *
 * What a lower floor sets off above it is passed in here: who is calling for `http/`, what follows a deletion for
 * `connections/`.
 */
export async function createApp({
  config,
  log,
  db,
  vault,
  catalog,
  outbound,
  testClient,
  afterConnectionDeleted,
  everyMinute,
  now: clock,
  web = builtWeb,
}: AppDeps): Promise<App> {
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
  const keys = createKeyReader({ db, vault, now: nowMs, clock: steadyMs });
  const mailer = createMailer({ smtp: config.smtp, log });
  const passwords = createPasswords();
  const signIn = createSignIn({
    ...{ config, db, log, now, passwords },
    secret: await signInSecret(db, vault),
    fetch: outbound.fetchFor({ isTest: false }),
    mailer,
    afterChange: () => people.forget(),
  });
  const people = createPersonReader({
    signIn,
    db,
    cookieName: `${brand.word}.session_token`,
    clock: steadyMs,
  });
  const personOf = config.signIn.isOff ? everybodyIsOwner(db) : people.personOf;
  const rights = config.signIn.isOff ? everybodysRights : storedRights;
  const door = createPersonDoor({ brand, baseUrl, personOf });
  const authenticate = { ...keys, session: createSessionReader({ db, brand, now }), door };
  const reader = createConnectionReader({ db, reading, clock: steadyMs });
  const fetchFor = (integration: Integration): Fetch => outbound.fetchFor({ isTest: integration.isTest });
  const states = createStates({ db, log, reader, now });
  const activity = config.activity.isOn
    ? createActivity({ db, log, settings: config.activity, nowMs })
    : noActivity;
  const credentials = createCredentialSource({ db, reader, fetchFor, states, vault, log, activity, now });
  const observer = createObserver({ db, log, reader, now });
  const quota = createQuota({ db });
  const proxying = {
    ...{ brand, log, isRootAlias, credentials, outbound, observer, quota, activity },
    connections: reader,
  };
  const front = createProxy({ ...proxying, authenticate });
  const guard = config.signIn.isOff ? createLoopbackGuard(baseUrl) : undefined;
  const app = await createHttp({ config, log, authenticate, isRootAlias, front, guard });
  app.addHook('preClose', async () => quota.refuse());
  app.addHook('onClose', async () => {
    await Promise.all([keys.settled(), credentials.settled(), observer.settled(), quota.stop()]);
    // What they came to is logged, too.
    await activity.stop();
  });
  const runtime = createRuntime(sdkParts, { maxProcesses: mostQueued + mostWaitedFor });
  const candidates = createCandidates(reader, { vault, now });
  const executing = {
    ...{ db, vault, brand, baseUrl, reader, credentials, outbound, runtime },
    proxy: createInnerProxy({
      brand,
      createFront: (known) =>
        createProxy({ ...proxying, connections: candidates.reader, authenticate: known }),
    }),
  };
  const runner = createRunner({ ...executing, log, activity, nowMs, limits: { most: mostQueued } });
  let ran: Promise<void> | undefined;
  app.addHook('preClose', async () => {
    ran = runner.stop(config.drainMs);
  });
  app.addHook('onClose', async () => {
    await ran;
    await runtime.close();
  });
  const watching = {
    ...{ db, catalog, reader, credentials, baseUrl, log, now },
    fetchFor: outbound.fetchFor,
    isSandboxOn: testClient !== undefined,
  };
  const ownHooks = config.functions.isOn
    ? createOnEvents({
        ...{ ...executing, candidates, runner, log, now },
        startSyncs: (tx, { connection, at }) => startSyncsOf(tx, { connectionId: connection.id, at }),
      })
    : noHooks;
  const hooks = endsChannels(ownHooks, watching);
  const actions = createActions({ db, connections: reader, runner, now });

  guardOverrides(app, { outbound });
  healthRoutes(app, {
    check: async () => {
      await db.query('select 1');
    },
  });
  await staticRoutes(app, { web, brand, baseUrl, frameAncestors: config.connectFrameAncestors });
  const ofUsers = { config, db, signIn, mailer, rights, now, afterChange: people.forget };
  signInRoutes(app, { signIn, passwords, config, refused: createRefusedSignIns({ db, log, now }) });
  userRoutes(app, ofUsers);
  invitationRoutes(app, ofUsers);
  environmentRoutes(app, {
    ...{ db, vault, now, requireOwner: rights.requireOwner },
    afterChange: () => {
      people.forget();
      keys.forgetAll();
    },
  });
  variableRoutes(app, { db, vault });
  keyRoutes(app, { db, now, requireRole: rights.requireRole, afterChange: keys.forget });
  providerRoutes(app, { catalog, baseUrl, directory: providersDirectory });
  integrationRoutes(app, {
    ...{ db, reading, baseUrl, now },
    afterChange: (at) => reader.forgetIntegration(at),
    usageOf: async ({ environmentId, integrations }) => {
      const counts = await countByIntegration(db, environmentId);
      const quotas = await quotaUse(db, integrations);
      return ({ id }) => ({ connections: counts.get(id) ?? noConnections(), quota: quotas.get(id) ?? [] });
    },
  });
  connectionRoutes(app, { db, reading, reader, credentials, hooks, fetchFor, log, now });
  const revocations = { db, reading, log, now, fetchFor: outbound.fetchFor };
  disconnectRoutes(app, {
    ...revocations,
    ...{ reader, hooks },
    afterDelete: afterConnectionDeleted,
  });
  await connectRoutes(app, {
    db,
    reading,
    reader,
    hooks,
    fetchFor,
    brand,
    baseUrl,
    log,
    activity,
    now,
    guard,
    trustedProxies: config.trustedProxies,
  });
  ticketRoutes(app, { db, vault, connections: reader, now });
  recordRoutes(app, { db, brand, connections: reader, activity });
  const deliverer = createDeliverer({
    ...{ db, vault, brand, log, activity, nowMs },
    fetch: outbound.fetchFor({ isTest: false }),
    authModeOf: (provider) => catalog.find(provider)?.auth_mode,
  });
  app.addHook('onListen', async () => deliverer.start());
  let delivered: Promise<void> | undefined;
  app.addHook('preClose', async () => {
    delivered = deliverer.stop(config.drainMs);
  });
  app.addHook('onClose', () => delivered);
  endpointRoutes(app, { db, outbound, now });
  deliveryRoutes(app, { db, now });
  settingsRoutes(app, { db, vault, outbound, now, afterRotation: deliverer.forgetKeys });
  eventRoutes(app, { db });
  activityRoutes(app, { db, now, activity });
  tailRoute(app, {
    ...{ db, now },
    authorizeAgain: async (request) =>
      proxyCallerOf(request, {
        authenticate: { key: keys.reread, ticket: keys.ticket, door },
        scope: 'activity:read',
      }),
  });
  auditRoutes(app, { db });
  const deploys = { db, runtime, now, afterDeploy: startNewSyncs };
  const open = async () => {
    if (!config.functions.isOn) throw new AppError('functions_off');
  };
  functionRoutes(app, { db, now, open });
  overviewRoutes(app, { db, now, open });
  configRoutes(app, { db, open });
  deployRoutes(app, { ...deploys, open });
  const shipped = createShipped({ ...deploys, log, bundles: bundleShipped });
  shippedRoutes(app, { shipped, open });
  syncRoutes(app, { db, reader, now, poke: runner.poke, open });
  runRoutes(app, { db, now, poke: runner.poke, open });
  actionRoutes(app, { actions, connections: reader, open });
  setUpRoutes(app, {
    ...{ db, vault, reading, brand, now, actions, shipped, open },
    ...{ connections: reader, poke: runner.poke },
  });
  mcpRoutes(app, {
    ...{ actions, connections: reader, open },
    authenticate: { key: keys.key, ticket: keys.ticket },
    origins: [new URL(baseUrl).origin, ...config.functions.mcpOrigins],
  });
  if (config.functions.isOn) {
    app.addHook('onListen', async () => runner.start());
    const folder = createFunctionsFolder({
      ...deploys,
      log,
      directory: config.functions.directory,
      environment: 'dev',
      isWatched: !config.isProduction,
    });
    app.addHook('onListen', async () => folder.start());
    app.addHook('preClose', () => folder.stop());
    let upgraded: Promise<unknown> | undefined;
    app.addHook('onListen', async () => {
      upgraded = shipped
        .upgrade()
        .catch((error: unknown) =>
          log.error({ err: error }, 'functions that ship with the service were not brought up to date'),
        );
    });
    app.addHook('onClose', async () => void (await upgraded));
  }
  for (const job of recordJobs(db, activity)) await everyMinute?.(job);
  await everyMinute?.(revocationJob(revocations));
  await everyMinute?.(sweepJob({ db, vault, log, activity, now }));
  await everyMinute?.(expiryJob({ db, catalog, log, now }));
  await everyMinute?.(tokenSlotsJob({ db, log }));
  await everyMinute?.(signInSweepJob({ db, now }));
  await everyMinute?.(retryJob({ db, reader, credentials, log, now }));
  await everyMinute?.(seenSweepJob({ db, now }));
  if (config.functions.isOn) await everyMinute?.(watchJob(watching));
  await everyMinute?.(bundleSweepJob({ db, now }));
  await everyMinute?.(quotaSweepJob(db));
  await everyMinute?.(deliverySweepJob({ db, now, keptDays: config.deliveryDays }));
  await everyMinute?.(eventRetentionJob(db, { keptDays: config.eventDays, now }));
  const { keptDays } = config.activity;
  await everyMinute?.({ name: 'activity.days', run: () => keepDays(db, { now: now(), keptDays }) });
  await everyMinute?.(runSweepJob({ db, now, keptDays }));
  const isSandboxOn = testClient !== undefined;
  await everyMinute?.(probeJob({ db, reader, credentials, isSandboxOn, log, now }));
  await everyMinute?.(keepaliveJob({ db, catalog, reader, credentials, isSandboxOn, log, now }));
  await webhookRoutes(app, {
    ...{ db, reading, reader, credentials, log, now },
    fetchFor: outbound.fetchFor,
    receiving: {
      ...{ db, vault, brand, connections: reader, poke: runner.poke, log, now },
      isOn: config.functions.isOn,
    },
  });
  return app;
}
