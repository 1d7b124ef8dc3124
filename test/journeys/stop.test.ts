// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Address, all, Conversation, readReply } from '../conformance/caller.ts';
import { ok, type Provider, startProvider } from '../conformance/provider.ts';
import { openTestDatabase, type TestDatabase } from '../support/database.ts';
import { type RunningService, settingsFor, startRunningService } from '../support/service.ts';

let provider: Provider;
let service: RunningService;
let database: TestDatabase;
let address: Address;
before(async () => {
  provider = await startProvider();
  database = await openTestDatabase();
  service = await startRunningService({
    env: {
      ...settingsFor(database),
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
      TRELLIS_DRAIN_SECONDS: '1',
    },
  });
  await service.call('POST', '/integrations', {
    body: {
      unique_key: 'slow',
      provider: 'private-api-key',
      integration_config: { base_url: `http://127.0.0.1:${provider.port}` },
    },
  });
  await service.call('POST', '/connections', {
    body: {
      provider_config_key: 'slow',
      connection_id: 'slow',
      credentials: { type: 'API_KEY', apiKey: 'secret-of-the-provider' },
    },
  });
  const { hostname, port } = new URL(service.baseUrl);
  const headers = [
    ['authorization', `Bearer ${service.secretKey}`],
    ['provider-config-key', 'slow'],
    ['connection-id', 'slow'],
  ] as const;
  address = { host: hostname, port: Number(port), prefix: '/proxy', headers };
});
after(async () => {
  await provider.close();
  await database.drop();
});

test('a stop lets short proxied answers end with their connections, and breaks off those that stay', async () => {
  provider.play((seen) => {
    if (seen.path === '/idle') seen.write(ok);
    if (seen.path === '/begun') seen.write('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst');
    if (seen.path === '/endless') seen.write('HTTP/1.1 200 OK\r\n\r\nbegun');
  });
  const call = (path: string, version: '1.0' | '1.1' = '1.1') =>
    new Conversation(address, { path, version, keepAlive: true });
  const idle = call('/idle');
  await idle.until((bytes) => bytes.includes('ok'));
  const waiting = call('/waiting');
  const begun = call('/begun');
  const endless = call('/endless');
  const plain = call('/endless', '1.0');
  const wasReset = new Promise((resolve) => plain.socket.once('error', resolve));
  await begun.until((bytes) => bytes.includes('first'));
  for (const talk of [endless, plain]) await talk.until((bytes) => bytes.includes('begun'));
  for (let count = 0; count < 5; count += 1) await provider.next();

  const stopped = service.stop();
  await idle.closed();
  begun.send(address, { path: '/late', keepAlive: true });
  const seenAt = (path: string) => provider.seen.find((seen) => seen.path === path);
  seenAt('/waiting')?.write(ok);
  // When this answer is here, the service has read what was sent before it.
  const last = await waiting.ended();
  seenAt('/begun')?.write('other');
  await provider.next();
  seenAt('/late')?.write(ok);

  assert.deepEqual([last.status, last.body.toString(), last.isWhole], [200, 'ok', true]);
  assert.deepEqual(all(last, 'connection'), ['close']);
  const both = (await begun.closed()).toString('latin1');
  assert.match(both, /\r\n\r\nfirstotherHTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nok$/);
  assert.deepEqual(
    both.match(/connection: [a-z-]+/gi)?.map((line) => line.toLowerCase()),
    ['connection: keep-alive', 'connection: close'],
  );
  assert.equal(readReply(await endless.closed()).isWhole, false);
  assert.equal(((await wasReset) as NodeJS.ErrnoException).code, 'ECONNRESET');
  assert.equal(await stopped, 0);
});
