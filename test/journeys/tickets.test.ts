import assert from 'node:assert/strict';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { providersDirectory } from '../../server/app.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let definitions: string;
/** What has reached the provider. */
let seen: IncomingMessage[] = [];
let answering: (request: IncomingMessage, response: ServerResponse) => void;
const provider = createServer((request, response) => {
  seen.push(request);
  answering(request, response);
});
const connection = { provider_config_key: 'own', connection_id: 'alice' };
const place = { 'provider-config-key': 'own', 'connection-id': 'alice' };

before(async () => {
  definitions = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, definitions, { recursive: true });
  const file = join(definitions, 'unauthenticated.yaml');
  await writeFile(file, `${(await readFile(file, 'utf8')).trimEnd()}\n  redirects: same_origin\n`);
  trellis = await openTrellis(
    { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' },
    { catalog: loadCatalog(definitions) },
  );
  await once(provider.listen(0, '127.0.0.1'), 'listening');
  const origin = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  await trellis.call('POST', '/integrations', {
    body: {
      ...{ provider: 'unauthenticated', unique_key: 'own' },
      integration_config: { base_url: origin, allowed_base_urls: origin },
    },
  });
  for (const id of ['alice', 'bob']) await addConnection(id);
});
after(async () => {
  provider.closeAllConnections();
  provider.close();
  await trellis.close();
  await rm(definitions, { recursive: true });
});

async function addConnection(id: string): Promise<void> {
  const made = await trellis.call('POST', '/connections', {
    body: { ...connection, connection_id: id, credentials: { type: 'NONE' } },
  });
  assert.equal(made.status, 201, made.text);
}

async function ticketOf(wanted: Record<string, unknown>, key = trellis.keys.dev): Promise<string> {
  const { status, body, text } = await trellis.call('POST', '/tickets', {
    key,
    body: { ...connection, methods: ['GET'], paths: ['/open/*'], ...wanted },
  });
  assert.equal(status, 201, text);
  return (body.data as { ticket: string }).ticket;
}

async function keyOf(given: Record<string, unknown>): Promise<{ id: number; secret: string }> {
  const { status, body, text } = await trellis.call('POST', '/environment/api-keys', {
    body: { name: 'k', scopes: ['proxy:read', 'proxy:write'], ...given },
  });
  assert.equal(status, 201, text);
  return body.data as { id: number; secret: string };
}

type Sent = { method?: string; headers?: Record<string, string>; parts?: Buffer[] };

/** A call whose path goes out as it is; resolves with what came back, also where it broke off. */
async function ask(token: string, path: string, { method = 'GET', headers = {}, parts = [] }: Sent = {}) {
  const { hostname, port } = new URL(trellis.baseUrl);
  const request = httpRequest({
    ...{ hostname, port, method, path },
    headers: { authorization: `Bearer ${token}`, ...place, ...headers },
  });
  const answered = once(request, 'response') as Promise<[IncomingMessage]>;
  for (const part of parts) request.write(part);
  request.on('error', () => {}).end();
  const [answer] = await answered;
  let [text, isWhole] = ['', true];
  try {
    for await (const part of answer) text += (part as Buffer).toString('latin1');
  } catch {
    isWhole = false;
  }
  const code = answer.headers['x-trellis-error'];
  return { status: answer.statusCode, code, text, isWhole, headers: answer.headers };
}
const codeOf = async (...asked: Parameters<typeof ask>) => {
  const { status, code } = await ask(...asked);
  return code === undefined ? status : `${status} ${code}`;
};
const ok = (_request: IncomingMessage, response: ServerResponse) => void response.end('ok');

test('a ticket lets its methods pass on its paths, of its connection, and nothing else', async () => {
  answering = ok;
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
  seen = [];
  for (const headers of [
    { 'connection-id': 'bob' },
    { 'connection-id': 'nobody' },
    { 'provider-config-key': 'other' },
    { 'base-url-override': `http://127.0.0.1:${(provider.address() as AddressInfo).port}` },
  ])
    assert.equal(await codeOf(reading, '/proxy/open/a', { headers }), '403 proxy_rule_denied');
  assert.deepEqual(seen, []);
});

test('a ticket is taken from the Authorization header alone', async () => {
  const ticket = await ticketOf({});
  for (const name of ['ticket', 'access_token', 'authorization', 'token']) {
    const answer = await trellis.call('GET', `/proxy/open/a?${name}=${ticket}`, {
      ...{ key: undefined, headers: place },
    });
    assert.equal(answer.status, 401, name);
  }
});

