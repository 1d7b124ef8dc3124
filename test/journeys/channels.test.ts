// Push channels of Google Drive: asked for by themselves, renewed, stopped, and never more than a hint.
// Slow: it waits for the messages of channels.
// In a process of its own: it counts on messages that come later than its own statements.

import assert from 'node:assert/strict';
import type { IncomingHttpHeaders } from 'node:http';
import { after, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

type Place = Awaited<ReturnType<typeof connect>>;
let trellis: TestTrellis;
let place: Place;
let fileId: string;
/** What was posted to the webhook, as it came, once it was answered. */
const messages: IncomingHttpHeaders[] = [];

before(async () => {
  trellis = await openTrellis();
  trellis.app.server.on('request', ({ headers }, response) => {
    if (headers['x-goog-channel-id'] !== undefined) response.on('finish', () => messages.push(headers));
  });
  place = await connect(trellis, { integration: 'drive', provider: 'google-drive' });
  fileId = await makeFile(place);
  await setMetadata(place, { fileId });
  const flow = flowConfig({
    name: 'files',
    integration: 'drive',
    type: 'sync',
    code: syncCode({ more: "webhookSubscriptions: ['update', 'change']," }),
  });
  const deaf = flowConfig({
    name: 'deaf',
    integration: 'drive',
    type: 'sync',
    code: syncCode({ model: 'Deaf' }),
  });
  const all = flowConfig({
    name: 'all',
    integration: 'drive',
    type: 'sync',
    code: syncCode({ model: 'All', more: "webhookSubscriptions: ['*']," }),
  });
  const answer = await trellis.call('POST', '/sync/deploy', { body: deployBody([flow, deaf, all]) });
  assert.equal(answer.status, 200, answer.text);
});
after(() => trellis.close());

async function makeFile({ headers }: Place): Promise<string> {
  const made = await trellis.call('POST', '/proxy/drive/v3/files', { headers, body: { name: 'watched' } });
  assert.equal(made.status, 200, made.text);
  return String(made.body.id);
}
async function setMetadata({ connectionId }: Place, metadata: object): Promise<void> {
  const body = { connection_id: connectionId, provider_config_key: 'drive', metadata };
  const answer = await trellis.call('POST', '/connections/metadata', { body });
  assert.equal(answer.status, 201, answer.text);
}
const change = async (file = fileId) => {
  const body = { name: `name ${Math.random()}` };
  const answer = await trellis.call('PATCH', `/proxy/drive/v3/files/${file}`, {
    headers: place.headers,
    body,
  });
  assert.equal(answer.status, 200, answer.text);
};
const look = () => trellis.runJob('webhooks.channels');
type Open = { id: string; file_id: string | null; messages: number };
const open = async () => (await trellis.control('GET', 'channels')).channels as Open[];
const ours = () =>
  trellis.db.query<{ id: string; state: string; target: string }>(
    'select id, state, target from channel order by asked_at, id',
  );
const only = async () => {
  const [channel, ...others] = await ours();
  assert.ok(channel !== undefined && others.length === 0);
  return channel;
};
const runs = (name = 'files') =>
  trellis.db.query<{ state: string; trigger: string }>(
    `select run.state, run.trigger
     from run
     join function on function.id = run.function_id
     where function.name = $1 and run.trigger = 'webhook'
     order by run.id`,
    [name],
  );
const push = async (name = 'files') => {
  const at = `provider_config_key=drive&connection_id=${place.connectionId}&syncs=${name}`;
  const { body } = await trellis.call('GET', `/sync/status?${at}`);
  return (body.syncs as { push: { state: string; error: { code: string } | null } | null }[])[0]!.push;
};
async function until(isSo: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (let left = 500; !(await isSo()); left--) {
    assert.ok(left > 0, what);
    await pause(20);
  }
}
const messagesOf = (id: string) => messages.filter((headers) => headers['x-goog-channel-id'] === id);
/** Its first message, which tells of no change, and which may come as late as the others. */
const isOpening = (headers: IncomingHttpHeaders) => headers['x-goog-resource-state'] === 'sync';
/** What a channel has told of changes, once it is so much. */
async function changesOf(id: string, count: number): Promise<IncomingHttpHeaders[]> {
  const found = () => messagesOf(id).filter((headers) => !isOpening(headers));
  await until(() => found().length >= count, `${count} messages of ${id}`);
  return found();
}
const send = async (headers: Record<string, string | undefined>, path = '/webhook/dev/drive') => {
  const given = Object.entries(headers).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const answer = await fetch(trellis.baseUrl + path, { method: 'POST', headers: given });
  return `${answer.status} ${(await answer.text()).replace(/"request_id":"[^"]*"/, '')}`;
};
/** As the sandbox sent it. */
const again = (headers: IncomingHttpHeaders, more: Record<string, string | undefined> = {}) => {
  const goog = Object.entries(headers).filter(([name]) => name.startsWith('x-goog-'));
  return send({ ...(Object.fromEntries(goog) as Record<string, string>), ...more });
};
/** From nothing to one open channel. */
beforeEach(async () => {
  await trellis.control('DELETE', 'faults');
  await trellis.db.query(
    `update channel set state = 'ending', next_at = now() - interval '1 hour' where state = 'open'`,
  );
  await trellis.db.query('delete from watching');
  await trellis.db.query(`delete from run where trigger = 'webhook'`);
  // Their own times come while the clock is moved on.
  await trellis.db.query(`update sync set next_at = now() + interval '1 year'`);
  await trellis.db.query(`delete from run where state = 'waiting'`);
  await look();
  await trellis.db.query('delete from channel where resource_id is null');
  messages.length = 0;
});

test('a connection whose sync subscribes gets a channel for the file that its metadata name, and only one', async () => {
  assert.deepEqual(
    (await open()).map(({ file_id }) => file_id),
    [fileId],
  );
  const [channel] = await ours();
  assert.deepEqual([channel!.state, channel!.target], ['open', fileId]);
  assert.equal((await push())?.state, 'open');
  assert.equal(await push('deaf'), null);
  await look();
  assert.equal((await open()).length, 1);
  const rows = await trellis.db.query<{ text: string }>('select channel::text as text from channel');
  const { 'x-goog-channel-token': token } = messagesOf(channel!.id)[0] ?? {};
  assert.ok(token === undefined || rows.every(({ text }) => !text.includes(String(token))));
});

test('changes make a subscribed sync run soon, once for several changes, and no other sync', async () => {
  const { id } = await only();
  for (let changes = 0; changes < 3; changes++) await change();
  await changesOf(id, 3);
  await until(async () => (await runs()).length > 0, 'no run was queued');
  assert.deepEqual(await runs(), [{ state: 'waiting', trigger: 'webhook' }]);
  assert.deepEqual(await runs('deaf'), []);
  await trellis.advance(40);
  await until(async () => (await runs())[0]?.state === 'succeeded', 'the run did not succeed');
});

test('a change during a run is stored, and another run follows', async () => {
  const { id } = await only();
  await change();
  await until(async () => (await runs()).length > 0, 'no run was queued');
  // As a node that has it would.
  await trellis.db.query(
    `update run
     set state = 'running', attempt = 1, owner = gen_random_uuid(), lease_until = now() + interval '1 hour',
       started_at = now()
     where trigger = 'webhook'`,
  );
  await change();
  await changesOf(id, 2);
  await look();
  assert.equal((await runs()).length, 1);
  await trellis.db.query(
    `update run
     set state = 'succeeded', owner = null, lease_until = null, ended_at = now()
     where trigger = 'webhook'`,
  );
  await look();
  assert.deepEqual(
    (await runs()).map(({ state }) => state),
    ['succeeded', 'waiting'],
  );
});

describe('a message', () => {
  test('is accepted with the secret of an open channel, and otherwise refused with the same message', async () => {
    const { id } = await only();
    await change();
    const [real] = (await changesOf(id, 1)) as [IncomingHttpHeaders];
    const accepted = await again(real);
    assert.match(accepted, /^200 /);
    await trellis.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-drive', unique_key: 'other' },
    });
    const token = String(real['x-goog-channel-token']);
    const refused = await Promise.all([
      again(real, { 'x-goog-channel-token': 'forged' }),
      again(real, { 'x-goog-channel-token': undefined }),
      again(real, { 'x-goog-channel-token': token.slice(0, -1) }),
      again(real, { 'x-goog-channel-token': token.toUpperCase() }),
      again(real, { 'x-goog-channel-id': crypto.randomUUID() }),
      again(real, { 'x-goog-channel-id': "' or true --" }),
      again(real, { 'x-goog-channel-id': '' }),
      send({ 'x-goog-channel-id': id, 'x-goog-channel-token': token }, '/webhook/dev/other'),
    ]);
    assert.deepEqual([...new Set(refused)].length, 1, refused.join('\n'));
    assert.match(refused[0]!, /^404 .*"not_found"/);
  });

  test('that only opens the channel does nothing; repeated and out of order it does no more than once', async () => {
    const { id } = await only();
    await change();
    await change();
    const [first, second] = (await changesOf(id, 2)) as [IncomingHttpHeaders, IncomingHttpHeaders];
    await trellis.db.query(`delete from run where trigger = 'webhook'`);
    assert.match(
      await again(first, { 'x-goog-resource-state': 'sync', 'x-goog-message-number': '1' }),
      /^200 /,
    );
    assert.deepEqual([...(await runs()), ...(await runs('all'))], []);
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => again(n % 2 === 0 ? second : first)),
    );
    assert.ok(answers.every((answer) => answer.startsWith('200 ')));
    assert.equal((await runs()).length, 1);
    await trellis.db.query(`delete from run where trigger = 'webhook'`);
    assert.match(await again(first, { 'x-goog-resource-state': 'trash' }), /^200 /);
    assert.deepEqual([(await runs()).length, (await runs('all')).length], [0, 1]);
  });
});

