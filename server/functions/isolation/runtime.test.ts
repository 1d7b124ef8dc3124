// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause, setImmediate as turn } from 'node:timers/promises';
import { build } from 'esbuild';
import { AppError } from '../../errors.ts';
import { LargeJson, readLarge } from './payload.ts';
import type { Answer, RunOrder } from './run-order.ts';
import { openRuntime, runCode } from './runtime.fixture.ts';

const run = (body: string) => `exports.default = async (service, input) => { ${body} };`;
const resultOf = async (...of: Parameters<typeof runCode>) => {
  const { outcome } = await runCode(...of);
  assert.ok('result' in outcome, JSON.stringify(outcome));
  return outcome.result;
};

test('a run gets its input, calls the service, logs, and returns', async (t) => {
  const runtime = openRuntime(t);
  assert.equal(runtime.counts().processes, 0);
  const { outcome, lines } = await runCode(
    runtime,
    run(`service.log('warn', 'one'); console.log('two', { n: 2 });
      const { z } = require('zod');
      return { input: z.object({ a: z.number() }).parse(input), got: await service.call('get', [1]) }`),
    { input: { a: 1 }, serve: async (name, args) => ({ value: { name, args } }) },
  );
  assert.deepEqual(outcome, { result: { input: { a: 1 }, got: { value: { name: 'get', args: [1] } } } });
  assert.deepEqual(lines, [
    { level: 'warn', text: 'one' },
    { level: 'info', text: 'two {"n":2}' },
  ]);
});

test('nothing of a run is there for the next, which may have the same process', async (t) => {
  const runtime = openRuntime(t, { maxProcesses: 1 });
  const leave = run(`
    globalThis.left = input; module.left = input;
    const events = require('events');
    const util = require('util');
    const places = [events, events.prototype, util, util.inspect, Buffer, Buffer.prototype, URL, require('stream').prototype,
      Object.getPrototypeOf(util), Object.getPrototypeOf(events), require('zod')];
    for (const place of places) try { place.left = input } catch {}
    for (const place of places.slice(0, 4)) for (const key of Reflect.ownKeys(place)) try { place[key] = input } catch {}
    try { events.defaultMaxListeners = 4242 } catch {}
    try { Buffer.poolSize = 4242 } catch {}
    const secrets = Array.from({ length: 200 }, () => Buffer.from(input.repeat(40)));
    setInterval(() => { globalThis.tick = 1 }, 1);
    return secrets.length`);
  const look = run(`
    const events = require('events');
    const util = require('util');
    const places = [globalThis, module, events, events.prototype, util, util.inspect, Buffer, Buffer.prototype, URL,
      require('stream').prototype, Object.getPrototypeOf(util), require('zod')];
    const found = places.flatMap((place) => Reflect.ownKeys(place).filter((key) => {
      try { return key === 'left' || place[key] === 'secret of another' } catch { return false }
    }).map(String));
    if (events.defaultMaxListeners === 4242 || Buffer.poolSize === 4242) found.push('setting');
    for (let at = 0; at < 500; at++) {
      const buffer = Buffer.from('x');
      if (Buffer.from(buffer.buffer).includes('secret of another')) found.push('pool');
    }
    return found`);
  for (let round = 0; round < 3; round++) {
    await resultOf(runtime, leave, { input: 'secret of another' });
    assert.deepEqual(await resultOf(runtime, look), []);
  }
  assert.equal(runtime.counts().started, 1);
});

test('what a run waits for when it ends does not go on in the next, which may have the same process', async (t) => {
  const runtime = openRuntime(t, { maxProcesses: 1 });
  const ways = [
    `const { randomBytes } = require('crypto'); const again = () => randomBytes(8, on);`,
    `const { subtle } = require('crypto'); const again = () => subtle.digest('SHA-256', new Uint8Array(8)).then(on);`,
    `const again = () => new Blob(['a']).arrayBuffer().then(on);`,
  ];
  for (const way of ways) {
    const left =
      run(`${way} let turns = 0; const on = () => { if (++turns > 200) throw new Error('of another run'); again() };
      again(); return 'left'`);
    assert.equal(await resultOf(runtime, left), 'left');
    const next = run(`const ended = require('crypto').pbkdf2Sync('a', 'b', 50_000, 8, 'sha256');
      await new Promise((resolve) => setTimeout(resolve, 100)); return 'next'`);
    assert.equal(await resultOf(runtime, next), 'next');
  }
  assert.equal(runtime.counts().started, 1);
});

