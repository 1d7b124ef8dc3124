// All lists take `cursor` and `limit`. All routes that name an integration take `integration_id`.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import { createFirstOwner } from '../../server/users/invitations.ts';
import { type OpenApi, operationsOf, type Placed, readDocument } from '../support/openapi.ts';
import { fromAnywhere, openPerson, password, type TestPerson } from '../support/person.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, key } from './scenario.ts';
import { prepareScenarios, scenarios } from './scenarios.ts';

let trellis: TestTrellis;
let given: Fixture;
let owner: TestPerson;
let document: OpenApi;
before(async () => {
  trellis = await openTrellis(fromAnywhere);
  given = await prepareScenarios(trellis);
  const user = { name: 'Owner', email: 'owner@example.com', passwordHash: await hashPassword(password) };
  await trellis.db.transaction((tx) => createFirstOwner(tx, { user, at: new Date() }));
  owner = openPerson(trellis);
  await owner.signIn(user.email, password);
  await connect(trellis);
  for (const name of ['a', 'b'])
    await trellis.call('POST', '/events/endpoints', { body: { url: `https://receiver.invalid/${name}` } });
  document = await readDocument(trellis);
});
after(() => trellis.close());

/** Answers a plain array, as official clients expect it. */
const isArray = (name: string) => name === 'GET /environment-variables';
const lists = () =>
  operationsOf(document.paths).filter(
    ({ method, operation: { responses } }) =>
      method === 'GET' &&
      responses[200]?.content?.['application/json']?.schema?.properties?.next_cursor !== undefined,
  );

/** The path that the table or the document shows for a list, and how it is called. */
async function ask({ name, path, operation }: Placed, query: Record<string, string>) {
  const { path: shown, headers = {} } = scenarios[name]?.request(given) ?? { path };
  const url = new URL(shown, 'http://list');
  for (const [parameter, value] of Object.entries(query)) url.searchParams.append(parameter, value);
  const target = `${url.pathname}${url.search}`;
  const isOfPeople = (operation.security ?? []).every((way) => 'cookie' in way);
  const { status, body, text } = isOfPeople
    ? await owner.call('GET', target)
    : await trellis.call('GET', target, { headers });
  return { status, body: body as Record<string, unknown>, text };
}

/** The only array of a response: its entries. */
const entriesOf = (body: Record<string, unknown>) =>
  Object.values(body).find((value) => Array.isArray(value))!;

test('each route whose summary lists things answers next_cursor', () => {
  const named = operationsOf(document.paths).filter(
    ({ method, name, operation: { summary = '' } }) =>
      method === 'GET' && summary.startsWith('List ') && !isArray(name) && name !== 'GET /scripts/config',
  );
  const known = new Set(lists().map(({ name }) => name));
  assert.deepEqual(
    named.map(({ name }) => name).filter((name) => !known.has(name)),
    [],
  );
  assert.ok(known.size >= 20, String(known.size));
});

test('each list is followed by its cursor to the end, and has all entries once', async () => {
  for (const placed of lists()) {
    const all = (await ask(placed, {})).body;
    const found: unknown[] = [];
    let cursor: string | null | undefined;
    let pages = 0;
    do {
      const { status, body, text } = await ask(placed, { limit: '1', ...(cursor && { cursor }) });
      assert.equal(status, 200, `${placed.name}: ${text}`);
      const entries = entriesOf(body);
      assert.ok(entries.length <= 1, placed.name);
      found.push(...entries);
      cursor = body.next_cursor as string | null;
      pages += 1;
      assert.ok(pages <= 5_000, placed.name);
    } while (cursor !== null);
    const ids = (entries: unknown) =>
      (entries as Record<string, unknown>[]).map(
        (entry) => entry.id ?? entry.name ?? entry.position ?? entry.unique_key ?? entry.type ?? entry.sync,
      );
    // Calls of this test add operations of their own.
    if (placed.path !== '/operations') assert.deepEqual(ids(found), ids(entriesOf(all)), placed.name);
  }
});

