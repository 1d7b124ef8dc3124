// The interface describes itself whole: nothing that a route takes, answers or refuses is left for readers to guess.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { errorCatalogue } from '../../server/errors.ts';
import { eventTypes } from '../../server/events/event-types.ts';
import { exampleOf, UnknownExample } from '../../server/http/openapi/examples.ts';
import {
  codesOf,
  createJudge,
  errorStatusesOf,
  type Media,
  type OpenApi,
  operationsOf,
  type Placed,
  readDocument,
  readRawDocument,
} from '../support/openapi.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let document: OpenApi;
let all: Placed[];
before(async () => {
  trellis = await openTrellis();
  document = await readDocument(trellis);
  all = [...operationsOf(document.paths), ...operationsOf(document.webhooks)];
});
after(() => trellis.close());

/** What of each operation is wanting; fails with all of it at once. */
function everywhere(find: (placed: Placed) => string[]): void {
  assert.deepEqual(
    all.flatMap((placed) => find(placed).map((what) => `${placed.name}: ${what}`)),
    [],
  );
}

type Told = { what: string; media: Media };
/** Bodies that are taken, and those that are answered with success. */
function toldBy({ operation: { requestBody, responses } }: Placed): Told[] {
  const answered = Object.entries(responses).filter(([status]) => status.startsWith('2'));
  const places: [string, Record<string, Media>][] = [
    ['body', requestBody?.content ?? {}],
    ...answered.map(([status, { content = {} }]): [string, Record<string, Media>] => [status, content]),
  ];
  return places.flatMap(([what, content]) =>
    Object.entries(content).map(([type, media]) => ({ what: `${what} ${type}`, media })),
  );
}

test('the document is valid OpenAPI 3.1', async () => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(
    structuredClone(document) as unknown as Record<string, unknown>,
  );
  assert.ok(valid, JSON.stringify(errors, undefined, 1)?.slice(0, 4000));
  assert.equal(validator.version, '3.1');
});

test('every operation has a name of its own, a summary, a description and a known tag', () => {
  const ids = all.map(({ operation }) => operation.operationId);
  assert.deepEqual(
    ids.filter((id, at) => ids.indexOf(id) !== at),
    [],
  );
  const tags = document.tags.map(({ name }) => name);
  everywhere(({ path, operation: { operationId, summary, description, tags: own = [] } }) => [
    ...(/^[a-z][A-Za-z0-9]+$/.test(operationId) ? [] : ['operationId']),
    // A webhook has the name of its event.
    ...((summary ?? '').length > 3 || path in document.webhooks ? [] : ['summary']),
    ...((description ?? '').length > 10 ? [] : ['description']),
    ...(own.length === 1 && tags.includes(own[0]!) ? [] : ['tags']),
  ]);
  const used = new Set(all.flatMap(({ operation }) => operation.tags ?? []));
  assert.deepEqual(
    tags.filter((tag) => !used.has(tag)),
    [],
  );
});

test('every parameter is described and has an example that fits', () => {
  const judge = createJudge(document);
  everywhere(({ operation: { parameters = [] } }) =>
    parameters.flatMap(({ name, description, schema, example }) => {
      if ((description ?? '').length < 3) return [`${name} has no description`];
      if (example === undefined) return [`${name} has no example`];
      // What a query holds is text; numbers are written so.
      const fault = judge(schema, example);
      return fault === undefined ? [] : [`${name}: ${fault}`];
    }),
  );
});

test('every body and every answer has an example, and it fits its schema', () => {
  const judge = createJudge(document);
  everywhere((placed) =>
    toldBy(placed).flatMap(({ what, media: { schema, example } }) => {
      if (example === undefined) return [`${what}: ${missingWord(placed, what, schema)}`];
      const fault = schema && judge(schema, example);
      if (fault !== undefined) return [`${what}: ${fault}`];
      // Nothing is no example of something.
      const isSaid = JSON.stringify(example) !== '{}' || Object.keys(schema?.properties ?? {}).length === 0;
      return isSaid ? [] : [`${what} shows none of its fields`];
    }),
  );
});

/** The field for which `server/http/openapi/examples.ts` has no value. */
function missingWord({ path }: Placed, what: string, schema: Media['schema']): string {
  try {
    exampleOf(schema ?? {}, what.startsWith('body') ? 'required' : 'all', [path.split('/')[1]!]);
    return 'no example';
  } catch (error) {
    if (error instanceof UnknownExample) return error.message;
    throw error;
  }
}