test('a channel is renewed at half its life, and the one before it is stopped', async () => {
  const [first] = (await open()) as [Open];
  await trellis.advance(11 * 3600);
  await look();
  assert.deepEqual(
    (await open()).map(({ id }) => id),
    [first.id],
  );
  await trellis.advance(3600 + 60);
  await look();
  const renewed = await open();
  assert.equal(renewed.length, 1);
  assert.notEqual(renewed[0]!.id, first.id);
  assert.deepEqual(
    (await ours()).map(({ id, state }) => [id, state]),
    [[renewed[0]!.id, 'open']],
  );
});

test('messages of an expired channel are refused, and the channel is removed', async () => {
  const { id } = await only();
  await change();
  const [real] = (await changesOf(id, 1)) as [IncomingHttpHeaders];
  await trellis.advance(86_400 + 1);
  assert.match(await again(real), /^404 /);
  await look();
  assert.ok((await ours()).every((channel) => channel.id !== id));
  assert.equal((await push())?.state, 'open');
});

test('twenty nodes at once request one channel', async () => {
  await trellis.db.query('delete from watching');
  await look();
  await trellis.db.query('update watch set next_at = now() - interval $$1 hour$$');
  const before = await trellis.control('GET', 'calls');
  await Promise.all(Array.from({ length: 20 }, look));
  const after = await trellis.control('GET', 'calls');
  const route = 'POST /drive/v3/files/{fileId}/watch';
  assert.equal(Number(after[route]) - Number(before[route]), 1);
  await look();
  assert.equal((await open()).length, 1);
});

