// Subscriptions at Microsoft Graph, Asana, Airtable and others: created, renewed and deleted; see sandbox/profiles/subscriptions.ts.
// In a process of its own: it counts on messages that come later than its own statements.
// Slow: some of its providers never respond.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type Subscription, startSubscriptions } from '../../sandbox/profiles/subscriptions.ts';
import { catalogAt } from '../support/assertion-catalog.ts';
import { deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

type Provider = Subscription['provider'];
type Subject = {
  integration: string;
  /** The field of the metadata with the resources. Without it, the whole account is watched. */
  field?: string;
  target: string;
  halfLifeDays: number;
  /** Whether it is extended, or found to be lost. Otherwise another one replaces it. */
  isRenewed: boolean;
  /** Whether a subscription whose creation was not answered can be deleted. Otherwise its provider ends it. */
  isFoundWhenLost: boolean;
};
const subjects: Record<Provider, Subject> = {
  graph: {
    integration: 'microsoft-graph',
    field: 'subscriptionResources',
    halfLifeDays: 1.5,
    target: "me/mailFolders('Inbox')/messages",
    isRenewed: true,
    isFoundWhenLost: true,
  },
  asana: {
    integration: 'asana',
    field: 'projectGids',
    target: '8675309',
    halfLifeDays: 7.1,
    isRenewed: true,
    isFoundWhenLost: false,
  },
  airtable: {
    integration: 'airtable',
    field: 'baseIds',
    target: 'appXyz',
    halfLifeDays: 3.6,
    isRenewed: true,
    isFoundWhenLost: true,
  },
  typeform: {
    integration: 'typeform',
    field: 'formIds',
    target: 'lT4Z3j',
    halfLifeDays: 7.1,
    isRenewed: true,
    isFoundWhenLost: true,
  },
  calendly: {
    integration: 'calendly',
    target: '',
    halfLifeDays: 7.1,
    isRenewed: true,
    isFoundWhenLost: false,
  },
  pipedrive: {
    integration: 'pipedrive',
    target: '',
    halfLifeDays: 15.1,
    isRenewed: false,
    isFoundWhenLost: true,
  },
  attio: {
    integration: 'attio',
    target: '',
    halfLifeDays: 7.1,
    isRenewed: true,
    isFoundWhenLost: true,
  },
  clickup: {
    integration: 'clickup',
    field: 'teamIds',
    target: '9012',
    halfLifeDays: 15.1,
    isRenewed: false,
    isFoundWhenLost: true,
  },
  gitlab: {
    integration: 'gitlab',
    field: 'projectIds',
    target: 'acme/web',
    halfLifeDays: 7.1,
    isRenewed: true,
    isFoundWhenLost: false,
  },
  gmail: {
    integration: 'google-mail',
    target: '',
    halfLifeDays: 3.6,
    isRenewed: true,
    isFoundWhenLost: false,
  },
};
const names = Object.keys(subjects) as Provider[];
/** Gmail sends no message to the address of a channel. */
const tested = names.filter((name) => name !== 'gmail');
const day = 86_400;
const publicUrl = 'https://hooks.acme.dev';

const topic = 'projects/acme/topics/mail';
const settings: Record<string, object> = {
  'microsoft-graph': { tenant: 'common' },
  'google-mail': { topic },
};
const clientIds: Record<string, string> = { 'google-mail': '123456789012-abc.apps.googleusercontent.com' };

let trellis: TestTrellis;
let provider: Awaited<ReturnType<typeof startSubscriptions>>;
let aheadMs = 0;

before(async () => {
  provider = await startSubscriptions({
    now: () => new Date(Date.now() + aheadMs),
    reach: (address) => address.replace(publicUrl, trellis.baseUrl),
  });
  const files = new RegExp(`^(${names.map((name) => subjects[name].integration).join('|')})\\.yaml$`);
  trellis = await openTrellis(
    { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128', TRELLIS_WEBHOOK_BASE_URL: publicUrl },
    { catalog: await catalogAt(provider.origin, files) },
  );
  for (const { integration: name } of Object.values(subjects)) {
    const made = await trellis.call('POST', '/integrations', {
      body: {
        provider: name,
        unique_key: name,
        ...(settings[name] && { integration_config: settings[name] }),
        credentials: {
          type: 'OAUTH2',
          client_id: clientIds[name] ?? 'client',
          client_secret: 'secret-of-the-client',
        },
      },
    });
    assert.equal(made.status, 200, made.text);
  }
  const flows = Object.entries(subjects).map(([name, { integration }]) =>
    flowConfig({
      name: `sync-${name}`,
      integration,
      type: 'sync',
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
async function connect(name: Provider, of: unknown[] = [subjects[name].target]): Promise<string> {
  const { integration, field } = subjects[name];
  made += 1;
  const id = `${name}-${made}`;
  const answer = await trellis.call('POST', '/connections', {
    body: {
      provider_config_key: integration,
      connection_id: id,
      ...(name === 'pipedrive' && { connection_config: { company: 'acme' } }),
      credentials: {
        type: 'OAUTH2',
        access_token: `token-of-${id}`,
        refresh_token: `refresh-token-of-${id}`,
        expires_at: new Date(Date.now() + 365 * day * 1000).toISOString(),
      },
      ...(field && { metadata: { [field]: of } }),
    },
  });
  assert.equal(answer.status, 201, answer.text);
  return id;
}
const remove = (name: Provider, id: string) =>
  trellis.call('DELETE', `/connections/${id}?provider_config_key=${subjects[name].integration}`);
const push = async (name: Provider, id: string) => {
  const query = `provider_config_key=${subjects[name].integration}&connection_id=${id}&syncs=*`;
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
  // In one statement: the service makes a run of a notice at any time.
  const [found] = await trellis.db.query<{ isTold: boolean }>(
    `select exists (select from run where trigger = 'webhook')
       or exists (select from watch where noticed_at is not null) as "isTold"`,
  );
  return found?.isTold === true;
};
/** A run that waits when a message comes reads the change, so none follows it. */
async function untilFirstRun(id: string): Promise<void> {
  const begun = () =>
    trellis.db.query(
      `select
       from run
       join connection on connection.id = run.connection_id
       where connection.connection_id = $1 and run.started_at is not null`,
      [id],
    );
  while ((await begun()).length === 0) await pause(10);
}
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

for (const name of tested) {
  const subject = subjects[name];
  describe(`a subscription of ${subject.integration}`, () => {
    test('is created once, its messages reach the connection and its syncs, and it is deleted with the connection', async () => {
      const id = await connect(name);
      await untilFirstRun(id);
      await look();
      await look();
      const one = only();
      assert.equal(one.target, subject.target);
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

    test('is renewed or replaced at half its life, and created again if the provider has lost it', async () => {
      await connect(name);
      await look();
      let one = only();
      for (let times = 1; times <= 3; times++) {
        await advance(subject.halfLifeDays * day);
        await look();
        if (subject.isRenewed) assert.deepEqual([only().id, one.renewals], [one.id, times]);
        else assert.notEqual(only().id, one.id);
        one = only();
      }
      assert.ok(one.expiresAt > Date.now() + aheadMs);
      assert.deepEqual(await states(), ['open']);
      list().length = 0;
      await advance(subject.halfLifeDays * day);
      await look();
      assert.notEqual(only().id, one.id);
      assert.equal(await provider.subscriptions.notify(only()), 200);
      assert.equal(await provider.subscriptions.notify(one), 404);
    });

    test('whose creation was not answered is never used: messages of it have no effect, and it ends', async () => {
      const id = await connect(name);
      provider.subscriptions.mode = 'break';
      await look();
      const lost = only();
      assert.equal((await push(name, id))?.error?.code, 'channel_unanswered');
      const [told, ...more] = await eventsOf('connection.subscription_failed');
      assert.deepEqual([told?.connection_id, told?.code, more.length], [id, 'channel_unanswered', 0]);
      provider.subscriptions.mode = 'work';
      await advance(150);
      await look();
      assert.equal((await push(name, id))?.state, 'open');
      assert.equal(await provider.subscriptions.notify(lost), 404);
      assert.equal((await eventsOf('webhook.received')).length, 0, 'not delivered twice');
      await look();
      assert.equal(list().includes(lost), !subject.isFoundWhenLost);
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
        [[id, subject.target || null, 'channel_refused']],
      );
      provider.subscriptions.mode = 'work';
      await look();
      assert.equal((await push(name, id))?.error, null);
      only();
    });
  });
}

for (const mode of ['redirect', 'huge', 'odd'] as const) {
  test(`a response of the kind "${mode}" creates no subscription, and the next one is used`, async () => {
    const ids = await Promise.all(tested.map(async (name) => [name, await connect(name)] as const));
    provider.subscriptions.mode = mode;
    await look();
    // A subscription whose ID the service makes needs no field of the response.
    const without = mode === 'odd' ? ['typeform'] : [];
    for (const [name, id] of ids.filter(([name]) => !without.includes(name)))
      assert.equal((await push(name, id))?.error?.code, 'channel_unanswered', name);
    provider.subscriptions.mode = 'work';
    await advance(150);
    await look();
    for (const [name, id] of ids) assert.equal((await push(name, id))?.state, 'open', name);
    assert.ok(!provider.subscriptions.calls.some((call) => call.includes('elsewhere')));
  });
}

describe('a message of Calendly', () => {
  test('that is old or repeated has no effect, and one under the key of the app is accepted', async () => {
    await trellis.call('PATCH', '/integrations/calendly', { body: { webhook_secret: 'key-of-the-app' } });
    await connect('calendly');
    await look();
    const one = only();
    assert.equal(await provider.subscriptions.notify(one, { ageMs: 11 * 60_000 }), 401);
    const key = 'key-of-the-app';
    assert.equal(await provider.subscriptions.notify(one, { key, ageMs: 60_000 }), 200);
    assert.equal((await eventsOf('webhook.received')).length, 1);
    assert.equal(await provider.subscriptions.notify(one, { key, ageMs: 60_000 }), 200);
    assert.ok((await eventsOf('webhook.received')).length <= 2);
    assert.equal(await provider.subscriptions.notify(one, { key: 'another-key' }), 401);
  });
});

describe('a watch of Gmail', () => {
  const watches = () => provider.subscriptions.calls.filter((call) => call.endsWith('/watch'));

  test('publishes to the topic of the integration, is requested again at half its life, and expires without a stop', async () => {
    const id = await connect('gmail');
    await look();
    const one = only();
    assert.deepEqual(one.body, { topicName: topic });
    assert.equal((await push('gmail', id))?.state, 'open');
    await advance(3.6 * day);
    await look();
    assert.deepEqual([only(), watches().length], [one, 2]);
    assert.ok(one.expiresAt > Date.now() + aheadMs + 6 * day * 1000);
    await remove('gmail', id);
    assert.deepEqual(
      provider.subscriptions.calls.filter((call) => !call.endsWith('/watch')),
      [],
    );
    await look();
    assert.deepEqual(await states(), []);
  });

  test('is not requested, and not reported as missing, without a topic', async () => {
    const setTopic = (value: object) =>
      trellis.call('PATCH', '/integrations/google-mail', { body: { integration_config: value } });
    assert.equal((await setTopic({ topic: '' })).status, 200);
    await connect('gmail');
    await look();
    assert.deepEqual(
      [list().length, watches().length, (await eventsOf('connection.subscription_failed')).length],
      [0, 0, 0],
    );
    assert.equal((await setTopic({ topic })).status, 200);
    await advance(700);
    await look();
    only();
  });
});

test('resources may be numbers in the metadata, and a dot segment is none', async () => {
  const id = await connect('gitlab', [42, '..', 1.5, {}]);
  await look();
  assert.deepEqual([only().target, (await push('gitlab', id))?.state], ['42', 'partly']);
});

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

test('a subscription whose ID cannot be part of an address is left to expire, and tried again each hour', async () => {
  await connect('attio');
  await look();
  await trellis.db.query(
    `update channel set resource_id = '..', state = 'ending', next_at = now() - interval '1 hour'`,
  );
  await look();
  const [channel] = await trellis.db.query<{ state: string; isLater: boolean }>(
    `select state, next_at > asked_at + interval '30 minutes' as "isLater" from channel where resource_id = '..'`,
  );
  assert.deepEqual(channel, { state: 'ending', isLater: true });
  const deletions = provider.subscriptions.calls.filter((call) => call.startsWith('DELETE'));
  assert.deepEqual(deletions, []);
});

describe('a message about the subscription itself', () => {
  test('renews it at once, and the syncs read what they may have missed', async () => {
    const id = await connect('graph');
    await untilFirstRun(id);
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
