// What a page may call with a cookie: all routes with all roles, and nothing for other sites.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import { createFirstOwner } from '../../server/users/invitations.ts';
import { openPaths } from '../../server/users/sign-in-rules.ts';
import { readDocument } from '../support/openapi.ts';
import { fromAnywhere, openPerson, password, type TestPerson, tokenIn } from '../support/person.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, presentName, type Scenario } from './scenario.ts';
import { prepareScenarios, scenarios } from './scenarios.ts';

let trellis: TestTrellis;
let given: Fixture;
let people: Record<'owner' | 'developer' | 'viewer', TestPerson>;
before(async () => {
  trellis = await openTrellis(fromAnywhere);
  given = await prepareScenarios(trellis);
  const passwordHash = await hashPassword(password);
  const user = { name: 'Owner', email: 'owner@example.com', passwordHash };
  await trellis.db.transaction((tx) => createFirstOwner(tx, { user, at: new Date() }));
  const owner = openPerson(trellis);
  await owner.signIn(user.email, password);
  const join = async (role: string) => {
    const made = await owner.call('POST', '/users/invitations', { body: { role, environments: ['dev'] } });
    const person = openPerson(trellis);
    const body = { token: tokenIn((made.body.data as { link: string }).link), name: role, password };
    await person.call('POST', '/users', { body: { ...body, email: `${role}@example.com` } });
    await person.signIn(`${role}@example.com`, password);
    return person;
  };
  people = { owner, developer: await join('developer'), viewer: await join('viewer') };
});
after(() => trellis.close());

const methodOf = (name: string) => name.split(' ', 1)[0]!;
const codeOf = (body: Record<string, unknown>) => (body.error as { code?: string } | undefined)?.code;
const isProxied = (name: string) => / \/(proxy|v4)\//.test(name);
const ask = (person: TestPerson, [name, { request }]: [string, Scenario], environment = 'dev') => {
  const { path, headers = {}, body } = request(given);
  return person.call(methodOf(name), path, { environment, headers, ...(body !== undefined && { body }) });
};
/** The routes that read: of them a viewer is served, but for a whole export, what an action answered, and calls of the provider. */
const isForViewers = (name: string) =>
  (methodOf(name) === 'GET' || name === 'POST /records/prune/estimate') &&
  !isProxied(name) &&
  name !== 'GET /records/export' &&
  presentName(name) !== 'GET /functions/actions/{id}' &&
  !/api-keys|signing-key/.test(name);

/** As the form of another page sends it, and as something that is no browser does. */
const writesFromElsewhere: [number, Record<string, string | undefined>, string | undefined][] = [
  [
    401,
    { origin: 'https://evil.example.com', 'content-type': 'application/x-www-form-urlencoded' },
    undefined,
  ],
  [401, { origin: undefined, 'content-type': 'text/plain' }, undefined],
  [403, { origin: undefined }, 'dev'],
];

for (const [name, scenario] of Object.entries(scenarios)) {
  test(`${name}: a viewer is served what reads, and changes nothing`, async () => {
    const answer = await ask(people.viewer, [name, scenario]);
    assert.equal(answer.headers.get('access-control-allow-origin'), null);
    if (isForViewers(name)) {
      // Nobody follows yet: a viewer could not make a bookmark.
      const right = name === 'GET /records/consumers/{name}' ? 404 : scenario.right;
      assert.equal(answer.status, right, answer.text);
      return;
    }
    assert.equal(answer.status, 403, answer.text);
    if (methodOf(name) !== 'HEAD') assert.equal(codeOf(answer.body), 'forbidden');
  });

  test(`${name}: a developer is refused in an environment they were not given`, async () => {
    const answer = await ask(people.developer, [name, scenario], 'prod');
    assert.equal(answer.status, 403, answer.text);
  });

  test(`${name}: a page of another site is refused, for every signed-in user`, async () => {
    const { path, headers = {}, body } = scenario.request(given);
    const method = methodOf(name);
    const isRead = method === 'GET' || method === 'HEAD';
    const carried: [number, Record<string, string | undefined>, string | undefined][] = [
      // No form, link or image can send the header; without it a cookie is nothing.
      [401, {}, undefined],
      [403, { origin: 'https://evil.example.com' }, 'dev'],
      [403, { origin: 'null' }, 'dev'],
      [403, { 'sec-fetch-site': 'same-site', origin: trellis.baseUrl }, 'dev'],
      [403, { 'sec-fetch-site': 'cross-site' }, 'dev'],
      ...(isRead ? [] : writesFromElsewhere),
    ];
    for (const [status, more, environment] of carried) {
      const options = { environment, headers: { ...headers, ...more }, ...(body !== undefined && { body }) };
      const answer = await people.owner.call(method, path, options as Parameters<TestPerson['call']>[2]);
      assert.equal(answer.status, status, `${JSON.stringify(more)}: ${answer.text}`);
      if (environment !== undefined) assert.equal(answer.headers.get('access-control-allow-origin'), null);
    }
  });
}

