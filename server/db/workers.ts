/**
 * Connections to the workers of a Citus cluster, for transactions about records.
 *
 * Each statement about records has the tables of one dataset alone, whose rows are on one worker. Citus accepts it on each
 * machine of the cluster and sends it to the machine that has the shard, so an outdated place costs time and is never wrong.
 * All other statements go to the coordinator.
 */
import pg from 'pg';
import { AppError } from '../errors.ts';
import type { Db } from './pool.ts';

/** A machine of the cluster, which the metadata of Citus names by its group. */
type Machine = { group: number; host: string; port: number };
type ShardMap = { readAtMs: number; machines: Map<number, Machine> };

/** Shards that have moved are found within this time. */
const validMs = 10_000;
/** After an error the map is read again, at most once in this time. */
const minValidMs = 1_000;
/** About 3 MB. */
const maxKnownShards = 20_000;
/** Of the coordinator. */
const coordinatorGroup = 0;

type WorkerOptions = {
  /** The address of the coordinator: its user, password and options are those for the workers. */
  url: string;
  /** Addresses of the workers, in place of those that Citus has. */
  urls?: readonly string[] | undefined;
  /** Opens the pool of a worker, for transactions with `isOnWorker`. `database` is that of the coordinator. */
  open(url: string): Db;
};

export type WorkersDb = Db &
  AsyncDisposable & {
    /** Connects to each machine that has shards. `fault` is undefined if it answers. */
    probe(): Promise<{ name: string; fault: Error | undefined }[]>;
  };

/** `first`, the coordinator, and the workers for `recordsDb`. Ends all of them. */
export function withWorkers(first: Db, options: WorkerOptions): WorkersDb {
  const pools = new Map<string, Db>();
  const poolAt = (url: string) => pools.getOrInsertComputed(url, () => options.open(url));
  const shards = new Map<number, number>();
  const urlsByGroup = new Map<number, string>();
  let map: ShardMap | undefined;
  let reading: Promise<ShardMap> | undefined;

  async function currentMap(): Promise<ShardMap> {
    if (map !== undefined && performance.now() - map.readAtMs < validMs) return map;
    reading ??= readShardMap(first).finally(() => {
      reading = undefined;
    });
    map = await reading;
    return map;
  }

  async function urlOf(machine: Machine): Promise<string> {
    const { urls } = options;
    if (urls === undefined) return addressOf(options.url, machine);
    const known = urlsByGroup.get(machine.group);
    if (known !== undefined) return known;
    const answers = urls.map(async (url) => {
      const group = await groupAt(poolAt(url));
      urlsByGroup.set(group, url);
      if (group !== machine.group) throw new Error('the address of another worker');
      return url;
    });
    // Other addresses may not answer for a long time.
    return Promise.any(answers).catch((cause) => {
      const message = 'No address of TRELLIS_RECORDS_DATABASE_URLS leads to the worker of these records.';
      throw new AppError('unavailable', message, { cause, retryAfterS: 5 });
    });
  }

  async function machineOf(datasetId: number): Promise<Machine> {
    let machine = (await currentMap()).machines.get(await shardOf(datasetId));
    if (machine === undefined) {
      // The shard was split.
      shards.delete(datasetId);
      map = undefined;
      machine = (await currentMap()).machines.get(await shardOf(datasetId));
    }
    if (machine === undefined) throw new Error(`dataset ${datasetId} has no shard`);
    return machine;
  }

  async function shardOf(datasetId: number): Promise<number> {
    const known = shards.get(datasetId);
    if (known !== undefined) return known;
    const [found] = await first.query<{ shard: number }>(
      `select get_shard_id_for_distribution_column('dataset', $1::bigint) as shard`,
      [datasetId],
    );
    const { shard } = found as { shard: number };
    const [oldest] = shards.keys();
    if (shards.size >= maxKnownShards && oldest !== undefined) shards.delete(oldest);
    shards.set(datasetId, shard);
    return shard;
  }

  async function on<T>(datasetId: number, work: (worker: Db) => Promise<T>): Promise<T> {
    const machine = await machineOf(datasetId);
    const worker = machine.group === coordinatorGroup ? first : poolAt(await urlOf(machine));
    try {
      return await work(worker);
    } catch (error) {
      const isOwn = error instanceof AppError && error.code !== 'unavailable';
      if (!isOwn && map !== undefined && performance.now() - map.readAtMs > minValidMs) {
        map = undefined;
        urlsByGroup.delete(machine.group);
      }
      throw isMoved(error) ? movedError(error) : error;
    }
  }

  async function probe(): Promise<{ name: string; fault: Error | undefined }[]> {
    const machines = new Map<string, Machine>();
    for (const machine of (await currentMap()).machines.values())
      machines.set(`${machine.host}:${machine.port}`, machine);
    return Promise.all(
      [...machines].map(async ([name, machine]) => {
        const reached = urlOf(machine).then((url) => poolAt(url).query('select'));
        const fault = await reached.then(
          () => undefined,
          (error: Error) => error,
        );
        return { name, fault };
      }),
    );
  }

  async function end(): Promise<void> {
    await Promise.all([...pools.values(), first].map((db) => db.end()));
  }

  return {
    ...first,
    records: (datasetId) => ({
      database: first.database,
      query: (text, values) => on(datasetId, (worker) => worker.query(text, values)),
      run: (built) => on(datasetId, (worker) => worker.run(built)),
      transaction: (work, mode) => on(datasetId, (worker) => worker.transaction(work, mode)),
      transactionWithin: (work, limit) => on(datasetId, (worker) => worker.transactionWithin(work, limit)),
      pipeline: (pipeline) => on(datasetId, (worker) => worker.pipeline(pipeline)),
      load: () => first.load(),
      end,
    }),
    probe,
    end,
    [Symbol.asyncDispose]: end,
  };
}

async function readShardMap(first: Db): Promise<ShardMap> {
  const readAtMs = performance.now();
  const rows = await first.query<Machine & { shard: number }>(
    `select shardid as shard, groupid as "group", nodename as host, nodeport as port
     from pg_dist_shard
     join pg_dist_placement using (shardid)
     join pg_dist_node using (groupid)
     where logicalrelid::text = 'dataset' and noderole = 'primary'`,
  );
  return { readAtMs, machines: new Map(rows.map(({ shard, ...machine }) => [shard, machine])) };
}

async function groupAt(db: Db): Promise<number> {
  const [found] = await db.query<{ group: number }>('select groupid as "group" from pg_dist_local_group');
  return (found as { group: number }).group;
}

/** The URL of the coordinator with the address of a worker. */
function addressOf(coordinator: string, { host, port }: { host: string; port: number }): string {
  const url = new URL(coordinator);
  url.hostname = host.includes(':') ? `[${host}]` : host;
  url.port = String(port);
  for (const name of ['host', 'port']) url.searchParams.delete(name);
  return url.href;
}

/** A shard that was moved between the plan of a statement and its execution: its table is gone there. */
function isMoved(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '42P01' && /_\d{6,}"/.test(error.message);
}

function movedError(cause: unknown): AppError {
  return new AppError('unavailable', 'The records are moved to another machine. Try again shortly.', {
    cause,
    retryAfterS: 1,
  });
}
