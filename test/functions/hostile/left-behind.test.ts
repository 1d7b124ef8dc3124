// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openRuntime, runCode } from '../../../server/functions/isolation/runtime.fixture.ts';
import { explorer } from './explorer.ts';

const limits = { timeoutMs: 60_000 };

test('no object that a run can get at holds what the run before left in it', async (t) => {
  const runtime = openRuntime(t, { maxProcesses: 1, memoryMb: 256 });
  const bundle = `${explorer}
    const mark = 'left by another run';
    exports.leave = async (service) => {
      const found = await everything(service);
      for (const value of found.keys()) {
        if (value === globalThis || value === service) continue;
        try { Object.defineProperty(value, mark, { value: mark, configurable: true }) } catch {}
        try { if (value instanceof Map) value.set(mark, mark); if (value instanceof Set) value.add(mark) } catch {}
        for (const key of Object.isExtensible(value) ? [] : Reflect.ownKeys(value)) {
          const property = Object.getOwnPropertyDescriptor(value, key);
          if (!property || !('value' in property) || !property.writable || ArrayBuffer.isView(value)) continue;
          try { value[key] = mark } catch {}
        }
      }
      return found.size;
    };
    exports.look = async (service) => {
      const left = [];
      for (const [value, path] of await everything(service)) {
        if (Object.hasOwn(value, mark)) left.push(path);
        if ((value instanceof Map || value instanceof Set) && value.has(mark)) left.push(path + ' (entry)');
        for (const key of Reflect.ownKeys(value)) {
          if (Object.getOwnPropertyDescriptor(value, key)?.value === mark) left.push(path + '.' + String(key));
        }
      }
      return left.slice(0, 40);
    };`;
  const order = { bundle: { id: 'explorer', code: bundle }, limits };
  const left = await runCode(runtime, bundle, { ...order, exportName: 'leave' });
  assert.ok('result' in left.outcome && Number(left.outcome.result) > 3_000, JSON.stringify(left.outcome));
  const found = await runCode(runtime, bundle, { ...order, exportName: 'look' });
  assert.deepEqual(found.outcome, { result: [] });
  assert.equal(runtime.counts().started, 1, 'both ran in one process');
});

test('memory that a run gives back holds nothing of it for the next', async (t) => {
  const runtime = openRuntime(t, { maxProcesses: 1, memoryMb: 96 });
  const leave = `exports.default = async () => { for (let at = 0; at < 30_000; at++) Buffer.alloc(1e4, 'secret') };`;
  const look = `exports.default = async () => {
    const places = [Buffer.allocUnsafe, Buffer.allocUnsafeSlow, (size) => new Uint8Array(size), (size) => Buffer.concat([], size)];
    let seen = 0;
    for (const make of places) for (let at = 0; at < 2_000; at++) if (Buffer.from(make(1e4).buffer).includes('secret')) seen++;
    return seen;
  };`;
  await runCode(runtime, leave);
  assert.deepEqual((await runCode(runtime, look)).outcome, { result: 0 });
  assert.equal(runtime.counts().started, 1);
});
