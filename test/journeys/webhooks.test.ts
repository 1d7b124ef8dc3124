import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
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
  trellis = await openTrellis();
  for (const [key, webhook] of [
    ['open', undefined],
    ['signed', secret],
  ] as const) {
    const made = await trellis.call('POST', '/integrations', {
      body: {
        ...{ provider: 'unauthenticated', unique_key: key },
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
after(() => trellis.close());

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

  test('for nobody is taken and does nothing', async () => {
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

test('what cannot be read is a 4xx, and the service goes on', async () => {
  const json = 'application/json';
  for (const [body, type] of [
    ['{', json],
    ['', 'text/plain;x'],
    ['{"__proto__":{"polluted":1}}', json],
    [`{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`, json],
    ['<a/>', 'application/xml'],
    ['x', 'no type'],
    ['x'.repeat(5 * 1024 * 1024), json],
    [Buffer.from([0xff, 0xfe, 0x00]).toString('latin1'), json],
  ] as const) {
    const { status, text } = await send('open', body, { 'content-type': type });
    assert.ok(status < 500, `${body.slice(0, 40)}: ${status} ${text.slice(0, 200)}`);
    if (body !== '') assert.ok(status >= 400, `${body.slice(0, 40)}: ${status} ${text}`);
  }
  assert.equal((await send('none', {})).status, 404);
  assert.equal((await fetch(`${trellis.baseUrl}/webhook/none/open`, { method: 'POST' })).status, 404);
  assert.equal((await send('open', { connectionId: 'two', type: 'order', id: 10 })).status, 200);
  await settled();
});

test('a connection for which a thousand wait takes no more until some are done, and the sender is told to come again', async () => {
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
