import assert from 'node:assert/strict';
import { answer } from './provider.ts';
import type { Promised, Subject } from './subject.ts';

const malformed = [
  'connect',
  'total=',
  'total=-1',
  'total=0',
  'total=1e3',
  'other=5',
  'total=5;headers=3',
  'total=9999',
];

export const limits: Promised[] = [
  {
    name: 'a provider that does not begin its answer in time: 504',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['Timeouts: headers=0.2'] }, () => {});
      assert.deepEqual([reply.status, subject.errorOf(reply)], [504, 'upstream_timeout']);
    },
  },
  {
    name: 'a POST that is not answered in time says that its outcome is unknown',
    prove: async (subject) => {
      const reply = await subject.ask(
        { method: 'POST', body: '{}', headers: ['Timeouts: headers=0.2'] },
        () => {},
      );
      assert.deepEqual([reply.status, subject.errorOf(reply)], [504, 'upstream_timeout']);
      assert.match(reply.body.toString(), /outcome is unknown/);
    },
  },
  {
    name: 'the call at the provider ends with its time',
    prove: async (subject) => {
      const talk = subject.open({ headers: ['Timeouts: total=0.2'] }, () => {});
      await (await subject.provider.next()).gone;
      assert.equal((await talk.ended()).status, 504);
    },
  },
  {
    name: 'an answer that stalls is broken off',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['Timeouts: idle=0.2'], keepAlive: true }, (seen) =>
        seen.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'),
      );
      assert.deepEqual([reply.status, reply.isWhole], [200, false]);
    },
  },
  ...[[], ['Retries: 1']].map((more) => ({
    name: `a body that stops coming${more.length > 0 ? ' and is to be kept for another try' : ''}: 408, and the connection ends`,
    prove: async (subject: Subject) => {
      const headers = ['Content-Length: 100', 'Timeouts: idle=0.2', ...more];
      const talk = subject.open({ method: 'PUT', headers, keepAlive: true }, () => {});
      talk.socket.write('half');
      const reply = await talk.ended();
      assert.deepEqual([reply.status, subject.errorOf(reply), reply.isWhole], [408, 'request_timeout', true]);
      for (const seen of subject.provider.seen) await seen.gone;
    },
  })),
  {
    name: 'a body may come as slowly as it likes while it comes',
    prove: async (subject) => {
      const headers = ['Content-Length: 8', 'Timeouts: idle=0.6, headers=0.6'];
      const talk = subject.open({ method: 'POST', headers }, async (seen) => {
        await seen.body;
        seen.write(answer('200 OK', [], 'all'));
      });
      for (let part = 0; part < 8; part++) {
        await new Promise((resolve) => setTimeout(resolve, 150));
        talk.socket.write('x');
      }
      assert.equal((await talk.ended()).body.toString(), 'all');
    },
  },
  {
    name: 'a caller that stops reading for too long ends the request to the provider',
    prove: async (subject) => {
      const block = Buffer.alloc(256 * 1024);
      const talk = subject.open({ headers: ['Timeouts: idle=0.5'], keepAlive: true }, ({ socket }) => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${block.length * 800}\r\n\r\n`);
        const fill = () => {
          while (!socket.destroyed && socket.write(block));
        };
        socket.on('drain', fill);
        fill();
      });
      talk.socket.pause();
      // A connection with bytes that nobody has read ends with a reset.
      await (await subject.provider.next()).gone.catch(() => {});
      talk.socket.resume();
      assert.equal((await talk.ended()).isWhole, false);
    },
  },
  {
    name: 'interim answers do not renew the time for the answer',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['Timeouts: headers=0.6'] }, ({ socket }) => {
        const timer = setInterval(() => socket.write('HTTP/1.1 102 Processing\r\n\r\n'), 100);
        socket.on('close', () => clearInterval(timer));
      });
      assert.deepEqual([reply.status, subject.errorOf(reply)], [504, 'upstream_timeout']);
    },
  },
  {
    name: 'an answer that goes on beyond the time of the whole call is broken off',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['Timeouts: total=0.4'], keepAlive: true }, ({ socket }) => {
        socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
        const timer = setInterval(() => socket.write('1\r\nx\r\n'), 50);
        socket.on('close', () => clearInterval(timer));
      });
      assert.deepEqual([reply.status, reply.isWhole], [200, false]);
    },
  },
  {
    name: 'time limits that are kept change nothing',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['Timeouts: connect=5, headers=5, idle=5, total=10.5'] });
      assert.deepEqual([reply.status, reply.body.toString()], [200, 'ok']);
    },
  },
  ...malformed.map((value) => ({
    name: `time limits that are none are refused: ${value}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ headers: [`Timeouts: ${value}`] });
      assert.deepEqual([reply.status, subject.errorOf(reply)], [400, 'invalid_headers']);
      assert.deepEqual(subject.provider.seen, []);
    },
  })),
];