test('calls that are large wait for each other, so that the service never holds many', async (t) => {
  const runtime = openRuntime(t, { memoryMb: 256 });
  const allSent = Promise.withResolvers<void>();
  let open = 0;
  let max = 0;
  const serve: RunOrder['serve'] = async () => {
    open += 1;
    max = Math.max(max, open);
    await allSent.promise;
    open -= 1;
    return { value: 1 };
  };
  // The line comes after whatever was sent at once, which the thread examines one after the other.
  const log = async () => {
    for (let n = 0; n < 6; n++) await readLarge(Buffer.alloc(70_000, ' '));
    allSent.resolve();
  };
  const code = run(`const text = 'x'.repeat(1_800_000);
    const calls = Array.from({ length: 6 }, () => service.call('save', text));
    service.log('info', 'sent');
    return (await Promise.all(calls)).length`);
  assert.equal(await resultOf(runtime, code, { serve, log: () => void log() }), 6);
  assert.equal(max, 2);
});

test('large arguments and results pass as unparsed bytes', async (t) => {
  const runtime = openRuntime(t);
  let sent: unknown;
  const serve: RunOrder['serve'] = async (_name, args) => {
    assert.ok(args instanceof LargeJson);
    sent = JSON.parse(args.bytes.toString());
    return { value: Buffer.from('{"as":"it is"}') };
  };
  const code = run(`const rows = Array.from({ length: 60_000 }, (_, n) => ({ n }));
    const { value } = await service.call('save', rows);
    return [value, rows]`);
  const result = await resultOf(runtime, code, { serve });
  const rows = Array.from({ length: 60_000 }, (_, n) => ({ n }));
  assert.ok(result instanceof LargeJson);
  assert.deepEqual(sent, rows);
  assert.deepEqual(JSON.parse(result.bytes.toString()), [{ as: 'it is' }, rows]);
});

test('a response above 16 MB is refused with its reason, and the run continues', async (t) => {
  const runtime = openRuntime(t);
  const code = run('try { await service.call("large") } catch (error) { return error.code }');
  const serve: RunOrder['serve'] = async () => ({ value: 'x'.repeat(16 * 1024 * 1024) });
  assert.equal(await resultOf(runtime, code, { serve }), 'body_too_large');
});

test('calls are served in the order in which they were sent, large ones too', async (t) => {
  const runtime = openRuntime(t);
  const served: unknown[] = [];
  const serve: RunOrder['serve'] = async (_name, args) => {
    served.push((args as unknown[])[0]);
    return { value: null };
  };
  const code = run(`const text = (n) => (n % 3 === 0 ? 'x'.repeat(3e5) : '');
    const calls = Array.from({ length: 24 }, (_, n) => service.call('save', [n, text(n)]));
    return (await Promise.all(calls)).length`);
  assert.equal(await resultOf(runtime, code, { serve }), 24);
  assert.deepEqual(
    served,
    Array.from({ length: 24 }, (_, n) => n),
  );
});

test('no process exists before the first run, or after some time without runs', async (t) => {
  const runtime = openRuntime(t, { idleMs: 1 });
  await runtime.confinement();
  assert.deepEqual(runtime.counts(), { processes: 0, running: 0, waiting: 0, started: 0 });
  assert.equal(await resultOf(runtime, run('return 1')), 1);
  while (runtime.counts().processes > 0) await pause(10);
  assert.equal(runtime.counts().started, 1);
});

test('an environment that fills all processes gives way to another, which gets one of its own', async (t) => {
  const runtime = openRuntime(t, { maxProcesses: 2 });
  const other = Promise.withResolvers<void>();
  let asked = 0;
  // All but the first run of the first environment wait for the second, whose turn it is when that is over.
  const serve: RunOrder['serve'] = async (_name, args) => {
    if (args === 2) other.resolve();
    else if (++asked > 1) await other.promise;
    return { value: null };
  };
  const code = run(`await service.call('here', input); return input`);
  const order = (environmentId: number) =>
    runCode(runtime, code, { environmentId, input: environmentId, serve, limits: { timeoutMs: 60_000 } });
  const outcomes = await Promise.all([...Array.from({ length: 8 }, () => order(1)), order(2)]);
  assert.deepEqual(
    outcomes.map(({ outcome }) => outcome),
    [...Array.from({ length: 8 }, () => ({ result: 1 })), { result: 2 }],
  );
  assert.ok(runtime.counts().started >= 3, 'a process was shared');
  assert.ok(runtime.counts().processes <= 2);
});

