import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;
let own: { connectionId: string };

const exec = (body: string, fields = '') =>
  actionCode({
    more: `input: z.any(), output: z.any(), ${fields} exec: async (nango, input) => { ${body} },`,
  });
const codes: Record<string, string> = {
  double: actionCode({ more: 'readOnly: true,' }),
  where: exec(
    'return { connection: nango.connectionId, environment: nango.environmentName }',
    'readOnly: true,',
  ),
  write: exec('return { wrote: input ?? null }'),
  fails: exec('throw new nango.ActionError({ message: "None left.", sku: 7 })', 'readOnly: true,'),
  each: exec('return input.length', 'readOnly: true, input: z.array(z.string()), output: z.number(),'),
  waits: exec(
    'await new Promise((_, reject) => { setTimeout(reject, 60_000); nango.signal.addEventListener("abort", reject) })',
  ),
};

before(async () => {
  trellis = await openTrellis({ TRELLIS_MCP_ORIGINS: 'https://agents.example.com' });
  ({ headers, ...own } = await connect(trellis));
  const flows = Object.entries(codes).map(([name, code]) => flowConfig({ name, code }));
  const answer = await trellis.call('POST', '/sync/deploy', { body: deployBody(flows) });
  assert.equal(answer.status, 200, answer.text);
});
after(() => trellis.close());

