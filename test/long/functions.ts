// Many connections of one sync at a sandbox, each run once a minute by one node, for as long as is asked. The node is a
// process of its own, the way `npm start` runs it; the sandbox is this process's, which sees each call of each run arrive.

import { randomBytes } from 'node:crypto';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startSandbox } from '../../sandbox/main.ts';
import { Bench } from '../../sandbox/testing.ts';
import type { Db, DbTarget } from '../../server/db/pool.ts';
import { urlOf } from '../support/database.ts';
import { deployBody, flowConfig } from '../support/functions.ts';
import { percentile } from '../support/percentile.ts';
import { freePort } from '../support/ports.ts';
import { type RunningService, startRunningService } from '../support/service.ts';
import { type Usage, watchCalls, watchUsage } from './functions-watch.ts';

type Load = {
  /** The node's; it is not dropped. */
  database: { db: Db; target: DbTarget };
  connections: number;
  /** From the deploy on. Then nothing more comes due, and what is under way goes on to its end. */
  seconds: number;
  /** `on`: the sandbox counts as Google does, and the integration keeps to it. */
  quota: 'on' | 'off';
  /** Called once the sync is deployed. */
  afterDeploy?: (db: Db) => Promise<unknown>;
  /** Told every minute, for who watches. */
  tell?: (line: string) => void;
};

type Delay = { p50: number; p95: number; max: number };

type Outcome = {
  runs: number;
  succeeded: number;
  /** What the others came to. */
  others: string[];
  /** Connections that have what a run of theirs saves, and no more. */
  synced: number;
  /** Turns of connections that nothing was run for: before, between and behind their runs. */
  missed: number;
  /** Runs that began while another of the same connection was under way, by the calls that the sandbox got. */
  overlaps: number;
  /** Calls that the sandbox refused for its quota. */
  refused: number;
  /** From the time a run was due until its node took it, and until its first call was at the provider, in ms. */
  delayMs: { taken: Delay; called: Delay };
} & Usage;

const rows = 20;
const frequencyMs = 60_000;
/** A turn in the last moment may be one that nobody looked for any more. */
const lookMs = 2_000;

const syncCode = `"use strict";
const { z } = require("zod");
exports.default = {
  type: "sync",
  description: "The rows of a spreadsheet; the first is another one each time.",
  frequency: "every minute",
  models: { Row: z.object({ id: z.string() }).loose() },
  exec: async (trellis) => {
    const { spreadsheetId } = await trellis.getMetadata();
    const read = (range) => trellis.get({ endpoint: "/v4/spreadsheets/" + spreadsheetId + "/values/" + range });
    await trellis.trackDeletesStart("Row");
    const { data } = await read("A1:C${rows}");
    const rows = data.values.map((cells, at) => ({ id: String(at + 1), cells, at: at === 0 ? Date.now() : 0 }));
    await trellis.batchSave(rows, "Row");
    await trellis.trackDeletesEnd("Row");
    await read("A1");
  },
};
`;