test('invalid cursors and limits are 400, and name the parameter', async () => {
  for (const placed of lists()) {
    for (const query of [
      { limit: '0' },
      { limit: '-1' },
      { limit: '1e9' },
      { limit: 'abc' },
      { limit: '1000000000' },
      { cursor: '' },
      { cursor: '%00' },
      { cursor: 'no-such-cursor!' },
      { cursor: 'x'.repeat(5_000) },
    ]) {
      const { status, body, text } = await ask(placed, query);
      assert.equal(status, 400, `${placed.name} ${JSON.stringify(query).slice(0, 60)}: ${text}`);
      assert.match((body.error as { code: string }).code, /^invalid_(query_params|cursor)$/);
    }
  }
});

test('a cursor of another list is 400, and a cursor that names no list is accepted', async () => {
  const endpoints = '/events/endpoints?limit=1';
  const { next_cursor: cursor, next_after: position } = (await trellis.call('GET', endpoints)).body;
  const { status, body } = await trellis.call('GET', `/events?limit=1&cursor=${cursor}`);
  assert.deepEqual([status, (body.error as { code: string }).code], [400, 'invalid_query_params']);
  const older = Buffer.from(String(position)).toString('base64url');
  const at = async (given: unknown) => {
    const { body: page } = await trellis.call('GET', `${endpoints}&cursor=${given}`);
    return { ids: (page.endpoints as { id: string }[]).map(({ id }) => id), next: page.next_cursor };
  };
  const following = await at(cursor);
  assert.equal(following.ids.length, 1);
  assert.deepEqual(await at(older), following);
});

test('a cursor and the older parameter for the same position must agree', async () => {
  const { body } = await trellis.call('GET', '/events?limit=1');
  const { next_cursor: cursor, next_after: position } = body as Record<string, string>;
  const both = (after: string) => trellis.call('GET', `/events?limit=1&cursor=${cursor}&after=${after}`);
  assert.equal((await both(position!)).status, 200);
  const other = await both('0');
  assert.equal(other.status, 400);
  assert.match(other.text, /differs from that of `cursor`/);
  const cursorOf = async (query: string) =>
    (await trellis.call('GET', `/connections?${query}`)).body.next_cursor as string;
  const listed = (query: string) => trellis.call('GET', `/connections?${query}`);
  const byUse = `sort=last_used&cursor=${await cursorOf('sort=last_used&limit=1')}`;
  assert.equal((await listed(`${byUse}&page=1&limit=1`)).status, 200);
  assert.equal((await listed(`${byUse}&page=0`)).status, 400);
  assert.equal((await listed(`${byUse}&limit=2`)).status, 400);
  // A position in the order of creation: it has no page, and is none in another order.
  const next = `cursor=${await cursorOf('limit=1')}`;
  assert.equal((await listed(`${next}&limit=2`)).status, 200);
  assert.equal((await listed(`${next}&page=1`)).status, 400);
  const elsewhere = await listed(`${next}&sort=last_used`);
  assert.equal(elsewhere.status, 400);
  assert.match(elsewhere.text, /"path":\["cursor"\]/);
});

test('connections are filtered by both spellings of integration and connection', async () => {
  const idsOf = async (query: string) => {
    const { status, body, text } = await trellis.call('GET', `/connections?${query}`);
    assert.equal(status, 200, text);
    return (body.connections as { connection_id: string }[]).map(({ connection_id: id }) => id);
  };
  const { connectionId } = given;
  for (const query of [`connectionId=${connectionId}`, `connection_id=${connectionId}`])
    assert.deepEqual(await idsOf(query), [connectionId], query);
  const ofIntegration = await idsOf(`integrationId=${key}`);
  assert.ok(ofIntegration.includes(connectionId));
  for (const name of ['integration_id', 'provider_config_key'])
    assert.deepEqual(await idsOf(`${name}=${key}`), ofIntegration, name);
  for (const query of [
    'connection_id=a&connectionId=b',
    'integration_id=a&integrationId=b',
    'integration_id=a&provider_config_key=b',
    'provider_config_key=a&integrationId=b',
  ])
    assert.equal((await trellis.call('GET', `/connections?${query}`)).status, 400, query);
});

