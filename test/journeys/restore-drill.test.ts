// Slow: it copies embedded databases.

import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { chmod, chown, copyFile, mkdir, mkdtemp, readdir, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { chainAll, verifyAudit } from '../../server/activity/audit-chain.ts';
import { findEmbedded } from '../../server/db/embedded/embedded.ts';
import { type Db, openDb } from '../../server/db/pool.ts';
import { exportKeys } from '../../server/ops/backup/key-file.ts';
import { findBytes } from '../support/bytes.ts';
import { killCommand, runCommand, surroundings } from '../support/command.ts';
import { deployBody, flowConfig } from '../support/functions.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

/** A disaster: what was acknowledged before the backup is back, what was deleted stays away, and everybody goes on. */

const root = join(import.meta.dirname, '../..');
const nobody = { uid: 65_534, gid: 65_534 };
/** Root restores for somebody else, where that one can enter the clone. */
const other = process.getuid?.() === 0 && canEnter(root) ? nobody : undefined;

let dir: string;
let backupDir: string;
before(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), 'trellis-drill-')));
  await chmod(dir, 0o755);
  backupDir = join(dir, 'backups');
});
const running: RunningService[] = [];
async function start(dataDir: string): Promise<RunningService> {
  const service = await startRunningService({ dataDir });
  running.push(service);
  return service;
}
after(async () => {
  for (const service of running) await service.stop();
  await rm(dir, { recursive: true, force: true });
});

