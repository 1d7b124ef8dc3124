// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { runCommand } from '../../test/support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../../test/support/database.ts';

/** Backups as an operator asks for them, where the database is one of their own or not there. */
let database: TestDatabase;
let dir: string;
before(async () => {
  database = await openTestDatabase();
  dir = await mkdtemp(join(tmpdir(), 'trellis-backup-command-'));
});
after(async () => {
  await database.drop();
  await rm(dir, { recursive: true });
});
const external = (...args: string[]) =>
  runCommand(args, { DATABASE_URL: urlOf(database.target), DATA_DIR: join(dir, 'none') });

test('with an external PostgreSQL, the command names the tools for backup and restore', async () => {
  const [backup, restore] = await Promise.all([
    external('backup', '--to', join(dir, 'shelf')),
    external('restore', '--from', join(dir, 'shelf')),
  ]);
  assert.equal(backup.code, 1);
  assert.match(
    backup.stderr,
    /^ {2}pg_dump .*--exclude-table-data='\*\.data_key'.*\n {2}trellis keys export /m,
  );
  assert.equal(restore.code, 1);
  assert.match(restore.stderr, /^ {2}pg_restore .*\n {2}trellis keys restore .*\n {2}trellis restored$/m);
  // What a program is started with is seen by everybody on the machine.
  for (const { stderr } of [backup, restore])
    assert.doesNotMatch(stderr, /^ {2}.*(DATABASE_URL|postgres:\/\/)/m);
  assert.match(backup.stderr, /^ {2}umask 077\n {2}pg_dump /m);
});

test('restored raises positions once, reports this the second time, and raises them again on request', async () => {
  assert.deepEqual(await external('restored'), {
    code: 0,
    stdout: 'raised the positions of 0 datasets and of the event feed; all users must sign in again\n',
    stderr: '',
  });
  const second = await external('restored');
  assert.equal(second.code, 1);
  assert.match(
    second.stderr,
    /^The positions were raised at .*Z, and no position was assigned since: nothing was changed\./,
  );
  assert.equal((await external('restored', '--again')).code, 0);
  const [row] = await database.db.query<{ last: number }>(
    `select last_position as last from sequencer where name = 'event'`,
  );
  assert.equal(row?.last, 2 ** 33);
});

test('a backup without a database is refused, and an invalid count is reported', async () => {
  const env = { DATA_DIR: join(dir, 'empty') };
  const [none, count] = await Promise.all([
    runCommand(['backup', '--to', join(dir, 'shelf')], env),
    runCommand(['backup', '--to', join(dir, 'shelf'), '--keep', '0'], env),
  ]);
  assert.match(none.stderr, /contains no database yet; start the service once/);
  assert.match(count.stderr, /--keep "0" is not a number from 1 to 999999\./);
  assert.deepEqual([none.code, count.code], [1, 2]);
});
