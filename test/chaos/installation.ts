/**
 * Three nodes behind a balancer, on a PostgreSQL behind PgBouncer where one is installed, with the provider and the
 * application's receiver in a process beside them: all of it processes that can be killed, frozen and restarted.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chownSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { authModes } from '../../server/auth-modes/modes.ts';
import { leaseMsOf } from '../../server/connections/refresh/lease.ts';
import { defaultTiming } from '../../server/connections/refresh/refresh.ts';
import { findAccount } from '../../server/db/embedded/account.ts';
import { prepareBinaries } from '../../server/db/embedded/binaries.ts';
import { migrate } from '../../server/db/migrate.ts';
import { openDb } from '../../server/db/pool.ts';
import { distribute } from '../../server/ops/cluster/distribute.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import { citusSettings, createCluster } from '../support/citus.ts';
import { findPgbouncer, type PgBouncer, startPgbouncer } from '../support/pgbouncer.ts';
import { freePort } from '../support/ports.ts';
import { type Postgres, startPostgres } from '../support/postgres.ts';
import { socketPlace } from '../support/scratch.ts';
import { type RunningService, startRunningService } from '../support/service.ts';
import { openBalancer } from './balancer.ts';
import { integration } from './function-load.ts';
import type { Done, Order, Ready, Report, Sent, Settings } from './provider.ts';
import type { LeaseTiming } from './token-book.ts';

export type Installation = {
  /** The balancer's address, and a key of `dev` that all nodes know. */
  url: string;
  key: string;
  /** Of the database, past PgBouncer. */
  databaseUrl: string;
  hasPgbouncer: boolean;
  provider: Ready;
  nodes: readonly string[];
  /** Kills it as `kill -9` does and starts it again; resolves when it is ready, with the number of starts it took. */
  killNode(name: string): Promise<number>;
  /** Lets it stand still for so long. */
  freezeNode(name: string, ms: number): Promise<void>;
  signalNode(name: string, signal: NodeJS.Signals): void;
  restartPostgres(): Promise<void>;
  /** Ends it, and starts it again so much later. */
  leaveWithoutPostgres(ms: number): Promise<void>;
  restartPgbouncer(): Promise<void>;
  /** Of a cluster, 0 is the first one. */
  leaveWithoutWorker(worker: number, ms: number): Promise<void>;
  freezeWorker(worker: number, ms: number): Promise<void>;
  tellProvider(order: Order): Promise<unknown>;
  report(): Promise<Report>;
  close(): Promise<void>;
};

/**
 * `environmentOf` are settings that one node has besides. `citusDir`: the programs of a PostgreSQL with Citus, for a coordinator
 * and two workers to which the nodes connect directly.
 */
