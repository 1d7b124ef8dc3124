import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { actionCode, deployBody, flowConfig, syncCode } from '../../test/support/functions.ts';
import { type ClientBench, openClientBench } from './client.fixture.ts';
import { type Connection, isTrellisError, type Trellis, type TrellisEvent } from './index.ts';

let bench: ClientBench;
let client: Trellis;
let connection: Connection;
before(async () => {
  bench = await openClientBench();
  client = bench.client;
  connection = client.connection(bench.integration, bench.connectionId);
  const fails = `input: z.any(), output: z.any(),
    exec: async (nango) => { throw new nango.ActionError({ message: 'None left.', sku: 7 }) },`;
  const waits = `input: z.any(), output: z.any(),
    exec: async (nango) => {
      while (!nango.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 20));
    },`;
  const body = deployBody([
    flowConfig({ name: 'double', code: actionCode() }),
    flowConfig({ name: 'fails', code: actionCode({ more: fails }) }),
    flowConfig({ name: 'waits', code: actionCode({ more: waits }) }),
    flowConfig({ name: 'things', code: syncCode(), type: 'sync' }),
  ]);
  const deployed = await bench.service.call('POST', '/functions/deploys', { body });
  assert.equal(deployed.status, 200, deployed.text);
});
after(() => bench.close());

test('integrations are created, read, changed and deleted', async () => {
  const made = await client.integrations.create({
    provider: 'private-api-key',
    unique_key: 'own',
    integration_config: { base_url: 'https://api.example.com' },
  });
  assert.equal(made.unique_key, 'own');
  assert.equal((await client.integrations.update('own', { display_name: 'Own' })).display_name, 'Own');
  assert.equal((await client.integrations.get('own', { include: 'usage' })).usage?.connections.total, 0);
  const keys = async () => (await client.integrations.list()).map(({ unique_key }) => unique_key);
  assert.deepEqual((await keys()).sort(), ['google-sheet', 'own']);
  await client.integrations.createTest({ provider: 'google-sheet', unique_key: 'google-sheet' });
  assert.deepEqual(await client.integrations.delete('own'), { success: true });
  await assert.rejects(client.integrations.get('own'), (error) => {
    return isTrellisError(error, 'not_found', 'unknown_provider_config') && error.status === 404;
  });
  await assert.rejects(client.integrations.delete('google-sheet'), (error) => {
    return isTrellisError(error, 'integration_in_use');
  });
  assert.ok((await client.providers.list({ search: 'sheet' })).some(({ name }) => name === 'google-sheet'));
  assert.equal((await client.providers.get('google-sheet')).auth_mode, 'OAUTH2');
});

test('connections are listed by pages, each once, even if some are created meanwhile', async () => {
  const create = (id: string) =>
    client.connections.create({
      provider_config_key: 'many',
      connection_id: id,
      tags: { team: id.slice(0, 1) },
      credentials: { type: 'API_KEY', apiKey: 'a-key-of-a-user' },
    });
  await client.integrations.create({
    provider: 'private-api-key',
    unique_key: 'many',
    integration_config: { base_url: 'https://api.example.com' },
  });
  for (let at = 0; at < 23; at += 1) await create(`${at % 2 === 0 ? 'a' : 'b'}${at}`);
  const ids: string[] = [];
  for await (const page of client.connections.list({ integrationId: 'many', pageSize: 10 }).pages()) {
    ids.push(...page.map(({ connection_id }) => connection_id));
    if (ids.length === 10) await create('late');
  }
  assert.equal(ids.length, 23);
  assert.equal(new Set(ids).size, 23);
  const ofA = await client.connections.list({ integrationId: 'many', tags: { team: 'a' } }).toArray();
  assert.equal(ofA.length, 12);
  assert.deepEqual(await client.connections.list({ status: ['blocked', 'needs_reauth'] }).toArray(), []);
});

