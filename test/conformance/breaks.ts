import assert from 'node:assert/strict';
import { answer, ok } from './provider.ts';
import type { Promised, Subject } from './subject.ts';

const cut: [string, string][] = [
  ['with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'],
  ['in chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n'],
  ['in the middle of a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf'],
];
const repeatable = ['GET', 'PUT', 'DELETE', 'PROPFIND'];
const unrepeatable = ['POST', 'PATCH', 'LOCK'];

const unreadable: [string, string][] = [
  ['no HTTP', '+OK hello\r\n\r\n'],
  ['a second length', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc'],
  ['a length and chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nok'],
  ['a control character', 'HTTP/1.1 200 OK\r\nX-A: a\x01b\r\nContent-Length: 2\r\n\r\nok'],
  ['lines that end in LF alone', 'HTTP/1.1 200 OK\nContent-Length: 2\n\nok'],
  ['a status that is none', 'HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n'],
  ['another protocol', 'HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n'],
];

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
  ...unreadable.map(([how, bytes]) => ({
    name: `an answer that cannot be read is an error of Trellis, and the call is not tried again: ${how}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ headers: ['Retries: 2'] }, (seen) => seen.write(bytes));
      assert.deepEqual([reply.status, subject.errorOf(reply)], [502, 'upstream_unreadable']);
      assert.equal(subject.provider.seen.length, 1);
    },
  })),
  {
    name: 'an answer that breaks off in the middle of its head is none: with Retries the call is tried again',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['Retries: 1'] }, ({ socket }) => {
        if (subject.provider.seen.length === 1) socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-');
        else socket.write(ok);
      });
      assert.deepEqual([reply.status, reply.body.toString()], [200, 'ok']);
    },
  },
  {
    name: 'a streamed POST of which no byte was sent in time is not of unknown outcome',
    prove: async (subject) => {
      const headers = ['Transfer-Encoding: chunked', 'Timeouts: total=0.4'];
      const talk = subject.open({ method: 'POST', headers }, () => {});
      const reply = await talk.ended();
      assert.deepEqual([reply.status, subject.errorOf(reply)], [504, 'upstream_timeout']);
      assert.doesNotMatch(reply.body.toString(), /unknown/);
      assert.deepEqual(subject.provider.seen, []);
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
