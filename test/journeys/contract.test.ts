// Every route, driven from the document that describes it: what is sent is what it shows, and what comes back is what it
// says, to the last field and code.
// Slow: it calls every route.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import { createFirstOwner } from '../../server/users/invitations.ts';
import {
  answerOf,
  type Call,
  codesOf,
  createJudge,
  type OpenApi,
  operationsOf,
  type Parameter,
  type Placed,
  readDocument,
  shownCall,
  takesKey,
} from '../support/openapi.ts';
import { fromAnywhere, openPerson, password, type TestPerson, tokenIn } from '../support/person.ts';
import { type Answer, openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, key } from './scenario.ts';
import { prepareScenarios, scenarios } from './scenarios.ts';

let trellis: TestTrellis;
let given: Fixture;
let owner: TestPerson;
let session: string;
let document: OpenApi;
let judge: ReturnType<typeof createJudge>;
let all: Placed[];
before(async () => {
  trellis = await openTrellis(fromAnywhere);
  given = await prepareScenarios(trellis);
  const user = { name: 'Owner', email: 'owner@example.com', passwordHash: await hashPassword(password) };
  await trellis.db.transaction((tx) => createFirstOwner(tx, { user, at: new Date() }));
  owner = openPerson(trellis);
  await owner.signIn(user.email, password);
  session = await newSession();
  document = await readDocument(trellis);
  judge = createJudge(document);
  // In the document's own order, what deletes last.
  all = operationsOf(document.paths).toSorted((a, b) => Number(isDeleting(a)) - Number(isDeleting(b)));
});
after(() => trellis.close());

async function newSession(): Promise<string> {
  const { body } = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: [key] },
  });
  return (body.data as { token: string }).token;
}

const isDeleting = ({ method }: Placed) => method === 'DELETE';
const isOfProxy = ({ path }: Placed) => path.startsWith('/proxy/');
const isOf = (scheme: string, { operation: { security = [] } }: Placed) =>
  security.some((way) => scheme in way);
/** Bare sockets, and pages that a browser alone gets on with. */
const isCallable = ({ path }: Placed) => path !== '/';
const byName = (name: string) => {
  const [method = '', path = ''] = name.replace(/ \(.*\)$/, '').split(' ');
  return all.find((placed) => placed.method === method && placed.path.replace(/(?<=.)\/$/, '') === path);
};

/** What of an answer the document does not say; undefined where it says all. */
function undocumented(placed: Placed, { status, headers, text }: Answer): string | undefined {
  const { method, operation } = placed;
  const said = `${status} ${text.slice(0, 300)}`;
  if (isOfProxy(placed)) {
    // Without the header it is the provider's own; with it the form is the provider's, and the code stands in the header.
    const code = headers.get('x-trellis-error');
    return code === null || codesOf(operation, status).includes(code) ? undefined : `not documented: ${said}`;
  }
  const described = answerOf(operation.responses, status);
  if (described === undefined) return `the status is not documented: ${said}`;
  if (text === '' || method === 'HEAD') return undefined;
  const type = headers.get('content-type')?.split(';', 1)[0] ?? '';
  const media = described.content?.[type];
  if (media === undefined) return `the type ${type} is not documented: ${said}`;
  if (type !== 'application/json') return undefined;
  const value: unknown = JSON.parse(text);
  const fault = media.schema && judge(media.schema, value);
  if (fault !== undefined) return `${fault}: ${said}`;
  const code = (value as { error?: { code?: unknown } } | null)?.error?.code;
  if (status < 400 || typeof code !== 'string') return undefined;
  return codesOf(operation, status).includes(code) ? undefined : `the code is not documented: ${said}`;
}

