// Events to a receiver, by a service that runs as a process of its own and is stopped half-way.
// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ok, openReceiver, type Receiver, silent } from '../../server/deliveries/deliveries.fixture.ts';
import { openTestDatabase, type TestDatabase } from '../support/database.ts';
import { type RunningService, settingsFor, startRunningService } from '../support/service.ts';

let dataDir: string;
let database: TestDatabase;
let settings: ReturnType<typeof settingsFor>;
let receiver: Receiver;
before(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'trellis-deliveries-'));
  database = await openTestDatabase();
  settings = settingsFor(database);
  receiver = await openReceiver(silent);
});
after(async () => {
  await receiver.close();
  await database.drop();
  await rm(dataDir, { recursive: true, force: true });
});

const start = () =>
  startRunningService({
    dataDir,
    env: { ...settings, TRELLIS_OUTBOUND_ALLOW: 'endpoints=127.0.0.1' },
  });
const raise = (service: RunningService, id: string) =>
  service.call('POST', '/connections', {
    body: {
      provider_config_key: 'private',
      connection_id: id,
      credentials: { type: 'API_KEY', apiKey: 'secret-of-the-provider' },
    },
  });
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await sleep(10);
}
const idsOf = (connection: string) =>
  receiver.got.filter((one) => one.connection === connection).map(({ id }) => id);

test('what a service was sending when it stopped is sent again by the next one, under the same id', async () => {
  let service = await start();
  await service.call('POST', '/integrations', {
    body: {
      unique_key: 'private',
      provider: 'private-api-key',
      integration_config: { base_url: 'https://receiver.invalid' },
    },
  });
  await service.call('POST', '/events/endpoints', { body: { url: receiver.url } });
  await raise(service, 'ada');
  await until(() => receiver.got.length === 1);
  assert.equal(await service.stop({ keepData: true }), 0);

  receiver.answers = ok;
  service = await start();
  await raise(service, 'bob');
  await until(() => idsOf('ada').length === 2 && idsOf('bob').length === 1);
  assert.equal(new Set(idsOf('ada')).size, 1);
  const { deliveries } = (await service.call('GET', '/events/deliveries')) as {
    deliveries: { attempts: number }[];
  };
  assert.equal(deliveries.length, 2);
  assert.equal(await service.stop({ keepData: true }), 0);
});