const older = ['provider_config_key', 'unique_key', 'integrationId'];

test('a body or query takes integration_id for each older spelling, and refuses two different ones', async () => {
  let count = 0;
  for (const [name, { request, right }] of Object.entries(scenarios)) {
    const { path, headers = {}, body } = request(given);
    const method = name.split(' ', 1)[0]!;
    const own = older.find((spelling) => body !== undefined && spelling in (body as object));
    const isInQuery = path.includes('provider_config_key=');
    if ((own === undefined && !isInQuery) || method === 'DELETE' || right !== 200) continue;
    count += 1;
    const { [own ?? '']: value, ...rest } = (body ?? {}) as Record<string, unknown>;
    const renamed = own === undefined ? body : { ...rest, integration_id: value };
    const target = path.replace('provider_config_key=', 'integration_id=');
    const send = (sent: unknown, at: string) =>
      trellis.call(method, at, { headers, ...(sent !== undefined && { body: sent }) });
    const conflict =
      own === undefined
        ? await send(body, `${target}&provider_config_key=another`)
        : await send({ ...(body as object), integration_id: 'another' }, path);
    assert.equal(conflict.status, 400, `${name}: ${conflict.text}`);
    assert.match(conflict.text, /another spelling of the same parameter/, name);
    const answer = await send(renamed, target);
    assert.equal(answer.status, right, `${name}: ${answer.text}`);
  }
  assert.ok(count >= 10, String(count));
});

/** The objects in a response with an older spelling of the integration, except in texts that are not ours. */
function namedIn(value: unknown): Record<string, unknown>[] {
  if (Array.isArray(value)) return value.flatMap(namedIn);
  if (typeof value !== 'object' || value === null) return [];
  const fields = value as Record<string, unknown>;
  const isNamed = [...older, 'providerConfigKey'].some((name) => Object.hasOwn(fields, name));
  return [...(isNamed ? [fields] : []), ...Object.values(fields).flatMap(namedIn)];
}

test('each list and event has integration_id beside the older spelling', async () => {
  let count = 0;
  for (const placed of lists())
    for (const fields of namedIn((await ask(placed, {})).body)) {
      // The document of a type, and an example of a value.
      if (typeof fields.provider_config_key === 'object' && fields.provider_config_key !== null) continue;
      const own = [...older, 'providerConfigKey'].find((name) => Object.hasOwn(fields, name))!;
      assert.equal(fields.integration_id, fields[own], `${placed.name}: ${JSON.stringify(fields)}`);
      count += 1;
    }
  assert.ok(count >= 10, String(count));
});

test('the proxy takes Integration-Id, and uses Provider-Config-Key if both are sent', async () => {
  const at = (headers: Record<string, string>) =>
    trellis.call('POST', '/proxy/v4/spreadsheets', { body: {}, headers });
  const connection = { 'connection-id': given.connectionId };
  assert.equal((await at({ ...connection, 'integration-id': key })).status, 200);
  const both = { ...connection, 'integration-id': 'another', 'provider-config-key': key };
  assert.equal((await at(both)).status, 200);
  assert.equal((await at({ ...connection, 'integration-id': 'another' })).status, 404);
});

test('a route of records takes Integration-Id for Provider-Config-Key', async () => {
  const call = (headers: Record<string, string>) =>
    trellis.call('GET', '/records?model=M', {
      headers: { ...headers, 'connection-id': given.connectionId },
    });
  assert.equal((await call({ 'integration-id': key })).status, 200);
  const conflict = await call({ 'integration-id': 'another', 'provider-config-key': key });
  assert.deepEqual(
    [conflict.status, (conflict.body.error as { code: string }).code],
    [400, 'invalid_headers'],
  );
});