/** With real things in place of the example's, and streams that end. */
function inThisWorld(call: Call): Call {
  const isEndless = call.path.startsWith('/operations/tail') && !call.path.includes('seconds=');
  const path = isEndless ? `${call.path}${call.path.includes('?') ? '&' : '?'}seconds=0` : call.path;
  // What would be deleted is unknown, so that it stays for the others.
  const connectionId = call.method === 'DELETE' ? 'ada-sheets' : given.connectionId;
  const reported = JSON.stringify({ ...call, path })
    // What is sent as a secret must not stand in an answer, and the document is one.
    .replaceAll(/[a-z]+-of-the-[a-z]+|a long sentence that nobody guesses/g, 'contract-secret-4f1a')
    .replaceAll('ada-sheets', connectionId)
    .replaceAll('AQIAAAAAAAAAKwAAAAAAAAGQd0fmXw', given.cursor)
    .replaceAll('trellis_connect_session_...', session);
  return JSON.parse(reported) as Call;
}

type As = { key?: string | undefined; session?: string | undefined };
/** Sends a call as somebody whom the operation serves, unless `as` says otherwise. */
async function send(placed: Placed, call: Call, as?: As): Promise<Answer> {
  const { method, headers, body } = call;
  if (as === undefined && isOf('cookie', placed) && !takesKey(placed)) {
    const { 'content-type': _, ...others } = headers;
    return owner.call(method, call.path, { headers: others, ...(body !== undefined && { body }) });
  }
  const isInQuery = isOf('session_in_query', placed) && as === undefined;
  const credential =
    as === undefined ? (isOf('session', placed) && !takesKey(placed) ? session : trellis.keys.dev) : as.key;
  const path = isInQuery
    ? `${call.path}${call.path.includes('?') ? '&' : '?'}connect_session_token=${session}`
    : call.path;
  return trellis.call(method, path, { key: credential, headers, ...(body !== undefined && { body }) });
}

/** Asks for every operation and fails with all that was not as documented. */
async function everywhere(ask: (placed: Placed) => Promise<string[]>): Promise<void> {
  const found: string[] = [];
  for (const placed of all.filter(isCallable))
    for (const what of await ask(placed)) found.push(`${placed.name}: ${what}`);
  assert.deepEqual(found, []);
}

async function faultOf(placed: Placed, call: Call, { as, wanted }: { as?: As; wanted?: RegExp } = {}) {
  const answer = await send(placed, call, as);
  const fault = undocumented(placed, answer);
  if (fault !== undefined) return [fault];
  return wanted === undefined || wanted.test(String(answer.status))
    ? []
    : [`${answer.status} ${answer.text}`];
}

test('without a key, and without the scope, every route refuses as documented', async () => {
  const powerless = await trellis.keyWith();
  await everywhere(async (placed) => {
    const call = inThisWorld(shownCall(placed));
    if ((placed.operation.security ?? []).length === 0) return [];
    const none = await faultOf(placed, call, { as: { key: undefined }, wanted: /^401$/ });
    const lacking = takesKey(placed) ? /^403$/ : /^401$/;
    return [...none, ...(await faultOf(placed, call, { as: { key: powerless }, wanted: lacking }))];
  });
});

test('invalid parameters, unknown objects and invalid bodies are refused as documented', async () => {
  await everywhere(async (placed) => {
    if (isOfProxy(placed)) return [];
    const { method, operation } = placed;
    const call = inThisWorld(shownCall(placed));
    const found: string[] = [];
    for (const parameter of operation.parameters ?? [])
      for (const wrong of wrongFor(parameter))
        found.push(...(await faultOf(placed, withParameter(placed, call, { ...parameter, example: wrong }))));
    if (method === 'GET' || method === 'HEAD') return found;
    const typed = { ...call.headers, 'content-type': 'application/json' };
    for (const body of ['{"a":', '[]', '{"nonsense":1}'])
      found.push(...(await faultOf(placed, { ...call, headers: typed, body })));
    const other = { ...call.headers, 'content-type': 'text/x-nothing' };
    found.push(...(await faultOf(placed, { ...call, headers: other, body: 'x' })));
    return found;
  });
});