/** A client of the protocol's own, for as long as `work` takes. */
async function asClient<T>(
  credential: string,
  work: (client: Client) => Promise<T>,
  more: Record<string, string> = {},
): Promise<T> {
  const client = new Client({ name: 'test', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(`${trellis.baseUrl}/mcp`), {
    requestInit: { headers: { ...headers, authorization: `Bearer ${credential}`, ...more } },
  });
  // The transport's own type says less of `sessionId` than the interface it stands for.
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  try {
    return await work(client);
  } finally {
    await client.close();
  }
}
const namesFor = (credential: string, more?: Record<string, string>) =>
  asClient(credential, async (client) => (await client.listTools()).tools.map(({ name }) => name), more);
const textOf = (result: unknown) => (result as { content: { text: string }[] }).content[0]!.text;
const ticketFor = async (more: object, key = trellis.keys.dev) => {
  const answer = await trellis.call('POST', '/tickets', {
    key,
    body: {
      provider_config_key: 'google-sheet',
      connection_id: own.connectionId,
      methods: ['GET'],
      paths: ['/v4/spreadsheets/**'],
      ...more,
    },
  });
  assert.equal(answer.status, 201, answer.text);
  const { ticket } = answer.body.data as { ticket: string };
  trellis.watch.made('ticket', ticket);
  return ticket;
};
/** A message as no client sends it. */
const post = (
  more: { headers?: Record<string, string | undefined>; body?: unknown; method?: string } = {},
) => {
  const all: Record<string, string | undefined> = {
    ...headers,
    authorization: `Bearer ${trellis.keys.dev}`,
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...more.headers,
  };
  const { method = 'POST', body = { jsonrpc: '2.0', id: 1, method: 'tools/list' } } = more;
  return fetch(`${trellis.baseUrl}/mcp`, {
    method,
    headers: Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined),
    ...(method === 'POST' && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
};

describe('a client with a key', () => {
  test('lists the actions with the schemas of their inputs, and marks read-only ones', async () => {
    await asClient(trellis.keys.dev, async (client) => {
      const { tools } = await client.listTools();
      assert.deepEqual(
        tools.map(({ name }) => name),
        ['double', 'each', 'fails', 'waits', 'where', 'write'],
      );
      const [double, each] = tools;
      assert.equal(double?.description, 'Doubles a number.');
      assert.deepEqual(double?.inputSchema, {
        type: 'object',
        properties: { n: { type: 'number' } },
        required: ['n'],
      });
      assert.deepEqual(double?.annotations, { readOnlyHint: true });
      assert.deepEqual(each?.inputSchema.required, ['input']);
      assert.equal(tools.find(({ name }) => name === 'write')?.annotations?.readOnlyHint, false);
    });
  });

  test('calls them and gets what they answer', async () => {
    await asClient(trellis.keys.dev, async (client) => {
      const doubled = await client.callTool({ name: 'double', arguments: { n: 21 } });
      assert.deepEqual(doubled.structuredContent, { n: 42 });
      assert.equal(textOf(doubled), '{"n":42}');
      const counted = await client.callTool({ name: 'each', arguments: { input: ['a', 'b'] } });
      assert.equal(textOf(counted), '2');
    });
  });

  test('reads what went wrong, as the model is to', async () => {
    await asClient(trellis.keys.dev, async (client) => {
      const failed = await client.callTool({ name: 'fails', arguments: {} });
      assert.equal(failed.isError, true);
      const { error } = JSON.parse(textOf(failed)) as { error: { code: string; payload: unknown } };
      assert.equal(error.code, 'action_script_runtime_error');
      assert.deepEqual(error.payload, { message: 'None left.', sku: 7 });
      const unfit = await client.callTool({ name: 'double', arguments: { n: 'many' } });
      assert.match(textOf(unfit), /invalid_action_input/);
      await assert.rejects(client.callTool({ name: 'none', arguments: {} }), /no tool "none"/);
    });
  });

  test('acts for the connection of its headers, whatever the arguments say', async () => {
    const result = await asClient(trellis.keys.dev, (client) =>
      client.callTool({
        name: 'where',
        arguments: {
          connection: 'other',
          'connection-id': 'other',
          environment: 'prod',
          connection_id: 'other',
        },
      }),
    );
    assert.deepEqual(result.structuredContent, { connection: own.connectionId, environment: 'dev' });
  });

  test('that gives up ends the run', async () => {
    await asClient(trellis.keys.dev, async (client) => {
      await assert.rejects(client.callTool({ name: 'waits', arguments: {} }, undefined, { timeout: 1_500 }));
    });
    for (let left = 100; ; left--) {
      const runs = await trellis.db.query<{ state: string }>(
        "select state from run join function on function.id = run.function_id where name = 'waits'",
      );
      if (runs.length === 1 && runs[0]?.state === 'cancelled') break;
      assert.ok(left > 0, JSON.stringify(runs));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
});

describe('what the caller may not write it does not see', () => {
  const readOnly = ['double', 'each', 'fails', 'where'];

  test('a key without functions:write', async () => {
    const key = await trellis.keyWith('functions:read');
    assert.deepEqual(await namesFor(key), readOnly);
    await asClient(key, async (client) => {
      await assert.rejects(client.callTool({ name: 'write', arguments: {} }), /no tool "write"/);
      assert.deepEqual((await client.callTool({ name: 'double', arguments: { n: 1 } })).structuredContent, {
        n: 2,
      });
    });
  });

  test('a ticket of such a key, and of any the actions alone that it names', async () => {
    const key = await trellis.keyWith('functions:read', 'proxy:read');
    const ticket = await ticketFor({ actions: ['*'] }, key);
    assert.deepEqual(await namesFor(ticket), readOnly);
    await asClient(ticket, (client) =>
      assert.rejects(client.callTool({ name: 'write', arguments: {} }), /no tool "write"/),
    );
    assert.deepEqual(await namesFor(await ticketFor({ actions: ['write', 'double'] })), ['double', 'write']);
  });

  test('a ticket for the proxy alone, one for another connection, and a key without functions:read get in nowhere', async () => {
    const proxyOnly = await ticketFor({});
    assert.equal((await post({ headers: { authorization: `Bearer ${proxyOnly}` } })).status, 403);
    const other = await connect(trellis);
    const ticket = await ticketFor({ actions: ['*'] });
    const elsewhere = await post({ headers: { ...other.headers, authorization: `Bearer ${ticket}` } });
    assert.equal(elsewhere.status, 403);
    const key = await trellis.keyWith('records:read', 'proxy:read');
    assert.equal((await post({ headers: { authorization: `Bearer ${key}` } })).status, 403);
    const refused = await trellis.call('POST', '/tickets', {
      key,
      body: {
        provider_config_key: 'google-sheet',
        connection_id: own.connectionId,
        actions: ['*'],
        methods: ['GET'],
        paths: ['/v4/spreadsheets/**'],
      },
    });
    assert.equal(refused.status, 403);
  });

  test("a key of another environment finds no connection, and one's own headers name it", async () => {
    assert.equal((await post({ headers: { authorization: `Bearer ${trellis.keys.prod}` } })).status, 400);
    assert.equal((await post({ headers: { 'connection-id': undefined } })).status, 400);
    assert.equal((await post({ headers: { 'provider-config-key': 'none' } })).status, 400);
  });
});

describe('authentication', () => {
  test('a cookie counts nowhere, with or without the header of pages', async () => {
    const cookie = {
      authorization: undefined,
      cookie: 'trellis.session_token=anything',
      'x-trellis-environment': 'dev',
    };
    assert.equal((await post({ headers: { ...cookie, origin: trellis.baseUrl } })).status, 401);
    assert.equal((await post({ headers: { ...cookie, 'x-trellis-environment': undefined } })).status, 401);
  });

  test('an Origin, where sent, must be allowed', async () => {
    for (const origin of [
      'https://evil.example.com',
      'null',
      'http://localhost',
      `${trellis.baseUrl}.evil.example`,
    ]) {
      assert.equal((await post({ headers: { origin } })).status, 403, origin);
    }
    for (const origin of [trellis.baseUrl, 'https://agents.example.com', undefined]) {
      assert.equal((await post({ headers: { origin } })).status, 200, String(origin));
    }
  });

  test('GET and DELETE are 405 in the format of the protocol', async () => {
    for (const method of ['GET', 'DELETE']) {
      const answer = await post({ method });
      assert.equal(answer.status, 405);
      assert.deepEqual(await answer.json(), {
        jsonrpc: '2.0',
        error: { code: -32000, message: 'Method not allowed.' },
        id: null,
      });
    }
  });

  test('hostile messages are refused, and the service continues', async () => {
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    const bodies: [unknown, string][] = [
      ['{', 'application/json'],
      ['null', 'application/json'],
      ['[]', 'application/json'],
      [Array.from({ length: 1_000 }, (_, id) => ({ ...list, id })), 'application/json'],
      ['{"__proto__":{"polluted":1},"jsonrpc":"2.0","id":1,"method":"tools/list"}', 'application/json'],
      [{ jsonrpc: '2.0', id: 1, method: 'constructor' }, 'application/json'],
      [{ ...list, id: { a: 1 } }, 'application/json'],
      [{ ...list, method: 'tools/call', params: { name: '__proto__', arguments: {} } }, 'application/json'],
      [
        { ...list, method: 'tools/call', params: { name: 'x'.repeat(100_000), arguments: [] } },
        'application/json',
      ],
      [`{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`, 'application/json'],
      ['x'.repeat(5 * 1024 * 1024), 'application/json'],
      [list, 'text/plain'],
    ];
    for (const [body, type] of bodies) {
      const answer = await post({ body, headers: { 'content-type': type } });
      const text = await answer.text();
      assert.ok(
        answer.status < 500,
        `${String(JSON.stringify(body)).slice(0, 80)}: ${answer.status} ${text.slice(0, 200)}`,
      );
      assert.ok(
        answer.status >= 400 || /"error"/.test(text),
        `${String(JSON.stringify(body)).slice(0, 80)}: ${text.slice(0, 200)}`,
      );
      assert.ok(text.length < 2_000, text.slice(0, 200));
      assert.ok(!text.includes('node_modules'), text);
    }
    assert.equal((await namesFor(trellis.keys.dev)).length, 6);
  });
});
