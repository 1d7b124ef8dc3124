import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

type Key = Record<string, unknown> & { id: number; secret: string };
const path = '/environment/api-keys';
let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

async function create(body: Record<string, unknown>, key = trellis.keys.dev) {
  const answer = await trellis.call('POST', path, { key, body: { name: 'k', ...body } });
  return { ...answer, made: answer.body.data as Key };
}
const change = (id: number, body: unknown, key = trellis.keys.dev) =>
  trellis.call('PATCH', `${path}/${id}`, { key, body });
const allow = (rule: string) => ({ effect: 'allow', path: rule });
const deny = (rule: string) => ({ effect: 'deny', path: rule });

test('a key is shown its secret once, and listed without it', async () => {
  const { status, made } = await create({ scopes: ['records:read'], proxy_rules: [deny('/a')] });
  assert.equal(status, 201);
  const { secret, ...rest } = made;
  assert.match(secret, /^trs_dev_[\w-]{43}$/);
  assert.equal((await trellis.call('GET', '/records?model=M', { key: secret })).status, 400);
  const { body, text } = await trellis.call('GET', path);
  const listed = (body.data as Key[]).find(({ id }) => id === made.id);
  assert.ok(!text.includes(secret));
  assert.deepEqual(
    { ...listed, last_used_at: null },
    { ...rest, hint: secret.slice(-4), scopes: ['records:read'], proxy_rules: [deny('/a')] },
  );
  assert.deepEqual([rest.expires_at, rest.last_used_at], [null, null]);
});

test('no key makes one that may do more: in scopes, in rules or in time', async () => {
  const inAnHour = new Date(Date.now() + 3_600_000).toISOString();
  const later = new Date(Date.now() + 7_200_000).toISOString();
  const maker = await create({
    scopes: ['keys', 'records:read', 'proxy:read'],
    expires_at: inAnHour,
    proxy_rules: [allow('/a/**'), allow('/b'), deny('/a/shut')],
  });
  const from = (body: Record<string, unknown>) =>
    create({ scopes: ['records:read'], ...body }, maker.made.secret);
  const inherited = await from({});
  assert.equal(inherited.status, 201, inherited.text);
  assert.deepEqual(
    [inherited.made.expires_at, inherited.made.proxy_rules],
    [inAnHour, maker.made.proxy_rules],
  );
  const narrower = [allow('/b'), deny('/a/shut'), deny('/b/**')];
  assert.equal((await from({ proxy_rules: narrower })).status, 201);
  const wider: [Record<string, unknown>, RegExp][] = [
    [{ scopes: ['*'] }, /\*/],
    [{ scopes: ['records:read', 'records:write'] }, /records:write/],
    [{ scopes: ['proxy:write'] }, /proxy:write/],
    [{ proxy_rules: [] }, /rules/],
    [{ proxy_rules: [deny('/a/shut')] }, /rules/],
    [{ proxy_rules: [allow('/a/**')] }, /rules/],
    [{ proxy_rules: [allow('/**'), deny('/a/shut')] }, /rules/],
    [{ expires_at: later }, /ends itself/],
  ];
  for (const [body, reason] of wider) {
    const { status, text } = await from(body);
    assert.equal(status, 403, JSON.stringify(body));
    assert.match(text, reason);
  }

  const wide = await create({ scopes: ['*'] });
  for (const body of [{ name: 'renamed' }, { scopes: ['keys'] }, { scopes: ['*'], expires_at: null }])
    assert.equal((await change(wide.made.id, body, maker.made.secret)).status, 403, JSON.stringify(body));
  const own = await change(maker.made.id, { expires_at: null }, maker.made.secret);
  assert.equal(own.status, 403);
  const narrowed = { scopes: ['keys'], expires_at: inAnHour, proxy_rules: narrower };
  assert.equal((await change(wide.made.id, narrowed, maker.made.secret)).status, 200);
  assert.equal((await trellis.call('GET', '/integrations', { key: wide.made.secret })).status, 403);
});

