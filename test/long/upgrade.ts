// An installation of two nodes that is brought from an earlier version to this one, node by node, while it is used.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startEmbedded } from '../../server/db/embedded/embedded.ts';
import { type Balancer, openBalancer } from '../chaos/balancer.ts';
import { urlOf } from '../support/database.ts';
import { freePort } from '../support/ports.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

const root = join(import.meta.dirname, '../..');
const headers = { 'provider-config-key': 'crm', 'connection-id': 'load' };

/** The newest release, or where there is none yet what was committed last. */
export function lastRelease(): string {
  try {
    return git('describe', '--tags', '--abbrev=0').trim();
  } catch {
    return git('rev-parse', 'HEAD').trim();
  }
}

type Upgraded = {
  /** What came of the calls, by kind. */
  calls: Record<string, number>;
  /** Calls that were answered with 503 and Retry-After, and made again. */
  again: number;
  /** What was neither answered nor refused in a way that a client repeats. */
  failed: string[];
};

/**
 * Starts two nodes of the version of `ref`, and a load through a balancer; takes one out of the balancer, stops it, and
 * starts this version in its place; then the other. Before, between and after the load goes on for `calmMs`. Asserts that
 * everything that was acknowledged is there, once.
 */
export async function upgradeUnderLoad({ ref, calmMs }: { ref: string; calmMs: number }): Promise<Upgraded> {
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
  const start = (port: number, program?: string[]) =>
    startRunningService({
      dataDir: join(directory, 'data'),
      env: { ...env, PORT: String(port) },
      ...(program && { program }),
    });
  const nodes: RunningService[] = [];
  try {
    const old = [process.execPath, join(sourceOf(ref, directory), 'server/cli/main.ts')];
    for (const port of ports) nodes.push(await start(port, old));
    const load = await beginLoad(balancer, { key: nodes[0]!.secretKey, providerUrl: provider.url });
    await pause(calmMs);
    for (const [index, port] of ports.entries()) {
      behind.splice(behind.indexOf(port), 1);
      assert.equal(await nodes[index]!.stop(), 0);
      nodes[index] = await start(port);
      behind.push(port);
      await pause(calmMs);
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

/** A tree of that version, with what it depends on: ours, where that is the same. */
function sourceOf(ref: string, directory: string): string {
  const tree = join(directory, 'source');
  execFileSync('sh', ['-c', `mkdir "$1" && git archive "$2" | tar -x -C "$1"`, 'sh', tree, ref], {
    cwd: root,
  });
  const dependenciesOf = (text: string) =>
    (JSON.parse(text) as { dependencies: Record<string, string> }).dependencies;
  const ours = dependenciesOf(readFileSync(join(root, 'package.json'), 'utf8'));
  const theirs = Object.entries(dependenciesOf(git('show', `${ref}:package.json`)));
  if (theirs.every(([name, version]) => ours[name] === version)) {
    symlinkSync(join(root, 'node_modules'), join(tree, 'node_modules'));
  } else {
    execFileSync('npm', ['ci', '--ignore-scripts', '--prefer-offline', '--no-audit'], {
      cwd: tree,
      stdio: 'ignore',
    });
  }
  return tree;
}

function git(...args: string[]): string {
  return execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
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
    ...{ unique_key: 'crm', provider: 'private-api-key', integration_config: config },
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
