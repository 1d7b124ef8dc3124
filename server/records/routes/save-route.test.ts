// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { after, before, test } from 'node:test';
import type { WirePage } from '../../../test/support/records.ts';
import { connect, openTrellis, type TestTrellis } from '../../../test/support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;
before(async () => {
  trellis = await openTrellis();
  ({ headers } = await connect(trellis));
});
after(() => trellis.close());

/** Makes a body large enough for the thread; JSON lets it stand anywhere. */
const ballast = ' '.repeat(200_000);

type Raw = string | Buffer;

async function send(method: string, body: Raw, more: Record<string, string> = {}) {
  const answer = await fetch(`${trellis.baseUrl}/records`, {
    method,
    headers: {
      ...headers,
      authorization: `Bearer ${trellis.keys.dev}`,
      'content-type': 'application/json',
      ...more,
    },
    body: Buffer.from(body as string),
  });
  const { error, ...rest } = (await answer.json()) as { error?: Record<string, unknown> };
  return {
    status: answer.status,
    code: error?.code,
    errors: error?.errors,
    message: error?.message,
    ...rest,
  };
}

const large = (body: Raw): Buffer => Buffer.concat([Buffer.from(body as string), Buffer.from(ballast)]);

test('a body is refused alike whether it is small, large or sent to another route', async () => {
  const bodies: [body: Raw, code: string][] = [
    ['{', 'invalid_json'],
    ['{"model":"M","records":[{"id":1}', 'invalid_json'],
    ['{"model":"M","records":[{"id":1},]}', 'invalid_json'],
    ['{"model":"M","records":[{"id":1,"x":NaN}]}', 'invalid_json'],
    ['{"model":"M","records":[{"id":1,"__proto__":{}}]}', 'invalid_json'],
    ['{"model":"M","records":[{"id":1,"a":[{"\\u005f_proto__":{}}]}]}', 'invalid_json'],
    ['{"model":"M","records":[{"id":1,"constructor":{"prototype":{}}}]}', 'invalid_json'],
    ['{"model":"M","__proto__":{},"records":[]}', 'invalid_json'],
    ['[]', 'invalid_body'],
    ['null', 'invalid_body'],
    ['"text"', 'invalid_body'],
    ['5', 'invalid_body'],
    ['{}', 'invalid_body'],
    ['{"model":"M"}', 'invalid_body'],
    ['{"model":"M","records":{}}', 'invalid_body'],
    ['{"model":"M","records":null}', 'invalid_body'],
    ['{"model":"/","records":[{"id":1}]}', 'invalid_body'],
    ['{"model":"M","records":[{"id":1}],"more":1}', 'invalid_body'],
    [`{"model":"M","records":[${new Array(10_001).fill('{"id":1}').join()}]}`, 'invalid_body'],
    ['{"model":"M","records":[{"id":1.5}]}', 'invalid_record'],
    ['{"model":"M","records":[{"id":"a\\u0000"}]}', 'invalid_record'],
    ['{"model":"M","records":[{"id":"a","n":1e999}]}', 'invalid_record'],
    ['{"model":"M","records":[5,null,[],{}]}', 'invalid_record'],
    [`{"model":"M","records":[${new Array(30).fill('{}').join()}]}`, 'invalid_record'],
    [`{"model":"M","records":[{"id":1,"x":${'['.repeat(997)}${']'.repeat(997)}}]}`, 'invalid_record'],
    [`{"model":"M","records":[{"id":1,"x":${'['.repeat(998)}${']'.repeat(998)}}]}`, 'invalid_body'],
    [`{"model":"M","records":[{"id":1,"x":${'['.repeat(50_000)}${']'.repeat(50_000)}}]}`, 'invalid_body'],
  ];
  for (const [body, code] of bodies) {
    const name = body.toString().slice(0, 100);
    const small = await send('POST', body);
    assert.deepEqual([small.status, small.code], [400, code], name);
    assert.deepEqual(await send('POST', large(body)), small, name);
    // An update reads its body as all routes do.
    const other = await send('PATCH', body);
    assert.deepEqual([other.status, other.code, other.errors], [400, code, small.errors], name);
  }
  // Refused as on all routes, whichever check comes first.
  const deep = `{"model":"M","x":${'['.repeat(50_000)}${']'.repeat(50_000)}}`;
  for (const method of ['POST', 'PATCH']) {
    const { status, code } = await send(method, deep);
    assert.deepEqual([status, code], [400, 'invalid_body']);
  }
});

test('malformed UTF-8, a byte order mark and two names alike are read alike', async () => {
  const bad = Buffer.from([0xff, 0xe2, 0x82]);
  const bodies: Buffer[] = [
    Buffer.concat([
      Buffer.from('{"model":"Utf","records":[{"id":"a'),
      bad,
      Buffer.from('","x":"'),
      bad,
      Buffer.from('"}]}'),
    ]),
    Buffer.from('\ufeff{"model":"Mark","records":[{"id":"a","x":"é€😀"}]}'),
    Buffer.from('{"model":"Twice","records":[{"id":"a"}],"records":[{"id":"b"}]}'),
    Buffer.from('{"model":"No","model":"Name","records":[{"id":"a","id":"b"}]}'),
    Buffer.from('{"model":"Escaped","\\u0072ecords":[{"id":"a"}]}'),
    Buffer.from('{"model":"Empty","records":[ ]}'),
    Buffer.from('{"model":"Last","records":[{"id":"1","x":1},{"id":2},{"id":1,"x":2}]}'),
    Buffer.from('{"model":"Nul","records":[{"id":"a","x":"\\u0000"}]}'),
  ];
  for (const body of bodies) {
    const name = body.toString('utf8', 0, 60);
    const small = await send('POST', body);
    assert.equal(small.status, 200, name);
    const variant = Buffer.from(
      body.toString('latin1').replace('"records"', '"variant":"large","records"'),
      'latin1',
    );
    const escaped = Buffer.from(
      variant.toString('latin1').replace('"\\u0072ecords"', '"variant":"large","\\u0072ecords"'),
      'latin1',
    );
    assert.deepEqual(await send('POST', large(escaped)), small, name);
    const model = /"model":"(\w+)","(?!model)/.exec(body.toString('latin1'))?.[1] ?? '';
    const list = async (query: string) => {
      const answer = await trellis.call('GET', `/records?model=${model}${query}`, { headers });
      return (answer.body as unknown as WirePage).records.map(
        ({ _trellis_metadata: _, ...fields }) => fields,
      );
    };
    assert.deepEqual(await list('&variant=large'), await list(''), name);
  }
});

