// An installation of two nodes that is brought from an earlier version to this one, node by node, while it is used.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startEmbedded } from '../../server/db/embedded/embedded.ts';
import { migrationLockKey } from '../../server/db/migrate.ts';
import { listMigrations } from '../../server/db/migration-files.ts';
import { type Db, openDb } from '../../server/db/pool.ts';
import { type Balancer, openBalancer } from '../chaos/balancer.ts';
import { killCommand } from '../support/command.ts';
import { urlOf } from '../support/database.ts';
import { freePort } from '../support/ports.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

const headers = { 'provider-config-key': 'crm', 'connection-id': 'load' };

/** The kinds of calls that go on during the upgrade. */
const kinds = ['proxy', 'save', 'list', 'prune', 'connect', 'disconnect', 'follow'];

type Upgraded = {
  /** What came of the calls, by kind. */
  calls: Record<string, number>;
  /** Calls that were answered with 503 and Retry-After, and made again. */
  again: number;
  /** What was neither answered nor refused in a way that a client repeats. */
  failed: string[];
};

/**
 * Starts two nodes of an installed release, and a load through a balancer; takes one out of the balancer, stops it, and
 * starts this version in its place; then the other. The first start of this version is killed in its migration. Before,
 * between and after these steps each kind of call is made `count` times. Asserts that everything that was acknowledged is
 * there, once.
 */
export async function upgradeUnderLoad({ main, count }: { main: string; count: number }): Promise<Upgraded> {
  const directory = mkdtempSync(join(tmpdir(), 'trellis-upgrade-'));
  const database = await startEmbedded({ dataDir: join(directory, 'database') });
  const provider = await openProvider();
  const ports = [await freePort(), await freePort()];
  const behind = [...ports];
  const balancer = await openBalancer(() => behind);
  const env = {
    DATABASE_URL: urlOf(database.connection),
    TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
    TRELLIS_SANDBOX: 'off',
    TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
    TRELLIS_DRAIN_SECONDS: '10',
    BASE_URL: balancer.url,
  };
  const dataDir = join(directory, 'data');
  const start = (port: number, program?: string[]) =>
    startRunningService({
      dataDir,
      env: { ...env, PORT: String(port) },
      ...(program && { program }),
    });
  const nodes: RunningService[] = [];
  try {
    for (const port of ports) nodes.push(await start(port, [process.execPath, main]));
    const load = await beginLoad(balancer, { key: nodes[0]!.secretKey, providerUrl: provider.url });
    await load.goesOn(count);
    for (const [index, port] of ports.entries()) {
      behind.splice(behind.indexOf(port), 1);
      assert.equal(await nodes[index]!.stop(), 0);
      if (index === 0) {
        const db = openDb(database.connection, { maxConnections: 2 });
        await killInMigration(db, { ...env, DATA_DIR: dataDir, PORT: String(port) }).finally(() => db.end());
        await load.goesOn(count);
      }
      nodes[index] = await start(port);
      behind.push(port);
      await load.goesOn(count);
    }
    return await load.end(provider.taken);
  } finally {
    for (const node of nodes) await node.stop();
    await balancer.close();
    await provider.close();
    await database.stop();
    rmSync(directory, { recursive: true });
  }
}

/**
 * Starts this version and kills it when it has changed tables in the transaction of its migrations. Asserts that the
 * database is as before.
 */
async function killInMigration(db: Db, env: Record<string, string>): Promise<void> {
  const applied = async () =>
    (await db.query<{ name: string }>('select name from migration order by name')).map(({ name }) => name);
  const before = await applied();
  assert.notDeepEqual(before, await listMigrations(), 'this version has a migration that the release lacks');
  await db.transaction(async (tx) => {
    // The first migration cannot be listed as applied, after its statements.
    await tx.query('lock table migration in share mode');
    const isWaiting = async () => {
      const [lock] = await db.query(
        `select from pg_locks where relation = 'migration'::regclass and not granted`,
      );
      return lock !== undefined;
    };
    await killCommand(['start'], {
      env,
      async isTime() {
        while (!(await isWaiting())) await pause(20);
      },
    });
  });
  // The server has ended the transaction of the killed process once the lock of migrations is free.
  for (let isFree = false; !isFree; await pause(20))
    isFree = await db.transaction(async (tx) => {
      const [row] = await tx.query<{ free: boolean }>('select pg_try_advisory_xact_lock($1) as free', [
        migrationLockKey,
      ]);
      return row?.free === true;
    });
  assert.deepEqual(await applied(), before);
}

/** Takes numbers that are posted, and events. */
async function openProvider() {
  const numbers: number[] = [];
  const events = new Set<string>();
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>)).toString();
    if (request.url === '/hook') {
      const { type, data } = JSON.parse(body) as { type: string; data: { connection_id: string } };
      events.add(`${type} ${data.connection_id}`);
    } else numbers.push(Number(JSON.parse(body).n));
    response.setHeader('content-type', 'application/json').end('{"ok":true}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    taken: { numbers, events },
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}

type Taken = { numbers: number[]; events: ReadonlySet<string> };
type Page = {
  records: { id: string; v: number; _trellis_metadata: { pruned_at: string | null; cursor: string } }[];
  next_cursor: string | null;
};

