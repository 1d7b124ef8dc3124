import assert from 'node:assert/strict';
import { test } from 'node:test';
import { uncontrolledFetch } from './fetched.ts';
import type { Service } from './service.ts';

/** What a function reads of an answer in two pieces. */
function answered(status = 200, method = 'GET') {
  let isDropped = false;
  async function* body() {
    try {
      yield Buffer.from('{"a":');
      yield Buffer.from('1}');
    } finally {
      isDropped = true;
    }
  }
  const headers = { 'content-type': 'application/json', 'x-own': 'yes' };
  const service: Service = {
    signal: new AbortController().signal,
    log() {},
    call: async () => ({
      value: { status, statusText: '', url: 'https://example.com/b', headers },
      body: body(),
    }),
  };
  const answer = uncontrolledFetch(service, { url: new URL('https://example.com/a'), method });
  return { answer, isDropped: () => isDropped };
}

test('an answer reads like one of fetch', async () => {
  const answer = await answered().answer;
  assert.deepEqual([answer.ok, answer.redirected, answer.bodyUsed], [true, true, false]);
  const copy = answer.clone();
  assert.deepEqual(await answer.json(), { a: 1 });
  assert.deepEqual([answer.bodyUsed, copy.bodyUsed], [true, false]);
  assert.equal(await copy.text(), '{"a":1}');
  assert.equal(copy.headers.get('X-Own'), 'yes');
  const blob = await (await answered().answer).blob();
  assert.deepEqual([blob.type, await blob.text()], ['application/json', '{"a":1}']);
  assert.equal(Buffer.from(await (await answered().answer).bytes()).toString(), '{"a":1}');
});

test('headers have all ways of Headers to list them', async () => {
  const { headers } = await answered().answer;
  const pairs = [
    ['content-type', 'application/json'],
    ['x-own', 'yes'],
  ];
  const each: string[][] = [];
  headers.forEach((value, name) => {
    each.push([name, value]);
  });
  assert.deepEqual(each, pairs);
  assert.deepEqual([...headers], pairs);
  assert.deepEqual([...headers.entries()], pairs);
  assert.deepEqual(
    [[...headers.keys()], [...headers.values()]],
    [pairs.map(([name]) => name), ['application/json', 'yes']],
  );
});

test('a body is read as it comes, by a loop or a reader, also of a copy', async () => {
  const read = async (body: AsyncIterable<Uint8Array> | null) =>
    (await Array.fromAsync(body ?? [])).map((part) => Buffer.from(part).toString());
  const looped = await answered().answer;
  assert.deepEqual(await read(looped.body), ['{"a":', '1}']);
  assert.equal(looped.bodyUsed, true);
  await assert.rejects(looped.text(), TypeError);
  assert.throws(() => looped.clone(), TypeError);
  const reader = (await answered().answer).body!.getReader();
  assert.equal(Buffer.from((await reader.read()).value!).toString(), '{"a":');
  assert.equal((await reader.read()).done, false);
  assert.equal((await reader.read()).done, true);
  const answer = await answered().answer;
  const copy = answer.clone();
  assert.equal((await read(answer.body)).join(''), '{"a":1}');
  assert.equal((await read(copy.body)).join(''), '{"a":1}');
});

test('an unwanted body is cancelled, and a response that cannot have a body has none', async () => {
  const { answer, isDropped } = answered();
  const reader = (await answer).body!.getReader();
  await reader.read();
  await reader.cancel();
  assert.equal(isDropped(), true);
  assert.equal((await answered(204).answer).body, null);
  assert.equal((await answered(200, 'HEAD').answer).body, null);
});
