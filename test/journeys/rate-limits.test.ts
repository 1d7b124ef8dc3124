import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect as connectSocket } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** How often one may call, and how much may be sent: what docs/operations/limits.md says. */
let trellis: TestTrellis;
let place: Record<string, string>;
before(async () => {
  trellis = await openTrellis({
    TRELLIS_TRUSTED_PROXIES: '127.0.0.1/32',
    TRELLIS_ADDRESS_RATE_LIMIT: '10',
    TRELLIS_BODY_MEMORY_MB: '40',
  });
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'sheets' },
  });
  await trellis.control('POST', 'accounts', { email: 'ada@example.com' });
  ({ headers: place } = await connect(trellis, { integration: 'sheets', account: 'ada@example.com' }));
});
after(() => trellis.close());

async function keyWith(rateLimit: number): Promise<{ id: number; secret: string }> {
  const { body, text } = await trellis.call('POST', '/environment/api-keys', {
    body: { name: 'limited', scopes: ['*'], rate_limit: rateLimit },
  });
  const made = body.data as { id: number; secret: string; rate_limit: number };
  assert.equal(made.rate_limit, rateLimit, text);
  trellis.watch.made('key', made.secret);
  return made;
}

const read = (key: string) => trellis.call('GET', '/proxy/v4/spreadsheets/none', { key, headers: place });

test('a key with a limit gets the remaining requests, and beyond the limit a retry time', async () => {
  const { secret: key } = await keyWith(3);
  const left: (string | null)[] = [];
  for (let at = 0; at < 3; at++) {
    const answer = await trellis.call('GET', '/integrations', { key });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('ratelimit-policy'), '"key";q=3;w=60');
    left.push(answer.headers.get('ratelimit'));
  }
  for (const [at, reported] of left.entries()) {
    const [, calls, seconds] = /^"key";r=(\d);t=(\d+)$/.exec(String(reported)) ?? [];
    assert.equal(Number(calls), 2 - at);
    assert.ok(Number(seconds) > 0 && Number(seconds) <= 20 * (at + 1), String(reported));
  }
  const refused = await trellis.call('GET', '/integrations', { key });
  assert.equal(refused.status, 429);
  assert.equal((refused.body.error as { code: string }).code, 'too_many_requests');
  const seconds = Number(refused.headers.get('retry-after'));
  assert.ok(seconds > 0 && seconds <= 20, String(seconds));
  assert.equal(refused.headers.get('ratelimit'), `"key";r=0;t=${seconds}`);
  // Others have their own.
  const other = await trellis.call('GET', '/integrations');
  assert.equal(other.status, 200);
  assert.equal(other.headers.get('ratelimit'), null);
});

test('calls through the proxy and those of tickets count, and are refused in the format of the client', async () => {
  const { id, secret: key } = await keyWith(3);
  const ticket = await trellis.call('POST', '/tickets', {
    key,
    body: {
      provider_config_key: 'sheets',
      connection_id: place['connection-id'],
      methods: ['GET'],
      paths: ['/v4/**'],
    },
  });
  const { ticket: token } = ticket.body.data as { ticket: string };
  trellis.watch.made('ticket', token);
  const first = await read(key);
  assert.equal(first.status, 404);
  // The provider's answer is as it came.
  assert.equal(first.headers.get('ratelimit'), null);
  assert.equal((await read(token)).status, 404);
  // The node forgets the connection, which a cached call would need.
  const changed = await trellis.call('PATCH', '/integrations/sheets', { body: { display_name: 'Sheets' } });
  assert.equal(changed.status, 200, changed.text);
  for (const secret of [key, token]) {
    const refused = await read(secret);
    assert.equal(refused.status, 429);
    assert.equal(refused.headers.get('x-trellis-error'), 'too_many_requests');
    assert.ok(Number(refused.headers.get('retry-after')) > 0);
    assert.match(String(refused.headers.get('ratelimit')), /^"key";r=0;t=\d+$/);
    const { error } = refused.body as { error: { status: string; details: { reason: string }[] } };
    assert.equal(error.status, 'RESOURCE_EXHAUSTED');
    assert.equal(error.details[0]?.reason, 'TOO_MANY_REQUESTS');
  }
  // No row is written for what is refused by the thousand.
  const { body } = await trellis.call('GET', '/operations?type=proxy&limit=100');
  const ofKey = (body.operations as { actor: string; error_code?: string }[]).filter(
    ({ actor, error_code }) => actor === `key:${id}` && error_code === 'too_many_requests',
  );
  assert.deepEqual(ofKey, []);
});