test('a viewer exports the lists of an environment, but no records', async () => {
  for (const [name, path, right] of [
    ['records', '/records?model=M', 403],
    ['connections', '/connections', 200],
    ['audit', '/audit', 200],
  ] as const) {
    const { headers = {} } = scenarios['GET /records']!.request(given);
    for (const accept of ['text/csv', 'application/x-ndjson']) {
      const asked = { environment: 'dev', headers: { ...headers, accept } };
      assert.equal((await people.viewer.call('GET', path, asked)).status, right, name);
      assert.equal((await people.developer.call('GET', path, asked)).status, 200, name);
    }
  }
});

test('no role is given credentials of a connection or values of variables, or makes a key that would be', async () => {
  const path = `/connections/${given.connectionId}?provider_config_key=google-sheet`;
  for (const person of Object.values(people)) {
    const { status, body } = await person.call('GET', path, { environment: 'dev' });
    assert.equal(status, 200);
    assert.ok(!('credentials' in body) || body.credentials === null, JSON.stringify(body));
    for (const scopes of [['*'], ['connections:credentials'], ['environment:secrets']]) {
      const made = await person.call('POST', '/environment/api-keys', {
        environment: 'dev',
        body: { name: 'more', scopes },
      });
      assert.equal(made.status, 403, made.text);
    }
  }
});

test('no role gets the values of variables, and a key does', async () => {
  const variables = [{ name: 'SECRET', value: 'for-keys-alone' }];
  const path = '/environment-variables';
  const put = await people.developer.call('PUT', path, { environment: 'dev', body: { variables } });
  assert.deepEqual(JSON.parse(put.text), [{ name: 'SECRET', value: null }]);
  for (const person of Object.values(people)) {
    const { text } = await person.call('GET', path, { environment: 'dev' });
    assert.deepEqual(JSON.parse(text), [{ name: 'SECRET', value: null }]);
  }
  assert.deepEqual(JSON.parse((await trellis.call('GET', path)).text), variables);
  for (const person of [people.owner, people.developer]) {
    const { body } = await person.call('GET', '/users/me');
    const { environments } = body.data as { environments: { name: string; scopes: string[] }[] };
    const scopes = environments.find(({ name }) => name === 'dev')?.scopes;
    const made = await person.call('POST', '/environment/api-keys', {
      environment: 'dev',
      body: { name: 'all of mine', scopes },
    });
    assert.equal(made.status, 201, made.text);
    const { secret: key } = made.body.data as { secret: string };
    assert.deepEqual(JSON.parse((await trellis.call('GET', path, { key })).text), [
      { name: 'SECRET', value: null },
    ]);
  }
});

/** The routes of people, by whom each is for. */
const ofPeople: Record<string, 'everybody' | 'owners'> = {
  'GET /users/me': 'everybody',
  'PATCH /users/me': 'everybody',
  'GET /users': 'owners',
  'PATCH /users/{id}': 'owners',
  'DELETE /users/{id}': 'owners',
  'POST /users/{id}/password-reset': 'owners',
  'GET /users/invitations': 'owners',
  'POST /users/invitations': 'owners',
  'DELETE /users/invitations/{id}': 'owners',
  'GET /environments': 'owners',
  'POST /environments': 'owners',
  'PATCH /environments/{name}': 'owners',
  'DELETE /environments/{name}': 'owners',
};

test('the table holds every route of people', async () => {
  const { paths } = await readDocument(trellis);
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { security = [] }]) =>
      security.length > 0 && security.every((way) => 'cookie' in way)
        ? [`${method.toUpperCase()} ${path}`]
        : [],
    ),
  );
  assert.deepEqual(documented.toSorted(), Object.keys(ofPeople).toSorted());
});

