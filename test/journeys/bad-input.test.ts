import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { readDocument } from '../support/openapi.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, presentName } from './scenario.ts';
import { prepareScenarios, scenarios } from './scenarios.ts';

/**
 * Bad input gives a 4xx that names the field and changes nothing. The fields come from the interface's own
 * description, so that a new one is tried too.
 */
type Schema = {
  type?: string | string[];
  properties?: Record<string, Schema>;
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  required?: string[];
};
type Operation = {
  requestBody?: { content: { 'application/json': { schema: Schema } } };
  parameters?: { in: string; name: string; required?: boolean; schema: Schema }[];
};

let trellis: TestTrellis;
let given: Fixture;
let documented: Record<string, Record<string, Operation>>;
before(async () => {
  trellis = await openTrellis();
  given = await prepareScenarios(trellis);
  documented = (await readDocument(trellis)).paths as unknown as typeof documented;
});
after(() => trellis.close());

/** Values that no field takes, each of another kind. */
const wrong: Record<string, unknown[]> = {
  string: [1, true, null, {}, ''],
  number: ['1', true, {}, 1.5, -1, null],
  integer: ['1', true, {}, 1.5, -1, null],
  boolean: ['true', 1, {}, null],
  array: ['x', 1, {}, null],
  object: ['x', 1, [], null],
  null: ['x', '1', 'true', '', 1, 1.5, -1, true, {}, []],
};

/** But for the provider's own, whose bodies are not ours to judge. */
const withBody = Object.entries(scenarios).filter(
  ([name]) => /^(POST|PUT|PATCH) /.test(name) && !name.endsWith('/v4/spreadsheets'),
);
const operationOf = (name: string): Operation => {
  const [method = '', path = ''] = name.split(' ');
  return documented[path]?.[method.toLowerCase()] ?? documented[`${path}/`]?.[method.toLowerCase()] ?? {};
};
/** What fits none of a field's alternatives. */
const wrongFor = (field: Schema): unknown[] => {
  const [first = [], ...others] = kindsOf(field).map((kind) => wrong[kind] ?? []);
  const keyed = others.map((values) => new Set(values.map((value) => JSON.stringify(value))));
  return first.filter((value) => keyed.every((values) => values.has(JSON.stringify(value))));
};
const kindsOf = ({ type, anyOf, oneOf }: Schema): string[] =>
  type !== undefined ? [type].flat() : [...new Set((anyOf ?? oneOf ?? []).flatMap(kindsOf))];

type Errors = { errors?: { path: string[]; message: string }[]; message: string };
const errorOf = (body: Record<string, unknown>) => body.error as Errors;

for (const [name, { request }] of withBody) {
  test(`${name} names each body field that does not fit`, async () => {
    const schema = operationOf(name).requestBody?.content['application/json'].schema;
    const { path, body, ...options } = request(given);
    const method = name.split(' ', 1)[0]!;
    if (schema === undefined) {
      assert.equal(body, undefined, 'a route with a body describes it');
      return;
    }
    for (const [field, sub] of Object.entries(schema.properties ?? {})) {
      // Any JSON: what a function takes is its own schema's.
      if (kindsOf(sub).length === 0) continue;
      const values = wrongFor(sub);
      assert.ok(values.length > 0, `no wrong value is known for ${field}`);
      for (const value of values) {
        const answer = await trellis.call(method, path, {
          ...options,
          body: { ...(body as object), [field]: value },
        });
        const said = `${field} = ${JSON.stringify(value)}: ${answer.status} ${answer.text}`;
        // An empty text is a value for some fields: it clears them.
        if (value === '' && answer.status < 300) continue;
        assert.equal(answer.status, 400, said);
        assert.ok(
          errorOf(answer.body).errors?.some((error) => error.path[0] === field),
          said,
        );
      }
    }
    for (const field of schema.required ?? []) {
      const { [field]: _, ...rest } = (body ?? {}) as Record<string, unknown>;
      const answer = await trellis.call(method, path, { ...options, body: rest });
      assert.equal(answer.status, 400, `${field} missing: ${answer.text}`);
      assert.ok(
        errorOf(answer.body).errors?.some((error) => error.path[0] === field),
        answer.text,
      );
    }
    // Official command lines of other versions say more.
    if (presentName(name).startsWith('POST /functions/deploys')) return;
    const unknown = await trellis.call(method, path, {
      ...options,
      body: { ...(body as object), nonsense: 1 },
    });
    assert.equal(unknown.status, 400, unknown.text);
    assert.match(JSON.stringify(errorOf(unknown.body).errors), /nonsense/);
  });

  test(`${name} refuses a body that is not a JSON object`, async () => {
    const { path, body, ...options } = request(given);
    if (body === undefined) return;
    const method = name.split(' ', 1)[0]!;
    for (const text of ['', '[]', '"x"', 'null', '{"a":', '\u0000']) {
      const answer = await trellis.call(method, path, {
        ...options,
        headers: { ...options.headers, 'content-type': 'application/json' },
        body: text,
      });
      const takesNothing = text === '' && answer.status === 200;
      assert.ok(
        answer.status === 400 || takesNothing,
        `${JSON.stringify(text)}: ${answer.status} ${answer.text}`,
      );
    }
    const typed = { ...options, headers: { ...options.headers, 'content-type': 'text/plain' } };
    assert.equal((await trellis.call(method, path, { ...typed, body })).status, 415);
  });
}

