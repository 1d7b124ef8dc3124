// Two nodes behind a balancer that gives each request to the other one: nothing may need to come back to where it began.
// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { hashPassword } from 'better-auth/crypto';
import { prepareOwner } from '../../server/users/invitations.ts';
import { type Balancer, openBalancer } from '../chaos/balancer.ts';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';
import { fromAnywhere, openPerson, password, tokenIn } from '../support/person.ts';
import { freePort } from '../support/ports.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let balancer: Balancer;
let trellis: TestTrellis;
let another: Awaited<ReturnType<TestTrellis['serveAnother']>>;
let own: Awaited<ReturnType<typeof connect>>;
before(async () => {
  const ports = [await freePort(), await freePort()];
  balancer = await openBalancer(() => ports);
  trellis = await openTrellis({ ...fromAnywhere, BASE_URL: balancer.url, PORT: String(ports[0]) });
  another = await trellis.serveAnother({ PORT: String(ports[1]) });
  // Each step of the trip is another node's: session, beginning, callback.
  own = await connect(trellis);
});
after(async () => {
  await balancer.close();
  await another.close();
  await trellis.close();
});

test('a ticket that one node makes is good at the other', async () => {
  for (let turn = 0; turn < 2; turn += 1) {
    const made = await trellis.call('POST', '/tickets', {
      body: {
        provider_config_key: own.integration,
        connection_id: own.connectionId,
        methods: ['GET'],
        paths: ['/v4/spreadsheets/**'],
      },
    });
    const { ticket } = made.body.data as { ticket: string };
    trellis.watch.made('ticket', ticket);
    const { status, text } = await trellis.call('GET', '/proxy/v4/spreadsheets/none', {
      key: ticket,
      headers: own.headers,
    });
    // The provider's own word.
    assert.equal(status, 404, text);
  }
});

test('a user who signs in at one node is signed in at the other, and signs out at both', async () => {
  const link = await prepareOwner(trellis.db, {
    settings: { isOff: false, admin: undefined, oidc: undefined },
    baseUrl: trellis.baseUrl,
    hashPassword,
    at: new Date(),
  });
  const person = openPerson(trellis);
  const body = { token: tokenIn(link!), name: 'Ada', email: 'ada@example.com', password };
  assert.equal((await person.call('POST', '/users', { body })).status, 201);
  assert.equal((await person.signIn('ada@example.com', password)).status, 200);
  const list = async () => (await person.call('GET', '/connections', { environment: 'dev' })).status;
  assert.deepEqual([await list(), await list(), await list()], [200, 200, 200]);
  const cookie = person.cookie();
  assert.equal((await person.auth('POST', '/sign-out', {})).status, 200);
  const kept = () =>
    person
      .call('GET', '/connections', { environment: 'dev', headers: { cookie } })
      .then(({ status }) => status);
  // A cookie is cached for a second at most.
  while ((await kept()) !== 401 || (await kept()) !== 401)
    await new Promise((resolve) => setTimeout(resolve, 50));
});

test('an agent whose every message reaches another node lists tools and calls them', async () => {
  const deployed = await trellis.call('POST', '/sync/deploy', {
    body: deployBody([flowConfig({ name: 'double', code: actionCode({ more: 'readOnly: true,' }) })]),
  });
  assert.equal(deployed.status, 200, deployed.text);
  for (let turn = 0; turn < 2; turn += 1) {
    const client = new Client({ name: 'test', version: '1' });
    const transport = new StreamableHTTPClientTransport(new URL(`${trellis.baseUrl}/mcp`), {
      requestInit: { headers: { ...own.headers, authorization: `Bearer ${trellis.keys.dev}` } },
    });
    await client.connect(transport as Parameters<typeof client.connect>[0]);
    const { tools } = await client.listTools();
    assert.deepEqual(
      tools.map(({ name }) => name),
      ['double'],
    );
    const { structuredContent } = await client.callTool({ name: 'double', arguments: { n: 4 } });
    assert.deepEqual(structuredContent, { n: 8 });
    await client.close();
  }
});
