/**
 * Starts and stops the service.
 *
 * Owns: the order in which the parts start and stop, the preparation of the database and of the data directory, and the
 * keys of the first start. Does not own: the modules and routes of the HTTP interface (`app/app.ts`), several processes
 * (`processes/`), the command line (`cli/`).
 */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { hashPassword } from 'better-auth/crypto';
import type { Sandbox } from '../sandbox/main.ts';
import { auditSequence } from './activity/audit-chain.ts';
import { createApp } from './app/app.ts';
import type { Siblings } from './app/figures.ts';
import { createReload, requireDefinitions } from './app/provider-reload.ts';
import { authModes } from './auth-modes/modes.ts';
import { type Config, ConfigError, type MasterKey, type Role } from './config/config.ts';
import {
  createMasterKeyFile,
  ensureDataDir,
  masterKeyPath,
  readDevKey,
  readMasterKeyRing,
  writeDevKey,
} from './data-dir.ts';
import { isSealed, proveKeyRing } from './data-keys/master-keys.ts';
import { registerMasterKey } from './data-keys/store.ts';
import { startEmbedded } from './db/embedded/embedded.ts';
import { migrate } from './db/migrate.ts';
import { type Db, type DbTarget, maxNodeConnections, openDb } from './db/pool.ts';
import { keepPlacing } from './db/sequencer.ts';
import { withWorkers } from './db/workers.ts';
import { auditKey, createKey } from './environments/keys.ts';
import { putSettingKey } from './environments/setting-key.ts';
import { ensureEnvironment, proveEnvironmentKeys } from './environments/store.ts';
import { eventSequence } from './events/sequence.ts';
import { createDrain } from './http/drain.ts';
import type { Web } from './http/pages/static.ts';
import type { App } from './http/server.ts';
import { type Job, startJobs } from './jobs/jobs.ts';
import type { Logger } from './log.ts';
import { joinNodes, type Presence } from './nodes/nodes.ts';
import { requireSoundCluster } from './ops/cluster/checks.ts';
import { isDistributed } from './ops/cluster/distribute.ts';
import { createOutbound } from './outbound/outbound.ts';
import { type LiveCatalog, openCatalog } from './providers/catalog.ts';
import { keepTickShape } from './tick-shape.ts';
import { startTracing } from './tracing/tracing.ts';
import { prepareOwner } from './users/invitations.ts';
import { openVault, type Vault } from './vault.ts';
import { version } from './version.ts';
import { createWebBuild, type WebBuild } from './web-build.ts';

export type Service = {
  role: Role;
  /** With the actual port if PORT is 0. For a worker the address on which it listens, since BASE_URL does not lead to it. */
  baseUrl: string;
  sandboxUrl: string | undefined;
  /** The key of `dev` if this start generated it. */
  newDevKey: string | undefined;
  /** Makes the user that opens it the first owner; undefined if there is an owner. */
  setUpLink: string | undefined;
  /** Whether DATA_DIR/dev.key exists. */
  hasDevKeyFile: boolean;
  /**
   * Stops all parts, in order, within 5 s after the time for requests in flight; the effects of completed requests are on the
   * disk. May be called more than once.
   */
  stop(): Promise<void>;
  /** Resolves with the reason if the service cannot continue. */
  failed: Promise<Error>;
  /**
   * Reads the provider definitions again: one process in place, several by a rolling restart. Never rejects: a fault is logged,
   * and the previous definitions stay.
   */
  reload(): Promise<void>;
};

/** Most callers have timed out by then. */
const silentDatabaseMs = 60_000;
/**
 * The time for which a replaced process still serves its connections. Connections in use move to other processes with their next
 * response; those that stay idle are closed.
 */
export const replacedDelayMs = 2_000;
/** Connections of commands and operators, and those that PostgreSQL reserves. */
const otherConnections = 16;

export type Part = { name: string; stop: () => Promise<unknown> };
type Starting = { config: Config; log: Logger; parts: Part[] };

/** What an installation needs once on a machine, however many processes serve. */
export type Installation = NodeSurroundings & {
  target: DbTarget;
  newDevKey: string | undefined;
  failed: Promise<Error>;
  web: WebBuild;
};

/** The surroundings of a node. */
export type NodeSurroundings = {
  db: Db;
  vault: Vault;
  catalog: LiveCatalog;
  /** Undefined if it is switched off. */
  sandbox: Pick<Sandbox, 'url' | 'client'> | undefined;
  web: Web;
};

/** Starts all parts and resolves when the service is ready. If a part fails, the earlier ones are stopped. */
export function startService(given: { config: Config; log: Logger }): Promise<Service> {
  const { log } = given;
  return startParts(log, async (parts) => {
    const config = await withFixedPort(given.config);
    await startTraces({ config, log, parts });
    const installation = await startInstallation({ config, log, parts });
    const { reload } = await startNode({ config, log, parts }, installation);
    return openService(config, installation, { reload: async () => void (await reload()) });
  });
}