/** Callers one after the other of each kind, as fast as they are answered but for a pause. */
async function beginLoad({ url }: Balancer, { key, providerUrl }: { key: string; providerUrl: string }) {
  const done: Upgraded = { calls: {}, again: 0, failed: [] };
  let isOver = false;
  let isWritten = false;

  /** Undefined where it failed. What is answered with 503 and Retry-After was not done: it is made again. */
  async function call<T>(kind: string, method: string, path: string, body?: unknown): Promise<T | undefined> {
    for (;;) {
      const response = await fetch(url + path, {
        method,
        headers: {
          authorization: `Bearer ${key}`,
          ...headers,
          ...(body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      if (response.status === 503 && response.headers.has('retry-after')) {
        done.again += 1;
        await pause(Number(response.headers.get('retry-after')) * 1000);
        continue;
      }
      done.calls[kind] = (done.calls[kind] ?? 0) + 1;
      if (response.ok) return (text === '' ? {} : JSON.parse(text)) as T;
      done.failed.push(`${kind}: ${response.status} ${text.slice(0, 200)}`);
      return undefined;
    }
  }
  const repeat = async (work: () => Promise<void>) => {
    while (!isOver) {
      await work();
      await pause(20);
    }
  };

  const config = { base_url: providerUrl };
  await call('set-up', 'POST', '/integrations', {
    unique_key: 'crm',
    provider: 'private-api-key',
    integration_config: config,
  });
  const connectionOf = (id: string) => ({
    provider_config_key: 'crm',
    connection_id: id,
    credentials: { type: 'API_KEY', apiKey: 'secret' },
  });
  await call('set-up', 'POST', '/connections', connectionOf('load'));
  await call('set-up', 'POST', '/events/endpoints', { url: `${providerUrl}/hook` });

  const posted: number[] = [];
  const saved = new Map<string, number>();
  const made: string[] = [];
  const followed: string[] = [];
  let prunedTo: string | undefined;
  let cursor: string | undefined;
  let seen = 0;

  /** On until there is nothing behind the last one. */
  async function follow(): Promise<void> {
    for (let after = '0', isLast = false; !isLast; ) {
      isLast = isWritten;
      type Feed = { events: { type: string; data: { connection_id: string } }[]; next_after: string };
      const page = await call<Feed>(
        'follow',
        'GET',
        `/events?after=${after}&limit=100&types=connection.deleted`,
      );
      followed.push(...(page?.events.map(({ data }) => data.connection_id) ?? []));
      if (page !== undefined && page.events.length > 0) isLast = false;
      after = page?.next_after ?? after;
      await pause(50);
    }
  }

  const writing = Promise.all([
    repeat(async () => {
      const n = posted.length + 1;
      if ((await call('proxy', 'POST', '/proxy/numbers', { n })) !== undefined) posted.push(n);
    }),
    repeat(async () => {
      const v = seen++;
      const ids = Array.from({ length: 20 }, (_, n) => `r${(v * 7 + n) % 500}`);
      const records = ids.map((id) => ({ id, v }));
      if ((await call('save', 'POST', '/records', { model: 'Row', records })) === undefined) return;
      for (const id of ids) saved.set(id, v);
    }),
    repeat(async () => {
      const query = new URLSearchParams({ model: 'Row', limit: '100', ...(cursor && { cursor }) });
      const page = await call<Page>('list', 'GET', `/records?${query}`);
      cursor = page?.records.at(-1)?._trellis_metadata.cursor ?? cursor;
    }),
    repeat(async () => {
      if (cursor === undefined) return;
      const until = cursor;
      const body = { model: 'Row', until_cursor: until, limit: 50 };
      const answer = await call<{ has_more: boolean }>('prune', 'PATCH', '/records/prune', body);
      if (answer?.has_more === false) prunedTo = until;
      await pause(200);
    }),
    repeat(async () => {
      const id = `c${made.length}`;
      if ((await call('connect', 'POST', '/connections', connectionOf(id))) === undefined) return;
      made.push(id);
      await call('disconnect', 'DELETE', `/connections/${id}?provider_config_key=crm`);
      await pause(50);
    }),
  ]);
  const following = follow();

  return {
    /** Resolves when each kind of call was made `count` times more. */
    async goesOn(count: number): Promise<void> {
      const before = { ...done.calls };
      const isDone = () => kinds.every((kind) => (done.calls[kind] ?? 0) - (before[kind] ?? 0) >= count);
      const counting = async () => {
        while (!isDone()) await pause(20);
      };
      await Promise.race([counting(), writing, following]);
    },
    async end({ numbers, events }: Taken): Promise<Upgraded> {
      isOver = true;
      await writing;
      isWritten = true;
      await following;
      assert.deepEqual(
        numbers.toSorted((a, b) => a - b),
        posted,
        'each proxied call reached the provider once',
      );
      const records = await listAll((query) => call<Page>('check', 'GET', `/records?${query}`));
      assert.deepEqual(
        new Map(records.map(({ id }) => [id, true])).size,
        saved.size,
        'every record that was saved is there',
      );
      for (const { id, v, _trellis_metadata } of records)
        if (_trellis_metadata.pruned_at === null)
          assert.equal(v, saved.get(id), `${id} is as it was saved last`);
      assert.ok(prunedTo !== undefined);
      assert.deepEqual(followed, made, 'the feed has each event once, in order');
      for (let left = 300; left > 0 && !made.every((id) => events.has(`connection.deleted ${id}`)); left -= 1)
        await pause(100);
      assert.deepEqual(
        made.filter((id) => !events.has(`connection.deleted ${id}`)),
        [],
        'each event was delivered',
      );
      return done;
    },
  };
}

async function listAll(page: (query: string) => Promise<Page | undefined>): Promise<Page['records']> {
  const records: Page['records'] = [];
  for (let cursor: string | undefined; ; ) {
    const got = await page(
      String(new URLSearchParams({ model: 'Row', limit: '1000', ...(cursor && { cursor }) })),
    );
    records.push(...(got?.records ?? []));
    if (got?.next_cursor == null) return records;
    cursor = got.next_cursor;
  }
}
