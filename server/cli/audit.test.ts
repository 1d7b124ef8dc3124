// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { asOwnerOfAudit } from '../../test/support/audit.ts';
import { runCommand } from '../../test/support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../../test/support/database.ts';
import { writeAudit } from '../activity/audit.ts';
import { chainAll } from '../activity/audit-chain.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());

const trellis = (...args: string[]) =>
  runCommand(args, {
    DATABASE_URL: urlOf(database.target),
    TRELLIS_ENCRYPTION_KEYS: `k:${randomBytes(32).toString('base64')}`,
  });

async function write(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) {
    const entry = { environmentId: undefined, actor: 'service', action: 'thing.changed', target: `${n}` };
    await writeAudit(database.db, entry);
  }
}

test('a complete log is verified, its head is printed, and a stored head detects truncation', async () => {
  assert.match((await trellis('audit', 'verify')).stdout, /^head 0:0{64}$/m);
  await write(5);
  await chainAll(database.db);
  await write(2);
  const whole = await trellis('audit', 'verify');
  assert.equal(whole.code, 0, whole.stderr);
  assert.match(whole.stdout, /^5 entries are unchanged$/m);
  assert.match(whole.stdout, /^2 newer entries are not in the chain yet/m);
  const [, head = ''] = /^head (5:[0-9a-f]{64})$/m.exec(whole.stdout) ?? [];
  await chainAll(database.db);
  assert.equal((await trellis('audit', 'verify', '--head', head)).code, 0);

  await asOwnerOfAudit(database.db, [
    'delete from audit where position > 3',
    `update sequencer set last_position = 3, chain = (select chain from audit where position = 3) where name = 'audit'`,
  ]);
  assert.equal((await trellis('audit', 'verify')).code, 0);
  const cut = await trellis('audit', 'verify', `--head=${head}`);
  assert.equal(cut.code, 1);
  assert.match(cut.stderr, /the audit log was changed, at position 4 \(removed\)/);
});

test('the first broken place is named, and the command fails', async () => {
  await asOwnerOfAudit(database.db, [`update audit set actor = 'somebody else' where position = 2`]);
  const broken = await trellis('audit', 'verify');
  assert.equal(broken.code, 1);
  assert.match(broken.stderr, /at position 2 \(changed\)/);
  assert.match(broken.stderr, /^1 entry before that position is unchanged$/m);
  assert.doesNotMatch(broken.stdout, /head/);
});

test('an unknown command and an invalid head are reported', async () => {
  for (const args of [
    ['audit'],
    ['audit', 'prove'],
    ['audit', 'verify', '--head', '5'],
    ['audit', 'verify', 'x'],
  ]) {
    const { code, stderr } = await trellis(...args);
    assert.equal(code, 2);
    assert.match(stderr, /trellis audit|after "head"/);
  }
});
