import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { type TestContext, test } from 'node:test';
import fc from 'fast-check';
import type { Credentials } from '../auth-modes/modes.ts';
import { AppError } from '../errors.ts';
import { withCredentialField } from './body.ts';
import { bearer, bytesOf, definitionAt, send, startHttp, startProxy } from './proxy.fixture.ts';

const form = 'application/x-www-form-urlencoded';
const field = { name: 'api_key', value: 's&"\\' };

function filled(type: string, text: string, given = field): string {
  return withCredentialField(
    { headers: ['Content-Type', type], body: Buffer.from(text) },
    given,
  ).body.toString();
}

for (const [what, type, before, after] of [
  ['a form', form, 'a=1&a=%zz+&b', 'api_key=s%26%22%5C&a=1&a=%zz+&b'],
  ['a form with a charset', `${form}; charset=UTF-8`, 'a=1', 'api_key=s%26%22%5C&a=1'],
  ['an empty form', form, '', 'api_key=s%26%22%5C'],
  ['an object', 'application/json', '{"a":1}', '{"api_key":"s&\\"\\\\","a":1}'],
  ['an empty object', 'application/json', ' { } ', ' {"api_key":"s&\\"\\\\" } '],
  [
    'numbers that no double holds, blanks, repeated keys and their order',
    'application/vnd.api+json; charset=utf-8',
    '\n{ "z": 12345678901234567890, "x": 1.0, "x": 2e400, "__proto__": "é" }\n',
    '\n{"api_key":"s&\\"\\\\", "z": 12345678901234567890, "x": 1.0, "x": 2e400, "__proto__": "é" }\n',
  ],
] as const) {
  test(`credentials are put into ${what}, and every other byte stays`, () => {
    assert.equal(filled(type, before), after);
  });
}

test('whatever object is sent, its fields arrive with that of the credentials', () => {
  const object = fc.dictionary(
    fc.string().filter((name) => name.toLowerCase() !== field.name),
    fc.jsonValue(),
  );
  fc.assert(
    fc.property(object, fc.nat(4), fc.string(), (given, indent, value) => {
      const text = JSON.stringify(given, null, indent);
      const after = filled('application/json', text, { ...field, value });
      assert.deepEqual(JSON.parse(after), JSON.parse(JSON.stringify({ [field.name]: value, ...given })));
      assert.ok(after.endsWith(text.slice(1)));
    }),
  );
});

const refused: [string, string[], string | Buffer, RegExp][] = [
  ['no type', [], 'a=1', /application\/json/],
  ['text', ['Content-Type', 'text/plain'], 'a=1', /application\/json/],
  ['parts', ['Content-Type', 'multipart/form-data; boundary=b'], '--b--', /application\/json/],
  ['a list', ['Content-Type', 'application/json'], '[{}]', /JSON object/],
  ['null', ['Content-Type', 'application/json'], 'null', /JSON object/],
  ['nothing', ['Content-Type', 'application/json'], '', /JSON object/],
  ['broken JSON', ['Content-Type', 'application/json'], '{"a":', /JSON object/],
  ['JSON with a byte order mark', ['Content-Type', 'application/json'], '\ufeff{}', /JSON object/],
  [
    'JSON in another charset',
    ['Content-Type', 'application/json'],
    Buffer.from('{"a":"\xe9"}', 'latin1'),
    /UTF-8/,
  ],
  ['a gzipped form', ['Content-Type', form, 'Content-Encoding', 'gzip'], 'a=1', /Content-Encoding/],
  ['a form with the field', ['Content-Type', form], 'a=1&%41pi_key=mine', /your own field/],
  [
    'an object with the field',
    ['Content-Type', 'application/json'],
    '{"a":1,"\\u0061PI_key":1}',
    /your own field/,
  ],
];
for (const [what, headers, body, message] of refused) {
  test(`a body that cannot get the credentials is refused: ${what}`, () => {
    assert.throws(
      () => withCredentialField({ headers, body: Buffer.from(body as string) }, field),
      (error: Error) =>
        error instanceof AppError && error.code === 'invalid_body' && message.test(error.message),
    );
  });
}

