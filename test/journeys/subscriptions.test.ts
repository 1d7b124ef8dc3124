// Subscriptions at Microsoft Graph, Asana and Airtable: created, renewed and deleted by themselves; see sandbox/profiles/subscriptions.ts.
// In a process of its own: it counts on messages that come later than its own statements.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type Subscription, startSubscriptions } from '../../sandbox/profiles/subscriptions.ts';
import { catalogAt } from '../support/assertion-catalog.ts';
import { deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

type Provider = Subscription['provider'];
const integrations = { graph: 'microsoft-graph', asana: 'asana', airtable: 'airtable' } as const;
const metadataOf = (provider: Provider, targets: string[]) =>
  ({
    graph: { subscriptionResources: targets },
    asana: { projectGids: targets },
    airtable: { baseIds: targets },
  })[provider];
const targets = { graph: "me/mailFolders('Inbox')/messages", asana: '8675309', airtable: 'appXyz' } as const;
const day = 86_400;
const publicUrl = 'https://hooks.acme.dev';

let trellis: TestTrellis;
let provider: Awaited<ReturnType<typeof startSubscriptions>>;
let aheadMs = 0;

before(async () => {
  provider = await startSubscriptions({
    now: () => new Date(Date.now() + aheadMs),
    reach: (address) => address.replace(publicUrl, trellis.baseUrl),
  });
  trellis = await openTrellis(
    { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128', TRELLIS_WEBHOOK_BASE_URL: publicUrl },
    { catalog: await catalogAt(provider.origin, /^(microsoft-graph|asana|airtable)\.yaml$/) },
  );
  for (const name of Object.values(integrations)) {
    const made = await trellis.call('POST', '/integrations', {
      body: {
        ...{ provider: name, unique_key: name },
        ...(name === 'microsoft-graph' && { integration_config: { tenant: 'common' } }),
        credentials: { type: 'OAUTH2', client_id: 'client', client_secret: 'secret-of-the-client' },
      },
    });
    assert.equal(made.status, 200, made.text);
  }
  const flows = Object.entries(integrations).map(([name, integration]) =>
    flowConfig({
      ...{ name: `sync-${name}`, integration, type: 'sync' },
      code: syncCode({ model: `Of${name}`, more: "webhookSubscriptions: ['*']," }),
    }),
  );
  const answer = await trellis.call('POST', '/sync/deploy', { body: deployBody(flows) });
  assert.equal(answer.status, 200, answer.text);
});
after(async () => {
  await trellis?.close();
  await provider?.stop();
});

async function advance(seconds: number): Promise<void> {
  aheadMs += seconds * 1000;
  await trellis.advance(seconds);
}
const look = () => trellis.runJob('webhooks.channels');
const list = () => provider.subscriptions.list;
const only = () => {
  const [one, ...others] = list();
  assert.ok(one !== undefined && others.length === 0, `${list().length} subscriptions`);
  return one;
};

let made = 0;
async function connect(name: Provider, of: string[] = [targets[name]]): Promise<string> {
  made += 1;
  const id = `${name}-${made}`;
  const answer = await trellis.call('POST', '/connections', {
    body: {
      ...{ provider_config_key: integrations[name], connection_id: id },
      credentials: {
        ...{ type: 'OAUTH2', access_token: `token-of-${id}`, refresh_token: `refresh-token-of-${id}` },
        expires_at: new Date(Date.now() + 365 * day * 1000).toISOString(),
      },
      metadata: metadataOf(name, of),
    },
  });
  assert.equal(answer.status, 201, answer.text);
  return id;
}
const remove = (name: Provider, id: string) =>
  trellis.call('DELETE', `/connections/${id}?provider_config_key=${integrations[name]}`);
const push = async (name: Provider, id: string) => {
  const query = `provider_config_key=${integrations[name]}&connection_id=${id}&syncs=*`;
  const { body } = await trellis.call('GET', `/sync/status?${query}`);
  return (body.syncs as { push: { state: string; error: { code: string } | null } | null }[])[0]?.push;
};
const eventsOf = async (type: string) => {
  const rows = await trellis.db.query<{ data: Record<string, unknown> }>(
    'select data from event where type = $1 order by created_at, id',
    [type],
  );
  return rows.map(({ data }) => data);
};
/** Whether the subscribed sync runs because of a message, or will once its present run has ended. */
const isTold = async () => {
  const runs = await trellis.db.query(`select from run where trigger = 'webhook'`);
  const noticed = await trellis.db.query('select from watch where noticed_at is not null');
  return runs.length + noticed.length > 0;
};
const states = async () =>
  (await trellis.db.query<{ state: string }>('select state from channel order by asked_at')).map(
    ({ state }) => state,
  );

beforeEach(async () => {
  provider.subscriptions.mode = 'work';
  const rows = await trellis.db.query<{ key: string; id: string }>(
    `select integration.key, connection.connection_id as id
     from connection
     join integration on integration.id = connection.integration_id
     where connection.deleted_at is null`,
  );
  for (const { key, id } of rows)
    await trellis.call('DELETE', `/connections/${id}?provider_config_key=${key}`);
  await trellis.db.query('delete from channel');
  await trellis.db.query(`delete from run where trigger = 'webhook'`);
  await trellis.db.query('delete from event');
  list().length = 0;
  provider.subscriptions.calls.length = 0;
});

for (const name of ['graph', 'asana', 'airtable'] as const) {
  describe(`a subscription of ${integrations[name]}`, () => {
    test('is created once, its messages reach the connection and its syncs, and it is deleted with the connection', async () => {
      const id = await connect(name);
      await look();
      await look();
      const one = only();
      assert.equal(one.target, targets[name]);
      assert.equal((await push(name, id))?.state, 'open');
      const { text } = (
        await trellis.db.query<{ text: string }>('select channel::text as text from channel')
      )[0]!;
      assert.ok(!text.includes(one.secret) && !text.includes(Buffer.from(one.secret).toString('hex')));
      assert.equal(await provider.subscriptions.notify(one), 200);
      const [event, ...more] = await eventsOf('webhook.received');
      assert.deepEqual([event?.connection_id, more.length], [id, 0]);
      assert.ok(await isTold());

      for (const key of ['', 'forged', Buffer.alloc(32, 1).toString('base64'), `x${one.secret}`])
        assert.equal(await provider.subscriptions.notify(one, { key }), 401, key);
      const other = { ...one, address: one.address.replace(/.$/, (end) => (end === '0' ? '1' : '0')) };
      assert.equal(await provider.subscriptions.notify(other), 404);
      assert.equal((await eventsOf('webhook.received')).length, 1);

      await remove(name, id);
      assert.equal(list().length, 0, 'it is deleted at the provider');
      assert.equal(await provider.subscriptions.notify(one), 404);
    });

    test('is renewed at half its life, without a second one, and created again where the provider has lost it', async () => {
      await connect(name);
      await look();
      const one = only();
      for (let weeks = 0; weeks < 3; weeks++) {
        await advance(name === 'graph' ? 1.5 * day : name === 'airtable' ? 3.6 * day : 7.1 * day);
        await look();
        assert.deepEqual([only().id, one.renewals], [one.id, weeks + 1]);
      }
      assert.ok(one.expiresAt > Date.now() + aheadMs);
      assert.deepEqual(await states(), ['open']);
      list().length = 0;
      await advance(7.1 * day);
      await look();
      assert.notEqual(only().id, one.id);
      assert.equal(await provider.subscriptions.notify(only()), 200);
      assert.equal(await provider.subscriptions.notify(one), 404);
    });

    test('whose creation was not answered is never used: messages of it have no effect, and it ends', async () => {
      const id = await connect(name);
      provider.subscriptions.mode = 'lose';
      await look();
      const lost = only();
      assert.equal((await push(name, id))?.error?.code, 'channel_unanswered');
      const [told, ...more] = await eventsOf('connection.subscription_failed');
      assert.deepEqual([told?.connection_id, told?.code, more.length], [id, 'channel_unanswered', 0]);
      provider.subscriptions.mode = 'work';
      await advance(150);
      await look();
      assert.equal(list().length, 2);
      assert.equal((await push(name, id))?.state, 'open');
      assert.equal(await provider.subscriptions.notify(lost), 404);
      assert.equal((await eventsOf('webhook.received')).length, 0, 'not delivered twice');
      await look();
      // Asana tells no ID in a message. It ends a webhook whose messages are refused for a day.
      assert.equal(list().includes(lost), name === 'asana');
      const used = list().find((one) => one !== lost)!;
      assert.equal(await provider.subscriptions.notify(used), 200);
      assert.equal((await eventsOf('webhook.received')).length, 1);
    });

    test('that the provider refuses is reported once, and tried again later', async () => {
      const id = await connect(name);
      provider.subscriptions.mode = 'refuse';
      for (let tries = 0; tries < 3; tries++) {
        await look();
        await advance(3600);
      }
      const { error, state } = (await push(name, id))!;
      assert.deepEqual([state, error?.code], ['none', 'channel_refused']);
      const events = await eventsOf('connection.subscription_failed');
      assert.deepEqual(
        events.map(({ connection_id, target, code }) => [connection_id, target, code]),
        [[id, targets[name], 'channel_refused']],
      );
      provider.subscriptions.mode = 'work';
      await look();
      assert.equal((await push(name, id))?.error, null);
      only();
    });
  });
}

test('the subscriptions of twenty connections are created together, one each, also by three nodes at once', async () => {
  const ids = await Promise.all(Array.from({ length: 20 }, (_, at) => connect('airtable', [`app${at}`])));
  await Promise.all([look(), look(), look()]);
  assert.equal(list().length, 20);
  assert.equal(new Set(list().map(({ target }) => target)).size, 20);
  const sent = await Promise.all(list().map((one) => provider.subscriptions.notify(one)));
  assert.deepEqual(sent, Array(20).fill(200));
  const received = await eventsOf('webhook.received');
  assert.deepEqual(received.map(({ connection_id }) => connection_id).sort(), ids.sort());
  const [one] = list();
  await Promise.all(Array.from({ length: 20 }, () => provider.subscriptions.notify(one!)));
  const runs = await trellis.db.query<{ count: number }>(
    `select count(*)::integer as count from run where trigger = 'webhook' group by connection_id`,
  );
  // One of them may have begun meanwhile.
  assert.ok(
    runs.every(({ count }) => count <= 2),
    'many messages share a run',
  );
});

test('a drive is watched for updates only', async () => {
  await connect('graph', ['me/drive/root']);
  await look();
  assert.equal(only().body.changeType, 'updated');
});

test('a provider that never answers is reported, and does not delay the deletion of its connection', async () => {
  const id = await connect('graph');
  provider.subscriptions.mode = 'hang';
  await look();
  assert.equal((await push('graph', id))?.error?.code, 'channel_unanswered');
  provider.subscriptions.mode = 'work';
  await advance(150);
  await look();
  only();
  provider.subscriptions.mode = 'hang';
  assert.equal((await remove('graph', id)).status, 200);
  // The first one had no answer; the second is tried again until it expires.
  assert.deepEqual(await states(), ['asked', 'ending']);
});

describe('a message about the subscription itself', () => {
  test('renews it at once, and the syncs read what they may have missed', async () => {
    const id = await connect('graph');
    await look();
    const one = only();
    assert.equal(await provider.subscriptions.notify(one, { lifecycle: 'reauthorizationRequired' }), 200);
    await look();
    assert.equal(one.renewals, 1);
    assert.ok(await isTold());
    list().length = 0;
    assert.equal(await provider.subscriptions.notify(one, { lifecycle: 'subscriptionRemoved' }), 200);
    await look();
    assert.notEqual(only().id, one.id);
    assert.equal((await push('graph', id))?.state, 'open');
    assert.equal(await provider.subscriptions.notify(only(), { lifecycle: 'missed', key: 'forged' }), 401);
  });
});

test('a second secret in a handshake is refused, and a test of an unknown channel is not answered', async () => {
  await connect('asana');
  await look();
  const { address } = only();
  const post = async (url: string, headers: Record<string, string>) => {
    const answer = await fetch(url.replace(publicUrl, trellis.baseUrl), { method: 'POST', headers });
    await answer.body?.cancel();
    return [answer.status, answer.headers.get('x-hook-secret')];
  };
  assert.deepEqual(await post(address, { 'x-hook-secret': 'of-another-sender' }), [404, null]);
  const unknown = address.replace(/channel=.*/, `channel=${crypto.randomUUID()}`);
  assert.deepEqual(await post(unknown, { 'x-hook-secret': 'of-another-sender' }), [404, null]);
  assert.equal(await provider.subscriptions.notify(only()), 200, 'the first secret stays');
});

test('targets that the metadata no longer name are no longer watched', async () => {
  const id = await connect('airtable', ['app1', 'app2']);
  await look();
  assert.deepEqual(
    list()
      .map(({ target }) => target)
      .sort(),
    ['app1', 'app2'],
  );
  const body = {
    connection_id: id,
    provider_config_key: 'airtable',
    metadata: { baseIds: ['app2', '../../x'] },
  };
  await trellis.call('POST', '/connections/metadata', { body });
  await advance(700);
  await look();
  await pause(10);
  await look();
  assert.deepEqual(
    list().map(({ target }) => target),
    ['app2'],
  );
});