test('a key that has just lost something gives none of it, though the node remembers it as it was', async () => {
  const inAnHour = new Date(Date.now() + 3_600_000).toISOString();
  const rule = [deny('/a')];
  const { made: target } = await create({ scopes: ['records:read'] });
  const lost: [string, Record<string, unknown>, number, RegExp][] = [
    ["scopes = '{keys}'", { scopes: ['records:read'] }, 403, /records:read/],
    ["scopes = '{records:read}'", { scopes: ['records:read'] }, 403, /scope keys/],
    [`proxy_rules = '${JSON.stringify(rule)}'`, { proxy_rules: [] }, 403, /rules/],
    ["expires_at = now() + interval '1 minute'", { expires_at: inAnHour }, 403, /ends itself/],
    ["expires_at = now() - interval '1 second'", {}, 401, /unknown_account/],
    ['revoked_at = now()', {}, 401, /unknown_account/],
  ];
  for (const [change, body, status, reason] of lost) {
    const { made: maker } = await create({ scopes: ['keys', 'records:read'] });
    assert.equal((await trellis.call('GET', path, { key: maker.secret })).status, 200);
    await trellis.db.query(`update api_key set ${change} where id = $1`, [maker.id]);
    for (const answer of [
      await create({ scopes: ['keys'], ...body }, maker.secret),
      await trellis.call('PATCH', `${path}/${target.id}`, { key: maker.secret, body: { name: 'renamed' } }),
    ]) {
      assert.equal(answer.status, status, `${change}: ${answer.text}`);
      assert.match(answer.text, reason);
    }
  }
  const { made: maker } = await create({ scopes: ['keys'] });
  assert.equal((await trellis.call('GET', path, { key: maker.secret })).status, 200);
  await trellis.db.query('update api_key set proxy_rules = $2 where id = $1', [
    maker.id,
    JSON.stringify(rule),
  ]);
  assert.deepEqual((await create({ scopes: ['keys'] }, maker.secret)).made.proxy_rules, rule);
});

test('keys that change each other at once do not wait for each other in a circle', async () => {
  const keys = [await create({ scopes: ['keys'] }), await create({ scopes: ['keys'] })];
  const [one, other] = keys.map(({ made }) => made) as [Key, Key];
  const changes = Array.from({ length: 20 }, (_, at) =>
    at % 2 === 0 ? change(one.id, { name: 'a' }, other.secret) : change(other.id, { name: 'b' }, one.secret),
  );
  const statuses = (await Promise.all(changes)).map(({ status }) => status);
  assert.deepEqual(new Set(statuses), new Set([200]));
});

test('a change keeps what it does not name, and a revoked key is gone', async () => {
  const { made } = await create({ scopes: ['keys'], proxy_rules: [allow('/a')] });
  const ends = new Date(Date.now() + 60_000).toISOString();
  const changed = await change(made.id, { expires_at: ends });
  const { secret, ...rest } = made;
  assert.deepEqual(changed.body.data, { ...rest, expires_at: ends });
  assert.equal((await trellis.call('GET', path, { key: secret })).status, 200);
  assert.equal((await trellis.call('DELETE', `${path}/${made.id}`, { key: secret })).status, 200);
  assert.equal((await trellis.call('GET', path, { key: secret })).status, 401);
  for (const method of ['DELETE', 'PATCH']) {
    const options = method === 'PATCH' ? { body: {} } : {};
    assert.equal((await trellis.call(method, `${path}/${made.id}`, options)).status, 404, method);
  }
  const entries = await trellis.db.query<{ action: string; actor: string }>(
    `select action, actor from audit where details ->> 'id' = $1 order by id`,
    [String(made.id)],
  );
  assert.deepEqual(
    entries.map(({ action }) => action),
    ['key.created', 'key.changed', 'key.revoked'],
  );
  assert.equal(entries[2]?.actor, `key:${made.id}`);
});

test('a key ends at its time', async () => {
  const { made } = await create({
    scopes: ['records:read'],
    expires_at: new Date(Date.now() + 60_000).toISOString(),
  });
  const status = async () => (await trellis.call('GET', '/records?model=M', { key: made.secret })).status;
  assert.equal(await status(), 400);
  await trellis.advance(61);
  assert.equal(await status(), 401);
});

test('an invalid key is refused, and the error names the field', async () => {
  const wrong: [Record<string, unknown>, string][] = [
    [{ scopes: [] }, 'scopes'],
    [{ scopes: ['nonsense'] }, 'scopes'],
    [{ scopes: ['proxy'] }, 'scopes'],
    [{ scopes: ['keys', 'keys'] }, 'scopes'],
    [{ scopes: ['keys'], name: '' }, 'name'],
    [{ scopes: ['keys'], name: 'TRELLIS_SECRET_KEY' }, 'name'],
    [{ scopes: ['keys'], expires_at: 'tomorrow' }, 'expires_at'],
    [{ scopes: ['keys'], expires_at: '2020-01-01T00:00:00Z' }, 'expires_at'],
    [{ scopes: ['keys'], proxy_rules: [allow('a')] }, 'proxy_rules'],
    [{ scopes: ['keys'], secret: 'chosen-by-somebody-else' }, 'secret'],
  ];
  for (const [body, field] of wrong) {
    const { status, text } = await create(body);
    assert.deepEqual([status, text.includes(field)], [400, true], text);
  }
  for (const id of ['0', '-1', 'x', '1.5', '99999999999999999999'])
    assert.equal((await trellis.call('DELETE', `${path}/${id}`)).status, 400, id);
});
