// Saves and prunes on a service whose process, or whose PostgreSQL, is killed in the middle, again and again.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startEmbedded } from '../../server/db/embedded/embedded.ts';
import { readServerFile } from '../../server/db/embedded/server.ts';
import { type Db, openDb } from '../../server/db/pool.ts';
import { urlOf } from '../support/database.ts';
import type { Counters, WirePage } from '../support/records.ts';
import { type RunningService, startRunningService } from '../support/service.ts';
import { pick, type Random, randomOf } from './random.ts';

const models = ['One', 'Two'];
const idCount = 1500;
const perSave = 200;

type Victim = 'service' | 'postgres';

/** What the callers of one dataset know. */
type Ledger = {
  model: string;
  version: number;
  /** The version of each record that was answered as saved. */
  acknowledged: Map<string, number>;
  /** Versions that were sent without an answer: they may stand or not. */
  sent: Map<string, Set<number>>;
  /** No payload stands up to this cursor: a prune said so. */
  prunedUntil: string | undefined;
};

/**
 * Kills the victims in turn while two datasets are saved and pruned, and after each restart checks that nothing
 * acknowledged is lost, that the counters are those of a recount, and that nothing reported as pruned has a payload.
 */
export async function killInTurn(
  victims: readonly Victim[],
  seed: number,
): Promise<{ saved: number; pruned: number }> {
  const random = randomOf(seed);
  const dataDir = await mkdtemp(path.join(tmpdir(), 'trellis-kills-'));
  const env: Record<string, string> = {
    TRELLIS_ENCRYPTION_KEYS: `kills:${randomBytes(32).toString('base64')}`,
  };
  let postgres = await startEmbedded({ dataDir });
  const start = () => startRunningService({ dataDir: path.join(dataDir, 'service'), env });
  env.DATABASE_URL = urlOf(postgres.connection);
  let service = await start();
  let isKilled = false;
  const done = { saved: 0, pruned: 0 };
  try {
    const headers = await makeConnection(service);
    const ledgers = models.map(
      (model): Ledger => ({
        model,
        version: 0,
        acknowledged: new Map(),
        sent: new Map(),
        prunedUntil: undefined,
      }),
    );
    for (const victim of victims) {
      isKilled = false;
      /** Goes on until the call fails because the victim is gone. */
      const untilKilled = async (work: () => Promise<void>) => {
        for (;;) {
          try {
            await work();
          } catch (error) {
            if (isKilled) return;
            throw error;
          }
        }
      };
      const load = Promise.all(
        ledgers.flatMap((ledger) => [
          untilKilled(async () => {
            const saved = await saveSome(service, { headers, ledger, random });
            done.saved += saved;
          }),
          untilKilled(async () => {
            const pruned = await pruneSome(service, { headers, ledger, random });
            done.pruned += pruned;
          }),
        ]),
      );
      await Promise.race([load, untilBothWork(done)]);
      await sleep(pick(random, 300));
      isKilled = true;
      if (victim === 'service') {
        process.kill(service.pid, 'SIGKILL');
        await load;
        service = await start();
      } else {
        const server = readServerFile(path.join(dataDir, 'postgres', 'data'));
        process.kill(server?.pid as number, 'SIGKILL');
        await load;
        await postgres.exited;
        await postgres.stop();
        postgres = await startEmbedded({ dataDir });
        await untilItAnswers(service);
      }
      const db = openDb(postgres.connection);
      try {
        for (const ledger of ledgers) await check(service, { db, headers, ledger });
      } finally {
        await db.end();
      }
    }
    return done;
  } finally {
    isKilled = true;
    await service.stop();
    await postgres.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}

/** Until something more was saved and pruned than when it was called: a kill before that would prove nothing. */
async function untilBothWork(done: { saved: number; pruned: number }): Promise<void> {
  const before = { ...done };
  while (done.saved === before.saved || done.pruned === before.pruned) await sleep(10);
}

async function makeConnection(service: RunningService): Promise<Record<string, string>> {
  await service.call('POST', '/integrations', {
    body: {
      unique_key: 'kills',
      provider: 'private-api-key',
      integration_config: { base_url: 'https://kills.invalid' },
    },
  });
  await service.call('POST', '/connections', {
    body: {
      provider_config_key: 'kills',
      connection_id: 'kills',
      credentials: { type: 'API_KEY', apiKey: 'secret' },
    },
  });
  return { 'provider-config-key': 'kills', 'connection-id': 'kills' };
}

type With = { headers: Record<string, string>; ledger: Ledger; random: Random };

async function saveSome(service: RunningService, { headers, ledger, random }: With): Promise<number> {
  ledger.version += 1;
  const { version, model } = ledger;
  const ids = [...new Set(Array.from({ length: perSave }, () => `r${pick(random, idCount)}`))];
  for (const id of ids) ledger.sent.set(id, (ledger.sent.get(id) ?? new Set()).add(version));
  const records = ids.map((id) => ({ id, version, text: 'x'.repeat(300) }));
  await service.call('POST', '/records', { headers, body: { model, records } });
  for (const id of ids) {
    ledger.acknowledged.set(id, version);
    ledger.sent.delete(id);
  }
  return ids.length;
}

async function pruneSome(service: RunningService, { headers, ledger, random }: With): Promise<number> {
  const { model } = ledger;
  const page = await list(service, {
    headers,
    model,
    limit: 50 + pick(random, 500),
    cursor: ledger.prunedUntil,
  });
  const until = page.records.at(-1)?._trellis_metadata.cursor;
  if (until === undefined) return 0;
  let pruned = 0;
  for (let hasMore = true; hasMore; ) {
    const answer = (await service.call('PATCH', '/records/prune', {
      headers,
      body: { model, until_cursor: until, limit: 100 },
    })) as { count: number; has_more: boolean };
    pruned += answer.count;
    hasMore = answer.has_more;
  }
  ledger.prunedUntil = until;
  return pruned;
}

async function list(
  service: RunningService,
  {
    headers,
    model,
    limit,
    cursor,
  }: {
    headers: Record<string, string>;
    model: string;
    limit: number;
    cursor?: string | undefined;
  },
): Promise<WirePage> {
  const query = new URLSearchParams({ model, limit: String(limit), ...(cursor !== undefined && { cursor }) });
  return (await service.call('GET', `/records?${query}`, { headers })) as WirePage;
}

async function check(
  service: RunningService,
  { db, headers, ledger }: { db: Db; headers: Record<string, string>; ledger: Ledger },
): Promise<void> {
  const { records, next_cursor } = await list(service, { headers, model: ledger.model, limit: 10_000 });
  assert.equal(next_cursor, null);
  const standing = new Map(records.map((record) => [record.id, record]));
  for (const [id, version] of ledger.acknowledged) {
    const record = standing.get(id);
    assert.ok(record, `${id} was acknowledged and is gone`);
    if (record._trellis_metadata.pruned_at === null && record.version !== version)
      assert.ok(ledger.sent.get(id)?.has(Number(record.version)), `${id} fell behind version ${version}`);
  }
  // Cursors of one dataset are of one length and sort as their positions do, byte by byte.
  const bytesOf = (cursor: string) => Buffer.from(cursor, 'base64url').subarray(0, 17);
  const until = ledger.prunedUntil === undefined ? undefined : bytesOf(ledger.prunedUntil);
  for (const { id, _trellis_metadata: metadata } of records) {
    if (until === undefined || bytesOf(metadata.cursor).compare(until) > 0) break;
    assert.notEqual(metadata.pruned_at, null, `${id} was reported as pruned and has a payload`);
  }
  await checkCounters(db, ledger.model);
  // What was sent without an answer is settled now: it stands or never will.
  for (const { id, version } of records)
    if (version !== undefined) ledger.acknowledged.set(id, Number(version));
  ledger.sent.clear();
}

async function checkCounters(db: Db, model: string): Promise<void> {
  const [kept] = await db.query<Counters>(
    'select records, deleted, pruned, payload_bytes from dataset where model = $1',
    [model],
  );
  const [counted] = await db.query<Counters>(
    `select
       count(*) filter (where record.deleted_at is null) as records,
       count(*) filter (where record.deleted_at is not null) as deleted,
       count(*) filter (where body is null) as pruned,
       coalesce(sum(octet_length(body) + coalesce(octet_length(previous), 0)), 0)::bigint as payload_bytes
     from record
     join dataset on dataset.id = record.dataset_id
     left join payload using (dataset_id, seq)
     where model = $1`,
    [model],
  );
  assert.deepEqual(kept, counted);
}

async function untilItAnswers(service: RunningService): Promise<void> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      await service.call('GET', '/records?model=One', {
        headers: { 'provider-config-key': 'kills', 'connection-id': 'kills' },
      });
      return;
    } catch (error) {
      if (attempt === 100) throw error;
      await sleep(50);
    }
  }
}
