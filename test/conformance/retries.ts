import assert from 'node:assert/strict';
import type { Ask } from './caller.ts';
import { answer, ok, type Seen } from './provider.ts';
import type { Promised, Subject } from './subject.ts';

const soon = ['Retry-After: 0'];

/** The provider answers with these in turn, and goes on with the last; tells how many calls it got. */
async function calls(subject: Subject, ask: Ask, turns: (Buffer | string | 'breaks')[]) {
  let turn = 0;
  const reply = await subject.ask(ask, async (seen: Seen) => {
    const next = turns[Math.min(turn++, turns.length - 1)] as Buffer | string;
    if (next === 'breaks') seen.socket.destroy();
    else {
      await seen.body;
      seen.write(next);
    }
  });
  return { reply, count: subject.provider.seen.length };
}

const passing = ['429 Too Many', '500 Oops', '502 Bad Gateway', '503 Unavailable', '504 Too Late'];
const final = ['400 Bad', '401 No', '403 No', '404 None', '409 Conflict', '501 Never'];

export const retries: Promised[] = [
  {
    name: 'nothing is tried again unless the caller asks for it',
    prove: async (subject) => {
      const { reply, count } = await calls(subject, {}, [answer('503 Unavailable', soon), ok]);
      assert.deepEqual([reply.status, count], [503, 1]);
    },
  },
  ...passing.map((status) => ({
    name: `with Retries a GET is tried again after ${status.slice(0, 3)}`,
    prove: async (subject: Subject) => {
      const { reply, count } = await calls(subject, { headers: ['Retries: 2'] }, [
        answer(status, soon, 'no'),
        ok,
      ]);
      assert.deepEqual([reply.status, reply.body.toString(), count], [200, 'ok', 2]);
    },
  })),
  ...final.map((status) => ({
    name: `with Retries a GET is not tried again after ${status.slice(0, 3)}`,
    prove: async (subject: Subject) => {
      const { reply, count } = await calls(subject, { headers: ['Retries: 2'] }, [answer(status, soon), ok]);
      assert.deepEqual([reply.status, count], [Number(status.slice(0, 3)), 1]);
    },
  })),
  {
    name: 'Retry-On names further statuses',
    prove: async (subject) => {
      const headers = ['Retries: 3', 'Retry-On: 404, 409'];
      const { reply, count } = await calls(subject, { headers }, [
        answer('404 No', soon),
        answer('409 No', soon),
        answer('503 No', soon),
        ok,
      ]);
      assert.deepEqual([reply.status, count], [200, 4]);
    },
  },
  {
    name: 'after the last retry the answer is the last one, untouched',
    prove: async (subject) => {
      const { reply, count } = await calls(subject, { headers: ['Retries: 2'] }, [
        answer('503 Still', soon, 'no'),
      ]);
      assert.deepEqual([reply.line, reply.body.toString(), count], ['HTTP/1.1 503 Still', 'no', 3]);
    },
  },
  ...['POST', 'PATCH', 'LOCK'].map((method) => ({
    name: `a ${method} is never tried again by itself`,
    prove: async (subject: Subject) => {
      const ask = { method, body: '{}', headers: ['Retries: 3'] };
      const answered = await calls(subject, ask, [answer('503 No', soon), ok]);
      assert.deepEqual([answered.reply.status, answered.count], [503, 1]);
      const broken = await calls(subject, ask, ['breaks', ok]);
      assert.deepEqual([subject.errorOf(broken.reply), broken.count], ['upstream_unknown_outcome', 1]);
    },
  })),
  {
    name: 'a POST with an Idempotency-Key is tried again with the same body and key',
    prove: async (subject) => {
      const ask = { method: 'POST', body: '{"a":1}', headers: ['Retries: 1', 'Idempotency-Key: k1'] };
      const { reply, count } = await calls(subject, ask, [answer('503 No', soon), ok]);
      assert.deepEqual([reply.status, count], [200, 2]);
      for (const seen of subject.provider.seen) {
        assert.deepEqual([(await seen.body).toString(), seen.all('idempotency-key')], ['{"a":1}', ['k1']]);
      }
    },
  },
  ...['Idempotency-Key:', 'Connection: Idempotency-Key'].map((line) => ({
    name: `a POST whose Idempotency-Key does not reach the provider is not tried again: ${line}`,
    prove: async (subject: Subject) => {
      const key = line === 'Idempotency-Key:' ? [] : ['Idempotency-Key: k1'];
      const ask = { method: 'POST', body: '{}', headers: ['Retries: 2', line, ...key] };
      const { reply, count } = await calls(subject, ask, [answer('503 No', soon), ok]);
      assert.deepEqual([reply.status, count], [503, 1]);
    },
  })),
  {
    name: 'an Idempotency-Key with the prefix is one',
    prove: async (subject) => {
      const headers = ['Retries: 1', `${subject.headerPrefix}Idempotency-Key: k1`];
      const { reply, count } = await calls(subject, { method: 'POST', body: '{}', headers }, [
        answer('503 No', soon),
        ok,
      ]);
      assert.deepEqual([reply.status, count], [200, 2]);
    },
  },
  {
    name: 'a PUT is tried again with its whole body',
    prove: async (subject) => {
      const body = 'x'.repeat(300_000);
      const { reply, count } = await calls(subject, { method: 'PUT', body, headers: ['Retries: 1'] }, [
        answer('500 No', soon),
        ok,
      ]);
      assert.deepEqual([reply.status, count], [200, 2]);
      for (const seen of subject.provider.seen) assert.equal((await seen.body).length, body.length);
    },
  },
  {
    name: 'a body beyond 1 MB is sent once',
    prove: async (subject) => {
      const body = Buffer.alloc(1024 * 1024 + 1);
      const { reply, count } = await calls(subject, { method: 'PUT', body, headers: ['Retries: 1'] }, [
        answer('503 No', soon),
        ok,
      ]);
      assert.deepEqual([reply.status, count], [503, 1]);
    },
  },
  {
    name: 'with Retries a GET is tried again when the provider hangs up before it answers',
    prove: async (subject) => {
      const { reply, count } = await calls(subject, { headers: ['Retries: 1'] }, ['breaks', ok]);
      assert.deepEqual([reply.status, count], [200, 2]);
    },
  },
  {
    name: 'a response that breaks off in the middle is not requested again',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['Retries: 2'], keepAlive: true }, ({ socket }) =>
        socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'),
      );
      assert.deepEqual([reply.isWhole, subject.provider.seen.length], [false, 1]);
    },
  },
  {
    name: 'a Retry-After in seconds is waited for',
    prove: async (subject) => {
      const startedAt = Date.now();
      const { count } = await calls(subject, { headers: ['Retries: 1'] }, [
        answer('429 No', ['Retry-After: 1']),
        ok,
      ]);
      assert.equal(count, 2);
      assert.ok(Date.now() - startedAt >= 990);
    },
  },
  {
    name: 'a Retry-After as a date is waited for',
    prove: async (subject) => {
      const at = new Date(Date.now() + 2_000);
      const { count } = await calls(subject, { headers: ['Retries: 1'] }, [
        answer('503 No', [`Retry-After: ${at.toUTCString()}`]),
        ok,
      ]);
      assert.equal(count, 2);
      assert.ok(Date.now() >= Math.floor(at.getTime() / 1000) * 1000);
    },
  },
  {
    name: 'a Retry-After of more than a minute is left to the caller',
    prove: async (subject) => {
      const { reply, count } = await calls(subject, { headers: ['Retries: 1'] }, [
        answer('429 No', ['Retry-After: 61']),
        ok,
      ]);
      assert.deepEqual([reply.status, count], [429, 1]);
    },
  },
  {
    name: 'the time of the whole call ends the waiting for a retry',
    prove: async (subject) => {
      const ask = { headers: ['Retries: 1', 'Timeouts: total=0.3'] };
      const { reply, count } = await calls(subject, ask, [answer('503 No', ['Retry-After: 30']), ok]);
      assert.deepEqual([reply.status, subject.errorOf(reply), count], [504, 'upstream_timeout', 1]);
    },
  },
  {
    name: 'a caller that hangs up while a retry waits is not answered by another call',
    prove: async (subject) => {
      const talk = subject.open({ headers: ['Retries: 1'] }, (seen) =>
        seen.write(answer('503 No', ['Retry-After: 1'])),
      );
      await subject.provider.next();
      talk.socket.destroy();
      await new Promise((resolve) => setTimeout(resolve, 1_300));
      assert.equal(subject.provider.seen.length, 1);
    },
  },
  ...[
    'Retries: 11',
    'Retries: -1',
    'Retries: 1.5',
    'Retry-On: all',
    'Retry-On: 500;502',
    'Retry-On: 200',
  ].map((line) => ({
    name: `what cannot be meant is refused: ${line}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ headers: [line] });
      assert.deepEqual([reply.status, subject.errorOf(reply)], [400, 'invalid_headers']);
      assert.deepEqual(subject.provider.seen, []);
    },
  })),
];
