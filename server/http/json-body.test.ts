import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { fastify } from 'fastify';
import { parseJsonOnly } from './json-body.ts';

/** An app that records the length of its bodies, and the turn of the event loop and the time at which each was parsed. */
async function startReader(t: TestContext, { turnMs = 0 } = {}) {
  const app = fastify({ bodyLimit: 1024 * 1024 });
  parseJsonOnly(app);
  const read: { turn: number; ms: number }[] = [];
  let turn = 0;
  app.post('/', async ({ body }) => {
    read.push({ turn, ms: performance.now() });
    return { length: (body as string[]).length };
  });
  await app.ready();
  const count = () => {
    turn += 1;
    for (const until = performance.now() + turnMs; performance.now() < until; );
    counting = setImmediate(count);
  };
  let counting = setImmediate(count);
  t.after(async () => {
    clearImmediate(counting);
    await app.close();
  });
  const send = (payload: string) =>
    app.inject({ method: 'POST', url: '/', payload, headers: { 'content-type': 'application/json' } });
  const gaps = () =>
    read.slice(1).map((one, k) => ({ turns: one.turn - read[k]!.turn, ms: one.ms - read[k]!.ms }));
  return { read, send, gaps };
}
const long = JSON.stringify(Array(20_000).fill('abcd'));

test('other requests are answered between two long bodies', async (t) => {
  const { read, send, gaps } = await startReader(t);
  const answers = await Promise.all(Array.from({ length: 20 }, () => send(long)));
  assert.deepEqual(
    answers.map(({ body }) => body),
    Array(20).fill('{"length":20000}'),
  );
  assert.ok(
    gaps().every(({ turns, ms }) => turns >= 30 || ms >= 45),
    JSON.stringify(gaps()),
  );
  // An invalid body delays no others.
  const [bad, good] = await Promise.all([send(`${long}]`), send(long)]);
  assert.deepEqual([bad?.statusCode, good?.statusCode], [400, 200]);
  read.length = 0;
  await Promise.all(Array.from({ length: 20 }, () => send('["short"]')));
  assert.ok(gaps().some(({ turns }) => turns === 0));
});

test('long bodies do not wait for many turns that have much to do', async (t) => {
  const { send, gaps } = await startReader(t, { turnMs: 10 });
  await Promise.all(Array.from({ length: 5 }, () => send(long)));
  assert.ok(
    gaps().every(({ turns }) => turns > 0 && turns < 10),
    JSON.stringify(gaps()),
  );
});

test('more than a thousand nested brackets are refused at any position, and others are not counted', async (t) => {
  const app = fastify({ bodyLimit: 4 * 1024 * 1024 });
  parseJsonOnly(app);
  app.setErrorHandler((error, _request, reply) => reply.code(error instanceof RangeError ? 400 : 500).send());
  app.post('/', async () => 'read');
  t.after(() => app.close());
  const send = async (payload: string) => {
    const headers = { 'content-type': 'application/json' };
    return (await app.inject({ method: 'POST', url: '/', payload, headers })).statusCode;
  };
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  assert.equal(await send(nested(1_000)), 200);
  assert.equal(await send(nested(1_001)), 400);
  assert.equal(await send(`{"a":"\\"[","b":${nested(1_000)}}`), 400);
  assert.equal(await send(`{"a":"\\"[","b":${nested(999)}}`), 200);
  assert.equal(await send(JSON.stringify(['['.repeat(5_000), '{"'.repeat(5_000)])), 200);
  assert.equal(await send(JSON.stringify(Array(5_000).fill([{}]))), 200);
  assert.equal(await send('['.repeat(2_000_000)), 400);
});