test('a process is replaced after its runs, and ended when it is not needed', async (t) => {
  const runtime = openRuntime(t, { maxProcesses: 1, runsPerProcess: 2, idleMs: 1 });
  for (let at = 0; at < 5; at++)
    assert.equal(await resultOf(runtime, run('return input'), { input: at }), at);
  while (runtime.counts().processes > 0) await new Promise((resolve) => setTimeout(resolve, 5));
});

test('a process is kept after a run that threw, and replaced after one that did not end in order', async (t) => {
  const runtime = openRuntime(t, { maxProcesses: 1 });
  const started: number[] = [];
  for (const body of [
    `throw new Error('told')`,
    `Promise.reject(new Error('not told')); await new Promise((resolve) => setTimeout(resolve, 5_000))`,
    `await new Promise(() => {})`,
    `return 1`,
  ]) {
    await runCode(runtime, run(body));
    started.push(runtime.counts().started);
  }
  assert.deepEqual(started, [1, 1, 2, 3]);
});

test('what the service refuses reaches the code with its code, and what went wrong in it does not', async (t) => {
  const runtime = openRuntime(t);
  const code = run(`
    const told = [];
    for (const name of ['refused', 'broken'])
      await service.call(name).catch(({ message, code, status, payload }) => told.push({ message, code, status, payload }));
    return told`);
  const serve: RunOrder['serve'] = async (name) => {
    if (name === 'broken') throw new Error('password=hunter2');
    throw new AppError('forbidden', 'Not this one.', { payload: { a: 1 } });
  };
  assert.deepEqual(await resultOf(runtime, code, { serve }), [
    { message: 'Not this one.', code: 'forbidden', status: 403, payload: { a: 1 } },
    { message: 'Something went wrong in the service.', code: 'internal' },
  ]);
});

test('an answer streams, and no more of it than the code reads is fetched', async (t) => {
  const runtime = openRuntime(t);
  let sent = 0;
  let wasLeft = false;
  async function* endless() {
    try {
      for (;;) {
        sent += 1;
        yield Buffer.alloc(100_000, sent);
      }
    } finally {
      wasLeft = true;
    }
  }
  const serve = async (): Promise<Answer> => ({ value: { status: 200 }, body: endless() });
  const code = run(`
    const { value, body } = await service.call('get');
    let bytes = 0;
    for await (const part of body) { bytes += part.length; if (bytes >= 5_000_000) break; }
    return [value.status, bytes >= 5_000_000]`);
  assert.deepEqual(await resultOf(runtime, code, { serve }), [200, true]);
  assert.ok(sent < 60, `${sent} parts were fetched for 50`);
  await turn();
  assert.ok(wasLeft);
});

test('a body streams to the service, and a broken stream is an error on both sides', async (t) => {
  const runtime = openRuntime(t);
  const told: string[] = [];
  const serve: RunOrder['serve'] = async (name, _args, { body }) => {
    let bytes = 0;
    try {
      for await (const part of body!) bytes += part.byteLength;
    } catch (error) {
      told.push((error as Error).message);
    }
    async function* broken() {
      yield Buffer.from('some');
      throw new AppError('unavailable', 'The provider hung up.');
    }
    return { value: bytes, ...(name === 'broken' && { body: broken() }) };
  };
  const code = run(`
    async function* parts() { for (let at = 0; at < 50; at++) yield new Uint8Array(100_000); yield 'text'; }
    async function* cut() { yield 'a'; throw new Error('no more'); }
    const { value } = await service.call('upload', null, parts());
    const { body } = await service.call('broken', null, cut());
    let heard;
    try { for await (const part of body) {} } catch (error) { heard = error.message }
    return [value, heard]`);
  assert.deepEqual(await resultOf(runtime, code, { serve }), [5_000_004, 'The provider hung up.']);
  assert.deepEqual(told, ['no more']);
});

test('a run is cancelled when it listens, and when it does not', async (t) => {
  const runtime = openRuntime(t);
  const started = Promise.withResolvers<void>();
  const serve: RunOrder['serve'] = async (name, _args, { signal }) => {
    if (name === 'started') started.resolve();
    else await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    return { value: null };
  };
  const listens = new AbortController();
  const listening = runCode(
    runtime,
    run(`service.signal.addEventListener('abort', () => stop(new Error('stopping')));
      let stop; const stopped = new Promise((_, reject) => { stop = reject });
      service.call('started'); await Promise.race([stopped, service.call('forever')])`),
    { serve, signal: listens.signal, limits: { cancelGraceMs: 30_000 } },
  );
  await started.promise;
  listens.abort();
  const cancelled = { failure: { cause: 'cancelled', message: 'The run was cancelled.' } };
  assert.deepEqual((await listening).outcome, cancelled);

  const soon = AbortSignal.timeout(100);
  const deaf = await runCode(runtime, run('await new Promise(() => setInterval(() => {}, 100))'), {
    signal: soon,
    limits: { cancelGraceMs: 50 },
  });
  assert.match(JSON.stringify(deaf.outcome), /"cause":"cancelled"/);
});