test('the headers describe the body with the field', () => {
  const headers = [
    'content-TYPE',
    form,
    'Content-Length',
    '3',
    'Content-MD5',
    'x',
    'Digest',
    'y',
    'Accept',
    '*/*',
  ];
  const { headers: sent } = withCredentialField(
    { headers, body: Buffer.from('a=1') },
    { name: 'k', value: 'v' },
  );
  assert.deepEqual(sent, ['content-TYPE', form, 'Accept', '*/*', 'content-length', '7']);
});

type Seen = {
  url: string | undefined;
  length: string | undefined;
  authorization: string | undefined;
  body: string;
};

/** A provider that takes its key in the body, refuses those that it does not know, and the proxy to it. */
async function startKeyed(t: TestContext, keys = ['one']) {
  const seen: Seen[] = [];
  const upstream = await startHttp(async (request, response) => {
    const body = (await bytesOf(request)).toString();
    const { 'content-length': length, authorization } = request.headers;
    seen.push({ url: request.url, length, authorization, body });
    response.writeHead(keys.some((key) => body.includes(key)) ? 200 : 401).end();
  });
  const definition = {
    ...definitionAt(upstream.url, { error_format: undefined }),
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of a definition
    placement: [{ in: 'body' as const, name: 'api_key', value: '${credentials.accessToken}' }],
  };
  // Such as can be renewed.
  const credentials = (key: string): Credentials => bearer(key);
  const proxy = await startProxy({ definition, fresh: async () => credentials('one') });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  const ask = async (init: Parameters<typeof send>[1]) => {
    const answer = await send(`${proxy.url}/proxy/x`, { method: 'POST', ...init }).answer;
    const text = (await bytesOf(answer)).toString();
    return { status: answer.statusCode, marker: answer.headers['x-trellis-error'], text };
  };
  return { proxy, seen, ask, credentials };
}
const json = { 'content-type': 'application/json' };

test("a definition's credentials reach the provider in the body, of a known length or not", async (t) => {
  const { ask, seen } = await startKeyed(t);
  const length = { ...json, 'content-length': '8' };
  assert.equal((await ask({ headers: length, body: Buffer.from('{"a":10}') })).status, 200);
  const parts = Readable.from([Buffer.from('{"a"'), Buffer.from(':10}')]);
  assert.equal(
    (await ask({ headers: { ...json, 'transfer-encoding': 'chunked' }, body: parts })).status,
    200,
  );
  const one = { url: '/x', length: '24', authorization: undefined, body: '{"api_key":"one","a":10}' };
  assert.deepEqual(seen, [one, one]);
});

test('a refused key in the body is replaced in the body that came in', async (t) => {
  const { ask, seen, proxy, credentials } = await startKeyed(t, ['two']);
  proxy.renewals.push(credentials('two'));
  assert.equal((await ask({ headers: json, body: Buffer.from('{"a":10}') })).status, 200);
  assert.deepEqual(
    seen.map(({ body }) => body),
    ['{"api_key":"one","a":10}', '{"api_key":"two","a":10}'],
  );
});

test('a call whose body cannot carry the credentials is not sent, and the error names the required body', async (t) => {
  const { ask, seen } = await startKeyed(t);
  const long = Buffer.from(JSON.stringify({ a: 'x'.repeat(1024 * 1024) }));
  const chunked = { ...json, 'transfer-encoding': 'chunked' };
  const calls: [Parameters<typeof send>[1], RegExp][] = [
    [{ method: 'GET' }, /application\/json/],
    [{ headers: { 'content-type': 'text/plain' }, body: Buffer.from('a') }, /application\/json/],
    [{ headers: { ...json, 'content-length': String(long.length) }, body: long }, /1 MB/],
    [{ headers: chunked, body: Readable.from([long]) }, /1 MB/],
  ];
  for (const [init, message] of calls) {
    const { status, marker, text } = await ask(init);
    assert.deepEqual([status, marker], [400, 'invalid_body']);
    assert.match(text, message);
  }
  assert.deepEqual(seen, []);
});

test('a body that is to carry the credentials and stops coming is a 408', async (t) => {
  const { ask, seen } = await startKeyed(t);
  const headers = { ...json, 'content-length': '8', timeouts: 'idle=0.2' };
  const body = new Readable({ read() {} });
  body.push('{"a"');
  const { status, marker } = await ask({ headers, body });
  assert.deepEqual([status, marker, seen], [408, 'request_timeout', []]);
});