test('a connection is read with the fields that the key may read, changed, refreshed and deleted', async () => {
  const { integration, connectionId: id } = bench;
  const { connections } = client;
  const details = await connections.get(integration, id, { refreshToken: true });
  assert.equal(details.connection_id, id);
  assert.ok(details.credentials?.refresh_token);
  assert.equal((await connections.health(integration, id)).status, 'active');
  assert.equal((await connections.refresh(integration, id)).status, 'active');
  await connections.update(integration, id, { tags: { team: 'sales' } });
  await connections.metadata.set(integration, id, { a: 1, b: 2 });
  await connections.metadata.merge(integration, [id], { b: 3 });
  const after = await connections.get(integration, id, { forceRefresh: true });
  assert.deepEqual([after.tags, after.metadata], [{ team: 'sales' }, { a: 1, b: 3 }]);

  await connections.create({
    provider_config_key: integration,
    connection_id: 'imported',
    credentials: { type: 'OAUTH2', access_token: 'ya29.of-nobody', expires_at: '2020-01-01T00:00:00Z' },
  });
  assert.deepEqual(await connections.delete(integration, 'imported', { revoke: 'never' }), {
    success: true,
    revocation: 'none',
  });
  await assert.rejects(connections.delete(integration, 'imported'), (error) => {
    return isTrellisError(error, 'unknown_connection');
  });
});

test('a connection that needs reauthorization has its cause and the body of a reconnect session', async () => {
  const { integration } = bench;
  await client.connections.create({
    provider_config_key: integration,
    connection_id: 'dead',
    credentials: { type: 'OAUTH2', access_token: 'ya29.old', expires_at: '2020-01-01T00:00:00Z' },
  });
  const dead = client.connection(integration, 'dead');
  const reported = await dead.errorOf(await dead.fetch('/v4/spreadsheets/x'));
  assert.ok(isTrellisError(reported, 'connection_needs_reauth'));
  // Though it came in the provider's own shape, which knows texts alone.
  assert.deepEqual(reported.payload, await client.connections.health(integration, 'dead'));
  assert.ok(reported.payload.reconnect);
  await client.connectSessions.reconnect(reported.payload.reconnect.body);
  try {
    await client.connections.get(integration, 'dead');
    assert.fail();
  } catch (error) {
    assert.ok(isTrellisError(error, 'invalid_credentials'));
    const { reconnect } = error.payload.health;
    assert.ok(reconnect);
    const session = await client.connectSessions.reconnect(reconnect.body);
    assert.match(session.connect_link, /session_token=/);
  }
});

test('sessions, variables, keys, tickets and endpoints are created and deleted', async () => {
  const session = await client.connectSessions.create({ end_user: { id: 'ada' } });
  const held = bench.open({ key: session.token });
  assert.ok((await held.integrations.list()).length > 0);
  await held.request('DELETE /connect/session');

  await client.variables.set({ A: '1', B: '2' });
  await client.variables.remove(['A']);
  assert.deepEqual(await client.variables.list(), [{ name: 'B', value: '2' }]);

  const { id, secret } = await client.keys.create({ name: 'reader', scopes: ['records:read'] });
  await assert.rejects(bench.open({ key: secret }).variables.list(), (error) => {
    return isTrellisError(error, 'forbidden') && /environment:read/.test(error.message);
  });
  assert.equal((await client.keys.update(id, { name: 'other' })).name, 'other');
  await client.keys.delete(id);
  assert.ok(!(await client.keys.list()).some((key) => key.id === id));

  const endpoint = await client.events.endpoints.create({ url: 'https://app.example.com/hooks' });
  await client.events.endpoints.update(endpoint.id, { enabled: false });
  const [listed] = await client.events.endpoints.list().toArray();
  assert.equal(listed?.enabled, false);
  await client.events.endpoints.delete(endpoint.id);
});

test('any other route is called by its name, with types', async () => {
  const { data } = await client.request('GET /environment/settings');
  assert.equal(data.webhook_url, null);
  const made = await client.request('POST /tickets', {
    body: {
      provider_config_key: bench.integration,
      connection_id: bench.connectionId,
      methods: ['GET'],
      paths: ['/**'],
    },
  });
  assert.match(made.data.ticket, /^trt_/);
  await assert.rejects(
    client.request('GET /operations/{id}', { path: { id: '0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b' } }),
    (error) => isTrellisError(error, 'not_found'),
  );
  await assert.rejects(client.request('GET /operations', { query: { limit: 100_000 } }), (error) => {
    return isTrellisError(error, 'invalid_query_params') && error.errors[0]?.path[0] === 'limit';
  });
  const document = await client.raw('GET /openapi.json');
  assert.equal(document.headers.get('content-type'), 'application/json; charset=utf-8');
  await document.body?.cancel();
});