test('messages of a channel whose creation response was lost are refused, and the first one makes it stop', async () => {
  const [first] = (await open()) as [Open];
  await trellis.advance(12 * 3600 + 60);
  // The provider has made it, and the node that asked is gone or has heard nothing.
  await trellis.control('POST', 'faults', { case: 'api_reset_after', times: 1 });
  await look();
  const orphan = (await ours()).find(({ state }) => state === 'asked');
  assert.ok(orphan !== undefined);
  assert.deepEqual((await open()).map(({ id }) => id).toSorted(), [first.id, orphan.id].toSorted());
  assert.deepEqual([(await push())?.state, (await push())?.error?.code], ['open', 'channel_unanswered']);
  await change();
  const [message] = (await changesOf(orphan.id, 1)) as [IncomingHttpHeaders];
  assert.match(await again(message), /^404 /);
  assert.equal(
    (await ours()).find(({ id }) => id === orphan.id)?.state,
    'asked',
    'its answer may still come',
  );
  await trellis.advance(3 * 60);
  assert.match(await again(message, { 'x-goog-channel-token': 'forged' }), /^404 /);
  assert.equal((await ours()).find(({ id }) => id === orphan.id)?.state, 'asked');
  assert.match(await again(message), /^404 /);
  await look();
  const left = await open();
  assert.equal(left.length, 1);
  assert.ok(![first.id, orphan.id].includes(left[0]!.id));
  assert.deepEqual(
    (await ours()).map(({ id, state }) => [id, state]),
    [[left[0]!.id, 'open']],
  );
});

for (const [fault, code, retriedAfterS] of [
  ['api_401_push_address', 'channel_refused', 3600],
  ['api_403_channels', 'channel_refused', 60],
  ['api_503', 'channel_unanswered', 60],
  ['api_html_200', 'channel_unanswered', 60],
] as const) {
  test(`a refusal of the provider (${fault}) is reported with its cause, and the request is repeated later`, async () => {
    await trellis.control('POST', 'faults', { case: fault });
    await trellis.advance(12 * 3600 + 60);
    await look();
    assert.deepEqual([(await push())?.state, (await push())?.error?.code], ['open', code]);
    await trellis.control('DELETE', 'faults');
    await trellis.advance(retriedAfterS - 10);
    await look();
    assert.equal((await push())?.error?.code, code, 'not before its time');
    await trellis.advance(20);
    await look();
    assert.deepEqual([(await push())?.state, (await push())?.error], ['open', null]);
  });
}

