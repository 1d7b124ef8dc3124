import assert from 'node:assert/strict';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
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
