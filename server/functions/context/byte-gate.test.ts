import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ByteGate } from './byte-gate.ts';

test('work is admitted by its bytes in the order in which it came, and one alone always', async () => {
  const gate = new ByteGate(10);
  const { signal } = new AbortController();
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const start = (name: string, bytes: number, by = signal) =>
    gate.run(
      bytes,
      () => {
        begun.push(name);
        return new Promise<void>((resolve) => ends.set(name, resolve));
      },
      by,
    );
  const end = async (name: string) => {
    ends.get(name)!();
    await turn();
  };
  const gone = new AbortController();
  const all = [start('a', 50), start('b', 6), start('c', 6, gone.signal), start('d', 4), start('e', 1)];
  await turn();
  assert.deepEqual(begun, ['a']);
  await end('a');
  assert.deepEqual(begun, ['a', 'b']);
  gone.abort(new Error('gone'));
  await assert.rejects(all[2]!, /gone/);
  await turn();
  assert.deepEqual(begun, ['a', 'b', 'd']);
  await end('b');
  assert.deepEqual(begun, ['a', 'b', 'd', 'e']);
  await assert.rejects(start('f', 1, gone.signal), /gone/);
  const failed = gate.run(5, () => Promise.reject(new Error('failed')), signal);
  await assert.rejects(failed, /failed/);
  await end('d');
  await end('e');
  assert.equal(await gate.run(10, async () => 'free', signal), 'free');
});