export async function openInstallation({
  nodes,
  environmentOf = () => ({}),
  citusDir,
}: {
  nodes: readonly string[];
  environmentOf?: (node: string) => Record<string, string>;
  citusDir?: string | undefined;
}): Promise<Installation> {
  const dir = await mkdtemp(path.join(socketPlace, 'trellis-chaos-'));
  const closing: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
  const close = async () => {
    for (const step of closing.splice(0).reverse()) await step();
  };
  try {
    const databaseDir = path.join(dir, 'database');
    await mkdir(databaseDir);
    const account = findAccount(path.join(databaseDir, 'data'));
    for (const made of [dir, databaseDir])
      if (account.identity.uid !== undefined) chownSync(made, account.uid, account.gid);
    const password = randomBytes(16).toString('hex');
    const programs = () => {
      const { postgres: program, libraryPath } = prepareBinaries({ dir: databaseDir, account });
      return { binDir: path.dirname(program), libraryPath };
    };
    const server = {
      ...(citusDir === undefined ? programs() : { binDir: citusDir }),
      account,
      user: 'trellis',
      password,
      settings: {
        // What the nodes share with the tests' own load must not be the disk.
        shared_buffers: '64MB',
        max_connections: '100',
        ...(citusDir !== undefined && citusSettings),
      },
    };
    const postgres = await startPostgres({ ...server, dir: databaseDir });
    closing.push(postgres.stop);
    const workers: Postgres[] = [];
    for (const name of citusDir === undefined ? [] : ['worker-1', 'worker-2']) {
      const workerDir = path.join(dir, name);
      await mkdir(workerDir);
      if (account.identity.uid !== undefined) chownSync(workerDir, account.uid, account.gid);
      const worker = await startPostgres({ ...server, dir: workerDir });
      closing.push(worker.stop);
      workers.push(worker);
    }
    if (workers.length > 0) await makeCluster(postgres, workers);
    const pgbouncer = findPgbouncer();
    let bouncer: PgBouncer | undefined;
    if (pgbouncer !== undefined) {
      bouncer = await startPgbouncer({ pgbouncer, dir: databaseDir, account, server: postgres.url });
      closing.push(bouncer.stop);
    }
    const provider = await startProvider({
      dataDir: path.join(dir, 'sandbox'),
      nodes,
      timing: leaseTiming(),
    });
    closing.push(provider.stop);
    const ports = new Map<string, number>();
    const balancer = await openBalancer(() => [...ports.values()]);
    closing.push(balancer.close);
    const key = `chaos_${randomBytes(20).toString('hex')}`;
    const shared = {
      DATABASE_URL: bouncer?.url ?? postgres.url,
      TRELLIS_ENCRYPTION_KEYS: `chaos:${randomBytes(32).toString('base64')}`,
      TRELLIS_SECRET_KEY: key,
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
      BASE_URL: balancer.url,
      // What a busy machine cannot do in time is late here, and not refused.
      TRELLIS_OVERLOAD_DELAY_MS: 'off',
      LOG_LEVEL: 'warn',
      ...(workers.length > 0 && { TRELLIS_RECORDS_DIRECT: 'on' }),
    };
    const running = new Map<string, RunningService>();
    const start = async (node: string) => {
      const dataDir = path.join(dir, node);
      // Its own sandbox stays unused: it is there for the client that it shares with the provider's.
      await cp(path.join(dir, 'sandbox'), path.join(dataDir, 'sandbox'), { recursive: true });
      // Another one each time: somebody else may have taken the old one meanwhile.
      const port = await freePort();
      const service = await startRunningService({
        dataDir,
        env: {
          ...shared,
          PORT: String(port),
          SANDBOX_PORT: String(await freePort()),
          SANDBOX_URL: provider.ready.proxyUrls[node]!,
          ...environmentOf(node),
        },
      });
      running.set(node, service);
      // Nobody calls a worker.
      if (environmentOf(node).TRELLIS_ROLE !== 'worker') ports.set(node, port);
    };
    /** Starts the node again until it is ready, since the database may be down. Returns the number of starts. */
    const startUntilReady = async (node: string) => {
      for (let starts = 1; ; starts += 1) {
        try {
          await start(node);
          return starts;
        } catch (error) {
          if (starts === 20) throw error;
          await sleep(500);
        }
      }
    };
    closing.push(() => Promise.all([...running.values()].map((node) => node.stop({ keepData: true }))));
    const [first = '', ...others] = nodes;
    await startUntilReady(first);
    await Promise.all(others.map(startUntilReady));
    return {
      url: balancer.url,
      key,
      nodes,
      provider: provider.ready,
      databaseUrl: postgres.url,
      hasPgbouncer: bouncer !== undefined,
      async killNode(node) {
        const { pid, exited } = running.get(node)!;
        await provider.tell({ order: 'stopped', node });
        process.kill(pid, 'SIGKILL');
        await exited;
        await provider.tell({ order: 'ended', node });
        return startUntilReady(node);
      },
      async freezeNode(node, ms) {
        const { pid } = running.get(node)!;
        await provider.tell({ order: 'stopped', node });
        process.kill(pid, 'SIGSTOP');
        await sleep(ms);
        await provider.tell({ order: 'goes on', node });
        process.kill(pid, 'SIGCONT');
      },
      signalNode: (node, signal) => process.kill(running.get(node)!.pid, signal),
      restartPostgres: () => postgres.restart('immediate'),
      leaveWithoutPostgres: (ms) => postgres.restart('immediate', { afterMs: ms }),
      restartPgbouncer: async () => bouncer?.restart(),
      leaveWithoutWorker: async (worker, ms) => workers[worker]?.restart('immediate', { afterMs: ms }),
      freezeWorker: async (worker, ms) => workers[worker]?.freeze(ms),
      tellProvider: provider.tell,
      report: () => provider.tell({ order: 'tell' }),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function makeCluster(coordinator: Postgres, workers: readonly Postgres[]): Promise<void> {
  const admin = { url: coordinator.url };
  await createCluster({ admin, workers: workers.map(({ url }) => ({ url })) }, 'postgres');
  const db = openDb(admin, { maxConnections: 2 });
  await migrate(db);
  await distribute(db, () => {});
  await db.end();
}

/** Of the connections whose tokens end. */
function leaseTiming(): LeaseTiming {
  const catalog = loadCatalog(path.join(import.meta.dirname, '../../providers'), authModes);
  const { storeMs } = defaultTiming;
  const connection = { integration: { provider: catalog.get(integration) } };
  return { leaseMs: leaseMsOf(connection, storeMs), storeMs };
}

async function startProvider(settings: Settings) {
  const file = path.join(import.meta.dirname, 'provider.ts');
  const child: ChildProcess = fork(file, [JSON.stringify(settings)], {
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
    execArgv: [],
  });
  const [ready] = (await once(child, 'message')) as [Ready];
  let orders = 0;
  const waiting = new Map<number, PromiseWithResolvers<Report>>();
  child.on('message', (done: Done) => {
    waiting.get(done.id)?.resolve(done);
    waiting.delete(done.id);
  });
  child.once('exit', (code) => {
    for (const { reject } of waiting.values()) reject(new Error(`the provider ended with ${code}`));
  });
  return {
    ready,
    /** Resolves once it is done, with how things stand then. */
    tell(order: Order): Promise<Report> {
      orders += 1;
      const id = orders;
      const answer = Promise.withResolvers<Report>();
      waiting.set(id, answer);
      child.send({ ...order, id } satisfies Sent);
      return answer.promise;
    },
    async stop() {
      const exited = once(child, 'exit');
      child.disconnect();
      await exited;
    },
  };
}
