// Direct connections to the workers of a cluster. `npm run test:citus` runs it alone: it crashes a worker.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { after, before, type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isCluster } from '../../../test/support/citus.ts';
import { openTestDatabase, urlOf } from '../../../test/support/database.ts';
import { onEachStatement } from '../../../test/support/recorder.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import { startRunningService } from '../../../test/support/service.ts';
import { type Db, type DbTarget, openDb } from '../../db/pool.ts';
import { withWorkers } from '../../db/workers.ts';
import { AppError } from '../../errors.ts';
import { workersCheck } from './checks.ts';

const skip = isCluster ? false : 'needs a Citus cluster: npm run test:citus';

type Worker = { group: number; host: string; port: number };
type Calls = ReturnType<typeof datasetCalls>;

let bench: RecordBench;
let direct: Db;
let workers: Worker[] = [];
before(async () => {
  if (!isCluster) return;
  bench = await openRecordBench();
  const url = urlOf(bench.target);
  const first = openDb({ url });
  direct = withWorkers(first, { url, open: (at) => openDb({ url: at }, { workerOf: first.database }) });
  workers = await bench.db.query<Worker>(
    `select groupid as "group", nodename as host, nodeport as port
     from pg_dist_node
     where groupid > 0 and noderole = 'primary'
     order by groupid`,
  );
});
after(async () => {
  if (!isCluster) return;
  await direct.end();
  await bench.end();
});

async function placeOf(calls: Calls): Promise<{ shard: number; group: number }> {
  const { id } = await calls.row();
  const [place] = await bench.db.query<{ shard: number; group: number }>(
    `select shardid as shard, groupid as "group"
     from pg_dist_placement
     where shardid = get_shard_id_for_distribution_column('dataset', $1::bigint)`,
    [id],
  );
  return place!;
}

/** Datasets with 20 records, as many on each worker. */
async function spread(perWorker: number): Promise<Calls[]> {
  const connection = await bench.connect();
  const byGroup = new Map(workers.map(({ group }) => [group, [] as Calls[]]));
  for (let n = 0; [...byGroup.values()].some((some) => some.length < perWorker); n += 1) {
    const calls = datasetCalls(direct, connection, { model: `M${n}` });
    await calls.save(rows(1, 20));
    const some = byGroup.get((await placeOf(calls)).group)!;
    if (some.length < perWorker) some.push(calls);
  }
  return [...byGroup.values()].flat();
}

/** Saves, lists and prunes until it is stopped. Only `unavailable` may be thrown. */
function underLoad(calls: Calls) {
  const state = { acknowledged: 20, saves: 0, unavailable: 0, seen: new Set<string>() };
  const isOver = new AbortController();
  let cursor: string | undefined;
  const attempt = async <T>(work: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await work();
    } catch (error) {
      assert.ok(error instanceof AppError && error.code === 'unavailable', error as Error);
      state.unavailable += 1;
      await sleep(20);
      return undefined;
    }
  };
  const follow = async () => {
    const page = await calls.list({ cursor, limit: 1000 });
    for (const { id } of page.records) state.seen.add(id);
    cursor = page.records.at(-1)?._trellis_metadata.cursor ?? cursor;
    return cursor;
  };
  const working = (async () => {
    while (!isOver.signal.aborted) {
      const from = state.acknowledged + 1;
      if ((await attempt(() => calls.save(rows(from, from + 9)))) !== undefined) {
        state.acknowledged += 10;
        state.saves += 1;
      }
      const until = await attempt(follow);
      if (until !== undefined) await attempt(() => calls.prune(until, 5));
    }
  })();
  return {
    state,
    /** Resolves when another save was acknowledged. */
    async progress() {
      for (const before = state.saves; state.saves < before + 2; ) await Promise.race([sleep(20), working]);
    },
    async stop() {
      isOver.abort();
      await working;
      await follow();
      const kept = new Set((await calls.listAll()).map(({ id }) => id));
      for (let n = 1; n <= state.acknowledged; n += 1) {
        assert.ok(kept.has(`r${n}`), `r${n} was acknowledged`);
        assert.ok(state.seen.has(`r${n}`), `r${n} was missed by the follower`);
      }
      const { records, pruned, payload_bytes } = await calls.row();
      assert.deepEqual({ records, pruned, payload_bytes, deleted: 0 }, await calls.recount());
    },
  };
}