test('an empty body is an empty object, and a body of a type other than JSON is refused', async () => {
  assert.equal((await send('POST', '')).code, 'invalid_body');
  const answer = await send('POST', '{}', { 'content-type': 'text/plain' });
  assert.deepEqual([answer.status, answer.code], [415, 'invalid_content_type']);
});

test('a body beyond 32 MB is refused, and one below it is taken', async () => {
  const text = 'x'.repeat(7_000_000);
  const records = ['a', 'b', 'c', 'd'].map((id) => ({ id, text }));
  const taken = await send('POST', JSON.stringify({ model: 'Big', records }));
  assert.deepEqual([taken.status, (taken as { counts?: { added: number } }).counts?.added], [200, 4]);
  const refused = await send(
    'POST',
    JSON.stringify({ model: 'Big', records: [...records, { id: 'e', text }] }),
  ).catch(
    // The service closes the connection while the body is still on its way.
    () => ({ status: 413, code: 'body_too_large' }),
  );
  assert.deepEqual([refused.status, refused.code], [413, 'body_too_large']);
});

// A client that still sends after the answer is read to the end: otherwise the connection would stay open for 30 s.
test('a body without a stated length is accepted, and refused beyond 32 MB', {
  timeout: 25_000,
}, async () => {
  const chunked = async (chunks: Iterable<Buffer>) => {
    const asked = request(`${trellis.baseUrl}/records`, {
      method: 'POST',
      agent: false,
      headers: {
        ...headers,
        authorization: `Bearer ${trellis.keys.dev}`,
        'content-type': 'application/json',
      },
    });
    // The service closes the connection while the rest is still on its way.
    const sending = pipeline(Readable.from(chunks), asked).catch(() => {});
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    const { error, counts } = JSON.parse((await answer.toArray()).join(''));
    await sending;
    return [answer.statusCode, error?.code, counts?.added];
  };
  const body = Buffer.from(JSON.stringify({ model: 'Chunked', records: [{ id: 'a', x: 'é' }] }));
  const bytes = Array.from(body, (byte) => Buffer.from([byte]));
  assert.deepEqual(await chunked(bytes), [200, undefined, 1]);
  const more = body.toString().replace('"a"', '"b"');
  assert.deepEqual(await chunked([Buffer.from(more), Buffer.from(ballast), Buffer.from(ballast)]), [
    200,
    undefined,
    1,
  ]);
  const endless = Array.from({ length: 64 }, () => Buffer.alloc(1024 * 1024, ' '));
  assert.deepEqual(await chunked([body, ...endless]), [413, 'body_too_large', undefined]);
});

test('a body that breaks off saves nothing and is no fault of the service', async () => {
  const asked = request(`${trellis.baseUrl}/records`, {
    method: 'POST',
    agent: false,
    headers: {
      ...headers,
      authorization: `Bearer ${trellis.keys.dev}`,
      'content-type': 'application/json',
      'content-length': 1000,
    },
  });
  const over = new Promise((resolve) => asked.once('close', resolve));
  asked.once('error', () => {});
  asked.write('{"model":"Broken","records":[{"id":"a"}]}');
  await once(asked, 'socket');
  asked.flushHeaders();
  asked.destroy();
  await over;
  const page = await trellis.call('GET', '/records?model=Broken', { headers });
  assert.deepEqual(page.body, { records: [], next_cursor: null });
});

test('a missing connection is reported before faults of the records', async () => {
  for (const body of ['{"model":"M","records":[{}]}', large('{"model":"M","records":[{}]}')]) {
    const unknown = await send('POST', body, { 'connection-id': 'nobody' });
    assert.deepEqual([unknown.status, unknown.code], [400, 'unknown_connection']);
  }
});

test('fields are ignored alike in small and large saves, and by the dataset', async () => {
  const body = (at: number, more = {}) =>
    JSON.stringify({ model: 'Ignored', records: [{ id: 'a', x: 1, at }], ...more });
  const counts = async (sent: Raw) => {
    const answer = (await send('POST', sent)) as {
      counts?: { added: number; updated: number; unchanged: number };
    };
    return [answer.counts?.added, answer.counts?.updated, answer.counts?.unchanged];
  };
  assert.deepEqual(await counts(body(1, { ignore_fields: ['at'] })), [1, 0, 0]);
  assert.deepEqual(await counts(large(body(2, { ignore_fields: ['at'] }))), [0, 0, 1]);
  await trellis.call('PATCH', '/records/datasets', {
    headers,
    body: { model: 'Ignored', ignore_fields: ['at'] },
  });
  assert.deepEqual(await counts(body(3)), [0, 0, 1]);
  assert.deepEqual(await counts(large(body(4))), [0, 0, 1]);
  assert.deepEqual(await counts(large(body(4, { ignore_fields: [] }))), [0, 1, 0]);
  assert.deepEqual(await counts(body(5, { ignore_fields: [] })), [0, 1, 0]);
});
