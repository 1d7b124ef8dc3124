import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connection, ok, openTicketed, place, type Ticketed } from './ticket-subject.ts';

let trellis: Ticketed['trellis'];
let provider: Ticketed['provider'];
let ticketOf: Ticketed['ticketOf'];
let addConnection: Ticketed['addConnection'];
let ask: Ticketed['ask'];
let codeOf: Ticketed['codeOf'];
let close: Ticketed['close'];

before(async () => {
  ({ trellis, provider, ticketOf, addConnection, ask, codeOf, close } = await openTicketed());
});
after(() => close());

async function keyOf(given: Record<string, unknown>): Promise<{ id: number; secret: string }> {
  const { status, body, text } = await trellis.call('POST', '/environment/api-keys', {
    body: { name: 'k', scopes: ['proxy:read', 'proxy:write'], ...given },
  });
  assert.equal(status, 201, text);
  return body.data as { id: number; secret: string };
}

test('a ticket lets its methods pass on its paths, of its connection, and nothing else', async () => {
  provider.answering = ok;
  const reading = await ticketOf({ paths: ['/open/*', '/also/**'] });
  const writing = await ticketOf({ methods: ['POST', 'PATCH'], paths: ['/open/*'] });
  const cases: [string, string, string, number | string][] = [
    [reading, 'GET', '/proxy/open/a', 200],
    [reading, 'HEAD', '/proxy/open/a?b=c', 200],
    [reading, 'GET', '/proxy/also/a/b', 200],
    [reading, 'GET', '/proxy/open/a/b', '403 proxy_rule_denied'],
    [reading, 'GET', '/proxy/shut', '403 proxy_rule_denied'],
    [reading, 'POST', '/proxy/open/a', '403 proxy_rule_denied'],
    [reading, 'OPTIONS', '/proxy/open/a', '403 proxy_rule_denied'],
    [writing, 'POST', '/proxy/open/a', 200],
    [writing, 'PATCH', '/proxy/open/a', 200],
    [writing, 'GET', '/proxy/open/a', '403 proxy_rule_denied'],
    [writing, 'DELETE', '/proxy/open/a', '403 proxy_rule_denied'],
  ];
  for (const [ticket, method, path, expected] of cases)
    assert.equal(await codeOf(ticket, path, { method }), expected, `${method} ${path}`);
  provider.seen = [];
  for (const headers of [
    { 'connection-id': 'bob' },
    { 'connection-id': 'nobody' },
    { 'provider-config-key': 'other' },
    { 'base-url-override': provider.origin },
  ])
    assert.equal(await codeOf(reading, '/proxy/open/a', { headers }), '403 proxy_rule_denied');
  assert.deepEqual(provider.seen, []);
});

test('a ticket is taken from the Authorization header alone', async () => {
  const ticket = await ticketOf({});
  for (const name of ['ticket', 'access_token', 'authorization', 'token']) {
    const answer = await trellis.call('GET', `/proxy/open/a?${name}=${ticket}`, {
      key: undefined,
      headers: place,
    });
    assert.equal(answer.status, 401, name);
  }
});

test('no ticket is wider than the key that makes it, neither when it is made nor later', async () => {
  provider.answering = ok;
  const reader = await keyOf({ scopes: ['proxy:read'] });
  const body = { ...connection, methods: ['GET', 'DELETE'], paths: ['/**'] };
  const refused = await trellis.call('POST', '/tickets', { key: reader.secret, body });
  assert.deepEqual([refused.status, /proxy:write/.test(refused.text)], [403, true]);
  assert.equal(
    await codeOf(await ticketOf({}, reader.secret), '/proxy/open/a', {
      headers: { 'trellis-proxy-X-HTTP-Method-Override': 'DELETE' },
    }),
    '403 proxy_rule_denied',
  );

  const ruled = await keyOf({ proxy_rules: [{ effect: 'deny', path: '/open/shut' }] });
  const wide = await ticketOf({ methods: ['GET', 'POST'], paths: ['/**'] }, ruled.secret);
  const codes = () =>
    Promise.all([
      codeOf(wide, '/proxy/open/a'),
      codeOf(wide, '/proxy/open/shut'),
      codeOf(wide, '/proxy/open/a', { method: 'POST' }),
    ]);
  assert.deepEqual(await codes(), [200, '403 proxy_rule_denied', 200]);
  const at = `/environment/api-keys/${ruled.id}`;
  await trellis.call('PATCH', at, { body: { scopes: ['proxy:read'] } });
  const { status, text } = await ask(wide, '/proxy/open/a', { method: 'POST' });
  assert.deepEqual([status, /proxy:write/.test(text)], [403, true]);
  assert.equal(await codeOf(wide, '/proxy/open/a'), 200);
  await trellis.call('PATCH', at, { body: { scopes: ['records:read'] } });
  assert.equal((await ask(wide, '/proxy/open/a')).status, 403);
  await trellis.call('PATCH', at, { body: { scopes: ['*'], proxy_rules: [] } });
  assert.deepEqual(await codes(), [200, 200, 200]);
  await trellis.call('DELETE', at);
  assert.deepEqual(await codes(), Array(3).fill('401 invalid_ticket'));
});

