// Slow: it kills a service while a provider creates a subscription, and waits for the jobs of the next minutes.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { startSubscriptions } from '../../sandbox/profiles/subscriptions.ts';
import { openEmptyDatabase, type TestDatabase, urlOf } from '../support/database.ts';
import { deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

const publicUrl = 'https://hooks.acme.dev';
let bench: TestDatabase;
let provider: Awaited<ReturnType<typeof startSubscriptions>>;
let providers: string;
let settings: Record<string, string>;
let service: RunningService;

before(async () => {
  bench = await openEmptyDatabase();
  provider = await startSubscriptions({
    now: () => new Date(),
    reach: (address) => address.replace(publicUrl, service.baseUrl),
  });
  providers = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  const base = `${provider.origin}/graph.microsoft.com/v1.0`;
  await writeFile(
    join(providers, 'mail-test.yaml'),
    `extends: microsoft-graph\nlogo: microsoft-graph.svg\nchannels: { base_url: ${base} }\n`,
  );
  settings = {
    DATABASE_URL: urlOf(bench.target),
    TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
    TRELLIS_SANDBOX: 'off',
    TRELLIS_PROVIDERS_DIR: providers,
    TRELLIS_WEBHOOK_BASE_URL: publicUrl,
    TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128',
  };
  service = await startRunningService({ env: settings });
});
after(async () => {
  await service?.stop();
  await provider?.stop();
  await bench?.drop();
  await rm(providers, { recursive: true });
});

async function done(method: string, path: string, body: object, { baseUrl, secretKey } = service) {
  const headers = { authorization: `Bearer ${secretKey}`, 'content-type': 'application/json' };
  const answer = await fetch(baseUrl + path, { method, headers, body: JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${answer.status} ${text}`);
}
async function until(isSo: () => boolean | Promise<boolean>, what: string): Promise<void> {
  // A job runs each minute.
  for (let left = 1500; !(await isSo()); left--) {
    assert.ok(left > 0, what);
    await pause(100);
  }
}
const list = () => provider.subscriptions.list;
const received = () => bench.db.query(`select from event where type = 'webhook.received'`);

test('kill -9 between the creation of a subscription and its record leaves one that has no effect and is deleted', async () => {
  await done('POST', '/integrations', {
    provider: 'mail-test',
    unique_key: 'mail',
    integration_config: { tenant: 'common' },
    credentials: { type: 'OAUTH2', client_id: 'client', client_secret: 'secret-of-the-client' },
  });
  await done('POST', '/connections', {
    provider_config_key: 'mail',
    connection_id: 'ada',
    credentials: {
      type: 'OAUTH2',
      access_token: 'token',
      refresh_token: 'refresh-token',
      expires_at: new Date(Date.now() + 86_400_000).toISOString(),
    },
    metadata: { subscriptionResource: 'me/messages' },
  });
  const code = syncCode({ more: "webhookSubscriptions: ['*']," });
  const flow = flowConfig({ name: 'mails', integration: 'mail', type: 'sync', code });
  await done('POST', '/sync/deploy', deployBody([flow]));
  provider.subscriptions.mode = 'lose';
  await until(() => list().length === 1, 'no subscription was created');
  process.kill(service.pid, 'SIGKILL');
  await service.exited;
  const lost = list()[0]!;
  provider.subscriptions.mode = 'work';
  const { dataDir, secretKey } = service;
  service = { ...(await startRunningService({ dataDir, env: settings })), secretKey };
  // The two minutes pass that the killed node had for its work.
  await bench.db.query(`update watch set next_at = now()`);
  await bench.db.query(`update channel set asked_at = asked_at - interval '3 minutes'`);
  await until(() => list().length === 2, 'no second subscription was created');
  await until(
    async () => (await bench.db.query(`select from channel where state = 'open'`)).length === 1,
    'the second subscription is not open',
  );
  assert.equal(await provider.subscriptions.notify(lost), 404);
  assert.equal((await received()).length, 0);
  const used = list().find((one) => one !== lost)!;
  assert.equal(await provider.subscriptions.notify(used), 200);
  assert.equal((await received()).length, 1, 'the change is delivered once');
  await until(() => !list().includes(lost), 'the lost subscription was not deleted');
  assert.deepEqual(list(), [used]);
});