/** Of a process: its parent, and the processor time of itself and of its ended children, in 1/100 s. */
function statOf(pid: number): { parent: number; own: number; ended: number } {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = text
    .slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
  const [, parent = 0] = fields;
  const [utime = 0, stime = 0, cutime = 0, cstime = 0] = fields.slice(11, 15);
  return { parent, own: utime + stime, ended: cutime + cstime };
}

/** The process of each server, the coordinator first. */
async function serverProcesses(): Promise<number[]> {
  const urls = [urlOf(bench.target), ...workers.map((worker) => urlAt(worker))];
  return Promise.all(
    urls.map(async (url) => {
      await using db = openDb({ url }, { maxConnections: 1 });
      const [backend] = await db.query<{ pid: number }>('select pg_backend_pid() as pid');
      return statOf(backend!.pid).parent;
    }),
  );
}

/** The processor time that a server and all its processes have used, in ms. */
function processorTime(server: number): number {
  const { own, ended } = statOf(server);
  let sum = own + ended;
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const process = statOf(Number(pid));
      if (process.parent === server) sum += process.own;
    } catch {
      // It has ended.
    }
  }
  return sum * 10;
}

const urlAt = ({ host, port }: { host: string; port: number }, target: DbTarget = bench.target) => {
  const url = new URL(urlOf(target));
  [url.hostname, url.port] = [host, String(port)];
  return url.href;
};

test('saves, updates, deletes, tracking, lists and prunes send the coordinator nothing', {
  skip,
}, async (t) => {
  const all = await spread(2);
  const coordinator = Number(new URL(urlOf(bench.target)).port);
  const work = async (round: number) => {
    for (const calls of all) {
      const cursor = await calls.cursorOf(10 + round);
      sent.length = 0;
      await calls.save(rows(1, 40, `round ${round}`));
      await calls.update([{ id: 'r1', n: round }]);
      await calls.delete('r40');
      await calls.startTracking();
      await calls.dropTracking();
      await calls.list();
      await calls.list({ ids: ['r3'] });
      await calls.prune(cursor, 5);
      assert.deepEqual(sent, []);
    }
  };
  const sent: string[] = [];
  const end = onEachStatement(({ client, text }) => {
    // The map of the shards is read every ten seconds.
    if ((client as { port: number }).port === coordinator && !/pg_dist_/.test(text)) sent.push(text);
  });
  try {
    await work(1);
    await work(2);
  } finally {
    end();
  }
  await printShare(t, all);
});

/** The processor time of each call, at the coordinator and at the workers. */
async function printShare(t: TestContext, all: readonly Calls[]): Promise<void> {
  if (process.platform !== 'linux') return;
  const servers = await serverProcesses();
  const measure = async (
    name: string,
    count: number,
    call: (calls: Calls, n: number) => Promise<unknown>,
  ) => {
    const before = servers.map(processorTime);
    for (let n = 0; n < count; n += 1) await Promise.all(all.map((calls) => call(calls, n)));
    const spent = servers.map((server, at) => (processorTime(server) - before[at]!) / count / all.length);
    const [coordinator = 0, ...others] = spent;
    const sum = others.reduce((a, b) => a + b, 0);
    const share = ((coordinator / (coordinator + sum)) * 100).toFixed(1);
    t.diagnostic(
      `${name}: coordinator ${coordinator.toFixed(2)} ms, workers ${sum.toFixed(2)} ms, share ${share} %`,
    );
  };
  const count = 20 * Number(process.env.TEST_CITUS_ROUNDS ?? 1);
  await measure('save 500 new', count, (calls, n) => calls.save(rows(1000 + n * 500, 1499 + n * 500)));
  await measure('save 500 changed', count, (calls, n) => calls.save(rows(1000, 1499, `text ${n}`)));
  await measure('save 1', count * 5, (calls, n) => calls.save(rows(n + 1, n + 1, `one ${n}`)));
  await measure('list 1000', count, (calls) => calls.list({ limit: 1000 }));
  await measure('list 20', count * 5, (calls) => calls.list({ limit: 20 }));
  await measure('prune 1000', Math.max(1, Math.floor(count / 3)), async (calls) =>
    calls.prune((await calls.list({ limit: 1 })).records[0]!._trellis_metadata.cursor, 1000),
  );
}

