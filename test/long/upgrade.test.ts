// Slow: it installs the previous release.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { ok, openReceiver, silent } from '../../server/deliveries/deliveries.fixture.ts';
import { runCommand, surroundings } from '../support/command.ts';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';
import { type Installed, installRelease, upgradeFrom } from '../support/previous-release.ts';
import { type RunningService, startRunningService } from '../support/service.ts';
import { upgradeUnderLoad } from './upgrade.ts';

/** Of each test; a busy machine takes longer than the limit of other tests. */
const timeout = 600_000;
let directory: string;
let release: Installed;
before(() => {
  directory = mkdtempSync(join(tmpdir(), 'trellis-previous-'));
  release = installRelease(join(directory, 'release'));
});
after(() => rmSync(directory, { recursive: true }));

test(`two nodes of ${upgradeFrom.slice(0, 7)} become two of this version under load, and a killed migration is repeated`, {
  timeout,
}, async (t) => {
  if (release.missing !== undefined) return t.skip(release.missing);
  const { calls, again, failed } = await upgradeUnderLoad({ main: release.main, count: 3 });
  t.diagnostic(`calls: ${JSON.stringify(calls)}, made again after a 503: ${again}`);
  assert.deepEqual(failed, []);
});

const ticks = `"use strict";
const { z } = require("zod");
exports.default = {
  type: "sync",
  description: "One record more each time.",
  frequency: "every day",
  autoStart: false,
  models: { Tick: z.object({ id: z.string() }) },
  checkpoint: z.object({ n: z.number() }),
  exec: async (trellis) => {
    const n = ((await trellis.getCheckpoint())?.n ?? 0) + 1;
    await trellis.batchSave([{ id: String(n) }], "Tick");
    await trellis.saveCheckpoint({ n });
  },
};
`;
const admin = { email: 'ada@example.com', password: 'correct horse battery' };
const crm = { 'provider-config-key': 'crm', 'connection-id': 'ada' };

type Listed = { id: string; text?: string; _trellis_metadata: { cursor: string; pruned_at: string | null } };
type Key = { data: { id: number; secret: string } };
type Feed = { events: { id: string; type: string; data: { connection_id: string } }[]; next_after: string };

/** What an application and its users do, with a service of any version. */
function application(service: RunningService) {
  const call = <T>(method: string, path: string, body?: unknown) =>
    service.call(method, path, { headers: crm, body }) as Promise<T>;
  const runsOf = async (state: string) =>
    (await call<{ runs: unknown[] }>('GET', `/functions/runs?function=ticks&state=${state}`)).runs.length;
  return {
    call,
    /** All that follows the cursor. */
    async follow(model: string, cursor?: string): Promise<Listed[]> {
      const found: Listed[] = [];
      for (let next: string | null | undefined = cursor; next !== null; ) {
        const query = new URLSearchParams({
          model,
          limit: '40',
          ...(next !== undefined && { cursor: next }),
        });
        const page = await call<{ records: Listed[]; next_cursor: string | null }>(
          'GET',
          `/records?${query}`,
        );
        found.push(...page.records);
        next = page.next_cursor;
      }
      return found;
    },
    /** Triggers the sync until it succeeds: on a busy machine no process may be there for it in time. */
    async runTicks(): Promise<void> {
      const before = await runsOf('succeeded');
      while ((await runsOf('succeeded')) === before) {
        const failed = await runsOf('failed');
        await call('POST', '/sync/trigger', {
          provider_config_key: 'crm',
          connection_id: 'ada',
          syncs: ['ticks'],
        });
        while ((await runsOf('succeeded')) === before && (await runsOf('failed')) === failed) await pause(50);
      }
    },
    /** The way of a user's browser through the connect link of a session; returns what the last page answers. */
    async consent(token: string, account: string): Promise<number> {
      const begun = await fetch(`${service.baseUrl}/oauth/connect/sheets?connect_session_token=${token}`, {
        redirect: 'manual',
      });
      const cookie = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
      const { redirect } = (await service.sandbox('POST', 'authorize', {
        url: begun.headers.get('location'),
        account,
      })) as { redirect: string };
      const landed = await fetch(redirect, { headers: { cookie: cookie.join('; ') }, redirect: 'manual' });
      await landed.arrayBuffer();
      return landed.status;
    },
    async openSession(id: string): Promise<string> {
      const body = { end_user: { id, email: `${id}@example.com` }, allowed_integrations: ['sheets'] };
      const { data } = await call<{ data: { token: string } }>('POST', '/connect/sessions', body);
      return data.token;
    },
    async statusWith(secret: string, method: string, path: string, body?: object): Promise<number> {
      const response = await fetch(service.baseUrl + path, {
        method,
        headers: {
          authorization: `Bearer ${secret}`,
          ...crm,
          ...(body && { 'content-type': 'application/json' }),
        },
        ...(body && { body: JSON.stringify(body) }),
      });
      await response.arrayBuffer();
      return response.status;
    },
    async signIn(): Promise<number> {
      const response = await fetch(`${service.baseUrl}/api/auth/sign-in/email`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', origin: service.baseUrl },
        body: JSON.stringify(admin),
      });
      await response.arrayBuffer();
      return response.status;
    },
    connect: (id: string) =>
      call('POST', '/connections', {
        provider_config_key: 'crm',
        connection_id: id,
        metadata: { of: id },
        credentials: { type: 'API_KEY', apiKey: `secret-of-${id}` },
      }),
    save: (from: number, to: number) =>
      call('POST', '/records', {
        model: 'Note',
        records: Array.from({ length: to - from }, (_, n) => ({
          id: `n${from + n}`,
          text: `text ${from + n}`,
        })),
      }),
    async connectionIds(): Promise<string[]> {
      const { connections } = await call<{ connections: { connection_id: string }[] }>('GET', '/connections');
      return connections.map(({ connection_id }) => connection_id).sort();
    },
  };
}

