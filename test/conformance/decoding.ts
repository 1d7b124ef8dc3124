import assert from 'node:assert/strict';
import { brotliCompressSync, constants, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { all, readReply } from './caller.ts';
import { answer } from './provider.ts';
import type { Promised, Subject } from './subject.ts';

const text = 'the same text, '.repeat(2_000);
const codings: [string, (data: string) => Buffer][] = [
  ['gzip', (data) => gzipSync(data)],
  ['deflate', (data) => deflateSync(data)],
  ['br', (data) => brotliCompressSync(data)],
  ['zstd', (data) => zstdCompressSync(data)],
];
const asked = { headers: ['Decompress: true'] };

export const decoding: Promised[] = [
  ...codings.map(([coding, encode]) => ({
    name: `with Decompress an answer in ${coding} arrives as text, without its coding and length`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask(asked, (seen) =>
        seen.write(answer('200 OK', [`Content-Encoding: ${coding}`, 'X-Kept: 1'], encode(text))),
      );
      assert.deepEqual([reply.status, reply.body.toString() === text, reply.isWhole], [200, true, true]);
      assert.deepEqual(
        [all(reply, 'content-encoding'), all(reply, 'content-length'), all(reply, 'x-kept')],
        [[], [], ['1']],
      );
    },
  })),
  {
    name: 'with Decompress a strong ETag becomes a weak one: it named other bytes',
    prove: async (subject) => {
      const tags: [string, string][] = [
        ['"x"', 'W/"x"'],
        ['W/"x"', 'W/"x"'],
      ];
      for (const [sent, received] of tags) {
        const reply = await subject.ask(asked, (seen) =>
          seen.write(answer('200 OK', ['Content-Encoding: gzip', `ETag: ${sent}`], gzipSync(text))),
        );
        assert.deepEqual(all(reply, 'etag'), [received]);
      }
    },
  },
  {
    name: 'with Decompress checksums of the encoded bytes are dropped, and so are trailers',
    prove: async (subject) => {
      const sums = ['Content-MD5', 'Digest', 'Content-Digest', 'Repr-Digest'].map((name) => `${name}: x`);
      const lines = ['Content-Encoding: gzip', ...sums];
      const reply = await subject.ask(asked, (seen) => seen.write(answer('200 OK', lines, gzipSync(text))));
      const body = gzipSync('text').toString('latin1');
      const behind = sums.join('\r\n');
      const chunked = await subject.ask(asked, (seen) =>
        seen.write(
          Buffer.from(
            `HTTP/1.1 200 OK\r\n${lines[0]}\r\nTransfer-Encoding: chunked\r\n\r\n` +
              `${body.length.toString(16)}\r\n${body}\r\n0\r\n${behind}\r\n\r\n`,
            'latin1',
          ),
        ),
      );
      assert.equal(chunked.body.toString(), 'text');
      for (const name of ['content-md5', 'digest', 'content-digest', 'repr-digest']) {
        assert.deepEqual(all(reply, name), [], name);
      }
      assert.deepEqual(chunked.trailers, []);
    },
  },
  {
    name: 'with Decompress an answer that is not encoded stays as it is',
    prove: async (subject) => {
      const reply = await subject.ask(asked, (seen) => seen.write(answer('200 OK', [], 'plain')));
      assert.deepEqual([reply.body.toString(), all(reply, 'content-length')], ['plain', ['5']]);
    },
  },
  {
    name: 'with Decompress an unknown coding stays as it is',
    prove: async (subject) => {
      const reply = await subject.ask(asked, (seen) =>
        seen.write(answer('200 OK', ['Content-Encoding: aws-chunked'], 'x')),
      );
      assert.deepEqual([reply.body.toString(), all(reply, 'content-encoding')], ['x', ['aws-chunked']]);
    },
  },
  {
    name: 'with Decompress a part of an encoded body stays as it is',
    prove: async (subject) => {
      const part = gzipSync(text).subarray(10, 20);
      const lines = ['Content-Encoding: gzip', 'Content-Range: bytes 10-19/100'];
      const reply = await subject.ask(asked, (seen) =>
        seen.write(answer('206 Partial Content', lines, part)),
      );
      assert.deepEqual([reply.body, all(reply, 'content-encoding')], [part, ['gzip']]);
    },
  },
  {
    name: 'with Decompress the answer to HEAD stays as it is',
    prove: async (subject) => {
      const reply = await subject.ask({ ...asked, method: 'HEAD' }, (seen) =>
        seen.write('HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 77\r\n\r\n'),
      );
      assert.deepEqual([all(reply, 'content-encoding'), all(reply, 'content-length')], [['gzip'], ['77']]);
    },
  },
  {
    name: 'with Decompress an empty answer is empty, whatever its coding',
    prove: async (subject) => {
      for (const [coding] of codings) {
        const line = `Content-Encoding: ${coding}`;
        const known = await subject.ask(asked, (seen) => seen.write(answer('200 OK', [line])));
        assert.deepEqual([known.status, known.body.length, known.isWhole], [200, 0, true]);
        assert.deepEqual(all(known, 'content-encoding'), [coding]);
        const chunked = `HTTP/1.1 200 OK\r\n${line}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`;
        const unknown = await subject.ask(asked, (seen) => seen.write(chunked));
        assert.deepEqual([unknown.status, unknown.body.length, unknown.isWhole], [200, 0, true]);
      }
    },
  },
  {
    name: 'with Decompress an answer in zstd that would take more than 8 MB of memory is broken off',
    prove: async (subject) => {
      const params = {
        [constants.ZSTD_c_windowLog]: 24,
        [constants.ZSTD_c_contentSizeFlag]: 0,
        [constants.ZSTD_c_enableLongDistanceMatching]: 1,
      };
      const body = zstdCompressSync(Buffer.alloc((1 << 24) + 1), { params });
      const talk = subject.open({ ...asked, keepAlive: true }, (seen) =>
        seen.write(answer('200 OK', ['Content-Encoding: zstd'], body)),
      );
      const bytes = await talk.closed();
      assert.ok(bytes.length === 0 || !readReply(bytes).isWhole);
    },
  },
  {
    name: 'with Decompress a caller that stops reading for too long ends the response',
    prove: async (subject) => {
      const body = gzipSync(Buffer.alloc(32 * 1024 * 1024));
      const headers = [...asked.headers, 'Timeouts: idle=0.3'];
      const talk = subject.open({ headers, keepAlive: true }, (seen) =>
        seen.write(answer('200 OK', ['Content-Encoding: gzip'], body)),
      );
      talk.socket.pause();
      await (await subject.provider.next()).body;
      // The provider has been done for long when the caller reads again.
      await new Promise((resolve) => setTimeout(resolve, 4_000));
      talk.socket.resume();
      assert.equal((await talk.ended()).isWhole, false);
    },
  },
  {
    name: 'with Decompress an answer that is not what it says is broken off',
    prove: async (subject) => {
      const talk = subject.open({ ...asked, keepAlive: true }, (seen) =>
        seen.write(answer('200 OK', ['Content-Encoding: gzip'], 'no gzip at all')),
      );
      const bytes = await talk.closed();
      assert.ok(bytes.length === 0 || !readReply(bytes).isWhole);
    },
  },
  {
    name: 'with Decompress an answer whose coding is cut off is broken off',
    prove: async (subject) => {
      const reply = await subject.ask({ ...asked, keepAlive: true }, (seen) =>
        seen.write(answer('200 OK', ['Content-Encoding: gzip'], gzipSync(text).subarray(0, 40))),
      );
      assert.equal(reply.isWhole, false);
    },
  },
  {
    name: 'Decompress says true or false',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['Decompress: yes'] });
      assert.deepEqual([reply.status, subject.errorOf(reply)], [400, 'invalid_headers']);
    },
  },
];
