import assert from 'node:assert/strict';
import { answer } from './provider.ts';
import type { Promised, Subject } from './subject.ts';

const cut: [string, string][] = [
  ['with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'],
  ['in chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n'],
  ['in the middle of a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf'],
];
const repeatable = ['GET', 'PUT', 'DELETE', 'PROPFIND'];
const unrepeatable = ['POST', 'PATCH', 'LOCK'];

export const breaks: Promised[] = [
  ...cut.map(([how, bytes]) => ({
    name: `an answer ${how} that the provider breaks off never ends cleanly`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ keepAlive: true }, ({ socket }) => socket.end(bytes));
      assert.equal(reply.isWhole, false);
    },
  })),
  ...repeatable.map((method) => ({
    name: `a provider that hangs up before it answers a ${method}: 502, and the call may be sent again`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ method }, ({ socket }) => socket.destroy());
      assert.deepEqual([reply.status, subject.errorOf(reply)], [502, 'upstream_unreachable']);
    },
  })),
  ...unrepeatable.map((method) => ({
    name: `a provider that hangs up before it answers a ${method}: 502, and the outcome is unknown`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ method, body: '{}' }, ({ socket }) => socket.destroy());
      assert.deepEqual([reply.status, subject.errorOf(reply)], [502, 'upstream_unknown_outcome']);
      assert.equal(subject.provider.seen.length, 1);
    },
  })),
  {
    name: 'an answer that is no HTTP is an error of ours',
    prove: async (subject) => {
      const reply = await subject.ask({}, (seen) => seen.write('+OK hello\r\n\r\n'));
      assert.deepEqual([reply.status, subject.errorOf(reply)], [502, 'upstream_unreachable']);
    },
  },
  {
    name: 'a second length in an answer is an error of ours, not a choice',
    prove: async (subject) => {
      const reply = await subject.ask({}, (seen) =>
        seen.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc'),
      );
      assert.deepEqual([reply.status, subject.errorOf(reply)], [502, 'upstream_unreachable']);
    },
  },
  {
    name: 'a request with both a length and chunks is refused',
    prove: async (subject) => {
      const headers = ['Content-Length: 5', 'Transfer-Encoding: chunked'];
      const reply = await subject.ask({ method: 'POST', headers, body: '0\r\n\r\n' });
      assert.equal(reply.status, 400);
      assert.deepEqual(subject.provider.seen, []);
    },
  },
  {
    name: 'a caller that hangs up while it waits ends the call at the provider',
    prove: async (subject) => {
      const talk = subject.open({}, () => {});
      const seen = await subject.provider.next();
      talk.socket.destroy();
      await seen.gone;
    },
  },
  {
    name: 'a caller that hangs up in the middle of an answer ends the call at the provider',
    prove: async (subject) => {
      const talk = subject.open({}, (seen) =>
        seen.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'),
      );
      await talk.until((bytes) => bytes.includes('half'));
      const seen = await subject.provider.next();
      talk.socket.destroy();
      await seen.gone;
    },
  },
  {
    name: 'a caller that hangs up in the middle of its body breaks it off at the provider',
    prove: async (subject) => {
      const talk = subject.open({ method: 'POST', headers: ['Content-Length: 100'] }, () => {});
      talk.socket.write('half');
      const seen = await subject.provider.next();
      await seen.firstPart;
      talk.socket.destroy();
      await seen.gone;
      await assert.rejects(seen.body);
    },
  },
  {
    name: 'a caller that resets its connection leaves the proxy as it was',
    prove: async (subject) => {
      const talk = subject.open({}, () => {});
      await subject.provider.next();
      talk.socket.resetAndDestroy();
      const reply = await subject.ask({}, (seen) => seen.write(answer('200 OK', [], 'fine')));
      assert.equal(reply.body.toString(), 'fine');
    },
  },
  {
    name: 'a connection that the provider closes between two calls is not noticed',
    prove: async (subject) => {
      for (let turn = 0; turn < 3; turn++) {
        const reply = await subject.ask({}, ({ socket }) =>
          socket.end(answer('200 OK', ['Connection: close'], 'ok')),
        );
        assert.equal(reply.status, 200);
      }
    },
  },
];
