// Slow: it moves whole installations.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { type CommandEnd, callCommand, runCommand } from '../../test/support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../../test/support/database.ts';
import { type PeerStandIn, startPeer } from '../../test/support/peer.ts';
import { peerConnection } from '../../test/support/peer-bodies.ts';
import { readMasterKeys } from '../config/config.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { openVault } from '../vault.ts';

let peer: PeerStandIn;
let database: TestDatabase;
let env: Record<string, string>;
let folder: string;
beforeEach(async () => {
  [peer, database] = await Promise.all([startPeer(), openTestDatabase()]);
  folder = await mkdtemp(join(tmpdir(), 'trellis-import-'));
  const keys = `k:${randomBytes(32).toString('base64')}`;
  env = { DATABASE_URL: urlOf(database.target), TRELLIS_ENCRYPTION_KEYS: keys };
  await ensureEnvironment(database.db, { name: 'prod', vault: openVault(readMasterKeys(keys, [])!) });
  const credentials = { type: 'OAUTH2', client_id: 'c', client_secret: 'client-secret-there' };
  peer.integrations = [
    { key: 'sheets', provider: 'google-sheet', authMode: 'OAUTH2', credentials },
    { key: 'exotic', provider: 'exotic-crm', authMode: 'TWO_STEP', credentials: null },
  ];
  peer.connections = ['ada', 'bob'].map((id) => peerConnection({ id, integration: 'sheets' }));
});
afterEach(async () => {
  await peer.close();
  await database.drop();
  await rm(folder, { recursive: true });
});

/** As `trellis` prints it; none of the peer's secrets may be in it. */
async function trellis(args: string[], more: Record<string, string> = {}): Promise<CommandEnd> {
  const end = await runCommand(args, { ...env, ...more });
  const secrets = [
    peer.key,
    'client-secret-there',
    ...peer.connections.flatMap(({ credentials }) => Object.values(credentials)),
  ];
  for (const secret of secrets)
    if (typeof secret === 'string' && secret.length > 8)
      assert.ok(!(end.stdout + end.stderr).includes(secret), 'a secret was printed');
  return end;
}

const nango = (...more: string[]) => ['nango', '--from', peer.url, '--environment', 'prod', ...more];
const imported = (...more: string[]) => ['import', ...nango(...more)];

test('a dry run changes nothing; an import reports its result as text and in a file, with each missing item', async () => {
  peer.connections.push(peerConnection({ id: 'odd', integration: 'exotic' }));
  peer.connections[0]!.tags = { end_user_email: 'nobody' };
  const keyFile = join(folder, 'key');
  await writeFile(keyFile, `${peer.key}\n`);
  const dry = await trellis(imported('--key-file', keyFile, '--dry-run'));
  assert.match(dry.stdout, /^2 connections would be imported$/m);
  assert.match(dry.stdout, /^nothing was changed$/m);
  assert.deepEqual(await database.db.query('select from connection'), []);

  const report = join(folder, 'report.json');
  const end = await trellis(imported('--key-file', keyFile, '--report', report));
  assert.equal(end.code, 1, end.stderr);
  assert.match(end.stdout, /^1 connections imported$/m);
  assert.match(end.stdout, /^integration exotic: skipped \(unknown_provider\)$/m);
  const text = await readFile(report, 'utf8');
  assert.ok(!text.includes('refresh-of') && !text.includes('client-secret'));
  assert.equal((await stat(report)).mode & 0o777, 0o600);
  const { not_whole: open } = JSON.parse(text) as { not_whole: Record<string, string>[] };
  assert.deepEqual(
    open.map(({ connection_id, outcome, reason }) => [connection_id, outcome, reason]),
    [
      ['odd', 'skipped', 'unknown_provider'],
      ['ada', 'failed', 'invalid'],
    ],
  );
  assert.match(open[1]!.detail!, /tags\.end_user_email: must be an e-mail address/);

  peer.connections[0]!.tags = {};
  const whole = await trellis(imported('--integrations', 'sheets'), { TRELLIS_PEER_KEY: peer.key });
  assert.match(whole.stdout, /^2 connections imported$/m);
});

