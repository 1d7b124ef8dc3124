// Slow: it rotates the keys of a running service.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { runCommand } from '../support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../support/database.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

const newKey = (id: string) => `${id}:${randomBytes(32).toString('base64')}`;
const integration = 'notes';

let dir: string;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'trellis-rotation-'));
});
after(() => rm(dir, { recursive: true, force: true }));

async function makeConnection(service: RunningService, id: string): Promise<void> {
  await service.call('POST', '/connections', {
    body: {
      provider_config_key: integration,
      connection_id: id,
      credentials: { type: 'API_KEY', apiKey: `secret-of-${id}` },
    },
  });
  await service.call('POST', '/records', {
    headers: { 'provider-config-key': integration, 'connection-id': id },
    body: { model: 'Note', records: [{ id: 'one', of: id }] },
  });
}

async function makeIntegration(service: RunningService): Promise<void> {
  await service.call('POST', '/integrations', {
    body: {
      unique_key: integration,
      provider: 'private-api-key',
      integration_config: { base_url: 'https://notes.invalid' },
    },
  });
}

/** Its credentials and its one record. */
async function read(service: RunningService, id: string): Promise<unknown> {
  const found = (await service.call('GET', `/connections/${id}?provider_config_key=${integration}`)) as {
    credentials: { apiKey: string };
  };
  const page = (await service.call('GET', '/records?model=Note', {
    headers: { 'provider-config-key': integration, 'connection-id': id },
  })) as { records: { of: string }[] };
  return [found.credentials.apiKey, page.records.map((record) => record.of)];
}

test('a generated master key is rotated out of its file, and the commands say how far it is', async () => {
  const dataDir = join(dir, 'embedded');
  const path = join(dataDir, 'master.key');
  const env = { DATA_DIR: dataDir, PORT: '0', TRELLIS_SANDBOX: 'off' };
  const start = () => startRunningService({ dataDir, env: { TRELLIS_SANDBOX: 'off' } });
  const says = async (...args: string[]) => {
    const { code, stdout, stderr } = await runCommand(['keys', ...args], env);
    assert.deepEqual([code, stderr], [0, '']);
    return stdout;
  };

  let service = await start();
  await makeIntegration(service);
  await makeConnection(service, 'ada');
  await service.stop();
  const old = (await readFile(path, 'utf8')).trim();
  const [oldId] = old.split(':');
  const young = newKey('young');
  await writeFile(path, `${young},${old}\n`);

  // Nodes that were not restarted could read nothing that it wraps.
  for (const options of [[], ['--dry-run']]) {
    const early = await runCommand(['keys', 'rotate', ...options], env);
    assert.equal(early.code, 1);
    assert.match(early.stderr, /No node was started with "young" as the first master key yet/);
  }
  service = await start();
  await makeConnection(service, 'bob');
  assert.match(await says('list'), new RegExp(`^${oldId} +4  listed\nyoung +1  seals$`, 'm'));
  assert.match(
    await says('rotate', '--dry-run'),
    new RegExp(`^4 data keys of ${oldId} would be wrapped by young\nnothing was changed$`, 'm'),
  );
  assert.match(
    await says('rotate'),
    new RegExp(
      `^(?:\\d of 4 data keys rewrapped\n)+4 data keys rewrapped: young wraps them now\n` +
        `${oldId} wraps no data key any more: it is retired and can be removed from the settings\n` +
        `older files of keys still need ${oldId}: write a new one with "trellis keys export FILE"\n$`,
    ),
  );
  assert.match(await says('rotate'), /^0 data keys rewrapped: young wraps them now\n$/);
  const { operations } = (await service.call('GET', '/operations?type=key_rotation')) as {
    operations: { status: string; details: object }[];
  };
  assert.deepEqual(
    operations.map(({ status, details }) => [status, details]),
    [
      ['success', { master_key: 'young', rewrapped: 0, retired: 0 }],
      ['success', { master_key: 'young', rewrapped: 4, retired: 1 }],
      ['failed', { master_key: 'young', rewrapped: 0, retired: 0 }],
    ],
  );
  assert.match(
    await says('list'),
    new RegExp(`^${oldId} +0  retired .*, can be removed\nyoung +5  seals$`, 'm'),
  );
  assert.deepEqual(await read(service, 'ada'), ['secret-of-ada', ['ada']]);
  await service.stop();

  await writeFile(path, `${young}\n`);
  service = await start();
  for (const id of ['ada', 'bob']) assert.deepEqual(await read(service, id), [`secret-of-${id}`, [id]]);
  await service.stop();

  const refusals: [string, RegExp][] = [
    [newKey('young'), /"young" is not the key that was used before/],
    [`${young},${newKey(String(oldId))}`, /is not the key that was used before/],
    [old, /"young" is missing/],
  ];
  for (const [text, word] of refusals) {
    await writeFile(path, `${text}\n`);
    const { code, stderr } = await runCommand(['start'], env);
    assert.equal(code, 1);
    assert.match(stderr, word);
  }
});

