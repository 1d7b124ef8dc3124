// A peer with thousands of connections is moved from by the command, which is killed again and again on the way; then all of
// it goes on to another installation in a file, whose import is killed, too.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { readMasterKeys } from '../../server/config/config.ts';
import { findConnection } from '../../server/connections/store/store.ts';
import type { Db } from '../../server/db/pool.ts';
import { ensureEnvironment } from '../../server/environments/store.ts';
import { openVault, type Vault } from '../../server/vault.ts';
import type { Report } from '../../tools/migrate/report.ts';
import { surroundings } from '../support/command.ts';
import { openTestDatabase, urlOf } from '../support/database.ts';
import { type PeerStandIn, startPeer } from '../support/peer.ts';
import { peerConnection } from '../support/peer-bodies.ts';

const main = join(import.meta.dirname, '../../server/cli/main.ts');

type Moved = {
  /** From the first start of a command to the end of the last, and of the last one by itself. */
  wholeMs: number;
  lastMs: number;
  /** The most memory that any of the commands took. */
  peakBytes: number;
  requests: number;
};

/** Moves so many connections from the stand-in, killing the command so often, then on by a file, killing that import. */
export async function moveUnderKills(given: {
  connections: number;
  records: number;
  kills: number;
}): Promise<{ peer: Moved; file: Moved & { fileBytes: number } }> {
  const folder = await mkdtemp(join(tmpdir(), 'trellis-moving-'));
  const peer = await startPeer();
  const [first, second] = [await openPlace(), await openPlace()];
  try {
    fill(peer, given);
    const report = join(folder, 'report.json');
    const import1 = ['import', 'nango', '--from', peer.url, '--environment', 'prod', '--report', report];
    const keyed = { ...first.env, TRELLIS_PEER_KEY: peer.key };
    const fromPeer = await killed([...import1, '--records'], { env: keyed, db: first.db, ...given });
    await checkAgainstPeer(peer, { ...first, report: JSON.parse(await readFile(report, 'utf8')) as Report });

    const passphrase = randomBytes(24).toString('base64');
    const file = join(folder, 'moved');
    const sealed = { TRELLIS_EXPORT_PASSPHRASE: passphrase };
    const exported = await run(['export', '--to', file, '--environment', 'prod', '--records'], {
      ...first.env,
      ...sealed,
    });
    assert.equal(exported.code, 0, exported.output);
    const fromFile = await killed(['import', file], {
      env: { ...second.env, ...sealed },
      db: second.db,
      ...given,
    });
    await checkAlike(first, second);
    return {
      peer: { ...fromPeer, requests: peer.requests.length },
      file: { ...fromFile, requests: 0, fileBytes: (await stat(file)).size },
    };
  } finally {
    await peer.close();
    for (const place of [first, second]) await place.drop();
    await rm(folder, { recursive: true });
  }
}

type Place = { db: Db; vault: Vault; environmentId: number; env: Record<string, string> };

async function openPlace(): Promise<Place & { drop: () => Promise<void> }> {
  const { db, target, drop } = await openTestDatabase();
  const keys = `k${randomBytes(2).toString('hex')}:${randomBytes(32).toString('base64')}`;
  const vault = openVault(readMasterKeys(keys, [])!);
  const { environment } = await ensureEnvironment(db, { name: 'prod', vault });
  const env = { DATABASE_URL: urlOf(target), TRELLIS_ENCRYPTION_KEYS: keys };
  return { db, vault, environmentId: environment.id, env, drop };
}

function fill(peer: PeerStandIn, { connections, records }: { connections: number; records: number }): void {
  const credentials = { type: 'OAUTH2', client_id: 'c.apps', client_secret: 'client-secret-there' };
  peer.integrations = [
    { key: 'google-sheet', provider: 'google-sheet', authMode: 'OAUTH2', credentials },
    { key: 'airtable', provider: 'airtable', authMode: 'OAUTH2', credentials },
  ];
  const soon = new Date(Date.now() + 60_000).toISOString();
  for (let n = 0; n < connections; n += 1) {
    const one = peerConnection({
      id: `customer-${n}`,
      integration: n % 3 === 0 ? 'airtable' : 'google-sheet',
      createdAt: new Date(Date.UTC(2026, 0, 1) + Math.floor(n / 3) * 1_000),
      endUser: {
        id: `user-${n}`,
        email: `user${n}@example.com`,
        display_name: null,
        tags: null,
        organization: null,
      },
    });
    // Reading renews these there, and each token is good for one renewal.
    if (n % 5 === 0) one.credentials.expires_at = soon;
    if (n % 10 === 0 && records > 0)
      one.records.set(
        'Row',
        Array.from({ length: records }, (_, at) => ({
          id: `r${at}`,
          fields: { text: 'x'.repeat(200), at },
          order: at,
          isDeleted: at % 50 === 7,
        })),
      );
    peer.connections.push(one);
  }
  const asked = new Map<string, number>();
  peer.trouble = (number, path) => {
    const nth = asked.get(path) ?? 0;
    asked.set(path, nth + 1);
    if (nth > 0) return undefined;
    if (number % 97 === 0) return 'limit';
    if (number % 89 === 0) return 'drop';
    return number % 83 === 0 ? 'cut' : undefined;
  };
}

