import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../../test/support/trellis.ts';

let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

const path = '/environment-variables';
const put = (variables: unknown, key?: string) =>
  trellis.call('PUT', path, { body: { variables }, ...(key && { key }) });
const pathsOf = (body: Record<string, unknown>) =>
  (body as { error: { errors: { path: string[] }[] } }).error.errors.map((error) => error.path);
const read = async (key?: string) => JSON.parse((await trellis.call('GET', path, key ? { key } : {})).text);

test('the set is replaced, sorted by name, and belongs to one environment', async () => {
  assert.deepEqual(await read(), []);
  const given = [
    { name: 'b', value: 'two\nlines' },
    { name: 'API_BASE', value: 'https://api.example.com' },
    { name: 'EMPTY', value: '' },
  ];
  const answer = await put(given);
  assert.equal(answer.status, 200, answer.text);
  const sorted = [given[1], given[2], given[0]];
  assert.deepEqual(JSON.parse(answer.text), sorted);
  assert.deepEqual(await read(), sorted);
  assert.deepEqual(await read(trellis.keys.prod), []);
  await put([{ name: 'API_BASE', value: 'other' }], trellis.keys.prod);
  assert.deepEqual(await read(), sorted);

  await put([{ name: 'b', value: 'new' }]);
  assert.deepEqual(await read(), [{ name: 'b', value: 'new' }]);
  assert.equal((await put([])).status, 200);
  assert.deepEqual(await read(), []);
});

test('without a value the stored one stays, and there must be one', async () => {
  await put([
    { name: 'KEPT', value: 'as it was' },
    { name: 'GONE', value: 'x' },
  ]);
  const kept = await put([{ name: 'KEPT' }, { name: 'ADDED', value: 'y' }]);
  assert.deepEqual(JSON.parse(kept.text), [
    { name: 'ADDED', value: 'y' },
    { name: 'KEPT', value: 'as it was' },
  ]);
  const refused = await put([
    { name: 'KEPT', value: null },
    { name: 'GONE', value: null },
  ]);
  assert.equal(refused.status, 400);
  assert.deepEqual(pathsOf(refused.body), [['variables', '1', 'value']]);
  assert.equal((await read()).length, 2);
});

test('database and audit log contain no value, and the audit log contains names', async () => {
  await put([{ name: 'SECRET_THING', value: 'very-much-a-secret' }]);
  const [row] = await trellis.db.query<{ value: Buffer }>('select value from environment_variable limit 1');
  assert.ok(!row!.value.toString('latin1').includes('very-much'));
  const entries = await trellis.db.query<{ details: object }>(
    `select details from audit where action = 'variables.changed' order by id desc limit 1`,
  );
  assert.deepEqual(entries[0]?.details, { set: 'SECRET_THING', removed: 'ADDED,KEPT' });
});

test('an invalid field is 400 with its path, and changes nothing', async () => {
  const before = await read();
  for (const [body, at] of [
    [[{ name: '1A', value: 'x' }], ['0', 'name']],
    [[{ name: 'A B', value: 'x' }], ['0', 'name']],
    [[{ name: 'A', value: 1 }], ['0', 'value']],
    [[{ name: 'A', value: 'a\0b' }], ['0', 'value']],
    [[{ name: 'A', value: 'x'.repeat(65_537) }], ['0', 'value']],
    [
      [
        { name: 'A', value: 'x' },
        { name: 'A', value: 'y' },
      ],
      ['1', 'name'],
    ],
    [[{ name: 'A', value: 'x', more: 1 }], ['0']],
    [{ A: 'x' }, []],
    [Array.from({ length: 501 }, (_, index) => ({ name: `V${index}`, value: '' })), []],
  ] as const) {
    const answer = await put(body);
    assert.equal(answer.status, 400, answer.text);
    assert.deepEqual(pathsOf(answer.body)[0]?.map(String), ['variables', ...at], answer.text);
  }
  assert.deepEqual(await read(), before);
});

test('twenty who replace the set at once leave one whole set', async () => {
  const sets = Array.from({ length: 20 }, (_, index) =>
    ['ONE', 'TWO', `OWN_${index}`].map((name) => ({ name, value: String(index) })),
  );
  const answers = await Promise.all(sets.map((set) => put(set)));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  const left = (await read()) as { name: string; value: string }[];
  assert.equal(new Set(left.map(({ value }) => value)).size, 1, JSON.stringify(left));
  assert.equal(left.length, 3);
});

test('a key needs the scope', async () => {
  const reader = await trellis.keyWith('environment:read');
  assert.equal((await trellis.call('GET', path, { key: reader })).status, 200);
  assert.equal((await put([], reader)).status, 403);
  const other = await trellis.keyWith('connections:read');
  assert.equal((await trellis.call('GET', path, { key: other })).status, 403);
});

const patch = (body: unknown, key?: string) => trellis.call('PATCH', path, { body, ...(key && { key }) });

test('twenty who add one variable each at the same time, from what they saw before, lose none', async () => {
  await put([{ name: 'FIRST', value: '1' }]);
  const names = Array.from({ length: 20 }, (_, index) => `OF_${index}`);
  const answers = await Promise.all(names.map((name) => patch({ set: [{ name, value: `of ${name}` }] })));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  assert.deepEqual(
    (await read()).map(({ name }: { name: string }) => name).toSorted(),
    ['FIRST', ...names].toSorted(),
  );
});

test('a change touches what it names alone, in its own environment', async () => {
  await put([
    { name: 'KEPT', value: 'as it was' },
    { name: 'GONE', value: 'x' },
    { name: 'OTHER', value: 'former' },
  ]);
  await put([{ name: 'GONE', value: 'of prod' }], trellis.keys.prod);
  const answer = await patch({ set: [{ name: 'OTHER', value: 'new' }], remove: ['GONE', 'NEVER_THERE'] });
  assert.equal(answer.status, 200, answer.text);
  const expected = [
    { name: 'KEPT', value: 'as it was' },
    { name: 'OTHER', value: 'new' },
  ];
  assert.deepEqual(JSON.parse(answer.text), expected);
  assert.deepEqual(await read(), expected);
  assert.deepEqual(await read(trellis.keys.prod), [{ name: 'GONE', value: 'of prod' }]);
  const [entry] = await trellis.db.query<{ details: object }>(
    `select details from audit where action = 'variables.changed' order by id desc limit 1`,
  );
  assert.deepEqual(entry?.details, { set: 'OTHER', removed: 'GONE' });
});

test('a change that contradicts itself, or makes too many, changes nothing', async () => {
  await put(Array.from({ length: 499 }, (_, index) => ({ name: `N${index}`, value: '' })));
  const one = { name: 'MORE', value: '' };
  assert.equal((await patch({ set: [one], remove: ['MORE'] })).status, 400);
  assert.equal((await patch({ set: [one, one] })).status, 400);
  assert.equal((await patch({ set: [one, { name: 'YET_MORE', value: '' }] })).status, 400);
  assert.equal((await read()).length, 499);
  assert.equal((await patch({ set: [one, { name: 'YET_MORE', value: '' }], remove: ['N0'] })).status, 200);
  assert.equal((await read()).length, 500);
  await put([]);
});
