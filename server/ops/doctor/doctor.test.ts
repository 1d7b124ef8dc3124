import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { shippedCatalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { readOutboundAllow } from '../../config/setting-values.ts';
import { masterKey } from '../../data-keys/data-keys.fixture.ts';
import { registerMasterKey } from '../../data-keys/store.ts';
import { type Db, openDb } from '../../db/pool.ts';
import { checkBaseUrl, checkOidc, checkPort, checkReachable } from './address.ts';
import { type Check, runCheck } from './check.ts';
import {
  checkDurability,
  checkEncoding,
  checkKeyRing,
  checkProcesses,
  checkServerVersion,
  checkSkew,
  checkTimeLimits,
  databaseChecks,
} from './database.ts';
import { checkCredentialHeaders, checkSunsets } from './integrations.ts';
import { checkDataDir, checkFree, checkKeyFiles, checkMemory, checkNode, checkOpenFiles } from './machine.ts';

let database: TestDatabase;
let db: Db;
let directory: string;
before(async () => {
  database = await openTestDatabase();
  db = openDb(database.target, { maxConnections: 2 });
  directory = await mkdtemp(join(tmpdir(), 'trellis-doctor-'));
});
after(async () => {
  await db.end();
  await database.drop();
  await rm(directory, { recursive: true });
});

const run = async (name: string) => {
  const check = databaseChecks(db, { isEmbedded: false, processes: 1 }).find(
    (one) => one.name === name,
  ) as Check;
  return runCheck(check);
};

test('a migrated database that keeps what it commits has no fault but the settings of the test server', async () => {
  const states: Record<string, string> = {};
  for (const check of databaseChecks(db, { isEmbedded: true, processes: 1 })) {
    states[check.name] = (await runCheck(check)).state;
  }
  const { durability, cluster, workers, ...rest } = states;
  assert.match(String(durability), /^(ok|fail)$/, 'a server for tests may be told not to sync');
  assert.deepEqual([cluster, workers], ['skipped', 'skipped'], 'it is one machine');
  assert.deepEqual([...new Set(Object.values(rest))], ['ok'], JSON.stringify(rest));
});

test('a database without its newest migration and a database of a newer version have different findings', async () => {
  const [newest] = await db.query<{ name: string }>(
    'delete from migration where name = (select max(name) from migration) returning name',
  );
  const lacking = await run('migrations');
  assert.equal(lacking.state, 'warn');
  assert.ok(lacking.message.includes(newest!.name), lacking.message);
  await db.query('insert into migration (name) values ($1)', ['9000_from_later.sql']);
  const ahead = await run('migrations');
  assert.deepEqual([ahead.state, ahead.message.includes('9000_from_later.sql')], ['fail', true]);
  await db.query('update migration set name = $1 where name = $2', [newest!.name, '9000_from_later.sql']);
  assert.equal((await run('migrations')).state, 'ok');
});

test('a read-only role and a role with a short timeout are reported', async () => {
  const [{ role = '' } = {}] = await db.query<{ role: string }>('select current_user as role');
  const name = database.target as { database?: string; url?: string };
  const at = name.database ?? new URL(name.url ?? '').pathname.slice(1);
  const set = (what: string) => db.query(`alter role "${role}" in database "${at}" ${what}`);
  await set('set default_transaction_read_only = on');
  await set('set statement_timeout = 5000');
  const other = openDb(database.target, { maxConnections: 1 });
  try {
    const found = new Map<string, string>();
    await db.transaction(async (tx) => {
      // A pooler would reuse a connection that has the old settings. This transaction occupies the last of them.
      await tx.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and state = 'idle' and pid <> pg_backend_pid()`,
      );
      for (const check of databaseChecks(other, { isEmbedded: false, processes: 1 })) {
        found.set(check.name, (await runCheck(check)).state);
      }
    });
    assert.deepEqual([found.get('database-writable'), found.get('time-limits')], ['fail', 'warn']);
  } finally {
    await other.query('set default_transaction_read_only = off');
    await other.query(`alter role "${role}" in database "${at}" reset all`);
    await other.end();
  }
});

test('more processes are proposed while this one is busy and the machine has free cores', () => {
  const stateOf = (processes: number, cores: number, load: number) =>
    checkProcesses({ processes, cores, load }).state;
  assert.equal(stateOf(1, 8, 1.2), 'warn');
  assert.equal(stateOf(4, 8, 3.1), 'warn');
  assert.equal(stateOf(1, 8, 0.2), 'ok');
  // Other programs use the cores.
  assert.equal(stateOf(1, 8, 9), 'ok');
  assert.equal(stateOf(8, 8, 6), 'ok');
  assert.equal(stateOf(1, 1, 0.9), 'ok');
  assert.match(
    checkProcesses({ processes: 4, cores: 2, load: 0 }).fix ?? '',
    /at most one process for each core/,
  );
});

test('a pool of each process of the settings counts before the first start', async () => {
  const check = databaseChecks(db, { isEmbedded: false, processes: 200 });
  const found = await runCheck(check.find(({ name }) => name === 'database-connections') as Check);
  assert.deepEqual(
    [found.state, /200 nodes may open 4200\./.test(found.message)],
    ['warn', true],
    found.message,
  );
});

test('what waits for too long is named', async () => {
  assert.equal((await run('backlog')).state, 'ok');
  await db.query(
    `insert into audit (actor, action, target, created_at) values ('service', 'a', 'b', now() - interval '1 hour')`,
  );
  const found = await run('backlog');
  assert.deepEqual([found.state, found.message], ['warn', 'There are audit entries without a position.']);
});

test('an integration that sends credentials in a header that servers return is named, and no other', async () => {
  const judge = () => checkCredentialHeaders(db, shippedCatalog);
  await db.query(
    `with made as (insert into environment (name, data_key) values ('dev', $1) returning id)
    insert into integration (environment_id, key, provider, display_name, integration_config)
    select made.id, key, 'private-api-key', 'Own', config::jsonb
    from made
    cross join (values ('good', '{"header_name": "X-Api-Key"}'), ('bearer', '{}')) as given (key, config)`,
    [crypto.randomUUID()],
  );
  assert.equal((await judge()).state, 'ok');
  await db.query(
    `update integration set integration_config = '{"header_name": "x-request-id"}' where key = 'bearer'`,
  );
  const found = await judge();
  assert.equal(found.state, 'fail');
  assert.match(
    found.message,
    /"bearer" in dev: integration_config\.header_name names a header that is returned by servers/,
  );
  assert.doesNotMatch(found.message, /good/);
  await db.query('delete from integration');
});

test('a sunset is reported from 90 days before, only for the affected connections', async () => {
  const judge = (at: string) => checkSunsets(db, { catalog: shippedCatalog, at: new Date(at) });
  const integrations = await db.query<{ id: number; key: string }>(`
    insert into integration (environment_id, key, provider, display_name, is_test)
    select environment.id, given.key, 'shopify', 'Shop', given.key = 'tried'
    from environment
    cross join (values ('shop'), ('renewed'), ('tried')) as given (key)
    returning id, key`);
  const idOf = (key: string) => integrations.find((one) => one.key === key)?.id;
  const connect = (key: string, columns: Record<string, string> = {}) =>
    db.query(
      `insert into connection (environment_id, integration_id, connection_id, data_key${Object.keys(columns)
        .map((name) => `, ${name}`)
        .join('')})
       select id, $1, gen_random_uuid(), gen_random_uuid()${Object.values(columns)
         .map((value) => `, ${value}`)
         .join('')}
       from environment`,
      [idOf(key)],
    );
  await connect('tried');
  await connect('renewed', { access_expires_at: 'now()' });
  await connect('renewed', { refresh_token_digest: "'\\x00'" });
  await connect('shop');
  await db.query('update connection set deleted_at = now(), data_key = null where integration_id = $1', [
    idOf('shop'),
  ]);
  assert.equal((await judge('2026-12-31')).state, 'ok');
  await connect('shop');
  await connect('shop');
  assert.equal((await judge('2026-10-02T23:59:59Z')).state, 'ok');
  for (const at of ['2026-10-03T00:00:00Z', '2027-06-01T00:00:00Z']) {
    const found = await judge(at);
    assert.equal(found.state, 'warn');
    assert.match(
      found.message,
      /^"shop" in dev: 2 connections may stop working on 2027-01-01\. Shopify rejects .* \(https:/,
    );
    assert.doesNotMatch(found.message, /renewed|tried/);
  }
  await db.query(`update connection set status = 'needs_reauth'`);
  assert.equal((await judge('2026-12-31')).state, 'ok');
  await db.query('delete from connection');
  await db.query('delete from integration');
});

test('a consumer that acknowledges one cursor for 30 days while changes wait is named', async () => {
  assert.equal((await run('consumers')).state, 'ok');
  await db.query(
    `with e as (insert into environment (name, data_key) values ('prod', gen_random_uuid()) returning id),
     i as (
       insert into integration (environment_id, key, provider, display_name)
       select id, 'sheets', 'google-sheet', 'Sheets' from e
       returning id
     ),
     c as (
       insert into connection (environment_id, integration_id, connection_id, data_key)
       select e.id, i.id, 'customer', gen_random_uuid() from e, i
       returning id
     ),
     d as (
       insert into dataset (connection, model, variant, last_seq) select id, 'Row', 'base', 9 from c returning id
     ),
     r as (
       insert into record (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)
       select id, 9, now(), now(), 1, '\\x00', 'r9' from d
     )
     insert into consumer (dataset_id, name, seq, acknowledged_at, held_seq, held_since)
     select id, 'app', 4, now(), 4, now() - interval '30 days' from d
     union all
     select id, 'moves', 5, now(), 4, now() - interval '30 days' from d`,
  );
  const found = await run('consumers');
  assert.equal(found.state, 'warn');
  assert.match(found.message, /^1 consumer has .*: app \(prod, sheets\/customer, Row, base\)\.$/);
});

test('missing, wrong, retired and unused master keys have different findings', async () => {
  const [one, two] = [masterKey('one'), masterKey('two')];
  assert.equal((await checkKeyRing(db, undefined)).state, 'ok', 'nothing is sealed yet');
  await registerMasterKey(db, one);
  assert.equal((await checkKeyRing(db, [one])).state, 'ok');
  assert.match((await checkKeyRing(db, undefined)).fix ?? '', /TRELLIS_ENCRYPTION_KEYS/);
  assert.match((await checkKeyRing(db, [two])).message, /"one" is missing/);
  assert.match(
    (await checkKeyRing(db, [masterKey('one')])).message,
    /"one" is not the key that was used before/,
  );
  await registerMasterKey(db, two);
  await db.query(`update master_key set retired_at = now() where id = 'one'`);
  assert.equal((await checkKeyRing(db, [one, two])).state, 'warn');
  assert.match((await checkKeyRing(db, [two, one])).message, /one can be removed from the settings/);
});

test('a directory or key that other users can read is reported, with the command that fixes it', async () => {
  const key = join(directory, 'master.key');
  await writeFile(key, 'x', { mode: 0o644 });
  assert.match((await checkKeyFiles([key])).fix ?? '', new RegExp(`chmod 600 ${key}`));
  await chmod(key, 0o600);
  assert.equal((await checkKeyFiles([key, join(directory, 'none')])).state, 'ok');
  await chmod(directory, 0o755);
  assert.equal((await checkDataDir(directory)).state, 'warn');
  await chmod(directory, 0o711);
  assert.equal((await checkDataDir(directory)).state, 'ok');
  assert.equal((await checkDataDir(key)).state, 'fail');
  assert.equal((await checkDataDir(join(directory, 'none'))).state, 'ok');
});

test('doctors who look at a port at once do not take each other for other programs', async () => {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  const results = await Promise.all(Array.from({ length: 20 }, () => checkPort({ host: '127.0.0.1', port })));
  assert.deepEqual([...new Set(results.map(({ message }) => message))], [`127.0.0.1:${port} is free.`]);
});

test('a program that accepts connections and sends nothing is requested once', async () => {
  let asked = 0;
  const server = createServer((socket) => {
    asked += 1;
    socket.resume();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  assert.match((await checkPort({ host: '127.0.0.1', port })).message, /Another program/);
  assert.equal(asked, 1);
  server.close();
  await once(server, 'close');
});

test('a port of another program, an address of another host and a closed connection are reported', async () => {
  const server = createServer((socket) =>
    socket.resume().end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi'),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  assert.match((await checkPort({ host: '127.0.0.1', port })).message, /Another program/);
  assert.equal((await checkReachable(`http://127.0.0.1:${port}`)).state, 'fail');
  server.close();
  await once(server, 'close');
  assert.equal((await checkPort({ host: '127.0.0.1', port })).state, 'ok');
  assert.equal((await checkReachable(`http://127.0.0.1:${port}`)).state, 'warn');
  assert.equal((await checkPort({ host: '192.0.2.1', port })).state, 'fail');
});

test('an OpenID provider that the service itself may not call is a failure', async () => {
  const server = createServer((socket) =>
    socket.resume().end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi'),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  for (const [setting, state] of [
    ['sign-in=127.0.0.1', 'ok'],
    ['127.0.0.1', 'ok'],
    ['providers=127.0.0.1', 'fail'],
    ['sign-in=127.0.0.1:1', 'fail'],
    [undefined, 'fail'],
  ] as const) {
    const result = await checkOidc(issuer, { outboundAllow: readOutboundAllow(setting, []) });
    assert.equal(result.state, state, setting ?? 'none');
    if (state === 'fail') assert.match(result.message, /TRELLIS_OUTBOUND_ALLOW/);
  }
  server.close();
  await once(server, 'close');
});

test('each figure is judged by its bounds', () => {
  const states = {
    node: [checkNode('26.10.0'), checkNode('26.9.0'), checkNode('20.20.2')],
    files: [checkOpenFiles(65_536, 20_000), checkOpenFiles(1024, 20_000), checkOpenFiles(256, 10)],
    memory: [checkMemory(512), checkMemory(511)],
    version: [
      checkServerVersion('150018'),
      checkServerVersion('180004'),
      checkServerVersion('140000'),
      checkServerVersion('190000'),
    ],
    encoding: [checkEncoding('UTF8'), checkEncoding('SQL_ASCII')],
    skew: [checkSkew(1_999), checkSkew(-2_001), checkSkew(60_000)],
    free: [checkFree(1024, true), checkFree(1023, true), checkFree(199, false)],
    limits: [
      checkTimeLimits({ statement_timeout: '0', lock_timeout: '60000' }),
      checkTimeLimits({ statement_timeout: '30000' }),
    ],
    durability: [
      checkDurability({ fsync: 'on', full_page_writes: 'on', synchronous_commit: 'local' }),
      checkDurability({ fsync: 'on', full_page_writes: 'on', synchronous_commit: 'off' }),
      checkDurability({ fsync: 'off', full_page_writes: 'on', synchronous_commit: 'on' }),
    ],
    address: [
      checkBaseUrl('https://trellis.acme.com'),
      checkBaseUrl('http://localhost:3003'),
      checkBaseUrl('http://10.0.0.1'),
    ],
  };
  assert.deepEqual(
    Object.fromEntries(
      Object.entries(states).map(([name, found]) => [name, found.map(({ state }) => state)]),
    ),
    {
      node: ['ok', 'fail', 'fail'],
      files: ['ok', 'warn', 'fail'],
      memory: ['ok', 'warn'],
      version: ['ok', 'ok', 'fail', 'warn'],
      encoding: ['ok', 'fail'],
      skew: ['ok', 'warn', 'warn'],
      free: ['ok', 'warn', 'fail'],
      limits: ['ok', 'warn'],
      durability: ['ok', 'fail', 'fail'],
      address: ['ok', 'ok', 'warn'],
    },
  );
  for (const result of Object.values(states).flat()) {
    assert.equal(result.fix !== undefined, result.state !== 'ok', result.message);
  }
});

test('a check that throws has failed', async () => {
  const finding = await runCheck({
    name: 'clock',
    run: () => Promise.reject(new Error('it broke', { cause: new Error('inside') })),
  });
  assert.deepEqual([finding.state, finding.message], ['fail', 'The check failed: it broke (inside)']);
});