/** What no such parameter takes, and what is well formed and nowhere. */
function wrongFor({ name, in: place, schema }: Parameter): string[] {
  const unknown = schema.format === 'uuid' ? '00000000-0000-4000-8000-000000000000' : '987654321';
  return place === 'header'
    ? [name === 'idempotency-key' ? 'two words' : 'unknown']
    : place === 'path'
      ? [unknown, 'a\u0001b', '%00']
      : [unknown, '', '-1', 'x'];
}

function withParameter({ path }: Placed, call: Call, { name, in: place, example }: Parameter): Call {
  const value = String(example);
  if (place === 'header') return { ...call, headers: { ...call.headers, [name]: value } };
  const [shown = '', query = ''] = call.path.split('?');
  if (place === 'path') {
    const at = path.split('/').indexOf(`{${name}}`);
    const parts = shown.split('/').map((part, index) => (index === at ? encodeURIComponent(value) : part));
    return { ...call, path: `${parts.join('/')}${query === '' ? '' : `?${query}`}` };
  }
  const asked = new URLSearchParams(query);
  asked.set(name, value);
  return { ...call, path: `${shown}?${asked}` };
}

test('every optional parameter takes the example that the document shows', async () => {
  await everywhere(async (placed) => {
    if (placed.method !== 'GET' || isOfProxy(placed)) return [];
    const found: string[] = [];
    const call = inThisWorld(shownCall(placed));
    for (const parameter of placed.operation.parameters ?? [])
      if (parameter.in !== 'path')
        found.push(...(await faultOf(placed, inThisWorld(withParameter(placed, call, parameter)))));
    return found;
  });
});

test('every successful call is answered as documented, without additional fields', async () => {
  const found: string[] = [];
  for (const [name, { request, right }] of Object.entries(scenarios)) {
    const placed = byName(name);
    if (placed === undefined) continue;
    const { path, headers = {}, body } = request(given);
    if (isDeleting(placed) && path.startsWith('/connections/')) continue;
    const answer = await trellis.call(placed.method, path, { headers, body });
    if (answer.status !== right) found.push(`${name}: ${answer.status} ${answer.text}`);
    const fault = undocumented(placed, answer);
    if (fault !== undefined) found.push(`${name}: ${fault}`);
  }
  assert.deepEqual(found, []);
});

test('every example call of the document is answered as documented', async () => {
  await everywhere(async (placed) => {
    session = isOf('session', placed) || isOf('session_in_query', placed) ? await newSession() : session;
    return faultOf(placed, inThisWorld(shownCall(placed)));
  });
});

test('users of the dashboard are answered as documented, without additional fields', async () => {
  const made = await owner.call('POST', '/users/invitations', {
    body: { role: 'viewer', environments: ['dev'] },
  });
  const token = tokenIn((made.body.data as { link: string }).link);
  const asked: [name: string, path: string, body?: unknown][] = [
    ['GET /users/me', '/users/me'],
    ['PATCH /users/me', '/users/me', { name: 'Owner' }],
    ['POST /users/invitations', '/users/invitations', { role: 'viewer', environments: ['dev'] }],
    ['GET /users/invitations', '/users/invitations'],
    ['POST /users/invitation', '/users/invitation', { token }],
    ['POST /users', '/users', { token, name: 'Ada', email: 'ada@customer.example', password }],
    ['GET /users', '/users'],
    ['POST /environments', '/environments', { name: 'passing' }],
    ['PATCH /environments/{name}', '/environments/passing', { name: 'passed' }],
    ['GET /environments', '/environments'],
    ['DELETE /environments/{name}', '/environments/passed'],
  ];
  for (const [name, path, body] of asked) {
    const placed = byName(name)!;
    const answer = await owner.call(placed.method, path, body === undefined ? {} : { body });
    assert.ok(answer.status < 300, `${name}: ${answer.status} ${answer.text}`);
    assert.equal(undocumented(placed, answer), undefined, name);
  }
});
