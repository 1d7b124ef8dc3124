import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { brotliCompressSync, constants, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { codingOf } from './response.ts';

const encoders = {
  gzip: gzipSync,
  'x-gzip': gzipSync,
  deflate: deflateSync,
  br: brotliCompressSync,
  zstd: zstdCompressSync,
} as const;
const text = Buffer.from(JSON.stringify({ error: { message: 'no '.repeat(100), code: 403 } }));

/** A frame that requires a window of this size. */
function inWindow(log2: number): Buffer {
  const params = {
    [constants.ZSTD_c_windowLog]: log2,
    [constants.ZSTD_c_contentSizeFlag]: 0,
    [constants.ZSTD_c_enableLongDistanceMatching]: 1,
  };
  return zstdCompressSync(Buffer.alloc((1 << log2) + 1), { params });
}

for (const [name, encode] of Object.entries(encoders)) {
  const coding = codingOf(['Content-Encoding', name]);
  assert.ok(coding !== undefined);

  test(`${name} is decoded, complete and cut off`, () => {
    const bytes = encode(text);
    assert.deepEqual(coding.decode(bytes, { maxOutputLength: 1000 }), text);
    const cut = coding.decode(bytes.subarray(0, bytes.length - 3), { maxOutputLength: 1000 });
    assert.equal(text.indexOf(cut), 0);
  });

  test(`${name} is decoded to so much at most`, () => {
    const bytes = encode(Buffer.alloc(4 * 1024 * 1024));
    const decode = () => coding.decode(bytes.subarray(0, 16 * 1024), { maxOutputLength: 64 * 1024 });
    assert.throws(decode, { code: 'ERR_BUFFER_TOO_LARGE' });
  });

  test(`a stream of ${name} is read`, async () => {
    const stream = coding.stream();
    stream.end(encode(text));
    assert.deepEqual(await stream.toArray(), [text]);
  });
}

test('a zstd frame that requests more than 8 MB of memory is refused', async () => {
  const coding = codingOf(['content-encoding', 'zstd']);
  assert.ok(coding !== undefined);
  const limit = { maxOutputLength: 64 * 1024 * 1024 };
  assert.equal(coding.decode(inWindow(23), limit).length, (1 << 23) + 1);
  assert.throws(() => coding.decode(inWindow(24), limit), /memory|window/i);
  const stream = coding.stream();
  stream.end(inWindow(24));
  const [error] = (await once(stream, 'error')) as [Error];
  assert.match(error.message, /memory|window/i);
});

test('several codings, and an unknown one, are not decoded', () => {
  assert.equal(codingOf(['Content-Encoding', 'gzip', 'content-encoding', 'br']), undefined);
  assert.equal(codingOf(['Content-Encoding', 'gzip, br']), undefined);
  assert.equal(codingOf(['Content-Encoding', 'toString']), undefined);
  assert.equal(codingOf(['Content-Type', 'gzip']), undefined);
  assert.notEqual(codingOf(['CONTENT-ENCODING', ' GZIP ']), undefined);
});