test('every operation documents its errors: the format, and the codes with their statuses', () => {
  const statuses: Record<string, number[]> = Object.fromEntries(
    Object.entries<{ status: number; also?: readonly number[] }>(errorCatalogue).map(
      ([code, { status, also = [] }]) => [code, [status, ...also]],
    ),
  );
  const ofRoutes = operationsOf(document.paths).filter(({ name }) => name !== 'GET /');
  for (const { name, operation } of ofRoutes) {
    const { security = [], requestBody } = operation;
    const errors = errorStatusesOf(operation).map((status) => ({
      status,
      codes: codesOf(operation, status),
    }));
    for (const { status, codes } of errors)
      for (const code of codes)
        assert.ok(statuses[code]?.includes(status), `${name}: ${code} with ${status}`);
    const reported = errors.map(({ status }) => status);
    const wanted = [...(security.length > 0 ? [401] : []), ...(requestBody ? [400, 413, 415] : []), 500, 503];
    const isOfProxy = name.includes(' /proxy/');
    assert.deepEqual(
      wanted.filter((status) => !reported.includes(status) && !(isOfProxy && status === 415)),
      [],
      name,
    );
  }
});

test('every type of event is among the webhooks', () => {
  assert.deepEqual(Object.keys(document.webhooks).sort(), [...eventTypes].sort());
});

test('the objects of the API have names, and each name is used', async () => {
  const raw = await readRawDocument(trellis);
  const { schemas, responses, requestBodies, parameters } = raw.components;
  for (const name of ['ApiKey', 'Connection', 'Delivery', 'Environment', 'Integration', 'Record', 'Run'])
    assert.ok(name in schemas, name);
  const text = JSON.stringify(raw);
  const used = new Set([...text.matchAll(/"\$ref":"#\/components\/(\w+\/[^"]+)"/g)].map(([, name]) => name));
  const known = [
    ...Object.keys(schemas).map((name) => `schemas/${name}`),
    ...Object.keys(responses).map((name) => `responses/${name}`),
    ...Object.keys(parameters).map((name) => `parameters/${name}`),
    ...Object.keys(requestBodies).map((name) => `requestBodies/${name}`),
  ];
  const ofHeaders = ['headers/Retry-After'];
  assert.deepEqual([...used].sort(), [...known, ...ofHeaders].sort());
  assert.ok(Object.keys(schemas).length >= 40);
  type Holder = { content?: Record<string, Media> };
  const inline = operationsOf(raw.paths).flatMap(({ name, operation }): [string, Holder | undefined][] => [
    [name, operation.requestBody],
    ...Object.values(operation.responses).map((answer): [string, Holder] => [name, answer]),
  ]);
  const shared = Object.entries({ ...responses, ...requestBodies }) as [string, Holder][];
  const unnamed = [...inline, ...shared].flatMap(([name, part]) =>
    part?.content?.['application/json']?.schema?.properties ? [name] : [],
  );
  assert.deepEqual(unnamed, []);
});

test('the document is below 350 KiB, compressed on request, and sent again only if it changed', async () => {
  const get = (headers: Record<string, string>) => fetch(`${trellis.baseUrl}/openapi.json`, { headers });
  const plain = await get({ 'accept-encoding': 'identity' });
  const text = await plain.text();
  assert.equal(plain.headers.get('content-encoding'), null);
  assert.ok(Buffer.byteLength(text) < 350 * 1024, `${Buffer.byteLength(text)} bytes`);
  for (const [accepted, coding] of [
    ['gzip', 'gzip'],
    ['gzip, deflate, br', 'br'],
    ['br;q=0, gzip', 'gzip'],
  ] as const) {
    const packed = await get({ 'accept-encoding': accepted });
    assert.equal(packed.headers.get('content-encoding'), coding);
    assert.equal(packed.headers.get('vary'), 'accept-encoding');
    assert.ok(Number(packed.headers.get('content-length')) < 60_000);
    assert.equal(await packed.text(), text);
  }
  const etag = plain.headers.get('etag')!;
  const same = await get({ 'if-none-match': `"other", ${etag}` });
  assert.deepEqual([same.status, await same.text(), same.headers.get('etag')], [304, '', etag]);
  const other = await get({ 'if-none-match': '"other"' });
  assert.equal(other.status, 200);
  assert.equal(await other.text(), text);
  // The pages at /docs show the same document.
  assert.equal(await (await fetch(`${trellis.baseUrl}/docs/json`)).text(), text);
});
