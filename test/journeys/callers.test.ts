import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, prepareScenarios, scenarios } from './scenarios.ts';

let trellis: TestTrellis;
let given: Fixture;
let documented: Record<string, Record<string, { security?: Record<string, unknown>[]; 'x-scope'?: string }>>;

before(async () => {
  trellis = await openTrellis();
  given = await prepareScenarios(trellis);
  documented = (await trellis.call('GET', '/openapi.json')).body.paths as typeof documented;
});
after(() => trellis.close());

const methodOf = (name: string) => name.split(' ', 1)[0]!;

test('the table holds every route that wants a key', () => {
  const wanted = Object.entries(documented).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { security = [] }]) => security.some((way) => 'key' in way))
      .map(([method]) => `${method.toUpperCase()} ${path === '/' ? path : path.replace(/\/$/, '')}`),
  );
  const listed = Object.keys(scenarios).filter((name) => !name.endsWith('/none'));
  assert.deepEqual([...new Set(wanted)].sort(), listed.sort());
});

for (const [name, { request }] of Object.entries(scenarios)) {
  test(`${name}: no key and a wrong key are 401, a key without scopes is 403`, async () => {
    const { path, ...options } = request(given);
    const none = await trellis.call(methodOf(name), path, { ...options, key: undefined });
    assert.deepEqual([none.status, codeOf(none.body)], [401, 'missing_auth_header']);
    const wrong = await trellis.call(methodOf(name), path, {
      ...options,
      key: 'trs_dev_0000000000000000000000',
    });
    assert.deepEqual([wrong.status, codeOf(wrong.body)], [401, 'unknown_account']);
    const powerless = await trellis.call(methodOf(name), path, { ...options, key: await trellis.keyWith() });
    assert.deepEqual([powerless.status, codeOf(powerless.body)], [403, 'forbidden']);
  });
}

for (const [name, { request, foreign }] of Object.entries(scenarios)) {
  test(`${name}: a key of another environment finds nothing of this one`, async () => {
    const { path, ...options } = request(given);
    const answer = await trellis.call(methodOf(name), path, { ...options, key: trellis.keys.prod });
    assert.equal(answer.status, foreign, answer.text);
    assert.ok(!answer.text.includes('ada@example.com'), answer.text);
    if (answer.status >= 400) assert.match(codeOf(answer.body), /^[a-z_]+$/);
  });
}

for (const [name, { request, right }] of Object.entries(scenarios)) {
  test(`${name}: the right key is served`, async () => {
    const { path, ...options } = request(given);
    const answer = await trellis.call(methodOf(name), path, options);
    assert.equal(answer.status, right, answer.text);
  });
}

test('what is open to anyone is open', async () => {
  for (const path of ['/health', '/ready', '/openapi.json', '/docs/']) {
    assert.equal((await trellis.call('GET', path, { key: undefined })).status, 200, path);
  }
});

function codeOf(body: Record<string, unknown>): string {
  return String((body.error as { code?: unknown } | undefined)?.code);
}
