import assert from 'node:assert/strict';
import { lstatSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { accessFiles, listenBeside, listenInTmp } from './access.ts';
import type { Account } from './account.ts';

const base = mkdtempSync(path.join(tmpdir(), 'trellis-access-'));
after(() => rmSync(base, { recursive: true }));
const [uid, gid] = [process.getuid!(), process.getgid!()];
/** As whom a server runs: root's runs as somebody else. */
const account: Account =
  uid === 0
    ? { uid: 65_534, gid: 65_534, name: 'nobody', identity: { uid: 65_534, gid: 65_534 } }
    : { uid, gid, name: 'us', identity: {} };
function makeDir(name: string): string {
  const dir = path.join(base, name);
  mkdirSync(dir, { recursive: true });
  return dir;
}
/** A file of somebody's, and a link to it where we are about to write. */
function victimOf(dir: string, name: string): string {
  const victim = path.join(makeDir('victims'), name);
  writeFileSync(victim, 'mine');
  symlinkSync(victim, path.join(dir, name));
  return victim;
}

test('the access file is written through no link', () => {
  const dir = makeDir('links');
  const victims = ['pg_hba.conf', 'pg_ident.conf', 'pg_hba.conf.draft'].map((name) => victimOf(dir, name));
  const { hba_file: file } = accessFiles(dir);
  assert.deepEqual(
    victims.map((victim) => readFileSync(victim, 'utf8')),
    ['mine', 'mine', 'mine'],
  );
  assert.equal(lstatSync(file).isFile(), true);
  assert.equal(lstatSync(file).mode & 0o777, 0o644);
  assert.match(readFileSync(file, 'utf8'), /^local all all peer map=service\n$/);
});

test('a socket is beside its cluster, only for the user of its server', async () => {
  const dir = makeDir('dir');
  const { socketDir, remove } = await listenBeside(dir, { clusterDir: path.join(dir, 'data'), account });
  assert.equal(path.dirname(socketDir), dir);
  const { uid: owner, mode } = lstatSync(socketDir);
  assert.deepEqual([owner, mode & 0o777], [account.uid, 0o700]);
  // What a killed server left is gone, and what is no directory is not taken for one.
  writeFileSync(path.join(socketDir, '.s.PGSQL.5432.lock'), '1');
  await listenBeside(dir, { clusterDir: path.join(dir, 'data'), account });
  assert.throws(() => lstatSync(path.join(socketDir, '.s.PGSQL.5432.lock')), /ENOENT/);
  remove();
  symlinkSync(makeDir('elsewhere'), socketDir);
  await assert.rejects(listenBeside(dir, { clusterDir: path.join(dir, 'data'), account }), /ENOTDIR|ELOOP/);
  assert.equal(lstatSync(path.join(base, 'elsewhere')).uid, uid);
});

test('a socket whose path would be too long, or not readable by PostgreSQL, is in /tmp', async () => {
  for (const name of ['x'.repeat(90), 'with, comma']) {
    const dir = makeDir(name);
    const { socketDir, remove } = await listenBeside(dir, { clusterDir: path.join(dir, 'data'), account });
    assert.match(socketDir, /^\/tmp\/trellis-[0-9a-f]{16}\/socket$/);
    const server = createServer().listen(path.join(socketDir, '.s.PGSQL.5432'));
    await new Promise((resolve) => server.close(resolve));
    remove();
    assert.throws(() => lstatSync(path.dirname(socketDir)), /ENOENT/);
  }
});

test('the files of a server of a command lie where its own user can put no link', () => {
  const { dir, socketDir, remove } = listenInTmp(path.join(base, 'draft'), account);
  assert.equal(lstatSync(dir).uid, uid);
  assert.equal(lstatSync(dir).mode & 0o022, 0);
  assert.equal(path.dirname(socketDir), dir);
  remove();
  // A directory that another user made before us is refused.
  symlinkSync(makeDir('elsewhere'), dir);
  assert.throws(
    () => listenInTmp(path.join(base, 'draft'), account),
    /belongs to uid \d+, not to the user of the service/,
  );
  rmSync(dir);
});