/** Calls `start`, which adds each part that it starts to `parts`. If it fails, these parts are stopped. */
export async function startParts<S>(
  log: Logger,
  start: (parts: Part[]) => Promise<S>,
): Promise<S & Pick<Service, 'stop'>> {
  keepTickShape();
  const parts: Part[] = [];
  let stopping: Promise<void> | undefined;
  const stop = () => {
    stopping ??= stopAll(parts, log);
    return stopping;
  };
  try {
    return { ...(await start(parts)), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

export async function startTraces({ config, log, parts }: Starting): Promise<void> {
  const onError = (error: unknown) =>
    log.warn({ err: error }, 'the collector does not accept traces: they are discarded');
  parts.push({ name: 'traces', stop: await startTracing(config.tracing, { version, onError }) });
}

/** Starts the database and the sandbox, migrates, and makes what the first start makes. */
export async function startInstallation({ config, log, parts }: Starting): Promise<Installation> {
  await ensureDataDir(config.dataDir);
  const catalog = openCatalog(config.providersDir, authModes);
  const { target, failed } = await startDatabase({ config, log, parts });
  await migrateDatabase(target, log);
  const joined = await joinInstallation({ config, log, parts }, { target, catalog, makeKeys: newMasterKeys });
  const { db, vault } = joined;
  const startingSandbox = startSandboxOf(config, log);
  // Registered now, so that a failure of another part stops it.
  parts.push({ name: 'sandbox', stop: async () => (await startingSandbox.catch(() => undefined))?.close() });
  const [newDevKey, sandbox] = await Promise.all([
    prepareEnvironments({ config, db, vault }),
    startingSandbox,
  ]);
  const web = createWebBuild({ log });
  parts.push({ name: 'build of the dashboard', stop: () => web.stop() });
  return { ...joined, target, failed, sandbox, newDevKey, web };
}

/** Opens connections and master keys of a migrated database. Throws if the keys or the definitions do not fit its content. */
export async function joinInstallation(
  { config, log, parts }: Starting,
  {
    target,
    catalog = openCatalog(config.providersDir, authModes),
    makeKeys = async () => [],
  }: {
    target: DbTarget;
    catalog?: LiveCatalog;
    makeKeys?: (db: Db, config: Config) => Promise<MasterKey[]>;
  },
): Promise<Pick<NodeSurroundings, 'db' | 'vault' | 'catalog'>> {
  const db = await openNodeDb(config, { target, log });
  parts.push({ name: 'database connections', stop: () => db.end() });
  const vault = openVault((await readMasterKeyRing(config)) ?? (await makeKeys(db, config)));
  await proveKeyRing(db, vault.masterKeys);
  await proveEnvironmentKeys(db);
  await requireDefinitions(db, { catalog });
  return { db, vault, catalog };
}

type NodeOptions = {
  /** Tells the processes of one machine apart. */
  name?: string;
  siblings?: Siblings;
  /** Whether the stop is one after which another process of this machine continues. */
  isReplaced?: () => boolean;
};

/** Starts one node; resolves when it listens. `reload` reads the definitions again, see `createReload`. */
export async function startNode(
  { config, log, parts }: Starting,
  { db, vault, catalog, sandbox, web }: NodeSurroundings,
  { name, siblings, isReplaced = () => false }: NodeOptions = {},
): Promise<{ reload: () => Promise<string | undefined> }> {
  const reload = createReload({ db, catalog, log });
  const outbound = createOutbound({
    allow: config.outboundAllow,
    proxy: config.outboundProxy,
    ...(sandbox && { sandbox: { origin: new URL(sandbox.url).origin } }),
  });
  parts.push({ name: 'outbound', stop: () => outbound.close() });
  const testClient = sandbox && { ...sandbox.client, url: sandbox.url };
  const housekeeping = config.role === 'api' ? noHousekeeping : await startHousekeeping({ db, log });
  parts.push({ name: 'housekeeping', stop: housekeeping.stop });
  const refreshing = new Set<number>();
  const app = await createApp({
    refreshing,
    config,
    log,
    db,
    vault,
    catalog,
    outbound,
    testClient,
    web,
    siblings,
    afterConnectionDeleted: housekeeping.removeOrphans,
    everyMinute: housekeeping.everyMinute,
  });
  // Continues immediately with the work that a stop has interrupted.
  housekeeping.removeOrphans();
  const presence = await enterNodes({ config, name, db, log, reload, refreshing });
  parts.push({ name: 'row of this node', stop: () => presence.stop() });
  const drain = createDrain(app);
  const limits = () => ({
    delayMs: isReplaced() ? Math.max(config.drainDelayMs, replacedDelayMs) : config.drainDelayMs,
    limitMs: config.drainMs,
    isReplaced: isReplaced(),
  });
  parts.push({ name: 'http', stop: () => Promise.all([presence.markStopping(), drain(limits())]) });
  await listen(app, config);
  // From now on a rotation may rely on a node that has this key first.
  await registerMasterKey(db, vault.masterKeys[0]);
  return { reload };
}

/** The last step of a start, when all nodes of this machine listen. */
export async function openService(
  config: Config,
  { db, web, sandbox, newDevKey, failed }: Installation,
  { reload }: Pick<Service, 'reload'>,
): Promise<Omit<Service, 'stop'>> {
  const isServing = config.role !== 'worker';
  if (isServing) web.start();
  const setUpLink = isServing
    ? await prepareOwner(db, {
        settings: config.signIn,
        baseUrl: config.baseUrl,
        at: new Date(),
        hashPassword,
      })
    : undefined;
  return {
    role: config.role,
    baseUrl: isServing ? config.baseUrl : `http://${config.host}:${config.port}`,
    sandboxUrl: sandbox?.url,
    newDevKey,
    setUpLink,
    hasDevKeyFile: (await readDevKey(config.dataDir)) !== undefined,
    failed,
    reload,
  };
}

/** The database of a node; with TRELLIS_RECORDS_DIRECT also the workers of its cluster. */
async function openNodeDb(config: Config, { target, log }: { target: DbTarget; log: Logger }): Promise<Db> {
  const options = { onIdleError: logIdleError(log), silentMs: silentDatabaseMs };
  const db = openDb(target, options);
  if (config.records === undefined || !('url' in target)) return db;
  if (!(await isDistributed(db))) {
    await db.end();
    throw new ConfigError([
      'TRELLIS_RECORDS_DIRECT=on requires records on a Citus cluster: run "trellis cluster distribute" first',
    ]);
  }
  const open = (url: string) => openDb({ url }, { ...options, workerOf: db.database });
  const withRecords = withWorkers(db, { url: target.url, urls: config.records.urls, open });
  for (const { name, fault } of await withRecords.probe()) {
    if (fault === undefined) continue;
    log.warn({ err: fault, worker: name }, 'a worker of the cluster does not accept connections');
  }
  return withRecords;
}

function logIdleError(log: Logger): (error: Error) => void {
  return (error) => log.debug({ err: error }, 'a database connection ended');
}

/** With its own connections: the build of an index may be silent for longer than a statement of the service may. */
async function migrateDatabase(target: DbTarget, log: Logger): Promise<void> {
  await using db = openDb(target, { onIdleError: logIdleError(log) });
  await requireSoundCluster(db);
  const applied = await migrate(db, {
    onHeldUp: (error) => log.warn({ err: error }, 'the migration waits for other database sessions'),
  });
  if (applied.length > 0) log.info({ migrations: applied.length }, 'database migrated');
}

/** Undefined if it is switched off. */
async function startSandboxOf(config: Config, log: Logger): Promise<Sandbox | undefined> {
  const { sandbox, dataDir, baseUrl, callbackBaseUrl = baseUrl } = config;
  if (sandbox === undefined) return undefined;
  try {
    // Not loaded in production, where it is off.
    const { startSandbox } = await import('../sandbox/main.ts');
    return await startSandbox({
      port: sandbox.port,
      dataDir: join(dataDir, 'sandbox'),
      redirectUris: [`${callbackBaseUrl}/oauth/callback`],
      ...(sandbox.port !== 0 && { url: sandbox.url }),
      ...(sandbox.controlKey !== undefined && { key: sandbox.controlKey }),
      log: (message, error) => log.warn({ err: error }, message),
    });
  } catch (error) {
    throw asPortFault(error, { name: 'SANDBOX_PORT', at: `127.0.0.1:${sandbox.port}` });
  }
}

/** Only the first start makes keys: a database with sealed data needs the old ones. */
async function newMasterKeys(db: Db, { dataDir, kms }: Config): Promise<MasterKey[]> {
  if (await isSealed(db)) {
    throw new ConfigError([
      `${masterKeyPath(dataDir)} is missing: the database is encrypted with the key in it`,
    ]);
  }
  return createMasterKeyFile({ dataDir, kms });
}

async function startDatabase(starting: Starting): Promise<{ target: DbTarget; failed: Promise<Error> }> {
  const { config, log, parts } = starting;
  if (config.databaseUrl !== undefined) {
    return { target: { url: config.databaseUrl }, failed: new Promise<Error>(() => {}) };
  }
  const embedded = await startEmbedded({
    dataDir: config.dataDir,
    log: (message) => log.info(message),
    // A rolling restart has one process more; this process has a pool of its own.
    ...(config.processes > 1 && {
      maxConnections: Math.max(100, (config.processes + 2) * maxNodeConnections + otherConnections),
    }),
  });
  parts.push({ name: 'embedded PostgreSQL', stop: () => embedded.stop() });
  return { target: embedded.connection, failed: embedded.exited };
}

/** Ensures `dev` and `prod`, and a key of `dev`. Returns the key if it was generated now; never the key of the settings. */
async function prepareEnvironments(given: {
  config: Config;
  db: Db;
  vault: Vault;
}): Promise<string | undefined> {
  const { config, db, vault } = given;
  const dev = await ensureEnvironment(db, { name: 'dev', vault });
  await ensureEnvironment(db, { name: 'prod', vault });
  const { environment, created } = dev;
  const chosen = config.secretKey;
  if (!created && chosen === undefined) return undefined;
  const secret =
    chosen ??
    (await db.transaction(async (tx) => {
      const made = await createKey(tx, { environment, name: 'first key', scopes: ['*'] });
      const { id: environmentId } = environment;
      await auditKey(tx, { environmentId, actor: 'service', action: 'key.created', key: made.key });
      return made.secret;
    }));
  if (chosen !== undefined)
    await db.transaction((tx) => putSettingKey(tx, { environment, secret: chosen, at: new Date() }));
  if ((await readDevKey(config.dataDir)) !== secret) await writeDevKey(config.dataDir, secret);
  return created && chosen === undefined ? secret : undefined;
}

/** Registers this node, and logs if no node does background work any more. */
function enterNodes({
  config,
  name,
  db,
  log,
  ...given
}: {
  config: Config;
  name: string | undefined;
  db: Db;
  log: Logger;
} & Pick<Parameters<typeof joinNodes>[1], 'reload' | 'refreshing'>): Promise<Presence> {
  let wereThere = true;
  return joinNodes(db, {
    name: [`${hostname()}:${config.port}`, name].filter((part) => part !== undefined).join('/'),
    role: config.role,
    version,
    ...given,
    onError: (error) => log.warn({ err: error }, "this node's heartbeat could not be written; it is retried"),
    onWorkers: (areThere) => {
      if (wereThere && !areThere)
        log.warn(
          'no node with the role worker or all runs: functions, event deliveries and jobs do not run; start such a node',
        );
      wereThere = areThere;
    },
  });
}

type Housekeeping = {
  stop: () => Promise<void>;
  /** Runs immediately; the job of each minute does the same. */
  removeOrphans: () => void;
  everyMinute: (job: Job<Record<string, never>>) => Promise<void>;
};

const noHousekeeping: Housekeeping = {
  stop: async () => {},
  removeOrphans: () => {},
  everyMinute: async () => {},
};

/** Positions of events and audit entries; the jobs of all modules, each minute on one node. */
async function startHousekeeping({ db, log }: { db: Db; log: Logger }): Promise<Housekeeping> {
  const onError = (error: unknown) => log.warn({ err: error }, 'housekeeping failed; it is retried later');
  const jobs = await startJobs(db, { onError });
  const sequencer = keepPlacing(db, { sequences: [eventSequence, auditSequence], everyMs: 100, onError });
  const stop = async () => {
    await Promise.all([sequencer.stop(), jobs.stop()]);
  };
  const everyMinute = async (job: Job<Record<string, never>>) => {
    await jobs.work(job);
    await jobs.schedule(job.name, '* * * * *');
  };
  const removeOrphans = () => {
    jobs.send('records.destroy-orphans', {}).catch(onError);
  };
  return { stop, removeOrphans, everyMinute };
}

async function listen(app: App, { host, port }: Config): Promise<void> {
  try {
    // Connections of a burst wait in the backlog: if it is full, the client's system repeats the request after a second.
    await app.listen({ host, port, backlog: 4_096 });
  } catch (error) {
    throw asPortFault(error, { name: 'PORT', at: `${host}:${port}` });
  }
}

function asPortFault(error: unknown, { name, at }: { name: string; at: string }): unknown {
  if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') return error;
  return new ConfigError([`${name}: ${at} is in use by another program`]);
}

/** Replaces PORT=0 with a free port: links have the port before the service listens. */
export async function withFixedPort(config: Config): Promise<Config> {
  if (config.port !== 0) return config;
  const probe = createServer().listen(0, config.host);
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return { ...config, port, baseUrl: config.baseUrl.replace(/:0$/, `:${port}`) };
}

/** Stops the parts in the reverse order of their start. */
async function stopAll(parts: Part[], log: Logger): Promise<void> {
  for (const { name, stop } of parts.toReversed()) {
    await stop().catch((error: unknown) => log.error({ err: error }, `${name} did not stop cleanly`));
  }
}