test('errors about an integration that was deleted no longer have the format of its provider', async () => {
  const made = await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'old-sheets' },
  });
  assert.equal(made.status, 200, made.text);
  const { headers } = await connect(trellis, { integration: 'old-sheets', account: 'ada@example.com' });
  const { secret: key } = await keyWith(3);
  const ask = () => trellis.call('GET', '/proxy/v4/spreadsheets/none', { key, headers });
  assert.equal((await ask()).status, 404);
  for (const path of [
    `/connections/${headers['connection-id']}?integration_id=old-sheets`,
    '/integrations/old-sheets',
  ])
    assert.equal((await trellis.call('DELETE', path)).status, 200, path);
  const refused = [await ask(), await ask(), await ask()];
  assert.deepEqual(
    refused.map(({ status, body }) => [status, (body.error as { code: unknown }).code]),
    [
      [404, 'unknown_provider_config'],
      [404, 'unknown_provider_config'],
      [429, 'too_many_requests'],
    ],
  );
});

type Answer = Awaited<ReturnType<typeof trellis.call>>;
type Call = typeof trellis.call;
const change = (id: number, body: object, { key, call = trellis.call }: { key?: string; call?: Call } = {}) =>
  call('PATCH', `/environment/api-keys/${id}`, { body, ...(key !== undefined && { key }) });
const make = (key: string, body: object, call: Call = trellis.call) =>
  call('POST', '/environment/api-keys', { key, body: { name: 'given', scopes: ['*'], ...body } });
const madeBy = ({ status, text, body }: Answer) => {
  assert.equal(status, 201, text);
  const made = body.data as { id: number; secret: string };
  trellis.watch.made('key', made.secret);
  return made;
};
const limitOf = async (id: number) => {
  const { body } = await trellis.call('GET', '/environment/api-keys');
  return (body.data as { id: number; rate_limit: number | null }[]).find((key) => key.id === id)?.rate_limit;
};

test('a limit is changed while it is used, and used requests stay counted', async () => {
  const { id, secret: key } = await keyWith(2);
  const calls = () => trellis.call('GET', '/integrations', { key });
  assert.deepEqual([(await calls()).status, (await calls()).status, (await calls()).status], [200, 200, 429]);
  assert.equal((await change(id, { rate_limit: 3 })).status, 200);
  const refused = await calls();
  assert.deepEqual([refused.status, refused.headers.get('ratelimit-policy')], [429, '"key";q=3;w=60']);
  for (const wrong of [0, -1, 1.5, '5', 1_000_001])
    assert.equal((await change(id, { rate_limit: wrong })).status, 400, String(wrong));
  assert.equal((await change(id, { rate_limit: null })).status, 200);
  assert.equal((await calls()).headers.get('ratelimit'), null);
});

test('a key with a rate limit cannot create or change keys, and may revoke them', async () => {
  const { id, secret: key } = await keyWith(10_000);
  const other = madeBy(await make(trellis.keys.dev, {}));
  const refused = [
    await make(key, {}),
    await make(key, { rate_limit: 1 }),
    await change(id, { rate_limit: 1 }, { key }),
    await change(id, { rate_limit: null }, { key }),
    await change(other.id, { name: 'renamed' }, { key }),
  ];
  for (const { status, text } of refused) {
    assert.equal(status, 403, text);
    assert.match(text, /A key with a rate limit cannot create or change keys/);
  }
  assert.equal(await limitOf(id), 10_000);
  assert.equal((await trellis.call('DELETE', `/environment/api-keys/${other.id}`, { key })).status, 200);
  // A key without a limit sets any.
  assert.equal((await change(id, { rate_limit: 20_000 })).status, 200);
  assert.equal((await change(id, { rate_limit: null })).status, 200);
  madeBy(await make(key, { rate_limit: 1_000_000 }));
});

test('a limit that a key has just been given counts at once, on a node that has not read it yet too', async () => {
  const { id, secret: key } = madeBy(await make(trellis.keys.dev, {}));
  const other = await trellis.serveAnother();
  try {
    assert.equal((await other.call('GET', '/integrations', { key })).status, 200);
    assert.equal((await change(id, { rate_limit: 600 })).status, 200);
    assert.equal((await make(key, {}, other.call)).status, 403);
  } finally {
    await other.close();
  }
});