test('faults in the arguments of a command are reported before any work', async () => {
  const file = join(folder, 'key');
  await writeFile(file, 'a key of the peer');
  const refuses = async (args: string[], said: RegExp, code = 2) => {
    const end = await callCommand(args);
    assert.match(end.stderr, said);
    assert.equal(end.code, code, end.stderr);
  };
  const keyed = (...more: string[]) => imported('--key-file', file, ...more);
  const exported = (...more: string[]) => ['export', '--to', join(folder, 'x'), ...more];
  await refuses(['import'], /missing required argument 'file'/);
  await refuses(['import', 'nango', '--from', peer.url], /required option '--environment <name>'/);
  await refuses(['import', 'a', 'b'], /too many arguments/);
  await refuses(keyed('--parallel', '0'), /--parallel "0"/);
  await refuses(keyed('--models', 'Row'), /require --records/);
  await refuses(keyed('--records', '--consumer', ' '), /--consumer " " is not a name/);
  await refuses(keyed('--provider', 'x'), /THEIRS=OURS/);
  await refuses(keyed('--positions', 'p'), /require --records/);
  await refuses(keyed('--report', join(folder, 'none', 'r')), /directory does not exist/, 1);
  await refuses(keyed('--report', folder), /is a directory/, 1);
  await refuses(['import', file, '--report', join(folder, 'none', 'r')], /directory does not exist/, 1);
  await refuses(['import', 'nango', '--from', 'ftp://x', '--environment', 'prod'], /is not an address/);
  await refuses(exported(), /either --environment NAME or --all/);
  await refuses(exported('--all', '--environment', 'prod'), /either --environment NAME or --all/);
  await refuses(exported('--all', '--passphrase-file', `${file}s`), /ENOENT/, 1);
  await writeFile(file, 'short');
  await refuses(exported('--all', '--passphrase-file', file), /fewer than 12/, 1);
  assert.deepEqual(peer.requests, []);
});

test('faults of key and address are reported, and nothing is changed', async () => {
  const refused = async (args: string[], said: RegExp, more: Record<string, string>) => {
    const { code, stderr } = await trellis(args, more);
    assert.equal(code, 1, args.join(' '));
    assert.match(stderr, said);
  };
  await refused(imported(), /--key-file FILE or in TRELLIS_PEER_KEY/, {});
  const plain = ['import', 'nango', '--from', 'http://93.184.216.34', '--environment', 'prod'];
  await refused(plain, /only in private networks\. Use https/, { TRELLIS_PEER_KEY: peer.key });
  assert.deepEqual(await readdir(folder), []);
  assert.deepEqual(await database.db.query('select from integration'), []);
});

test('keys that are not those of the database seal nothing', async () => {
  const other = {
    TRELLIS_PEER_KEY: peer.key,
    TRELLIS_ENCRYPTION_KEYS: `k2:${randomBytes(32).toString('base64')}`,
  };
  const { code, stderr } = await trellis(imported(), other);
  assert.equal(code, 1);
  assert.match(stderr, /master key "k" is missing/);
  assert.deepEqual(await database.db.query('select from integration'), []);
});

test('a file is written for its owner alone, and taken in again', async () => {
  await trellis(imported(), { TRELLIS_PEER_KEY: peer.key });
  const passphrase = join(folder, 'passphrase');
  await writeFile(passphrase, 'correct horse battery\n');
  const file = join(folder, 'moved');
  const written = await trellis(['export', '--to', file, '--all', '--passphrase-file', passphrase]);
  assert.equal(written.code, 0, written.stderr);
  assert.match(written.stdout, /^2 connections$/m);
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  const bytes = await readFile(file);
  for (const { credentials } of peer.connections)
    assert.equal(bytes.indexOf(String(credentials.refresh_token)), -1);
  const exports = await database.db.query(
    `select target, details from audit where action = 'environment.exported'`,
  );
  assert.equal(exports.length, 1);

  const into = ['import', file, '--environment', 'staging', '--passphrase-file', passphrase];
  const dry = await trellis([...into, '--dry-run']);
  assert.match(dry.stdout, /^the environment staging would be created$/m);
  const taken = await trellis(into);
  assert.equal(taken.code, 0, taken.stderr);
  assert.match(taken.stdout, /^2 connections imported$/m);
  const places = await database.db.query(
    `select environment.name, connection_id as id
     from connection
     join environment on environment.id = connection.environment_id
     order by name, id`,
  );
  assert.deepEqual(
    places.map(({ name, id }) => `${name} ${id}`),
    ['prod ada', 'prod bob', 'staging ada', 'staging bob'],
  );
});

test('an environment has one import at a time', async () => {
  await database.db.transaction(async (tx) => {
    const [environment] = await tx.query<{ id: number }>(`select id from environment where name = 'prod'`);
    await tx.query(`select pg_advisory_xact_lock(hashtextextended('import ' || $1::bigint, 0))`, [
      environment!.id,
    ]);
    const { code, stderr } = await trellis(imported(), { TRELLIS_PEER_KEY: peer.key });
    assert.equal(code, 1);
    assert.match(stderr, /Another import into this environment is running/);
  });
});