/** The major version of PostgreSQL that the files of an embedded database have. */
const majorOf = (dataDir: string) => readFileSync(join(dataDir, 'postgres/data/PG_VERSION'), 'utf8').trim();

test(`a data directory and a backup of ${upgradeFrom.slice(0, 7)} work with this version`, {
  timeout,
}, async (t) => {
  if (release.missing !== undefined) return t.skip(release.missing);
  const receiver = await openReceiver();
  t.after(() => receiver.close());
  const dataDir = join(directory, 'data');
  const program = [process.execPath, release.main];
  const env = { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' };
  const running = new Set<RunningService>();
  t.after(async () => {
    for (const service of running) await service.stop();
  });
  const start = async (options: Parameters<typeof startRunningService>[0]) => {
    const service = await startRunningService(options);
    running.add(service);
    return service;
  };
  const stop = async (service: RunningService) => {
    running.delete(service);
    assert.equal(await service.stop(), 0);
  };

  // What the release writes.
  const old = await start({
    dataDir,
    program,
    env: { ...env, TRELLIS_ADMIN_EMAIL: admin.email, TRELLIS_ADMIN_PASSWORD: admin.password },
  });
  const then = application(old);
  await then.call('POST', '/integrations', {
    unique_key: 'crm',
    provider: 'private-api-key',
    integration_config: { base_url: receiver.url },
  });
  await then.call('POST', '/integrations', {
    unique_key: 'sheets',
    provider: 'google-sheet',
    credentials: { type: 'TEST' },
  });
  await then.connect('ada');
  const { spreadsheetId } = (await old.sandbox('POST', 'spreadsheets', {
    account: 'ada@example.com',
    title: 'Plan',
    sheet: 'plan',
    csv: 'name\nAda\n',
  })) as { spreadsheetId: string };
  assert.equal(await then.consent(await then.openSession('ada'), 'ada@example.com'), 200);
  const [sheet = ''] = (await then.connectionIds()).filter((id) => id !== 'ada');
  await then.save(0, 100);
  const notes = await then.follow('Note');
  const [pruned, middle] = [notes[29]!._trellis_metadata.cursor, notes[59]!._trellis_metadata.cursor];
  await then.call('PATCH', '/records/prune', { model: 'Note', until_cursor: pruned });
  await then.call('PUT', '/records/consumers/billing', { model: 'Note', cursor: middle });
  const flows = [
    flowConfig({ name: 'ticks', code: ticks, integration: 'crm', type: 'sync' }),
    flowConfig({ name: 'double', code: actionCode(), integration: 'crm' }),
  ];
  await then.call('POST', '/sync/deploy', deployBody(flows));
  await then.runTicks();
  await then.runTicks();
  const makeKey = (name: string, scopes: string[]) =>
    then.call<Key>('POST', '/environment/api-keys', { name, scopes });
  const [reader, revoked] = [await makeKey('reader', ['records:read']), await makeKey('revoked', ['*'])];
  await then.call('DELETE', `/environment/api-keys/${revoked.data.id}`);
  const feed = await then.call<Feed>('GET', '/events?limit=1000');
  const backups = join(directory, 'backups');
  await promisify(execFile)(process.execPath, [release.main, 'backup', '--to', backups], {
    env: { ...surroundings, ...env, DATA_DIR: dataDir },
  });

  // A delivery that has no answer when the release stops.
  await then.call('POST', '/events/endpoints', { url: receiver.url });
  receiver.answers = silent;
  await then.connect('late');
  const deliveriesOf = (id: string) => receiver.got.filter(({ connection }) => connection === id);
  while (deliveriesOf('late').length === 0) await pause(20);
  await stop(old);
  receiver.answers = ok;

  /** All that the release has written is there, and is used. */
  async function verify(service: RunningService, before: string[]): Promise<void> {
    const now = application(service);
    assert.deepEqual(await now.connectionIds(), before);
    const connection = await now.call<{ metadata: object; credentials: object }>(
      ...(['GET', '/connections/ada?provider_config_key=crm'] as const),
    );
    assert.deepEqual(connection.metadata, { of: 'ada' });
    assert.deepEqual(connection.credentials, { type: 'API_KEY', apiKey: 'secret-of-ada' });

    assert.deepEqual(
      (await now.follow('Note')).map(({ id, text, _trellis_metadata: { pruned_at } }) => [
        id,
        text,
        pruned_at !== null,
      ]),
      notes.map(({ id, text }, index) => (index < 30 ? [id, undefined, true] : [id, text, false])),
    );
    const rest = notes.slice(60).map(({ id }) => id);
    assert.deepEqual(
      (await now.follow('Note', middle)).map(({ id }) => id),
      rest,
    );
    await now.save(100, 110);
    assert.deepEqual(
      (await now.follow('Note', middle)).map(({ id }) => id),
      [...rest, ...Array.from({ length: 10 }, (_, n) => `n${100 + n}`)],
    );
    const consumer = await now.call<{ cursor: string; behind: number }>(
      ...(['GET', '/records/consumers/billing?model=Note'] as const),
    );
    assert.deepEqual([consumer.cursor, consumer.behind], [middle, 50]);
    const again = await now.call<{ counts: { restored: number } }>('POST', '/records', {
      model: 'Note',
      records: [{ id: 'n0', text: 'text 0' }],
    });
    assert.equal(again.counts.restored, 1);

    await now.runTicks();
    assert.deepEqual(
      (await now.follow('Tick')).map(({ id }) => id),
      ['1', '2', '3'],
    );
    const doubled = await now.call('POST', '/action/trigger', { action_name: 'double', input: { n: 21 } });
    assert.deepEqual(doubled, { n: 42 });

    await now.call('POST', '/proxy/notes', { n: 1 });
    // Deliveries of events come to the same receiver.
    const proxied = receiver.got.findLast(({ path }) => path?.endsWith('/notes'));
    assert.match(JSON.stringify(proxied?.headers), /secret-of-ada/);
    const plan = (await service.call('GET', `/proxy/v4/spreadsheets/${spreadsheetId}`, {
      headers: { 'provider-config-key': 'sheets', 'connection-id': sheet },
    })) as { properties: { title: string } };
    assert.equal(plan.properties.title, 'Plan');

    const save = { model: 'Note', records: [{ id: 'x' }] };
    assert.deepEqual(
      await Promise.all([
        now.statusWith(reader.data.secret, 'GET', '/records?model=Note'),
        now.statusWith(reader.data.secret, 'POST', '/records', save),
        now.statusWith(revoked.data.secret, 'GET', '/records?model=Note'),
        now.signIn(),
      ]),
      [200, 403, 401, 200],
    );
    const events = await now.call<Feed>('GET', '/events?limit=1000');
    assert.deepEqual(
      events.events.slice(0, feed.events.length).map(({ id }) => id),
      feed.events.map(({ id }) => id),
    );
    const audit = await runCommand(['audit', 'verify'], { ...env, DATA_DIR: service.dataDir });
    assert.equal(audit.code, 0, audit.stdout + audit.stderr);
  }

  const major = majorOf(dataDir);
  const upgraded = await start({ dataDir, env });
  const now = application(upgraded);
  while (deliveriesOf('late').length < 2) await pause(20);
  assert.equal(new Set(deliveriesOf('late').map(({ id }) => id)).size, 1);
  const next = await now.call<Feed>('GET', `/events?after=${feed.next_after}`);
  assert.deepEqual(
    next.events.filter(({ type }) => type === 'connection.created').map(({ data }) => data.connection_id),
    ['late'],
  );
  await verify(upgraded, [sheet, 'ada', 'late'].sort());
  await stop(upgraded);
  assert.equal(majorOf(dataDir), major);
  t.diagnostic(`the embedded database is of PostgreSQL ${major} before and after`);

  // With what is not part of a backup.
  const restoredDir = join(directory, 'restored');
  mkdirSync(restoredDir, { mode: 0o700 });
  for (const key of ['master.key', 'dev.key']) copyFileSync(join(dataDir, key), join(restoredDir, key));
  cpSync(join(dataDir, 'sandbox'), join(restoredDir, 'sandbox'), { recursive: true });
  const [backup = ''] = readdirSync(backups).filter((name) => /^\d{4}-/.test(name));
  const restore = ['restore', '--from', join(backups, backup)];
  const { code, stdout, stderr } = await runCommand(restore, { ...env, DATA_DIR: restoredDir });
  assert.equal(code, 0, stdout + stderr);
  const restored = await start({ dataDir: restoredDir, env });
  await verify(restored, [sheet, 'ada'].sort());
  await stop(restored);
});
