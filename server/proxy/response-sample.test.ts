import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { ResponseSample, ResponseWatch } from './response.ts';

function headOf(status: number, coding?: string) {
  const rawHeaders = coding === undefined ? [] : ['Content-Encoding', coding];
  return { status, statusText: '', rawHeaders };
}

/** The reports of a response whose body arrives in these parts. */
function told(status: number, parts: readonly Buffer[], end = true) {
  const answers: ReturnType<ResponseSample['sampled']>[] = [];
  const watch = new ResponseWatch(headOf(status), (answer) => answers.push(answer));
  for (const part of parts) watch.add(part);
  if (end) watch.end();
  return answers;
}

for (const [coding, encode] of [
  ['gzip', gzipSync],
  ['br', brotliCompressSync],
  ['zstd', zstdCompressSync],
] as const) {
  test(`a ${coding} bomb is not decoded beyond a megabyte: the sample stays encoded`, () => {
    const bomb = encode(Buffer.alloc(8 * 1024 * 1024));
    const sample = new ResponseSample(headOf(403, coding));
    sample.add(bomb);
    assert.deepEqual(sample.sampled().body, bomb.subarray(0, 16 * 1024));
  });
}

test('the body of an answer below 400 is neither kept nor decoded', () => {
  const sample = new ResponseSample(headOf(200, 'gzip'));
  sample.add(gzipSync('fine'));
  assert.equal(sample.isFull, true);
  assert.equal(sample.sampled().body.length, 0);
});

test('a response is reported once: when 16 KB of it are there, or when it has ended', () => {
  const part = Buffer.alloc(10_000, 'x');
  assert.equal(told(429, [part], false).length, 0);
  assert.equal(told(429, [part, part], false)[0]?.body.length, 16 * 1024);
  assert.equal(told(429, [part, part, part]).length, 1);
  assert.equal(told(429, [part])[0]?.body.length, 10_000);
  assert.equal(told(429, [])[0]?.status, 429);
});