test('TRELLIS_RATE_LIMIT is the limit of a key that has none of its own, also when it creates keys', async () => {
  const limited = await trellis.serveAnother({ TRELLIS_RATE_LIMIT: '600' });
  try {
    const { call } = limited;
    const { id, secret: key } = madeBy(await make(trellis.keys.dev, {}));
    assert.equal((await make(key, { rate_limit: 1 }, call)).status, 403);
    assert.equal((await change(id, { rate_limit: 1 }, { key, call })).status, 403);
    // The setting is that of one node.
    madeBy(await make(key, {}));
  } finally {
    await limited.close();
  }
});

test('two nodes count the calls of a key together', async () => {
  const { secret: key } = await keyWith(6);
  const other = await trellis.serveAnother();
  try {
    for (let at = 0; at < 6; at++)
      assert.equal((await other.call('GET', '/integrations', { key })).status, 200);
    // It learns of them with its next share.
    for (;;) {
      const answer = await trellis.call('GET', '/integrations', { key });
      if (answer.status === 429) break;
      await sleep(100);
    }
    assert.equal((await other.call('GET', '/integrations', { key })).status, 429);
  } finally {
    await other.close();
  }
});

test('requests without a key are counted by address, if the address is public', async () => {
  const from = (address: string, path = '/users/sign-in') =>
    fetch(trellis.baseUrl + path, { headers: { 'x-forwarded-for': address } });
  const answers = await Promise.all(Array.from({ length: 10 }, () => from('9.9.9.9')));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  const refused = await from('9.9.9.9');
  assert.equal(refused.status, 429);
  assert.match(String(refused.headers.get('ratelimit')), /^"address";r=0;t=\d$/);
  assert.match(await refused.text(), /too_many_requests/);
  // A page says so as well, to whom it says it.
  assert.equal((await from('9.9.9.9', '/oauth/callback?state=x')).status, 429);
  // As many addresses as one pleases are one.
  for (let at = 0; at < 10; at++) await from(`2606:4700::${at}`);
  assert.equal((await from('2606:4700::ffff')).status, 429);
  for (const address of ['9.9.9.8', '2606:4700:0:1::1', '10.0.0.1', '127.0.0.1'])
    assert.equal((await from(address)).status, 200, address);
  assert.equal((await from('9.9.9.9', '/health')).status, 200);
  assert.equal((await from('9.9.9.9', '/webhook/dev/none')).status, 404);
});

test('made-up keys count for the address, and are looked up no more beyond its limit; a good key behind it is served on', async () => {
  const { id, secret: key } = await keyWith(1_000);
  const ask = async (address: string, shown: string, path = '/integrations') => {
    const headers = { ...place, authorization: `Bearer ${shown}`, 'x-forwarded-for': address };
    const answer = await fetch(trellis.baseUrl + path, { headers });
    await answer.arrayBuffer();
    return answer;
  };
  const madeUp = () => `trs_dev_${crypto.randomUUID().repeat(2)}`;
  assert.equal((await ask('8.8.8.8', key)).status, 200);
  const answers = await Promise.all(Array.from({ length: 30 }, () => ask('8.8.8.8', madeUp())));
  const statuses = answers.map(({ status }) => status);
  assert.deepEqual(new Set(statuses), new Set([401, 429]));
  /** One call fits in every six seconds. */
  const refusedAt = async (path: string, shown = madeUp()) => {
    for (;;) {
      const answer = await ask('8.8.8.8', shown, path);
      if (answer.status !== 401) return answer;
    }
  };
  for (const path of ['/integrations', '/proxy/v4/spreadsheets/none']) {
    const refused = await refusedAt(path);
    assert.equal(refused.status, 429, path);
    assert.ok(Number(refused.headers.get('retry-after')) > 0, path);
    assert.match(String(refused.headers.get('ratelimit')), /^"address";r=0;t=\d+$/, path);
  }
  const ticket = `trt_999_${'x'.repeat(80)}.y`;
  assert.equal((await refusedAt('/proxy/v4/spreadsheets/none', ticket)).status, 429);
  // The node forgets the key's row, and still knows that the key is valid.
  assert.equal((await change(id, { name: 'renamed' })).status, 200);
  assert.equal((await ask('8.8.8.8', key)).status, 200);
  assert.equal((await ask('8.8.8.8', key, '/proxy/v4/spreadsheets/none')).status, 404);
  for (const address of ['8.8.4.4', '10.0.0.1']) assert.equal((await ask(address, madeUp())).status, 401);
});