test('a master key that is dropped too early stops the next node, while the others go on', async () => {
  const database = await openTestDatabase();
  const [old, young] = [newKey('old'), newKey('young')];
  const env = {
    DATABASE_URL: urlOf(database.target),
    TRELLIS_SANDBOX: 'off',
    TRELLIS_SECRET_KEY: `rotation_${randomBytes(20).toString('hex')}`,
  };
  const service = await startRunningService({ env: { ...env, TRELLIS_ENCRYPTION_KEYS: old } });
  try {
    await makeIntegration(service);
    const commands = [['start'], ['keys', 'rotate']];
    for (const args of commands) {
      const refused = await runCommand(args, {
        ...env,
        TRELLIS_ENCRYPTION_KEYS: young,
        DATA_DIR: join(dir, 'refused'),
        PORT: '0',
      });
      assert.equal(refused.code, 1, args.join(' '));
      assert.match(refused.stderr, /The master key "old" is missing/);
      for (const text of [old, young])
        assert.ok(!(refused.stdout + refused.stderr).includes(text.split(':')[1]!));
    }
    await makeConnection(service, 'ada');
    assert.deepEqual(await read(service, 'ada'), ['secret-of-ada', ['ada']]);
  } finally {
    await service.stop();
    await database.drop();
  }
});

test("yesterday's data with today's key file gives every connection but the deleted one", async () => {
  const database = await openTestDatabase();
  const [old, young] = [newKey('old'), newKey('young')];
  const secret = `rotation_${randomBytes(20).toString('hex')}`;
  const file = join(dir, 'today.keys');
  const settings = ({ target }: TestDatabase, ...ring: string[]) => ({
    DATABASE_URL: urlOf(target),
    TRELLIS_ENCRYPTION_KEYS: ring.join(','),
    TRELLIS_SANDBOX: 'off',
    TRELLIS_SECRET_KEY: secret,
    DATA_DIR: join(dir, 'drill'),
    PORT: '0',
  });
  const opened = [database];
  let service: RunningService | undefined;
  const start = async (...given: Parameters<typeof settings>) => {
    const { DATA_DIR: _, PORT: __, ...env } = settings(...given);
    service = await startRunningService({ env });
    return service;
  };
  const stop = async () => {
    const stopped = service?.stop();
    service = undefined;
    await stopped;
  };
  try {
    const first = await start(database, old);
    await makeIntegration(first);
    for (const id of ['kept', 'doomed']) await makeConnection(first, id);
    await stop();
    await database.db.query("update connection set created_at = created_at - interval '1 day'");

    // What a dump without the rows of data_key brings back, and what a dump of everything does.
    const data = await database.copy();
    opened.push(data);
    await data.db.query('truncate data_key');
    const whole = await database.copy();
    opened.push(whole);

    const today = await start(database, young, old);
    await today.call('DELETE', `/connections/doomed?provider_config_key=${integration}`);
    await makeConnection(today, 'later');
    assert.equal((await runCommand(['keys', 'rotate'], settings(database, young, old))).code, 0);
    const written = await runCommand(['keys', 'export', file], settings(database, young));
    assert.match(written.stdout, /^5 wrapped data keys written/);
    await stop();

    const keyless = await runCommand(['start'], settings(data, old));
    assert.match(keyless.stderr, /data key of "dev", "prod" is missing/);

    for (const backup of [data, whole]) {
      const restored = await runCommand(['keys', 'restore', file], settings(backup, young));
      assert.deepEqual([restored.code, restored.stderr], [0, '']);
      assert.equal(
        restored.stdout,
        '1 connections have their data key\n1 connections were deleted after this backup and are deleted again\n  dev/notes/doomed\n',
      );
      const back = await start(backup, young);
      assert.deepEqual(await read(back, 'kept'), ['secret-of-kept', ['kept']]);
      for (const id of ['doomed', 'later']) await assert.rejects(read(back, id), /404 .*not_found/);
      await stop();
      const rows = await backup.db.query(
        'select master_key as key, count(*) as count from data_key group by master_key',
      );
      assert.deepEqual(rows, [{ key: 'young', count: 4 }]);
    }
  } finally {
    await stop();
    for (const { drop } of opened.reverse()) await drop();
  }
});

test('a key file that is older than the data takes nothing from them, and one of another installation is refused', async () => {
  const database = await openTestDatabase();
  const other = await openTestDatabase();
  const key = newKey('only');
  const env = {
    DATABASE_URL: urlOf(database.target),
    TRELLIS_ENCRYPTION_KEYS: key,
    TRELLIS_SANDBOX: 'off',
    TRELLIS_SECRET_KEY: `rotation_${randomBytes(20).toString('hex')}`,
  };
  const file = join(dir, 'older.keys');
  const service = await startRunningService({ env });
  try {
    await makeIntegration(service);
    await runCommand(['keys', 'export', file], env);
    await makeConnection(service, 'ada');

    const older = await runCommand(['keys', 'restore', file], env);
    assert.equal(older.code, 0);
    assert.match(
      older.stdout,
      /^1 connections have .*\n1 of them were created after the file, and keep the key/,
    );
    assert.deepEqual(await read(service, 'ada'), ['secret-of-ada', ['ada']]);

    const foreign = { ...env, DATABASE_URL: urlOf(other.target) };
    const second = await startRunningService({ env: foreign });
    await second.stop();
    const refused = await runCommand(['keys', 'restore', file], foreign);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /belongs to another installation/);
    const lacking = await runCommand(['keys', 'restore', file], {
      ...env,
      TRELLIS_ENCRYPTION_KEYS: newKey('unknown'),
    });
    assert.match(lacking.stderr, /The master key "only" is missing/);
  } finally {
    await service.stop();
    await database.drop();
    await other.drop();
  }
});