test('an access token that the provider refuses is renewed once', async () => {
  await trellis.control('POST', 'faults', { case: 'access_token_ended', times: 1 });
  await trellis.advance(12 * 3600 + 60);
  await look();
  assert.deepEqual([(await push())?.state, (await push())?.error], ['open', null]);
});

test('without a file in the metadata everything of the account is watched', async () => {
  await setMetadata(place, {});
  await trellis.advance(11 * 60);
  await look();
  assert.deepEqual(
    (await open()).map(({ file_id }) => file_id),
    [null],
  );
  const { id } = await only();
  await change();
  await changesOf(id, 1);
  await until(async () => (await runs()).length === 1, 'no run was queued');
  await setMetadata(place, { fileId });
  await trellis.advance(11 * 60);
  await look();
  assert.deepEqual(
    (await open()).map(({ file_id }) => file_id),
    [fileId],
  );
});

test('a paused sync gets no more messages, and gets them again after it is started', async () => {
  const body = { provider_config_key: 'drive', connection_id: place.connectionId, syncs: ['files', 'all'] };
  await change();
  await until(async () => (await runs()).length === 1, 'no run was queued');
  assert.equal((await trellis.call('POST', '/sync/pause', { body })).status, 200);
  assert.deepEqual(await runs(), [], 'what waited');
  await look();
  assert.deepEqual(await open(), []);
  assert.equal(await push(), null);
  assert.equal((await trellis.call('POST', '/sync/start', { body })).status, 200);
  await look();
  assert.equal((await push())?.state, 'open');
});

test('if the provider cannot reach this address no channel is requested, and the status shows this', async () => {
  // As an integration with a client of its own; nothing of it is called.
  await trellis.db.query(`update integration set is_test = false where key = 'drive'`);
  await trellis.advance(12 * 3600 + 60);
  await look();
  assert.equal((await push())?.error?.code, 'address_not_public');
  await trellis.db.query(`update integration set is_test = true where key = 'drive'`);
  // The integration is cached for a second.
  await trellis.advance(2);
});

test('messages and a note of one before come at once without one being lost or refused', async () => {
  const { id } = await only();
  await change();
  const [real] = (await changesOf(id, 1)) as [IncomingHttpHeaders];
  await again(real, { 'x-goog-resource-state': 'change' });
  // As a node that has one of both would.
  await trellis.db.query(
    `update run
     set state = 'running', attempt = 1, owner = gen_random_uuid(), lease_until = now() + interval '1 hour',
       started_at = now()
     where id = (select id from run where trigger = 'webhook' order by sync_id desc limit 1)`,
  );
  for (let round = 0; round < 10; round++) {
    await trellis.db.query(`update watch set noticed_at = now() - interval '1 hour'`);
    const [answers] = await Promise.all([
      Promise.all(Array.from({ length: 10 }, () => again(real))),
      ...Array.from({ length: 5 }, look),
    ]);
    assert.deepEqual([...new Set(answers.map((answer) => answer.slice(0, 3)))], ['200']);
  }
  const [watch] = await trellis.db.query<{ noticed: boolean }>(
    'select noticed_at is not null as noticed from watch',
  );
  assert.equal(watch!.noticed, true, 'what runs may have read before the change');
});

test('a change that waits for a long run does not delay the changes of others', async () => {
  await look();
  await trellis.db.query(
    `insert into watch (connection_id, target, next_at, noticed_at)
     select connection_id, 'other-' || n, now() + interval '1 day', now() - make_interval(mins => n)
     from watching, generate_series(1, 70) as n`,
  );
  await look();
  const left = await trellis.db.query('select from watch where noticed_at is not null');
  assert.equal(left.length, 0);
  await trellis.db.query(`delete from watch where target like 'other-%'`);
});

test('channels of many connections at once are all requested', async () => {
  await trellis.db.query(
    `insert into watch (connection_id, target, next_at)
     select connection_id, 'no-file-' || n, now() - interval '1 hour'
     from watching, generate_series(1, 120) as n`,
  );
  await look();
  const [asked] = await trellis.db.query<{ count: number }>(
    `select count(*)::int as count from watch where target like 'no-file-%' and attempts = 1`,
  );
  assert.equal(asked!.count, 120);
  await trellis.db.query(`delete from watch where target like 'no-file-%'`);
});

