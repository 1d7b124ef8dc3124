import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { openRunsBench, type RunsBench, syncOf } from '../runs/runs.fixture.ts';

/** What a run is told of its connection and its integration, and which other ones it may name: none. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
  await bench.connect('eve');
  await bench.connect('ada');
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from run');
  await bench.db.query('delete from function');
});

/** What a run for `ada` puts into `told`. */
async function told(body: string): Promise<Record<string, unknown>> {
  await bench.deploy('rows', syncOf(`const told = {}; ${body} await nango.log(JSON.stringify(told));`));
  bench.advance(3_600_000);
  await bench.one.runner.runDue();
  const [failed] = (await bench.runs()).filter(({ state }) => state !== 'succeeded');
  assert.equal(failed?.error?.message, undefined);
  const lines = (await bench.lines()).map((line) => JSON.parse(line) as Record<string, unknown>);
  return lines.find(({ of }) => of === 'ada') ?? assert.fail('it did not run');
}

test('a call that names another connection is refused before anything is sent, one that names its own is made', async () => {
  const seen: (string | undefined)[] = [];
  bench.serve(({ method, url }, response) => {
    seen.push(`${method} ${url}`);
    response.end('{}');
  });
  const answers = await told(`
    told.of = nango.connectionId;
    if (told.of === 'ada') {
      const how = (call) => call.then(() => 'made', (error) => error.code);
      const own = { connectionId: 'ada', providerConfigKey: 'api' };
      told.ways = [];
      for (const place of [{ connectionId: 'eve' }, { providerConfigKey: 'other' }, { ...own, connectionId: 'eve' }])
        for (const way of ['get', 'post', 'put', 'patch', 'delete', 'proxy'])
          told.ways.push(await how(nango[way]({ endpoint: '/other', ...place })));
      told.pages = await how(nango.paginate({ endpoint: '/other', connectionId: 'eve', paginate: { type: 'link' } }).next());
      told.own = [];
      for (const place of [own, { connectionId: 'ada' }, { connectionId: '', providerConfigKey: undefined }])
        told.own.push(await how(nango.post({ endpoint: '/own', ...place })));
      told.connections = [
        await how(nango.getConnection('api', 'eve')),
        await how(nango.getConnection('other')),
        await how(nango.getConnection('api', 'ada')),
        await how(nango.getConnection(undefined, undefined, {})),
      ];
      told.message = await nango.get({ endpoint: '/', connectionId: 'eve' }).catch((error) => error.message);
    }
  `);
  assert.deepEqual(new Set(answers.ways as string[]), new Set(['other_connection']));
  assert.equal(answers.pages, 'other_connection');
  assert.deepEqual(answers.own, ['made', 'made', 'made']);
  assert.deepEqual(answers.connections, ['other_connection', 'other_connection', 'made', 'made']);
  assert.match(String(answers.message), /"eve" of "api".*for "ada" of "api"/);
  assert.deepEqual(seen, ['POST /own', 'POST /own', 'POST /own']);
});

test('what renews credentials, and the secret of the client, are refused by name', async () => {
  const answers = await told(`
    told.of = nango.connectionId;
    const refusal = (error) => [error.code, error.message];
    told.token = await nango.getConnection(undefined, undefined, { refreshToken: true }).catch(refusal);
    told.client = await nango.getIntegration({ include: ['webhook', 'credentials'] }).catch(refusal);
  `);
  assert.deepEqual((answers.token as string[])[0], 'not_told_to_functions');
  assert.match((answers.token as string[])[1] ?? '', /refresh tokens/);
  assert.deepEqual((answers.client as string[])[0], 'not_told_to_functions');
});

test('answers have the shapes that are declared', async () => {
  const { of, set, updated, connection, integration } = (await told(`
    told.of = nango.connectionId;
    const told1 = ({ status, data }) => ({ status, data });
    told.set = told1(await nango.setMetadata({ a: 1, b: 2 }));
    told.updated = told1(await nango.updateMetadata({ b: 3 }));
    told.connection = await nango.getConnection();
    told.integration = await nango.getIntegration({ include: ['webhook'] });
  `)) as Record<string, Record<string, unknown>>;
  const place = { connection_id: of, provider_config_key: 'api' };
  assert.deepEqual(set, { status: 201, data: { ...place, metadata: { a: 1, b: 2 } } });
  assert.deepEqual(updated, { status: 200, data: { ...place, metadata: { b: 3 } } });
  const { errors, webhook_url_override, last_fetched_at, metadata, created_at } = connection!;
  assert.deepEqual([errors, webhook_url_override, last_fetched_at], [[], null, null]);
  assert.deepEqual(metadata, { a: 1, b: 3 });
  assert.deepEqual(Object.keys(integration!).sort(), [
    'created_at',
    'custom',
    'display_name',
    'forward_webhooks',
    'integration_config',
    'logo',
    'provider',
    'unique_key',
    'updated_at',
    'webhook_url',
  ]);
  for (const time of [created_at, integration!.created_at, integration!.updated_at])
    assert.match(String(time), /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  assert.equal(integration!.forward_webhooks, true);
  assert.match(String(integration!.logo), /^http:\/\/localhost:3003\/providers\/logos\//);
  assert.equal(integration!.webhook_url, 'http://localhost:3003/webhook/dev/api');
});

test('what uncontrolledFetch answers is whole in the realm of functions', async () => {
  bench.serve((_request, response) => {
    response.setHeader('content-type', 'text/plain');
    response.end('whole');
  });
  const answers = await told(`
    told.of = nango.connectionId;
    const fetched = () => nango.uncontrolledFetch({ url: new URL('${bench.apiUrl}') });
    const answer = await fetched();
    told.type = [...answer.headers].find(([name]) => name === 'content-type')[1];
    told.copied = await answer.clone().text();
    told.blob = await (await answer.blob()).text();
    told.parts = [];
    for await (const part of (await fetched()).body) told.parts.push(Buffer.from(part).toString());
    const reader = (await fetched()).body.getReader();
    told.read = Buffer.from((await reader.read()).value).toString();
    await reader.cancel();
  `);
  assert.deepEqual(answers, {
    of: 'ada',
    type: 'text/plain',
    copied: 'whole',
    blob: 'whole',
    parts: ['whole'],
    read: 'whole',
  });
});
