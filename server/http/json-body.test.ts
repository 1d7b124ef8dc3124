import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fastify } from 'fastify';
import { parseJsonOnly } from './json-body.ts';

test('of long bodies one is read in a turn of the event loop, so that others are answered between two', async (t) => {
  const app = fastify({ bodyLimit: 1024 * 1024 });
  parseJsonOnly(app);
  const turns: number[] = [];
  let turn = 0;
  app.post('/', async ({ body }) => {
    turns.push(turn);
    return { length: (body as string[]).length };
  });
  await app.ready();
  const count = () => {
    turn += 1;
    counting = setImmediate(count);
  };
  let counting = setImmediate(count);
  t.after(async () => {
    clearImmediate(counting);
    await app.close();
  });
  const long = JSON.stringify(Array(20_000).fill('abcd'));
  const send = (payload: string) =>
    app.inject({ method: 'POST', url: '/', payload, headers: { 'content-type': 'application/json' } });
  const answers = await Promise.all(Array.from({ length: 20 }, () => send(long)));
  assert.deepEqual(
    answers.map(({ body }) => body),
    Array(20).fill('{"length":20000}'),
  );
  assert.equal(new Set(turns).size, 20, String(turns));
  // One that cannot be read holds up nobody.
  const [bad, good] = await Promise.all([send(`${long}]`), send(long)]);
  assert.deepEqual([bad?.statusCode, good?.statusCode], [400, 200]);
  turns.length = 0;
  await Promise.all(Array.from({ length: 20 }, () => send('["short"]')));
  assert.ok(new Set(turns).size < 20, String(turns));
});

test('brackets within brackets are refused beyond a thousand, wherever they stand, and others are not counted', async (t) => {
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
