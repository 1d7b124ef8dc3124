// All proxied routes with every ticket that does not count: none passes, on the paths that have a prefix and on those
// that have none. Elsewhere no ticket passes at all: see callers.test.ts.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';
import type { Fixture } from './scenario.ts';
import { prepareScenarios, scenarios } from './scenarios.ts';

const methods = ['GET', 'POST', 'PATCH', 'PUT', 'DELETE'];
const proxied = Object.entries(scenarios).filter(([name]) => / \/(proxy|v4)\//.test(name));
const methodOf = (name: string) => name.split(' ', 1)[0]!;

let trellis: TestTrellis;
let given: Fixture;
/** Tickets for every method and path, and how each is refused. */
const tickets: { what: string; ticket: string; refusal: [number, string] }[] = [];
let right: string;

before(async () => {
  trellis = await openTrellis();
  given = await prepareScenarios(trellis);
  const altered: [number, string] = [401, 'invalid_ticket'];
  const short = await ticketOf({ expires_in: 1 });
  await trellis.advance(2);
  right = await ticketOf({});
  const other = await ticketOf({ paths: ['/v4/*'] });
  const [signed = '', signature = ''] = right.split('.');
  const [, otherSignature = ''] = other.split('.');
  const [prefix, keyId, claims = ''] = /^([a-z]+)_(\d+)_(.*)$/.exec(signed)!.slice(1);
  const told = JSON.parse(Buffer.from(claims, 'base64url').toString()) as Record<string, unknown>;
  const withClaims = (changed: object) =>
    Buffer.from(JSON.stringify({ ...told, ...changed })).toString('base64url');
  const foreign = await foreignTicket();
  const revoked = await makerOf({ scopes: ['proxy:read', 'proxy:write'] });
  const ofRevoked = await ticketOf({}, revoked.secret);
  await trellis.call('DELETE', `/environment/api-keys/${revoked.id}`);
  tickets.push(
    { what: 'expired', ticket: short, refusal: altered },
    { what: 'of a revoked key', ticket: ofRevoked, refusal: altered },
    { what: "with another's signature", ticket: `${signed}.${otherSignature}`, refusal: altered },
    { what: 'without a signature', ticket: `${signed}.`, refusal: altered },
    { what: 'with a cut signature', ticket: `${signed}.${signature.slice(0, -2)}`, refusal: altered },
    {
      what: 'that ends later than it was signed for',
      ticket: `${prefix}_${keyId}_${withClaims({ x: Date.now() + 86_400_000 })}.${signature}`,
      refusal: altered,
    },
    {
      what: 'for another key',
      ticket: `${prefix}_${given.keyId}_${claims}.${signature}`,
      refusal: altered,
    },
    {
      what: 'of another environment under a key of this one',
      ticket: foreign.replace(/^([a-z]+)_\d+_/, `$1_${keyId}_`),
      refusal: altered,
    },
    { what: 'of another environment', ticket: foreign, refusal: [403, 'proxy_rule_denied'] },
    {
      what: 'for another connection',
      ticket: await ticketOf({ connection_id: await anotherConnection() }),
      refusal: [403, 'proxy_rule_denied'],
    },
    {
      what: 'for other paths',
      ticket: await ticketOf({ paths: ['/drive/**'] }),
      refusal: [403, 'proxy_rule_denied'],
    },
    {
      what: 'for other methods',
      ticket: await ticketOf({ methods: ['PUT'] }),
      refusal: [403, 'proxy_rule_denied'],
    },
  );
});
after(() => trellis.close());

async function ticketOf(wanted: object, key = trellis.keys.dev): Promise<string> {
  const { body, text } = await trellis.call('POST', '/tickets', {
    key,
    body: {
      provider_config_key: 'google-sheet',
      connection_id: given.connectionId,
      methods,
      paths: ['/**'],
      ...wanted,
    },
  });
  assert.ok(body.data, text);
  return (body.data as { ticket: string }).ticket;
}

async function makerOf(wanted: object): Promise<{ id: number; secret: string }> {
  const made = await trellis.call('POST', '/environment/api-keys', { body: { name: 'maker', ...wanted } });
  return made.body.data as { id: number; secret: string };
}

/** Imported, with a token that no provider knows. */
async function anotherConnection({ key = trellis.keys.dev, id = 'somebody-else' } = {}): Promise<string> {
  const credentials = { type: 'OAUTH2', access_token: 'a-token-of-somebody-else' };
  const body = { provider_config_key: 'google-sheet', connection_id: id, credentials };
  const made = await trellis.call('POST', '/connections', { key, body });
  assert.equal(made.status, 201, made.text);
  return id;
}

/** For a connection of the other environment, whose integration has the same ID. */
async function foreignTicket(): Promise<string> {
  const key = trellis.keys.prod;
  await trellis.call('POST', '/integrations/quickstart', {
    key,
    body: { provider: 'google-sheet', unique_key: 'google-sheet' },
  });
  return ticketOf({ connection_id: await anotherConnection({ key }) }, key);
}

for (const [name, { request, right: served }] of proxied) {
  test(`${name}: a ticket passes that is for it, and none that is expired, altered or for something else`, async () => {
    const { path, ...options } = request(given);
    const ask = (key: string) => trellis.call(methodOf(name), path, { ...options, key });
    assert.equal((await ask(right)).status, served);
    for (const { what, ticket, refusal } of tickets) {
      const answer = await ask(ticket);
      const refused = [answer.status, answer.headers.get('x-trellis-error')];
      assert.deepEqual(refused, refusal, `${what}: ${answer.text}`);
    }
  });
}

test('a ticket of another environment acts on the connection of its own, though both have the same IDs', async () => {
  const key = trellis.keys.prod;
  const foreign = await ticketOf(
    { connection_id: await anotherConnection({ key, id: given.connectionId }) },
    key,
  );
  const { path, ...options } = scenarios['GET /proxy/v4/spreadsheets/none']!.request(given);
  const ask = (ticket: string) => trellis.call('GET', path, { ...options, key: ticket });
  assert.equal((await ask(right)).status, 404, 'whose token the provider knows');
  const answer = await ask(foreign);
  assert.deepEqual(
    [answer.status, answer.headers.get('x-trellis-error')],
    [401, null],
    'the provider refuses',
  );
});