test('a compressed body is refused unread', async () => {
  const bomb = gzipSync(Buffer.alloc(50 * 1024 * 1024, ' '));
  for (const coding of ['gzip', 'br', 'GZIP', 'zstd, gzip']) {
    const answer = await fetch(`${trellis.baseUrl}/integrations`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${trellis.keys.dev}`,
        'content-type': 'application/json',
        'content-encoding': coding,
      },
      body: bomb,
    });
    assert.equal(answer.status, 415, coding);
    assert.equal(answer.headers.get('accept-encoding'), 'identity');
    assert.match(await answer.text(), /invalid_content_type/);
  }
});

test('large bodies beyond the memory limit get a retry time, small ones are accepted', async () => {
  const port = Number(new URL(trellis.baseUrl).port);
  const mb = 1024 * 1024;
  /** The head of a save, and what is answered to it: 100 where it is admitted. */
  const begin = async (bytes: number) => {
    const socket = connectSocket(port, '127.0.0.1').on('error', () => {});
    await once(socket, 'connect');
    const lines = [
      'POST /records HTTP/1.1',
      'Host: a',
      `Authorization: Bearer ${trellis.keys.dev}`,
      ...Object.entries(place).map(([name, value]) => `${name}: ${value}`),
      'Content-Type: application/json',
      `Content-Length: ${bytes}`,
      'Expect: 100-continue',
      '',
      '',
    ];
    socket.write(lines.join('\r\n'));
    const [said] = (await once(socket, 'data')) as [Buffer];
    return { socket, status: String(said).slice(9, 12) };
  };
  const announced = [await begin(31 * mb), await begin(31 * mb), await begin(31 * mb)];
  assert.deepEqual(new Set(announced.map(({ status }) => status)), new Set(['100']));
  const { socket: held } = announced[0]!;
  try {
    const large = { model: 'Thing', records: ['1', '2'].map((id) => ({ id, text: 'x'.repeat(7 * mb) })) };
    const save = (body: object) => trellis.call('POST', '/records', { headers: place, body });
    // What is announced and does not come takes nothing.
    assert.equal((await save(large)).status, 200);
    held.write(Buffer.alloc(30 * mb, '"'));
    for (let status = '100'; status === '100'; ) {
      const next = await begin(14 * mb);
      next.socket.destroy();
      status = next.status;
    }
    const refused = await save(large);
    assert.equal(refused.status, 503);
    assert.equal((refused.body.error as { code: string }).code, 'overloaded');
    assert.equal(refused.headers.get('retry-after'), '1');
    assert.equal((await save({ model: 'Thing', records: [{ id: '2' }] })).status, 200);
    held.destroy();
    while ((await save(large)).status === 503) await sleep(20);
  } finally {
    for (const { socket } of announced) socket.destroy();
  }
});

test('bodies may be as long as the documents say, and not a byte longer', async () => {
  const page = await readFile(join(import.meta.dirname, '../../docs/operations/limits.md'), 'utf8');
  const rows = [...page.matchAll(/^\| (?:`(POST|PATCH) (\S+)`|any other) \| (\d+) MB \|$/gm)];
  assert.equal(rows.length, 8);
  const port = Number(new URL(trellis.baseUrl).port);
  /** What is answered to the head of such a request; its body does not come. */
  const answerTo = async (method: string, path: string, bytes: number) => {
    const socket = connectSocket(port, '127.0.0.1').on('error', () => {});
    const lines = [
      `${method} ${path} HTTP/1.1`,
      'Host: a',
      `Authorization: Bearer ${trellis.keys.dev}`,
      ...Object.entries(place).map(([name, value]) => `${name}: ${value}`),
      'Content-Type: application/json',
      `Content-Length: ${bytes}`,
      'Expect: 100-continue',
      '',
      '',
    ];
    socket.write(lines.join('\r\n'));
    const [said] = (await once(socket, 'data')) as [Buffer];
    const closed = once(socket, 'close');
    socket.destroy();
    await closed;
    return String(said).slice(9, 12);
  };
  for (const [, method = 'POST', path = '/integrations', said] of rows) {
    const bytes = Number(said) * 1024 * 1024;
    const url = path.replace('{environment}', 'dev').replace('{key}', 'sheets');
    const longest = await answerTo(method, url, bytes);
    assert.equal(longest, '100', `${method} ${path}: ${longest}`);
    const longer = await answerTo(method, url, bytes + 1);
    assert.equal(longer, '413', `${method} ${path}: ${longer}`);
  }
});