/** Runs the command to its end, and kills it before that, so often, each time when it has stored some more. */
async function killed(
  args: string[],
  {
    env,
    db,
    connections,
    kills,
  }: { env: Record<string, string>; db: Db; connections: number; kills: number },
): Promise<Omit<Moved, 'requests'>> {
  const start = performance.now();
  let peakBytes = 0;
  for (let nth = 1; nth <= kills; nth += 1) {
    const wanted = Math.floor((connections * nth) / (kills + 1));
    const { child, exited, peak } = launch(args, env);
    const over = AbortSignal.timeout(300_000);
    while ((await countConnections(db)) < wanted) {
      if (child.exitCode !== null) assert.fail(`it ended before it was killed: ${(await exited).output}`);
      over.throwIfAborted();
      await sleep(5);
    }
    child.kill('SIGKILL');
    await exited;
    peakBytes = Math.max(peakBytes, peak());
  }
  const lastStart = performance.now();
  const last = await run(args, env);
  assert.equal(last.code, 0, last.output);
  return {
    wholeMs: performance.now() - start,
    lastMs: performance.now() - lastStart,
    peakBytes: Math.max(peakBytes, last.peakBytes),
  };
}

async function run(args: string[], env: Record<string, string>) {
  const { exited, peak } = launch(args, env);
  return { ...(await exited), peakBytes: peak() };
}

function launch(args: string[], env: Record<string, string>) {
  const child = spawn(process.execPath, [main, ...args], {
    env: { ...surroundings, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  let bytes = 0;
  const timer = setInterval(async () => {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '');
    bytes = Math.max(bytes, Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) * 1024);
  }, 100);
  const exited = once(child, 'close').then(([code]) => {
    clearInterval(timer);
    return { code: code as number | null, output };
  });
  return { child, exited, peak: () => bytes };
}

async function countConnections(db: Db): Promise<number> {
  const [row] = await db.query<{ count: number }>('select count(*) as count from connection');
  return row!.count;
}

/** Each connection of the peer is here once, with the tokens that the peer has now. */
async function checkAgainstPeer(
  peer: PeerStandIn,
  { db, vault, environmentId, report }: Place & { report: Report },
): Promise<void> {
  const total = peer.connections.length;
  const [counted] = await db.query(
    `select
       (select count(*) from connection) as connections,
       (select count(*) from audit where action = 'connection.imported') as audits,
       (select count(*) from data_key) as keys,
       (select count(*) from event) as events`,
  );
  assert.deepEqual(counted, { connections: total, audits: total, keys: total + 1, events: 0 });
  assert.deepEqual(report.connections, [{ outcome: 'made', count: total }]);
  for (const one of peer.connections) {
    const at = { environmentId, integrationKey: one.integration, connectionId: one.id };
    const found = await findConnection(db, { ...at, vault });
    assert.ok(found, `${one.id} is lost`);
    const { raw: _raw, ...credentials } = found.credentials as { raw: object };
    assert.deepEqual(credentials, one.credentials, `${one.id} has tokens that the peer has replaced`);
    assert.deepEqual(found.metadata, one.metadata);
    assert.equal(found.tags.end_user_id, one.endUser?.id);
    assert.deepEqual(found.createdAt, one.createdAt);
  }
  const expected = peer.connections.flatMap(({ records }) => [...records.values()]);
  const live = expected.flat().filter(({ isDeleted }) => !isDeleted).length;
  const [records] = await db.query(
    'select count(*) as datasets, coalesce(sum(records), 0)::bigint as live, coalesce(sum(deleted), 0)::bigint as deleted from dataset',
  );
  assert.deepEqual(records, { datasets: expected.length, live, deleted: expected.flat().length - live });
}

/** Two installations hold the same, but for keys, times and positions. */
async function checkAlike(one: Place, other: Place): Promise<void> {
  const facts = async ({ db }: Place) =>
    db.query(
      `select connection_id, integration.key, status, tags, end_user, connection.created_at, access_expires_at,
         (select count(*) from record join dataset on dataset.id = dataset_id where dataset.connection = connection.id) as records,
         (select count(*) from payload join dataset on dataset.id = dataset_id where dataset.connection = connection.id) as payloads
       from connection
       join integration on integration.id = integration_id
       order by connection_id`,
    );
  const [there, here] = [await facts(one), await facts(other)];
  assert.deepEqual(here, there);
  for (const { connection_id, key } of there.slice(0, 200) as { connection_id: string; key: string }[]) {
    const at = { integrationKey: key, connectionId: connection_id };
    const [was, is] = await Promise.all(
      [one, other].map(({ db, vault, environmentId }) => findConnection(db, { ...at, vault, environmentId })),
    );
    assert.deepEqual(is!.credentials, was!.credentials);
  }
}