test('a key that may read alone cannot turn a GET into something else, and calls every path', async () => {
  provider.answering = ok;
  const { secret } = await keyOf({ scopes: ['proxy:read'] });
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND', 'REPORT', 'SEARCH'])
    assert.equal(await codeOf(secret, '/proxy/open/a', { method }), '403 forbidden', method);
  for (const method of ['GET', 'HEAD'])
    assert.equal(await codeOf(secret, '/proxy/group%2Fa//b;c?d=%2F', { method }), 200, method);
  const override = { headers: { 'trellis-proxy-X-HTTP-Method-Override': 'DELETE' } };
  assert.equal(await codeOf(secret, '/proxy/open/a', override), '403 proxy_rule_denied');
  assert.equal(await codeOf(secret, '/proxy/open/a?_method=DELETE'), '403 proxy_rule_denied');
  const writer = await keyOf({});
  assert.equal(await codeOf(writer.secret, '/proxy/open/a?_method=DELETE'), 200);
});

test('a ticket ends with its time, with its key and with its connection', async () => {
  provider.answering = ok;
  const { secret } = await keyOf({ expires_at: new Date(Date.now() + 300_000).toISOString() });
  const [short, ofKey, hour] = [
    await ticketOf({ expires_in: 60 }),
    await ticketOf({ expires_in: 3600 }, secret),
    await ticketOf({ expires_in: 3600 }),
  ];
  const codes = () => Promise.all([short, ofKey, hour].map((ticket) => codeOf(ticket, '/proxy/open/a')));
  assert.deepEqual(await codes(), [200, 200, 200]);
  await trellis.advance(61);
  assert.deepEqual(await codes(), ['401 invalid_ticket', 200, 200]);
  await trellis.advance(240);
  assert.deepEqual(await codes(), ['401 invalid_ticket', '401 invalid_ticket', 200]);
  await trellis.call('DELETE', '/connections/alice?provider_config_key=own');
  assert.equal((await ask(hour, '/proxy/open/a')).status, 400);
  await addConnection('alice');
  assert.equal(await codeOf(hour, '/proxy/open/a'), '403 proxy_rule_denied');
  assert.equal(await codeOf(await ticketOf({}), '/proxy/open/a'), 200);
});

test('what cannot be a ticket is refused by name, and makes none', async () => {
  const wrong: [Record<string, unknown>, string][] = [
    [{ methods: [] }, 'methods'],
    [{ methods: ['get'] }, 'methods'],
    [{ paths: [] }, 'paths'],
    [{ paths: ['/a/../b'] }, 'paths'],
    [{ paths: ['/a%2fb'] }, 'paths'],
    [{ paths: Array.from({ length: 10 }, (_, at) => `/${at}${'x'.repeat(500)}`) }, 'paths'],
    [{ max_bytes: 0 }, 'max_bytes'],
    [{ expires_in: 3601 }, 'expires_in'],
    [{ expires_in: 0 }, 'expires_in'],
    [{ scopes: ['*'] }, 'scopes'],
  ];
  for (const [change, field] of wrong) {
    const body = { ...connection, methods: ['GET'], paths: ['/a'], ...change };
    const { status, text } = await trellis.call('POST', '/tickets', { body });
    assert.deepEqual([status, text.includes(field)], [400, true], text);
  }
  const body = { ...connection, connection_id: 'nobody', methods: ['GET'], paths: ['/a'] };
  assert.equal((await trellis.call('POST', '/tickets', { body })).status, 400);
});

test('a page may call with a ticket, and no answer acts on the address of the service', async () => {
  const ticket = await ticketOf({});
  provider.answering = (_request, response) => {
    response.setHeader('set-cookie', 'a=b').setHeader('clear-site-data', '"*"');
    response.setHeader('strict-transport-security', 'max-age=1').setHeader('service-worker-allowed', '/');
    response.setHeader('nel', '{}').setHeader('report-to', '{}');
    response.setHeader('content-type', 'text/html').end('<script>1</script>');
  };
  const { headers } = await ask(ticket, '/proxy/open/a', { headers: { origin: 'https://page.example' } });
  assert.equal(headers['access-control-allow-origin'], '*');
  assert.equal(headers['content-security-policy'], 'sandbox');
  for (const name of [
    'set-cookie',
    'clear-site-data',
    'strict-transport-security',
    'service-worker-allowed',
    'nel',
    'report-to',
  ])
    assert.equal(headers[name], undefined, name);
  assert.equal((await ask(trellis.keys.dev, '/proxy/open/a')).headers['set-cookie']?.[0], 'a=b');
});

test('the creation of a ticket and its calls are logged, the ticket itself is not', async () => {
  provider.answering = ok;
  const made = await trellis.call('POST', '/tickets', {
    body: { ...connection, methods: ['GET'], paths: ['/open/noted'] },
  });
  const { id, ticket } = made.body.data as { id: string; ticket: string };
  assert.equal(await codeOf(ticket, '/proxy/open/noted'), 200);
  let line: { actor: string } | undefined;
  while (line === undefined) {
    const { body } = await trellis.call('GET', '/operations?text=noted');
    [line] = body.operations as { actor: string }[];
  }
  assert.match(line.actor, new RegExp(`^key:\\d+ ticket:${id}$`));
  const [entry] = await trellis.db.query<{ details: { id: string; paths: string } }>(
    `select details from audit where action = 'ticket.created' and details ->> 'id' = $1`,
    [id],
  );
  assert.equal(entry?.details.paths, '/open/noted');
});