for (const [name, who] of Object.entries(ofPeople)) {
  test(`${name}: is for ${who} who come from the dashboard`, async () => {
    const [method = '', template = ''] = name.split(' ');
    // The target does not exist, so that a served call changes nothing.
    const path = template
      .replace('{id}', name.includes('invitations') ? '999' : 'none')
      .replace('{name}', 'none');
    const isRead = method === 'GET';
    const given = { body: name === 'PATCH /users/me' ? { name: 'Somebody' } : {} };
    const ask = async (person: TestPerson, asked: Parameters<TestPerson['call']>[2] = {}) =>
      (await person.call(method, path, { ...(!isRead && given), ...asked })).status;
    for (const person of [people.developer, people.viewer]) {
      const status = await ask(person);
      assert.equal(status, who === 'everybody' ? 200 : 403);
    }
    assert.ok(![401, 403].includes(await ask(people.owner)));
    assert.equal(await ask(openPerson(trellis)), 401);
    assert.equal((await trellis.call(method, path, isRead ? {} : { body: {} })).status, 401);
    for (const [status, headers, environment] of [
      [401, {}, undefined],
      [403, { origin: 'https://evil.example.com' }, '*'],
      [403, { 'sec-fetch-site': 'cross-site' }, '*'],
      ...(isRead ? [] : writesFromElsewhere),
    ] as typeof writesFromElsewhere)
      assert.equal(await ask(people.owner, { headers, environment }), status, JSON.stringify(headers));
  });
}

for (const route of openPaths.keys()) {
  const [method = '', path = ''] = route.split(' ');
  if (method !== 'POST') continue;
  test(`${path}: another site can do nothing to a signed-in user`, async () => {
    for (const headers of [
      { origin: 'https://evil.example.com' },
      { origin: 'null' },
      { origin: undefined },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { origin: 'https://evil.example.com', 'content-type': 'application/x-www-form-urlencoded' },
      { origin: undefined, 'content-type': 'text/plain' },
    ] as Record<string, string | undefined>[]) {
      const answer = await people.owner.call(method, `/api/auth${path}`, {
        headers,
        environment: undefined,
        body: {},
      });
      assert.ok([403, 415].includes(answer.status), `${JSON.stringify(headers)}: ${answer.text}`);
      if (headers['content-type'] === undefined) assert.equal(answer.status, 403);
    }
  });
}

test('a cookie is not taken where sessions of end users are, and a key not where people are', async () => {
  for (const [method, path] of [
    ['GET', '/connect/session'],
    ['DELETE', '/connect/session'],
  ] as const) {
    assert.equal((await people.owner.call(method, path, { environment: 'dev' })).status, 401, path);
  }
  for (const path of ['/users', '/users/me', '/users/invitations', '/environments']) {
    const answer = await trellis.call('GET', path, { headers: { 'x-trellis-environment': 'dev' } });
    assert.deepEqual([answer.status, codeOf(answer.body)], [401, 'not_signed_in'], path);
    assert.equal((await trellis.call('GET', path, { key: undefined })).status, 401, path);
  }
  for (const path of ['/users', '/users/invitations', '/environments']) {
    assert.equal((await people.developer.call('GET', path)).status, 403, path);
    assert.equal((await people.owner.call('GET', path)).status, 200, path);
  }
});

test('nothing of a proxied answer can act on the address of the dashboard', async () => {
  const { headers } = await connect(trellis, { integration: 'pages' });
  const answer = await people.developer.call('GET', '/proxy/v4/spreadsheets/none', {
    environment: 'dev',
    headers,
  });
  assert.equal(answer.status, 404);
  assert.match(answer.headers.get('content-security-policy') ?? '', /(^|, )sandbox$/);
  assert.equal(answer.headers.get('access-control-allow-origin'), null);
  assert.equal(answer.headers.get('set-cookie'), null);
});

for (const [name, scenario] of Object.entries(scenarios)) {
  test(`${name}: an owner is served, but for tickets and deploys, which are a key's`, async () => {
    const answer = await ask(people.owner, [name, scenario]);
    const isForKeys = /^POST \/(tickets|functions\/deploys)/.test(presentName(name));
    assert.equal(answer.status, isForKeys ? 403 : scenario.right, answer.text);
  });
}