test('a stack names the file that was written', async (t) => {
  const runtime = openRuntime(t);
  const contents = `type Input = { a: number };\n\nexport default async (service: object, input: Input) => {\n  throw new RangeError('here');\n};`;
  const { outputFiles } = await build({
    stdin: { contents, loader: 'ts', sourcefile: 'sheets/syncs/rows.ts' },
    bundle: true,
    write: false,
    format: 'cjs',
    sourcemap: 'inline',
  });
  const { outcome } = await runCode(runtime, outputFiles[0]!.text);
  assert.ok('failure' in outcome && outcome.failure.cause === 'threw');
  const { name, stack } = outcome.failure.error!;
  assert.equal(name, 'RangeError');
  assert.match(stack!, /sheets\/syncs\/rows\.ts:4:9/);
  assert.doesNotMatch(stack!, /node:|stdin|trellis/);
});

test('a thrown value that is not an Error is reported as JSON, and an Error with its cause', async (t) => {
  const runtime = openRuntime(t);
  const threw = async (what: string) => {
    const { outcome } = await runCode(runtime, run(`throw ${what};`));
    assert.ok('failure' in outcome && outcome.failure.cause === 'threw', JSON.stringify(outcome));
    return outcome.failure;
  };
  assert.equal((await threw(`{ code: 42, nested: { a: [1] } }`)).message, '{"code":42,"nested":{"a":[1]}}');
  assert.equal((await threw(`{ message: 'said', more: 1 }`)).message, 'said');
  assert.equal((await threw(`{ long: 'x'.repeat(1e5) }`)).message.length, 4_096);
  assert.equal((await threw(`(() => { const a = {}; return a.a = a; })()`)).message, '[object Object]');
  assert.equal((await threw('undefined')).message, 'undefined');

  const caused = async (cause: string) => {
    const { message, error } = await threw(`new Error('outer', { cause: ${cause} })`);
    assert.equal(message, 'outer');
    const lines = error!.stack!.split('\n');
    assert.equal(lines[0], 'Error: outer');
    return lines.at(-1)!;
  };
  const inner = `Object.assign(new TypeError('inner\\nand more'), { code: 'E_INNER' })`;
  assert.equal(await caused(inner), 'caused by TypeError: inner\\nand more (E_INNER)');
  assert.equal(await caused(`{ a: 1 }`), 'caused by Error: {"a":1}');
  assert.equal(await caused(`'x'.repeat(1e5)`), `caused by Error: ${'x'.repeat(500)}`);
  const unreadable = `new Proxy({}, { get() { throw 1; }, getPrototypeOf() { throw 1; } })`;
  assert.equal(await caused(unreadable), 'caused by Error: (cannot be shown)');
  assert.doesNotMatch(await caused('undefined'), /caused by/);
});

test('the SDK is required by its names, and a harness of its own calls the function', async (t) => {
  const runtime = openRuntime(
    t,
    {},
    {
      modules: { nango: 'exports.createSync = (sync) => ({ type: "sync", ...sync });' },
      harness: `exports.start = ({ exported, about, service }) =>
      exported.exec({ connectionId: about.connectionId, get: (path) => service.call('get', path) });`,
    },
  );
  const code = `const { createSync } = require('nango');
    exports.default = createSync({ exec: async (nango) => [nango.connectionId, (await nango.get('/x')).value.args] });`;
  assert.deepEqual(await resultOf(runtime, code, { about: { connectionId: 'c-1' } }), ['c-1', '/x']);
});

test('a service that ends ends its runs', async (t) => {
  const runtime = openRuntime(t);
  const started = Promise.withResolvers<void>();
  const serve = async (): Promise<Answer> => {
    started.resolve();
    return { value: null };
  };
  const running = runCode(runtime, run(`await service.call('started'); for (;;);`), { serve });
  await started.promise;
  await runtime.close();
  assert.match(JSON.stringify((await running).outcome), /"cause":"unavailable"/);
  assert.equal(runtime.counts().processes, 0);
  assert.match(JSON.stringify((await runCode(runtime, run(''))).outcome), /"cause":"unavailable"/);
});