test('an action runs with or without waiting for its output', async () => {
  const { actions } = connection;
  assert.deepEqual(await actions.run<{ n: number }>('double', { n: 21 }), { n: 42 });
  const run = await actions.runAsync<{ n: number }>('double', { n: 4 }, { maxRetries: 1 });
  assert.deepEqual(await run.result({ pollMs: 50 }), { n: 8 });
  assert.deepEqual(await actions.get(run.id).result(), { n: 8 });
  const failing = await actions.runAsync('fails');
  for (const call of [() => actions.run('fails'), () => failing.result({ pollMs: 50 })]) {
    await assert.rejects(call, (error) => {
      assert.ok(isTrellisError(error, 'action_script_runtime_error'));
      assert.deepEqual(error.payload, { message: 'None left.', sku: 7 });
      return true;
    });
  }
  await assert.rejects(actions.run('double', { n: 'many' }), (error) => {
    return isTrellisError(error, 'invalid_action_input') && error.errors.length > 0;
  });
  const begun = await actions.runAsync('waits');
  await assert.rejects(begun.result({ timeoutMs: 200, pollMs: 50 }), (error) =>
    isTrellisError(error, 'timeout'),
  );
});

test('a run without an available result is not_found immediately, even while it runs', async () => {
  const { actions } = connection;
  const isGone = (error: unknown) => isTrellisError(error, 'not_found');
  await assert.rejects(actions.get('0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b').result(), isGone);

  const { integration } = bench;
  await client.connections.create({
    provider_config_key: integration,
    connection_id: 'leaving',
    credentials: { type: 'OAUTH2', access_token: 'ya29.x', expires_at: '2100-01-01T00:00:00Z' },
  });
  const ofLeaving = await client.connection(integration, 'leaving').actions.runAsync('waits');
  const ofRemoved = await actions.runAsync('waits');
  const waiting = [ofLeaving, ofRemoved].map((run) => assert.rejects(run.result({ pollMs: 50 }), isGone));
  await client.connections.delete(integration, 'leaving', { revoke: 'never' });
  const path = `/integrations/${integration}/functions/waits?type=action`;
  assert.equal((await bench.service.call('DELETE', path)).status, 200);
  await Promise.all(waiting);
});

test('a key that may not read runs can wait for a result', async () => {
  const key = await bench.service.keyWith('functions:write');
  const { actions } = bench.open({ key }).connection(bench.integration, bench.connectionId);
  const run = await actions.runAsync<{ n: number }>('double', { n: 3 });
  assert.deepEqual(await run.result({ pollMs: 50 }), { n: 6 });
});

test('a sync is paused, started, triggered and rescheduled', async () => {
  const { syncs } = connection;
  await syncs.pause('things');
  assert.equal((await syncs.status())[0]?.status, 'PAUSED');
  await syncs.start(['things']);
  await syncs.trigger('things', { opts: { reset: true } });
  assert.deepEqual(await syncs.setFrequency('things', 'every day'), { frequency: 'day' });
  assert.equal((await syncs.status(['things']))[0]?.frequency, '1d');
  await assert.rejects(syncs.trigger('none'), (error) =>
    isTrellisError(error, 'no_syncs_found', 'unknown_sync'),
  );
});

test('events are listed and followed', async () => {
  const before = await client.events.list({ types: ['connection.*'] }).toArray();
  assert.ok(before.some(({ type }) => type === 'connection.created'));
  let after: string | undefined;
  for await (const page of client.events.list({ pageSize: 5 }).pages()) after = page.next_after;
  const stop = new AbortController();
  const seen: TrellisEvent[] = [];
  // Events of what earlier tests have started may still come.
  const types = ['connection.created'] as const;
  const following = async () => {
    for await (const page of client.events.follow({ after, types, waitS: 10, signal: stop.signal })) {
      seen.push(...page.events);
      if (seen.length >= 2) stop.abort(new Error('enough'));
    }
  };
  const ended = assert.rejects(following, /enough/);
  const { integration } = bench;
  const credentials = { type: 'OAUTH2', access_token: 'x', expires_at: '2020-01-01T00:00:00Z' };
  for (const id of ['one', 'two'])
    await client.connections.create({ provider_config_key: integration, connection_id: id, credentials });
  await ended;
  const created = seen.flatMap((event) =>
    event.type === 'connection.created' ? [event.data.connection_id] : [],
  );
  assert.deepEqual(created, ['one', 'two']);
  await assert.rejects(client.events.list({ after: '99999999' }).toArray(), (error) => {
    return isTrellisError(error, 'invalid_cursor');
  });
});