function canEnter(path: string): boolean {
  try {
    execFileSync('/bin/sh', ['-c', 'cd -- "$1"', 'sh', path], { ...nobody, stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

type Listed = { id: string; cursor: string; isPruned: boolean };
type Feed = { events: { id: string; type: string }[]; next_after: number };

/** The calls of an application that keeps and follows records of one connection. */
function application(service: RunningService, connection: string) {
  const headers = { 'provider-config-key': 'notes', 'connection-id': connection };
  const call = (method: string, path: string, body?: object) => service.call(method, path, { headers, body });
  return {
    call,
    save: (...ids: string[]) =>
      call('POST', '/records', { model: 'Note', records: ids.map((id) => ({ id, text: `text of ${id}` })) }),
    /** All that follows a cursor, page by page. */
    async follow(cursor?: string, model = 'Note'): Promise<Listed[]> {
      const found: Listed[] = [];
      for (let next: string | null | undefined = cursor; next !== null; ) {
        const query = new URLSearchParams({
          model,
          limit: '100',
          ...(next !== undefined && { cursor: next }),
        });
        const page = (await call('GET', `/records?${query}`)) as {
          records: { id: string; _trellis_metadata: { cursor: string; pruned_at: string | null } }[];
          next_cursor: string | null;
        };
        for (const { id, _trellis_metadata: about } of page.records)
          found.push({ id, cursor: about.cursor, isPruned: about.pruned_at !== null });
        next = page.next_cursor;
      }
      return found;
    },
    async runTicks(): Promise<void> {
      const count = async () => {
        const { runs } = (await service.call('GET', '/functions/runs?function=ticks&state=succeeded')) as {
          runs: unknown[];
        };
        return runs.length;
      };
      const before = await count();
      await call('POST', '/sync/trigger', {
        provider_config_key: 'notes',
        connection_id: connection,
        syncs: ['ticks'],
      });
      while ((await count()) === before) await sleep(50);
    },
  };
}

const ticks = `"use strict";
const { z } = require("zod");
exports.default = {
  type: "sync",
  description: "One record more each time.",
  frequency: "every day",
  autoStart: false,
  models: { Tick: z.object({ id: z.string() }) },
  checkpoint: z.object({ n: z.number() }),
  exec: async (trellis) => {
    const n = ((await trellis.getCheckpoint())?.n ?? 0) + 1;
    await trellis.batchSave([{ id: String(n) }], "Tick");
    await trellis.saveCheckpoint({ n });
  },
};
`;

async function connect(service: RunningService, id: string): Promise<void> {
  await service.call('POST', '/connections', {
    body: {
      provider_config_key: 'notes',
      connection_id: id,
      credentials: { type: 'API_KEY', apiKey: `secret-of-${id}` },
      metadata: { of: id },
    },
  });
}

const makeKey = async (service: RunningService, name: string) =>
  (await service.call('POST', '/environment/api-keys', { body: { name, scopes: ['*'] } })) as {
    data: { id: number; secret: string };
  };
const statusWith = async ({ baseUrl }: RunningService, secret: string) =>
  (await fetch(`${baseUrl}/connections`, { headers: { authorization: `Bearer ${secret}` } })).status;

/** Saves one record after another until it is told to end; `saved` are those that were acknowledged. */
function keepSaving({ save }: ReturnType<typeof application>) {
  const saved: string[] = [];
  let isOver = false;
  const done = (async () => {
    for (let n = 1; !isOver; n += 1) {
      await save(`w${n}`);
      saved.push(`w${n}`);
      await sleep(10);
    }
  })();
  const end = () => {
    isOver = true;
    return done;
  };
  return { saved, end };
}

async function backup(env: Record<string, string>): Promise<string> {
  const { code, stderr, stdout } = await runCommand(['backup', '--to', backupDir], env);
  assert.equal(code, 0, stderr);
  const [path = ''] = stdout.split(': ', 1);
  return path;
}

/** Lends the database of a service that runs. */
async function withDatabase<T>(dataDir: string, work: (db: Db) => Promise<T>): Promise<T> {
  const db = openDb((await findEmbedded(dataDir))!, { maxConnections: 2 });
  return work(db).finally(() => db.end());
}

/** Restores as `other`, into a place that is theirs. */
async function restore(path: string, dataDir: string): Promise<string> {
  if (other !== undefined) {
    for (const place of [dataDir, join(dataDir, 'master.key')]) await chown(place, other.uid, other.gid);
    execFileSync('chown', ['-R', `${other.uid}:${other.gid}`, backupDir]);
  }
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(root, 'server/cli/main.ts'), 'restore', '--from', path],
    { cwd: root, env: { PATH: surroundings.PATH, DATA_DIR: dataDir }, ...other },
  );
  return stdout;
}

test('a disaster, and the way back', async () => {
  const first = await start(join(dir, 'first'));
  const env = { DATA_DIR: first.dataDir };
  await first.call('POST', '/integrations', {
    body: {
      unique_key: 'notes',
      provider: 'private-api-key',
      integration_config: { base_url: 'https://notes.example.com' },
    },
  });
  for (const id of ['kept', 'doomed']) await connect(first, id);
  const app = application(first, 'kept');
  const doomed = application(first, 'doomed');
  await app.save(...Array.from({ length: 150 }, (_, n) => `r${n}`));
  await doomed.save('d1');
  const early = await app.follow();
  await app.call('PATCH', '/records/prune', { model: 'Note', until_cursor: early[49]!.cursor });
  const flow = flowConfig({ name: 'ticks', code: ticks, integration: 'notes', type: 'sync' });
  await first.call('POST', '/sync/deploy', { body: deployBody([flow]) });
  await app.runTicks();
  const [leaked, fine] = [await makeKey(first, 'leaked'), await makeKey(first, 'fine')];

  // A file of keys says nothing of connections that were made in the minutes before it.
  await withDatabase(first.dataDir, (db) =>
    db.query(`update connection set created_at = now() - interval '1 day'`),
  );

  // A backup while writes go on, after one that was killed.
  const writer = keepSaving(app);
  await killCommand(['backup', '--to', backupDir], {
    env,
    async isTime() {
      const drafts = async () =>
        (existsSync(backupDir) ? await readdir(backupDir) : []).filter((name) => /^draft/.test(name));
      while (!(await drafts()).some((name) => existsSync(join(backupDir, name, 'cluster/base'))))
        await sleep(5);
    },
  });
  const { length: acknowledged } = writer.saved;
  const path = await backup(env);
  assert.deepEqual((await readdir(backupDir)).sort(), [
    path.slice(backupDir.length + 1),
    'backup.lock',
    'data.keys',
  ]);
  await writer.end();
  assert.ok(writer.saved.length > acknowledged, 'nothing was written while the backup was made');

  // What a backup never sees.
  const keys = await withDatabase(first.dataDir, (db) =>
    db.query<{ wrapped: Buffer }>('select wrapped from data_key'),
  );
  assert.ok(keys.length >= 5);
  await doomed.call('DELETE', '/connections/doomed?provider_config_key=notes');
  await first.call('DELETE', `/environment/api-keys/${leaked.data.id}`);
  await app.save('lost');
  await connect(first, 'lost');
  await application(first, 'lost').save('l1');
  const lostKey = await makeKey(first, 'lost');
  const seen = await app.follow();
  const follower = seen.at(-1)!.cursor;
  assert.equal(seen.at(-1)!.id, 'lost');
  const lostFeed = (await first.call('GET', '/events?limit=1000')) as Feed;
  const { head: kept } = await withDatabase(first.dataDir, async (db) => {
    await exportKeys(db, join(backupDir, 'data.keys'));
    assert.ok(await chainAll(db));
    return verifyAudit(db);
  });
  await first.stop({ keepData: true });
  running.pop();

  // Nothing in the backup opens anything.
  assert.deepEqual(
    await findBytes(
      path,
      keys.map(({ wrapped }) => wrapped),
    ),
    [],
  );

  const dataDir = join(dir, 'elsewhere');
  await mkdir(dataDir, { mode: 0o700 });
  await copyFile(join(first.dataDir, 'master.key'), join(dataDir, 'master.key'));
  await copyFile(join(first.dataDir, 'dev.key'), join(dataDir, 'dev.key'));
  await rm(first.dataDir, { recursive: true });
  const said = await restore(path, dataDir);
  assert.match(
    said,
    /^1 connections were deleted after this backup and are deleted again\n {2}dev\/notes\/doomed$/m,
  );
  assert.match(said, /^1 API keys were revoked after this backup and stay revoked$/m);
  if (other !== undefined) assert.equal(statSync(join(dataDir, 'postgres/data')).uid, other.uid);

  const second = await start(dataDir);
  const back = application(second, 'kept');
  const records = await back.follow();
  const ids = new Set(records.map(({ id }) => id));
  // All that was acknowledged before is there, and what is there reaches to one moment, without a gap.
  for (const id of [...early.map((one) => one.id), ...writer.saved.slice(0, acknowledged)])
    assert.ok(ids.has(id), id);
  assert.deepEqual(
    records.map(({ id }) => id),
    seen.slice(0, records.length).map(({ id }) => id),
  );
  assert.equal(ids.has('lost'), false);
  assert.deepEqual(
    records.filter(({ isPruned }) => isPruned).map(({ id }) => id),
    early.slice(0, 50).map(({ id }) => id),
  );
  const { metadata } = (await second.call('GET', '/connections/kept?provider_config_key=notes')) as {
    metadata: object;
  };
  assert.deepEqual(metadata, { of: 'kept' });

  // What is gone stays gone.
  for (const id of ['doomed', 'lost'])
    await assert.rejects(second.call('GET', `/connections/${id}?provider_config_key=notes`), /: 404 |: 400 /);
  assert.deepEqual(
    await Promise.all([leaked, lostKey, fine].map(({ data }) => statusWith(second, data.secret))),
    [401, 401, 200],
  );

  // Followers go on from where they stood, and miss nothing; no position is given out twice.
  assert.deepEqual(await back.follow(follower), []);
  await back.save('r1', 'lost', 'after');
  const news = await back.follow(follower);
  assert.deepEqual(
    news.map(({ id }) => id),
    ['lost', 'after'],
  );
  const given = new Set(seen.map(({ cursor }) => cursor));
  assert.deepEqual(
    news.filter(({ cursor }) => given.has(cursor)),
    [],
  );
  await connect(second, 'new');
  await application(second, 'new').save('n1');
  const onlyNew = await application(second, 'new').follow();
  assert.equal(onlyNew.length, 1);
  await assert.rejects(application(second, 'new').follow(follower), /: 400 .*invalid_cursor/);
  const feed = async (position: number) =>
    (await second.call('GET', `/events?after=${position}&wait=5`)) as Feed;
  const fresh = await feed(lostFeed.next_after);
  assert.ok(fresh.events.some(({ type }) => type === 'connection.created'));
  const known = new Set(lostFeed.events.map(({ id }) => id));
  assert.deepEqual(
    fresh.events.filter(({ id }) => known.has(id)),
    [],
  );

  // Syncs go on where they were, and the audit log is what was written.
  await back.runTicks();
  assert.deepEqual(
    (await back.follow(undefined, 'Tick')).map(({ id }) => id),
    ['1', '2'],
  );
  const verdict = await withDatabase(dataDir, (db) => verifyAudit(db));
  assert.equal(verdict.fault, undefined);
  // A head that was kept before shows that the end of the log is lost.
  const cut = await withDatabase(dataDir, (db) => verifyAudit(db, { kept }));
  assert.notEqual(cut.fault, undefined);
});