test('each query parameter and header that does not fit is named', async () => {
  const { headers } = given;
  const cases: [string, string, string][] = [
    ['/records?model=', 'invalid_query_params', 'model'],
    ['/records', 'invalid_query_params', 'model'],
    ['/records?model=M&limit=0', 'invalid_query_params', 'limit'],
    ['/records?model=M&limit=10001', 'invalid_query_params', 'limit'],
    ['/records?model=M&limit=1.5', 'invalid_query_params', 'limit'],
    ['/records?model=M&variant=', 'invalid_query_params', 'variant'],
    ['/records?model=M&filter=nope', 'invalid_query_params', 'filter'],
    ['/records?model=M&modified_after=yesterday', 'invalid_query_params', 'modified_after'],
    ['/connections?limit=0', 'invalid_query_params', 'limit'],
    ['/connections?page=-1', 'invalid_query_params', 'page'],
    ['/connections?nonsense=1', 'invalid_query_params', 'nonsense'],
    [`/connections/${given.connectionId}`, 'invalid_query_params', 'integration_id'],
    [
      `/connections/${given.connectionId}?provider_config_key=google-sheet&force_refresh=yes`,
      'invalid_query_params',
      'force_refresh',
    ],
    ['/integrations/google-sheet?include=everything', 'invalid_query_params', 'include'],
    ['/events?after=x', 'invalid_query_params', 'after'],
    ['/events?limit=1001', 'invalid_query_params', 'limit'],
    ['/integrations/%00', 'invalid_uri_params', 'key'],
    ['/connections?search=%00', 'invalid_query_params', 'search'],
    ['/connections?endUserId=%00', 'invalid_query_params', 'endUserId'],
  ];
  for (const [path, code, field] of cases) {
    const answer = await trellis.call('GET', path, { headers });
    const said = `${path}: ${answer.status} ${answer.text}`;
    assert.equal(answer.status, 400, said);
    assert.equal((answer.body.error as { code: string }).code, code, said);
    assert.ok(
      errorOf(answer.body).errors?.some((error) => error.path[0] === field),
      said,
    );
  }
  for (const missing of Object.keys(headers)) {
    const { [missing]: _, ...rest } = headers;
    const answer = await trellis.call('GET', '/records?model=M', { headers: rest });
    assert.equal(answer.status, 400, answer.text);
    assert.ok(
      errorOf(answer.body).errors?.some(
        (error) => error.path[0] === missing.replace('provider-config-key', 'integration-id'),
      ),
      answer.text,
    );
  }
});

test('no text that the database cannot hold, and no depth, is more than a 4xx', async () => {
  const texts = ['a\u0000b', 'a\ud800b'];
  for (const text of texts) {
    const answers = [
      await trellis.call('POST', '/connect/sessions', { body: { end_user: { id: text } } }),
      await trellis.call('POST', '/integrations', {
        body: {
          provider: 'google-sheet',
          unique_key: 'x',
          display_name: text,
          credentials: { type: 'TEST' },
        },
      }),
      await trellis.call('PATCH', '/integrations/google-sheet', { body: { custom: { a: text } } }),
      await trellis.call('GET', `/connections?tags[a]=${encodeURIComponent('a\0')}`),
      await trellis.call('GET', '/connections?integrationId=%00'),
    ];
    for (const answer of answers) assert.equal(answer.status, 400, answer.text);
  }
  const begun = await trellis.call('GET', '/oauth/connect/%00?connect_session_token=x', { key: undefined });
  assert.ok(begun.status >= 400 && begun.status < 500, `${begun.status}`);
  const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
  const credentials = `{"type":"OAUTH2","access_token":"x","raw":{"a":${deep}}}`;
  const refused = await trellis.call('POST', '/connections', {
    body: `{"provider_config_key":"google-sheet","credentials":${credentials}}`,
  });
  assert.equal(refused.status, 400);
});

test('nothing that was refused has changed anything', async () => {
  const { body } = await trellis.call('GET', '/records?model=M', { headers: given.headers });
  assert.equal((body.records as unknown[]).length, 1);
});
