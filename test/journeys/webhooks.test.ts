import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createConnection, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { placeAll } from '../../server/db/sequencer.ts';
import { openReceiver, type Receiver } from '../../server/deliveries/deliveries.fixture.ts';
import { eventSequence } from '../../server/events/sequence.ts';
import type { WebhookSignature } from '../../server/providers/definition.ts';
import { shippedCatalog } from '../support/catalog.ts';
import { deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let told: Receiver;
let toldInTheOfficialForm: Receiver;
const secret = 'signs-for-the-sender';
const hearing = (subscriptions: string[]) =>
  syncCode({
    more: `webhookSubscriptions: ${JSON.stringify(subscriptions)},
      exec: async () => {},
      onWebhook: async (nango, payload) => {
        await nango.batchSave([{ id: String(payload.id ?? 'none'), payload }], 'Thing');
      },`,
  });

before(async () => {
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.1/32' });
  told = await openReceiver();
  toldInTheOfficialForm = await openReceiver();
  for (const [key, webhook] of [
    ['open', undefined],
    ['signed', secret],
  ] as const) {
    const made = await trellis.call('POST', '/integrations', {
      body: {
        provider: 'unauthenticated',
        unique_key: key,
        integration_config: { base_url: 'https://api.example.com' },
      },
    });
    assert.equal(made.status, 200, made.text);
    if (webhook !== undefined) await setSecret(key, webhook);
    for (const id of ['one', 'two']) {
      const answer = await trellis.call('POST', '/connections', {
        body: {
          provider_config_key: key,
          connection_id: id,
          credentials: { type: 'NONE' },
          tags: { team: id },
        },
      });
      assert.equal(answer.status, 201, answer.text);
    }
  }
  const flows = ['open', 'signed'].flatMap((integration) => [
    flowConfig({ name: 'orders', code: hearing(['order']), integration, type: 'sync' }),
    flowConfig({
      name: 'all',
      code: hearing(['*']).replaceAll('Thing', 'Everything'),
      integration,
      type: 'sync',
    }),
    flowConfig({ name: 'deaf', code: syncCode(), integration, type: 'sync' }),
  ]);
  const answer = await trellis.call('POST', '/sync/deploy', { body: deployBody(flows) });
  assert.equal(answer.status, 200, answer.text);
});
after(async () => {
  await trellis.close();
  await told.close();
  await toldInTheOfficialForm.close();
});

/** What `PATCH /integrations/{key}` takes for providers with a client alone. */
async function setSecret(key: string, value: string): Promise<void> {
  const answer = await trellis.call('PATCH', `/integrations/${key}`, { body: { webhook_secret: value } });
  assert.equal(answer.status, 200, answer.text);
}
const send = async (key: string, body: unknown, headers: Record<string, string> = {}) => {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const answer = await fetch(`${trellis.baseUrl}/webhook/dev/${key}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: text,
  });
  return { status: answer.status, text: await answer.text() };
};
const signature = (body: unknown) => ({
  'x-hub-signature-256': `sha256=${createHmac('sha256', secret)
    .update(typeof body === 'string' ? body : JSON.stringify(body))
    .digest('hex')}`,
});
const idsOf = async (connection: string, model: string, key = 'open') => {
  const answer = await trellis.call('GET', `/records?model=${model}`, {
    headers: { 'connection-id': connection, 'provider-config-key': key },
  });
  return (answer.body.records as { id: string }[]).map(({ id }) => id);
};
const waiting = async () => {
  const [row] = await trellis.db.query<{ count: number }>(
    "select count(*)::int as count from run where kind = 'webhook' and state in ('waiting', 'running')",
  );
  return row!.count;
};
async function settled(): Promise<void> {
  for (let left = 200; (await waiting()) > 0; left--) {
    assert.ok(left > 0, 'runs of webhooks do not end');
    await pause(50);
  }
}

describe('a webhook', () => {
  test('goes to the syncs of its connection that subscribe to its kind, and to no other', async () => {
    assert.deepEqual(await send('open', { connectionId: 'one', type: 'order', id: 1 }), {
      status: 200,
      text: '{"status":"success"}',
    });
    assert.equal((await send('open', { connectionId: 'one', type: 'refund', id: 2 })).status, 200);
    assert.equal((await send('open', { connectionId: 'one', id: 3 })).status, 200);
    await settled();
    assert.deepEqual(await idsOf('one', 'Thing'), ['1']);
    assert.deepEqual((await idsOf('one', 'Everything')).toSorted(), ['1', '2', '3']);
    assert.deepEqual(await idsOf('two', 'Everything'), []);
    assert.deepEqual(await idsOf('one', 'Everything', 'signed'), []);
  });

  test('as a form is read, too', async () => {
    const form = 'connectionId=two&type=order&id=9';
    assert.equal(
      (await send('open', form, { 'content-type': 'application/x-www-form-urlencoded' })).status,
      200,
    );
    await settled();
    assert.deepEqual(await idsOf('two', 'Thing'), ['9']);
  });

  test('for no connection is accepted and does nothing', async () => {
    for (const body of [
      {},
      { connectionId: 'none' },
      { connectionId: { a: 1 } },
      { connectionId: '\0' },
      [],
      1,
      null,
      '{}',
    ])
      assert.equal((await send('open', body)).status, 200, JSON.stringify(body));
    assert.equal(await waiting(), 0);
  });

  test('is in no table in plain text', async () => {
    await send('open', { connectionId: 'one', type: 'order', id: 5, note: 'words-of-the-sender' });
    await settled();
    const rows = await trellis.db.query<{ text: string }>('select run::text as text from run');
    assert.ok(rows.every(({ text }) => !text.includes('words-of-the-sender')));
    const [kept] = await trellis.db.query<{ count: number }>(
      'select count(input)::int as count from run where ended_at is not null',
    );
    assert.equal(kept!.count, 0, 'a body goes with the end of its run');
  });
});

test('where a secret is set nothing unsigned gets in', async () => {
  const body = { connectionId: 'one', type: 'order', id: 1 };
  const before = await idsOf('one', 'Thing', 'signed');
  for (const headers of [{}, { 'x-hub-signature-256': 'sha256=00' }, signature({ ...body, id: 2 })]) {
    const answer = await send('signed', body, headers);
    assert.equal(answer.status, 401);
    assert.match(answer.text, /webhook_refused/);
    assert.ok(!answer.text.includes(secret));
  }
  await settled();
  assert.deepEqual(await idsOf('one', 'Thing', 'signed'), before);
  assert.equal((await send('signed', body, signature(body))).status, 200);
  await settled();
  assert.deepEqual(await idsOf('one', 'Thing', 'signed'), ['1']);
});

test('an unreadable body is a 4xx, and the service continues', async () => {
  const json = 'application/json';
  for (const [body, type] of [
    ['{', json],
    ['', 'text/plain;x'],
    ['{"__proto__":{"polluted":1}}', json],
    [`{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`, json],
    ['<a/>', 'application/xml'],
    ['x', 'no type'],
    ['x'.repeat(5 * 1024 * 1024), json],
    ['x'.repeat(30 * 1024 * 1024), json],
    [Buffer.from([0xff, 0xfe, 0x00]).toString('latin1'), json],
  ] as const) {
    const { status, text } = await send('open', body, { 'content-type': type });
    assert.ok(status < 500, `${body.slice(0, 40)}: ${status} ${text.slice(0, 200)}`);
    if (body !== '') assert.ok(status >= 400, `${body.slice(0, 40)}: ${status} ${text}`);
  }
  const refused = async (init: RequestInit) => {
    const headers = { 'content-type': json, ...(init.headers as Record<string, string>) };
    const answer = await fetch(`${trellis.baseUrl}/webhook/dev/open`, { ...init, method: 'POST', headers });
    return [answer.status, ((await answer.json()) as { error: { code: string } }).error.code];
  };
  const bytes = Buffer.concat([
    Buffer.from('{"connectionId":"one","type":"order","id":"'),
    Buffer.from([0xc3, 0x28]),
  ]);
  assert.deepEqual(await refused({ body: Buffer.concat([bytes, Buffer.from('"}')]) }), [400, 'invalid_json']);
  const packed = {
    headers: { 'content-encoding': 'gzip' },
    body: gzipSync('{"connectionId":"one","type":"order"}'),
  };
  assert.deepEqual(await refused(packed), [415, 'invalid_content_type']);
  assert.equal(await waiting(), 0);
  assert.equal((await send('none', {})).status, 404);
  assert.equal((await fetch(`${trellis.baseUrl}/webhook/none/open`, { method: 'POST' })).status, 404);
  assert.equal((await send('open', { connectionId: 'two', type: 'order', id: 10 })).status, 200);
  await settled();
});

test('senders of long bodies that do not end fill no memory, and keep no short one out', async () => {
  const port = Number(new URL(trellis.baseUrl).port);
  const bytes = 4 * 1024 * 1024;
  const sockets: Socket[] = [];
  const begin = async () => {
    const socket = createConnection({ port, host: '127.0.0.1' }).on('error', () => {});
    sockets.push(socket);
    await once(socket, 'connect');
    const lines = ['POST /webhook/dev/open HTTP/1.1', 'Host: x', 'Content-Type: application/json'];
    socket.write([...lines, `Content-Length: ${bytes}`, '', '{'].join('\r\n'));
  };
  const long = () => send('open', { connectionId: 'nobody', pad: 'x'.repeat(100_000) });
  try {
    for (let at = 0; at < 40; at++) await begin();
    assert.equal((await long()).status, 200, 'what is announced and does not come takes nothing');
    // Sixteen are too many for another long one, as soon as the service has heard of them.
    let { status } = await long();
    for (const socket of sockets) {
      if (status === 503) break;
      socket.write(Buffer.alloc(bytes - 10, 'x'));
      // Beside a long one that is answered the last of them is too many itself.
      await pause(20);
      status = (await long()).status;
    }
    assert.equal(status, 503, 'all were let in');
    assert.equal((await send('open', { connectionId: 'nobody' })).status, 200);
  } finally {
    for (const socket of sockets) socket.destroy();
  }
  for (let left = 200; (await long()).status !== 200; left--) {
    assert.ok(left > 0, 'those that have gone are counted still');
    await pause(20);
  }
});

test('a connection with a thousand waiting webhooks accepts no more until some are done, and the sender gets a retry time', async () => {
  await trellis.db.query(
    `insert into run (id, environment_id, function_id, version_id, connection_id, kind, trigger, not_before)
     select gen_random_uuid(), function.environment_id, function.id, function.version_id, connection.id, 'on_event',
       'connection', now() + interval '1 day'
     from generate_series(1, 1000), function
     join integration on integration.id = function.integration_id
     join connection on connection.integration_id = integration.id
     where integration.key = 'open' and function.name = 'orders' and connection.connection_id = 'two'`,
  );
  const answer = await send('open', { connectionId: 'two', type: 'order', id: 11 });
  assert.equal(answer.status, 503);
  assert.equal((await send('open', { connectionId: 'one', type: 'order', id: 11 })).status, 200);
  await trellis.db.query("delete from run where kind = 'on_event'");
  await settled();
});

describe('a webhook is forwarded to the application', () => {
  type Told = { type: string; data: Record<string, unknown> };
  const forwards = () =>
    told.got.map(({ body }) => JSON.parse(body) as Told).filter(({ type }) => type === 'webhook.received');
  const inTheOfficialForm = () =>
    toldInTheOfficialForm.got
      .map((got) => ({ ...got, json: JSON.parse(got.body) as Record<string, unknown> }))
      .filter(({ json }) => json.type !== 'sync' && json.type !== 'auth');
  async function until(isSo: () => boolean): Promise<void> {
    for (let left = 300; !isSo(); left--) {
      assert.ok(left > 0, 'it is not told');
      await placeAll(trellis.db, eventSequence);
      await pause(20);
    }
  }
  const fresh = () => {
    told.got.length = 0;
    toldInTheOfficialForm.got.length = 0;
  };
  const setForwarding = async (isOn: boolean) => {
    const body = { forward_webhooks: isOn };
    assert.equal((await trellis.call('PATCH', '/integrations/signed', { body })).status, 200);
  };
  before(async () => {
    await settled();
    // What came before there was anybody to tell.
    await placeAll(trellis.db, eventSequence);
    const body = { url: told.url, types: ['webhook.*'] };
    assert.equal((await trellis.call('POST', '/events/endpoints', { body })).status, 201);
    const settings = { webhook_url: toldInTheOfficialForm.url };
    assert.equal((await trellis.call('PATCH', '/environment/settings', { body: settings })).status, 200);
  });

  test('with its payload, in both formats, and is nowhere in plain text', async () => {
    fresh();
    const payload = { type: 'refund', connectionId: 'one', z: { b: 'words-that-are-told', a: 1 } };
    const headers = {
      ...signature(payload),
      'x-of-the-sender': 'kept',
      'x-trellis-hmac-sha256': 'forged',
      'webhook-id': 'forged',
      authorization: 'Basic forged',
      cookie: 'a=b',
    };
    assert.equal((await send('signed', payload, headers)).status, 200);
    await until(() => forwards().length > 0 && inTheOfficialForm().length > 0);
    const [event] = forwards();
    assert.deepEqual(event!.data, {
      connection_id: 'one',
      integration_id: 'signed',
      provider_config_key: 'signed',
      provider: 'unauthenticated',
      test: false,
      type: 'refund',
      payload,
    });
    const [official] = inTheOfficialForm();
    assert.equal(
      official!.body,
      '{"connectionId":"one","from":"unauthenticated","payload":{"connectionId":"one","type":"refund",' +
        '"z":{"a":1,"b":"words-that-are-told"}},"providerConfigKey":"signed","type":"forward"}',
    );
    const got = official!.headers;
    assert.equal(got['x-of-the-sender'], 'kept');
    assert.deepEqual([got.authorization, got.cookie], [undefined, undefined]);
    const keys = await trellis.call('GET', '/environment/webhook-signing-key');
    const { webhook_signing_key: key } = keys.body.data as { webhook_signing_key: string };
    const right = createHmac('sha256', key).update(official!.body).digest('hex');
    assert.equal(got['x-trellis-hmac-sha256'], right);
    assert.notEqual(got['webhook-id'], 'forged');
    const rows = await trellis.db.query<{ text: string }>(
      `select event::text as text from event
       union all
       select encode(sealed, 'escape') from webhook_body
       union all
       select delivery::text from delivery`,
    );
    assert.ok(rows.every(({ text }) => !text.includes('words-that-are-told')));
    const feed = await trellis.call('GET', '/events?types=webhook.received&limit=1000');
    assert.ok(feed.text.includes('"type":"refund"') && !feed.text.includes('words-that-are-told'));
  });

  test('once, also where it names no connection of the service, and then as it came', async () => {
    fresh();
    const payload = { type: 'refund', connectionId: 'nobody', b: 1, a: 'of-nobody' };
    assert.equal((await send('signed', payload, signature(payload))).status, 200);
    await until(() => forwards().length > 0 && inTheOfficialForm().length > 0);
    assert.deepEqual(
      forwards().map(({ data }) => [data.connection_id, data.payload]),
      [[null, payload]],
    );
    assert.deepEqual(
      inTheOfficialForm().map(({ json }) => json),
      [payload],
    );
    const [row] = await trellis.db.query<{ text: string }>(
      "select string_agg(encode(sealed, 'escape'), '') as text from webhook_body",
    );
    assert.ok(!row!.text.includes('of-nobody'));
  });

  test('without what it held where its connection is deleted before it is sent', async () => {
    fresh();
    const body = { provider_config_key: 'signed', connection_id: 'short', credentials: { type: 'NONE' } };
    assert.equal((await trellis.call('POST', '/connections', { body })).status, 201);
    const payload = { type: 'refund', connectionId: 'short' };
    assert.equal((await send('signed', payload, signature(payload))).status, 200);
    const gone = await trellis.call('DELETE', '/connections/short?provider_config_key=signed');
    assert.equal(gone.status, 200, gone.text);
    await until(() => forwards().length > 0);
    assert.deepEqual(
      forwards().map(({ data }) => [data.connection_id, data.payload]),
      [['short', null]],
    );
  });

  test('only if forwarding is on, and not if its sender is unverified and names no known connection', async () => {
    fresh();
    const quiet = { type: 'refund', connectionId: 'one', n: 'quiet' };
    await setForwarding(false);
    assert.equal((await send('signed', quiet, signature(quiet))).status, 200);
    await setForwarding(true);
    assert.equal((await send('open', { connectionId: 'nobody', type: 'refund' })).status, 200);
    const loud = { type: 'refund', connectionId: 'one', n: 'loud' };
    assert.equal((await send('signed', loud, signature(loud))).status, 200);
    await until(() => forwards().length > 0);
    assert.deepEqual(
      forwards().map(({ data }) => (data.payload as { n: string }).n),
      ['loud'],
    );
  });

  test('an unproved sender fills no table', async () => {
    const integration_config = { base_url: 'https://api.example.com' };
    await trellis.call('POST', '/integrations', {
      body: { provider: 'unauthenticated', unique_key: 'bare', integration_config },
    });
    await trellis.call('POST', '/connections', {
      body: { provider_config_key: 'bare', connection_id: 'one', credentials: { type: 'NONE' } },
    });
    const statuses: number[] = [];
    for (let sent = 0; sent < 101; sent++)
      statuses.push((await send('bare', { connectionId: 'one' })).status);
    assert.deepEqual([statuses.indexOf(503), statuses.length], [100, 101]);
  });
});

test('the secret before the last one is good for a day, unless it is cleared', async () => {
  const by = async (secret: string) => {
    const body = JSON.stringify({ connectionId: 'one', type: 'none' });
    const signed = createHmac('sha256', secret).update(body).digest('hex');
    return (await send('signed', body, { 'x-hub-signature-256': `sha256=${signed}` })).status;
  };
  await setSecret('signed', 'second');
  assert.deepEqual([await by(secret), await by('second'), await by('third')], [200, 200, 401]);
  await setSecret('signed', 'third');
  assert.deepEqual([await by(secret), await by('second'), await by('third')], [401, 200, 200]);
  await trellis.advance(24 * 3600 + 1);
  assert.deepEqual([await by('second'), await by('third')], [401, 200]);
  await setSecret('signed', 'fourth');
  await setSecret('signed', '');
  await setSecret('signed', 'fifth');
  assert.deepEqual([await by('third'), await by('fourth'), await by('fifth')], [401, 401, 200]);
});

test('what bears a time and came already does nothing, unless the one before it was not stored', async () => {
  const made = await trellis.call('POST', '/integrations', {
    body: {
      provider: 'slack',
      unique_key: 'slack',
      credentials: { type: 'OAUTH2', client_id: 'a', client_secret: 'of-no-account', webhook_secret: secret },
    },
  });
  assert.equal(made.status, 200, made.text);
  const body = JSON.stringify({ team_id: 'T1', event: { type: 'message' } });
  // The service's clock was moved on.
  const now = Math.floor(Date.now() / 1000) + 24 * 3600;
  const by = async (time: number, more: Record<string, string> = {}) => {
    const signed = createHmac('sha256', secret).update(`v0:${time}:${body}`).digest('hex');
    const headers = {
      'x-slack-request-timestamp': String(time),
      'x-slack-signature': `v0=${signed}`,
      ...more,
    };
    return (await send('slack', body, headers)).status;
  };
  const count = async () => {
    const [row] = await trellis.db.query<{ count: number }>(
      `select count(*)::int as count from event where data ->> 'provider_config_key' = 'slack'`,
    );
    return row!.count;
  };
  const statuses = await Promise.all(Array.from({ length: 20 }, () => by(now)));
  assert.deepEqual([...new Set(statuses)], [200]);
  assert.equal(await by(now, { 'x-more': 'of-somebody' }), 200);
  assert.equal(await count(), 1);
  assert.equal(await by(now + 1), 200);
  assert.equal(await count(), 2);
  assert.equal(await by(now - 600), 401);
  assert.equal(await by(now + 600), 401);
  await trellis.runJob('webhooks.seen');
  assert.equal(await by(now), 200);
  assert.equal(await count(), 2, 'it is stored for as long as it could be accepted');
  await trellis.advance(20 * 60);
  await trellis.runJob('webhooks.seen');
  const [left] = await trellis.db.query<{ count: number }>('select count(*)::int as count from webhook_seen');
  assert.equal(left!.count, 0);
});

/** The service's clock, which the tests above have moved on. */
const clock = () => Date.now() + (24 * 3600 + 1 + 20 * 60) * 1000;

type Hmac = Extract<WebhookSignature, { scheme: 'hmac' }>;
/** One definition for each place of the time of sending; `inbound/providers.test.ts` tests those of all others. */
const dated = ['linear', 'slack', 'stripe'].map((name) => {
  const { auth_mode, webhook } = shippedCatalog.get(name);
  return { name, auth_mode, proof: webhook?.proof as Hmac };
});

/** The headers and the body that the provider sends at a time. */
function datedWebhook(proof: Hmac, sentAtMs: number) {
  const time = String(Math.floor(sentAtMs / 1000));
  const body = JSON.stringify({
    type: 'a',
    ...(proof.timestamp_body && { [proof.timestamp_body]: sentAtMs }),
  });
  const text = proof.signed.replaceAll('{timestamp}', time).replace('{body}', body);
  const signed = createHmac(proof.digest, secret).update(text).digest(proof.encoding);
  const value = proof.parts
    ? `${proof.parts.timestamp}=${time},${proof.parts.signature}=${signed}`
    : proof.prefix + signed;
  return {
    body,
    headers: { [proof.header]: value, ...(proof.timestamp_header && { [proof.timestamp_header]: time }) },
  };
}

for (const { name, auth_mode, proof } of dated) {
  test(`a webhook of ${name} has an effect once, and none when it is old or dated ahead`, async () => {
    const webhook_secret = secret;
    const unique_key = `dated-${name}`;
    const client = { type: auth_mode, client_id: 'a', client_secret: secret };
    const made = await trellis.call('POST', '/integrations', {
      body: { provider: name, unique_key, ...(auth_mode === 'OAUTH2' && { credentials: client }) },
    });
    assert.equal(made.status, 200, made.text);
    if (proof.key === 'webhook_secret') {
      const body =
        auth_mode === 'OAUTH2' ? { credentials: { ...client, webhook_secret } } : { webhook_secret };
      const set = await trellis.call('PATCH', `/integrations/${unique_key}`, { body });
      assert.equal(set.status, 200, set.text);
    }
    const at = (ms: number) => {
      const { body, headers } = datedWebhook(proof, clock() + ms);
      return () => send(unique_key, body, headers).then(({ status }) => status);
    };
    const count = async () => {
      const [row] = await trellis.db.query<{ count: number }>(
        `select count(*)::int as count from event where data ->> 'provider_config_key' = $1`,
        [unique_key],
      );
      return row!.count;
    };
    const first = at(0);
    assert.deepEqual([await first(), await count()], [200, 1]);
    assert.deepEqual([await first(), await count()], [200, 1], 'a replay is answered and has no effect');
    for (const ms of [-86_400_000, -360_000, 360_000]) assert.equal(await at(ms)(), 401, String(ms));
    assert.equal(await count(), 1);
  });
}

test('a webhook of Linear without its time, or with a text in its place, is refused', async () => {
  for (const webhookTimestamp of [undefined, null, '', String(clock()), []]) {
    const body = JSON.stringify({ type: 'a', webhookTimestamp });
    const signed = createHmac('sha256', secret).update(body).digest('hex');
    assert.equal((await send('dated-linear', body, { 'linear-signature': signed })).status, 401);
  }
});