for (const [what, begin, end] of [
  [
    'the address is another one',
    `update environment set name = 'moved' where name = 'dev'`,
    `update environment set name = 'dev' where name = 'moved'`,
  ],
  [
    'the account has granted again',
    `update connection set granted_at = now() + interval '1 year'`,
    'update connection set granted_at = now()',
  ],
] as const) {
  test(`if ${what} another channel is requested, and the previous one is stopped`, async () => {
    const [first] = (await open()) as [Open];
    await trellis.db.query(begin);
    await trellis.advance(11 * 60);
    await look();
    const [second, ...others] = (await open()) as [Open & { address: string }];
    const { name } = (
      await trellis.db.query<{ name: string }>('select name from environment order by id')
    )[0]!;
    await trellis.db.query(end);
    assert.deepEqual([second.id === first.id, others], [false, []]);
    assert.ok(second.address.includes(`/webhook/${name}/`), second.address);
  });
}

test('one that cannot be stopped is tried again each hour, not each minute', async () => {
  const { id } = await only();
  const tried = async (why: string) => {
    await trellis.db.query(
      `update channel set state = 'ending', next_at = now() - interval '1 hour' where id = $1`,
      [id],
    );
    await look();
    const [row] = await trellis.db.query<{ isLater: boolean }>(
      `select next_at > asked_at + interval '30 minutes' as "isLater" from channel where id = $1`,
      [id],
    );
    assert.equal(row?.isLater, true, why);
  };
  await trellis.control('POST', 'faults', { case: 'api_503' });
  await tried('the provider is down');
  await trellis.control('DELETE', 'faults');
  const dead = { cause: 'grant_dead', evidence: {}, since: new Date().toISOString() };
  await trellis.db.query(`update connection set status = 'needs_reauth', fault = $1`, [JSON.stringify(dead)]);
  await trellis.advance(2);
  await tried('the connection is dead');
  await trellis.db.query(`update connection set status = 'active', fault = null`);
  await trellis.advance(2);
  await trellis.db.query('delete from channel');
});

test('where functions are off a message does nothing, and a deleted connection still ends its channels', async () => {
  const { id } = await only();
  await change();
  const [real] = (await changesOf(id, 1)) as [IncomingHttpHeaders];
  await trellis.db.query(`delete from run where trigger = 'webhook'`);
  const off = await trellis.serveAnother({ TRELLIS_FUNCTIONS: 'off' });
  try {
    const goog = Object.entries(real).filter(([name]) => name.startsWith('x-goog-')) as [string, string][];
    const answer = await fetch(`${off.baseUrl}/webhook/dev/drive`, { method: 'POST', headers: goog });
    assert.equal(answer.status, 200);
    assert.deepEqual(await runs(), []);
    const other = await connect(trellis, {
      integration: 'drive',
      provider: 'google-drive',
      account: 'grace@example.com',
    });
    await look();
    const before = (await open()).length;
    const gone = await off.call('DELETE', `/connections/${other.connectionId}?provider_config_key=drive`);
    assert.equal(gone.status, 200, gone.text);
    assert.equal((await open()).length, before - 1);
  } finally {
    await off.close();
  }
});

test('channels end with their connection, and none of their messages is accepted afterwards', async () => {
  const other = await connect(trellis, {
    integration: 'drive',
    provider: 'google-drive',
    account: 'grace@example.com',
  });
  await look();
  const [channel] = (await open()).filter(({ file_id }) => file_id === null) as [Open];
  await until(() => messagesOf(channel.id).length > 0, 'its first message');
  const [message] = messagesOf(channel.id) as [IncomingHttpHeaders];
  const gone = await trellis.call('DELETE', `/connections/${other.connectionId}?provider_config_key=drive`);
  assert.equal(gone.status, 200, gone.text);
  assert.ok((await open()).every(({ id }) => id !== channel.id));
  assert.match(await again(message, { 'x-goog-resource-state': 'change' }), /^404 /);
  await look();
  assert.ok((await ours()).every(({ id }) => id !== channel.id));
});

test('a connection is deleted although the token endpoint does not answer', async () => {
  const account = 'grace@example.com';
  const other = await connect(trellis, { integration: 'drive', provider: 'google-drive', account });
  await look();
  await trellis.advance(2 * 3600);
  // Each lasts for longer than a caller waits.
  await trellis.control('POST', 'faults', { case: 'token_timeout' });
  const gone = await Promise.race([
    trellis.call('DELETE', `/connections/${other.connectionId}?provider_config_key=drive&revoke=never`),
    pause(15_000),
  ]);
  assert.equal(gone?.status, 200);
  await trellis.control('DELETE', 'faults');
});