export async function runMany(load: Load): Promise<Outcome> {
  const { database, connections, seconds, quota, tell = () => {} } = load;
  const folder = await mkdtemp(path.join(tmpdir(), 'trellis-functions-'));
  const provider = new Bench(await startSandbox({ port: 0, dataDir: path.join(folder, 'sandbox') }));
  // The node's own sandbox stays unused. It gives the node the client of the service.
  const dataDir = path.join(folder, 'service');
  await cp(path.join(folder, 'sandbox'), path.join(dataDir, 'sandbox'), { recursive: true });
  const witness = watchCalls();
  let node: RunningService | undefined;
  try {
    node = await startRunningService({
      dataDir,
      env: {
        DATABASE_URL: urlOf(database.target),
        TRELLIS_ENCRYPTION_KEYS: `test:${randomBytes(32).toString('base64')}`,
        SANDBOX_PORT: String(await freePort()),
        SANDBOX_URL: provider.sandbox.url,
        LOG_LEVEL: 'warn',
      },
    });
    await node.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-sheet', unique_key: 'google-sheet', integration_config: { quota } },
    });
    const sheets = await connectAll(node, { provider, connections });
    if (quota === 'on') await provider.control('POST /quota', {});
    const usage = await watchUsage(node.pid);
    const flow = flowConfig({ name: 'rows', type: 'sync', code: syncCode });
    await node.call('POST', '/sync/deploy', { body: deployBody([flow]) });
    await load.afterDeploy?.(database.db);
    const startedAt = Date.now();
    for (let minute = 1; Date.now() < startedAt + seconds * 1000; minute += 1) {
      await pause(Math.min(startedAt + minute * 60_000, startedAt + seconds * 1000) - Date.now());
      tell(
        `minute ${minute}: ${await countRuns(database.db)} runs; ${JSON.stringify(usage.told().memory.late)}`,
      );
    }
    const taken = await usage.stop();
    const endedAt = Date.now();
    // A pause takes what waits away: what was due by then has its turn first.
    while (await isAnyDue(database.db, endedAt)) await pause(100);
    await node.call('POST', '/sync/pause', { body: { provider_config_key: 'google-sheet', syncs: [] } });
    while ((await countRuns(database.db, ['waiting', 'running'])) > 0) await pause(100);
    const { refused } = await provider.control('GET /quota');
    return {
      ...(await judge(database.db, { calls: witness.calls, sheets, startedAt, endedAt })),
      overlaps: witness.overlaps(),
      refused: Number(refused),
      ...taken,
    };
  } finally {
    witness.stop();
    await node?.stop({ keepData: true });
    await provider.sandbox.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** A connection for each of so many accounts, each with a spreadsheet of its own; connections by spreadsheet. */
async function connectAll(
  node: RunningService,
  { provider, connections }: { provider: Bench; connections: number },
): Promise<Map<string, string>> {
  const sheets = new Map<string, string>();
  const values = Array.from({ length: rows }, (_, at) => [at, `row ${at}`, at % 2 === 0]);
  const wanted = Array.from({ length: connections }, (_, n) => `user-${n}`).values();
  const connectSome = async () => {
    for (const name of wanted) {
      const account = `${name}@example.com`;
      await provider.control('POST /accounts', { email: account });
      const made = await provider.control('POST /spreadsheets', { account, title: name, rows: values });
      const spreadsheetId = String(made.spreadsheetId ?? made.spreadsheet_id);
      const { access_token, refresh_token } = await provider.connect({}, { account });
      await node.call('POST', '/connections', {
        body: {
          provider_config_key: 'google-sheet',
          connection_id: name,
          metadata: { spreadsheetId },
          credentials: {
            type: 'OAUTH2',
            access_token,
            refresh_token,
            expires_at: new Date(Date.now() + 3_600_000).toISOString(),
          },
        },
      });
      sheets.set(spreadsheetId, name);
    }
  };
  await Promise.all(Array.from({ length: 4 }, connectSome));
  return sheets;
}

async function countRuns(db: Db, states: readonly string[] = []): Promise<number> {
  const [row] = await db.query<{ count: number }>(
    "select count(*) from run where state = any($1) or $1 = '{}'",
    [states],
  );
  return row!.count;
}

/** Whether something that was due waits still. */
async function isAnyDue(db: Db, atMs: number): Promise<boolean> {
  const rows = await db.query(
    `select from run
     where state = 'waiting' and not_before <= $1
     limit 1`,
    [new Date(atMs)],
  );
  return rows.length > 0;
}

type BookedRun = {
  connection: string;
  state: string;
  error: unknown;
  dueAt: Date;
  takenAt: Date;
};

/** By the node's books and by what the sandbox saw. */
async function judge(
  db: Db,
  {
    calls,
    sheets,
    startedAt,
    endedAt,
  }: {
    calls: Map<string, { begun: number[] }>;
    sheets: Map<string, string>;
    startedAt: number;
    endedAt: number;
  },
): Promise<Pick<Outcome, 'runs' | 'succeeded' | 'others' | 'synced' | 'missed' | 'delayMs'>> {
  const runs = await db.query<BookedRun>(
    `select connection.connection_id as connection, run.state, run.error, not_before as "dueAt", started_at as "takenAt"
     from run
     join connection on connection.id = run.connection_id
     order by not_before`,
  );
  const synced = await db.query(
    `select from record
     join dataset on dataset.id = record.dataset_id
     where record.deleted_at is null
     group by dataset.connection
     having count(*) = $1`,
    [rows],
  );
  const byConnection = Map.groupBy(runs, ({ connection }) => connection);
  const called: number[] = [];
  let missed = 0;
  for (const [sheet, connection] of sheets) {
    const own = byConnection.get(connection) ?? [];
    const turns = [startedAt, ...own.map(({ dueAt }) => dueAt.getTime()), endedAt - lookMs];
    for (const [nth, at] of turns.entries()) {
      const since = turns[nth - 1];
      if (since !== undefined) missed += Math.max(0, Math.ceil((at - since) / frequencyMs - 1e-3) - 1);
    }
    const { begun = [] } = calls.get(sheet) ?? {};
    for (const [nth, at] of begun.entries()) called.push(at - (own[nth]?.dueAt.getTime() ?? at));
  }
  const taken = runs.map(({ dueAt, takenAt }) => takenAt.getTime() - dueAt.getTime());
  const others = runs.filter(({ state }) => state !== 'succeeded');
  return {
    runs: runs.length,
    succeeded: runs.length - others.length,
    others: others.map(({ state, error }) => `${state} ${JSON.stringify(error)}`),
    synced: synced.length,
    missed,
    delayMs: { taken: delayOf(taken), called: delayOf(called) },
  };
}

function delayOf(ms: number[]): Delay {
  const sorted = ms.sort((a, b) => a - b);
  const [p50, p95, max] = [0.5, 0.95, 1].map((share) => Math.round(percentile(sorted, share)));
  return { p50: p50!, p95: p95!, max: max! };
}