test('no ticket is wider than the key that makes it, neither when it is made nor later', async () => {
  answering = ok;
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
  answering = ok;
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
  answering = ok;
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

test('no call carries more bytes than its ticket allows, announced or not, on either way', async () => {
  const ticket = await ticketOf({ methods: ['GET', 'POST'], max_bytes: 1000 });
  const post = (parts: Buffer[], headers: Record<string, string> = {}) =>
    ask(ticket, '/proxy/open/a', { method: 'POST', parts, headers });
  let received: string[] = [];
  answering = async (request, response) => {
    try {
      let size = 0;
      for await (const part of request) size += (part as Buffer).length;
      received.push(`whole ${size}`);
      response.end('ok');
    } catch {
      received.push('broken');
    }
  };
  const most = Buffer.alloc(1000, 'x');
  assert.equal((await post([most], { 'content-length': '1000' })).status, 200);
  assert.equal((await post([most.subarray(1), Buffer.from('x')])).status, 200);
  assert.deepEqual(received, ['whole 1000', 'whole 1000']);
  [seen, received] = [[], []];
  const announced = await post([most, Buffer.from('x')], { 'content-length': '1001' });
  assert.deepEqual([announced.status, announced.code], [413, 'ticket_bytes_exceeded']);
  assert.deepEqual(seen, []);
  const chunked = await post([most, Buffer.from('x')]);
  assert.deepEqual([chunked.status, chunked.code], [413, 'ticket_bytes_exceeded']);
  assert.ok(!received.some((what) => what.startsWith('whole')), String(received));

  answering = (_request, response) => void response.end(most);
  assert.equal((await ask(ticket, '/proxy/open/a')).text.length, 1000);
  answering = (_request, response) => void response.end(Buffer.alloc(1001, 'x'));
  const long = await ask(ticket, '/proxy/open/a');
  assert.deepEqual([long.status, long.code], [502, 'ticket_bytes_exceeded']);
  assert.equal(await codeOf(ticket, '/proxy/open/a', { method: 'HEAD' }), 200);
  answering = (_request, response) => {
    response.write(most);
    setImmediate(() => response.end('x'.repeat(5000)));
  };
  const streamed = await ask(ticket, '/proxy/open/a').catch(() => undefined);
  if (streamed !== undefined) {
    assert.equal(streamed.isWhole, false);
    assert.ok(streamed.text.length <= 1000, String(streamed.text.length));
  }
  answering = (_request, response) => {
    response.setHeader('content-encoding', 'gzip').end(gzipSync(Buffer.alloc(500_000, 'x')));
  };
  assert.equal((await ask(ticket, '/proxy/open/a')).status, 200);
  const decoded = await ask(ticket, '/proxy/open/a', { headers: { decompress: 'true' } }).catch(
    () => undefined,
  );
  assert.ok(decoded === undefined || !decoded.isWhole);
});

test('a page may call with a ticket, and no answer acts on the address of the service', async () => {
  const ticket = await ticketOf({});
  answering = (_request, response) => {
    response.setHeader('set-cookie', 'a=b').setHeader('clear-site-data', '"*"');
    response.setHeader('strict-transport-security', 'max-age=1').setHeader('service-worker-allowed', '/');
    response.setHeader('content-type', 'text/html').end('<script>1</script>');
  };
  const { headers } = await ask(ticket, '/proxy/open/a', { headers: { origin: 'https://page.example' } });
  assert.equal(headers['access-control-allow-origin'], '*');
  assert.equal(headers['content-security-policy'], 'sandbox');
  for (const name of ['set-cookie', 'clear-site-data', 'strict-transport-security', 'service-worker-allowed'])
    assert.equal(headers[name], undefined, name);
  assert.equal((await ask(trellis.keys.dev, '/proxy/open/a')).headers['set-cookie']?.[0], 'a=b');
});

test('making a ticket and what was called with it are noted, the ticket itself nowhere', async () => {
  answering = ok;
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

/** A path as some lenient server may read it: decoded until nothing changes, resolved, without parameters and case. */
function asLenientServerReads(target: string): string {
  let path = target.split('?')[0]!;
  for (let earlier = ''; earlier !== path; ) {
    earlier = path;
    path = path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
  }
  const resolved: string[] = [];
  for (const segment of path.replaceAll('\\', '/').split('/')) {
    const name = segment.split(';')[0]!;
    if (name === '..') resolved.pop();
    else if (name !== '' && name !== '.') resolved.push(name);
  }
  return `/${resolved.join('/')}`;
}

test('nothing outside a ticket reaches the provider, however it is spelled (fuzz)', async () => {
  const ticket = await ticketOf({ methods: ['GET', 'PUT'], paths: ['/open/*', '/deep/in/**'] });
  answering = (request, response) => {
    const to: string | undefined = /[?&]to=([^&]*)/.exec(request.url ?? '')?.[1];
    if (to !== undefined) response.writeHead(302, { location: decodeURIComponent(to) });
    response.end();
  };
  const spelled = (text: string) =>
    fc
      .array(fc.constantFrom('as is', 'as is', 'escaped', 'twice'), {
        ...{ minLength: text.length, maxLength: text.length },
      })
      .map((ways) =>
        [...text]
          .map((letter, at) => {
            const hex = letter.charCodeAt(0).toString(16).padStart(2, '0');
            if (ways[at] === 'escaped') return `%${hex}`;
            return ways[at] === 'twice' ? `%25${hex}` : letter;
          })
          .join(''),
      );
  const part = fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom('open', 'deep', 'in', 'a', 'shut') },
    { weight: 1, arbitrary: fc.oneof(spelled('open'), spelled('shut'), spelled('..')) },
    {
      weight: 2,
      arbitrary: fc.constantFrom('', '.', '..', ';x', 'open;x', '..;x', 'a%2f..%2fshut', '%c0%ae', '..%5c'),
    },
  );
  const joint = fc.oneof(
    { weight: 30, arbitrary: fc.constant('/') },
    fc.constantFrom('//', '%2f', '%5c', '/./', '/../'),
  );
  const pathText = fc
    .oneof(
      { weight: 1, arbitrary: fc.array(fc.tuple(joint, part), { minLength: 1, maxLength: 5 }) },
      fc
        .tuple(
          fc.constantFrom<[string, string][]>(
            [['/', 'open']],
            [
              ['/', 'deep'],
              ['/', 'in'],
            ],
          ),
          fc.array(fc.tuple(joint, part), { maxLength: 3 }),
        )
        .map(([head, rest]) => [...head, ...rest]),
    )
    .map((parts) => parts.flat().join(''));
  const call = fc.record({
    method: fc.constantFrom(
      'GET',
      'GET',
      'GET',
      'HEAD',
      'PUT',
      'PUT',
      'POST',
      'DELETE',
      'OPTIONS',
      'PROPFIND',
    ),
    path: pathText,
    query: fc.oneof(
      fc.constantFrom(
        '',
        '',
        '?q=/shut',
        '?$httpMethod=DELETE',
        '?a=1&%5Fmethod=DELETE',
        '?x;_METHOD=DELETE',
        '?$httpHeaders=x',
      ),
      pathText.map((to) => `?to=${encodeURIComponent(to)}`),
    ),
    headers: fc.oneof(
      { weight: 3, arbitrary: fc.constant<Record<string, string>>({}) },
      fc.constantFrom<Record<string, string>>(
        { 'trellis-proxy-X-HTTP-Method-Override': 'DELETE' },
        { 'trellis-proxy-x_method_override': 'DELETE' },
        { 'Trellis-Proxy-X-Original-URL': '/shut' },
        { 'X-Rewrite-URL': '/shut' },
        { 'Base-Url-Override': 'http://127.0.0.1:1/shut' },
        { 'Connection-Id': 'bob' },
      ),
    ),
  });
  let [passed, followed] = [0, 0];
  await fc.assert(
    fc.asyncProperty(call, async ({ method, path, query, headers }) => {
      seen = [];
      await ask(ticket, `/proxy${path}${query}`, { method, headers });
      for (const { method: asked, url = '', headers: got } of seen) {
        assert.ok(['GET', 'HEAD', 'PUT'].includes(asked ?? ''), String(asked));
        assert.match(asLenientServerReads(url), /^\/(open\/[^/]+|deep\/in(\/.*)?)$/, url);
        assert.doesNotMatch(url, /method|httpHeaders/i);
        const names = Object.keys(got).map((name) => name.replaceAll('_', '-'));
        assert.ok(!names.some((name) => /override|original-url|rewrite-url/.test(name)), names.join());
      }
      passed += seen.length;
      if (seen.length > 1) followed += 1;
    }),
    { numRuns: 2_500 },
  );
  assert.ok(passed > 200 && followed > 10, `${passed} calls passed, ${followed} redirects were followed`);
});