test('a worker that crashes under load loses no acknowledged save, and stops its own datasets alone', {
  skip,
}, async () => {
  const all = await spread(2);
  const [crashed] = workers as [Worker];
  const groups = await Promise.all(all.map(async (calls) => (await placeOf(calls)).group));
  const loads = all.map(underLoad);
  for (let n = 0; n < 2; n += 1) {
    await Promise.all(loads.map((load) => load.progress()));
    // A killed session crashes the server, which recovers from its log.
    await using db = openDb({ url: urlAt(crashed) }, { maxConnections: 1 });
    const [victim] = await db.query<{ pid: number }>('select pg_backend_pid() as pid');
    process.kill(victim!.pid, 'SIGKILL');
    await Promise.all(loads.map((load) => load.progress()));
  }
  for (const load of loads) await load.stop();
  for (const [n, { state }] of loads.entries())
    if (groups[n] !== crashed.group) assert.equal(state.unavailable, 0, 'a dataset of another worker');
});

test('a worker that is away gives unavailable for its datasets alone', { skip }, async () => {
  const all = await spread(1);
  const url = urlOf(bench.target);
  const first = openDb({ url });
  // Nothing listens on port 1.
  const open = (at: string) =>
    openDb(
      { url: at === urlAt(workers[0]!) ? at.replace(/:\d+\//, ':1/') : at },
      { workerOf: first.database },
    );
  const partial = withWorkers(first, { url, open });
  try {
    const { id } = await all[0]!.row();
    await assert.rejects(partial.records!(id).query('select from record where dataset_id = $1', [id]), {
      code: 'unavailable',
      retryAfterS: 5,
    });
    const { id: other } = await all[1]!.row();
    const found = await partial.records!(other).query('select from record where dataset_id = $1 limit 1', [
      other,
    ]);
    assert.equal(found.length, 1);
  } finally {
    await partial.end();
  }
});

test('a shard that moves under load is followed, and nothing is lost', { skip }, async () => {
  const all = await spread(2);
  const loads = all.map(underLoad);
  const [from, to] = workers as [Worker, Worker];
  for (const calls of all) {
    const { shard, group } = await placeOf(calls);
    const [source, target] = group === from.group ? [from, to] : [to, from];
    await Promise.all(loads.map((load) => load.progress()));
    await bench.db.query(
      `select citus_move_shard_placement($1, $2, $3, $4, $5, shard_transfer_mode := 'force_logical')`,
      [shard, source.host, source.port, target.host, target.port],
    );
    assert.equal((await placeOf(calls)).group, target.group);
    await Promise.all(loads.map((load) => load.progress()));
  }
  for (const load of loads) await load.stop();
});

test('addresses of the settings are matched with the workers that they lead to', { skip }, async () => {
  const all = await spread(1);
  const url = urlOf(bench.target);
  const first = openDb({ url });
  const urls = workers.map((worker) => urlAt(worker)).reverse();
  await using db = withWorkers(first, {
    url: 'postgres://nobody@127.0.0.1:1/nothing',
    urls,
    open: (at) => openDb({ url: at }, { workerOf: first.database }),
  });
  for (const calls of all) {
    const { id } = await calls.row();
    const [place] = await db.records!(id).query<{ port: number }>('select inet_server_port() as port');
    const { group } = await placeOf(calls);
    assert.equal(place?.port, workers.find((worker) => worker.group === group)?.port);
  }
});

test('an address that accepts connections and sends nothing delays no dataset of another worker', {
  skip,
}, async () => {
  const all = await spread(1);
  const sockets = new Set<Socket>();
  const silent = createServer((socket) => void sockets.add(socket));
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const { port } = silent.address() as AddressInfo;
  const url = urlOf(bench.target);
  const first = openDb({ url });
  await using db = withWorkers(first, {
    url,
    urls: [urlAt({ host: '127.0.0.1', port }), urlAt(workers[1]!)],
    open: (at) => openDb({ url: at }, { workerOf: first.database }),
  });
  const [away, other] = (await Promise.all(all.map((calls) => calls.row()))).map(({ id }) => id);
  const read = (id: number) =>
    db.records!(id).query('select from record where dataset_id = $1 limit 1', [id]);
  let isRefused = false;
  const refused = assert.rejects(read(away!), { code: 'unavailable' }).finally(() => {
    isRefused = true;
  });
  for (let n = 0; n < 5; n += 1) assert.equal((await read(other!)).length, 1);
  assert.equal(isRefused, false, 'the dataset of the other worker waited for the silent address');
  silent.close();
  for (const socket of sockets) socket.destroy();
  await refused;
});

test('the doctor reports workers that do not accept the nodes', { skip }, async () => {
  const databaseUrl = urlOf(bench.target);
  const check = (urls?: string[]) => workersCheck(bench.db, { databaseUrl, records: { urls } }).run();
  assert.deepEqual(await check(), { state: 'ok', message: 'All 2 workers accept connections.' });
  const wrong = new URL(urlAt(workers[0]!));
  wrong.password = randomBytes(8).toString('hex');
  const { state, message } = await check([wrong.href, urlAt(workers[1]!)]);
  assert.equal(state, 'fail');
  assert.match(message, new RegExp(`connections: ${workers[0]!.host}:${workers[0]!.port} \\(.*\\)\\.$`));
  assert.ok(!message.includes(wrong.password));
});

test('a service with the setting saves, lists and prunes at the workers, and a deleted connection takes nothing more', {
  skip,
}, async () => {
  const database = await openTestDatabase();
  const service = await startRunningService({
    env: {
      DATABASE_URL: urlOf(database.target),
      TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
      TRELLIS_SANDBOX: 'off',
      TRELLIS_RECORDS_DIRECT: 'on',
    },
  });
  try {
    await service.call('POST', '/integrations', {
      body: {
        provider: 'unauthenticated',
        unique_key: 'open',
        integration_config: { base_url: 'https://api.example.com' },
      },
    });
    const credentials = { type: 'NONE' };
    await service.call('POST', '/connections', {
      body: { provider_config_key: 'open', connection_id: 'ada', credentials },
    });
    const headers = { 'provider-config-key': 'open', 'connection-id': 'ada' };
    const models = Array.from({ length: 8 }, (_, n) => `Model${n}`);
    for (const model of models) {
      await service.call('POST', '/records', { headers, body: { model, records: rows(1, 10) } });
      const { records } = (await service.call('GET', `/records?model=${model}`, { headers })) as {
        records: { _trellis_metadata: { cursor: string } }[];
      };
      assert.equal(records.length, 10);
      const until_cursor = records[4]!._trellis_metadata.cursor;
      const pruned = await service.call('PATCH', '/records/prune', {
        headers,
        body: { model, until_cursor },
      });
      assert.equal((pruned as { count: number }).count, 5);
    }
    for (const worker of workers) {
      await using db = openDb({ url: urlAt(worker, database.target) }, { maxConnections: 1 });
      const own = await db.query(
        `select
         from pg_stat_activity
         where datname = current_database()
           and backend_type = 'client backend'
           and application_name not like 'citus%'
           and pid <> pg_backend_pid()`,
      );
      assert.ok(own.length > 0, 'no connection of the service');
    }
    const { entries } = (await service.call('GET', '/audit?limit=100')) as { entries: { action: string }[] };
    assert.equal(entries.filter(({ action }) => action === 'records.pruned').length, models.length);
    await service.call('DELETE', '/connections/ada?provider_config_key=open');
    const late = service.call('POST', '/records', {
      headers,
      body: { model: models[0], records: rows(1, 2) },
    });
    await assert.rejects(late, /unknown_connection/);
    const [left] = await database.db.query<{ open: number }>(
      'select count(*) filter (where not closed) as open from dataset',
    );
    assert.equal(left?.open, 0);
  } finally {
    await service.stop();
    await database.drop();
  }
});
