// Deprecated routes say so in every response, and are served as their successors.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { deprecations, documentedName } from '../../server/http/deprecation.ts';
import { type OpenApi, operationsOf, readDocument } from '../support/openapi.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, presentName } from './scenario.ts';
import { prepareScenarios, scenarios } from './scenarios.ts';

let trellis: TestTrellis;
let given: Fixture;
let document: OpenApi;
before(async () => {
  trellis = await openTrellis();
  given = await prepareScenarios(trellis);
  document = await readDocument(trellis);
});
after(() => trellis.close());

const names = deprecations.map(({ route }) => documentedName(route));
const methodOf = (name: string) => name.split(' ', 1)[0]!;
const fieldsOf = (headers: Headers) => ['deprecation', 'sunset', 'link'].map((name) => headers.get(name));

test('the document marks the deprecated routes, and no others', () => {
  const marked = operationsOf(document.paths).filter(({ operation }) => operation.deprecated === true);
  assert.deepEqual(marked.map(({ name }) => name).sort(), [...names].sort());
});

for (const [index, { since, sunset }] of deprecations.entries()) {
  const name = names[index]!;
  test(`${name}: each response has the dates and the successor, which is served and has none`, async () => {
    const { request, right } = scenarios[name]!;
    const { path, ...options } = request(given);
    const present = scenarios[presentName(name)]!.request(given);
    for (const [as, status] of [
      [{}, right],
      [{ key: undefined }, 401],
      [{ key: 'trs_dev_0000000000000000000000' }, 401],
    ] as const) {
      const answer = await trellis.call(methodOf(name), path, { ...options, ...as });
      assert.equal(answer.status, status, answer.text);
      const [deprecation, until, link] = fieldsOf(answer.headers);
      assert.equal(deprecation, `@${since.getTime() / 1000}`);
      assert.equal(until, sunset.toUTCString());
      const target = /^<([^>]+)>; rel="successor-version"$/.exec(link ?? '')?.[1];
      // A variant can be added once, so both requests name different ones.
      assert.equal(target?.replace(/-2$/, ''), present.path.split('?')[0]);
      assert.match(answer.headers.get('access-control-expose-headers') ?? '', /Deprecation.*Link.*Sunset/);
    }
    const successor = await trellis.call(methodOf(name), present.path, { ...present, key: undefined });
    assert.equal(successor.status, 401);
    assert.deepEqual(fieldsOf(successor.headers), [null, null, null]);
  });
}

test('a sunset is at least two years after the deprecation', () => {
  for (const { route, since, sunset } of deprecations) {
    const twoYears = new Date(since).setUTCFullYear(since.getUTCFullYear() + 2);
    assert.ok(sunset.getTime() >= twoYears, route);
  }
});

test('docs/reference/versions.md lists the deprecated routes with successor and sunset', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/reference/versions.md'), 'utf8');
  const rows = [...page.matchAll(/^\| `([A-Z]+ \S+)` \| `([A-Z]+ \S+)` \| (\d{4}-\d\d-\d\d) \|$/gm)];
  assert.deepEqual(
    rows.map(([, route, successor, date]) => [route, successor, date]),
    deprecations.map(({ route, successor, sunset }) => [
      documentedName(route),
      documentedName(successor),
      sunset.toISOString().slice(0, 10),
    ]),
  );
});

test('the status of an asynchronous action is below the name that its caller uses', async () => {
  const headers = { ...given.headers, 'x-async': 'true' };
  const body = { action_name: 'double', input: { n: 1 } };
  for (const [trigger, below] of [
    ['/action/trigger', '/action/'],
    ['/functions/actions/trigger', '/functions/actions/'],
  ] as const) {
    const { status, body: queued } = await trellis.call('POST', trigger, { headers, body });
    assert.equal(status, 202);
    assert.equal(queued.statusUrl, `${below}${queued.id}`);
  }
});
