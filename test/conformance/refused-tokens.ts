import assert from 'node:assert/strict';
import type { Reply } from './caller.ts';
import { answer, ok, type Script, type Seen } from './provider.ts';
import type { Calls, Promised, Subject } from './subject.ts';

const refusal = answer('401 Unauthorized', ['WWW-Authenticate: Bearer error="invalid_token"'], 'refused');

/** A promise that is proven on a connection whose token can be refreshed. */
function promise(name: string, prove: (calls: Calls, subject: Subject) => Promise<void>): Promised {
  return {
    name,
    async prove(subject) {
      const calls = await subject.refreshable();
      return calls === undefined ? 'unproven' : prove(calls, subject);
    },
  };
}

function tokenOf(seen: Seen | undefined): string {
  const [token, ...others] = seen?.all('authorization') ?? [];
  assert.ok(token !== undefined && others.length === 0);
  return token;
}

/** A provider that refuses the token it sees first, and does `then` with every other. */
function refusing(then: Script = (seen) => seen.write(ok)): Script {
  let refused: string | undefined;
  return async (seen) => {
    refused ??= tokenOf(seen);
    await seen.body;
    if (tokenOf(seen) === refused) seen.write(refusal);
    else then(seen);
  };
}

function isRefusal(reply: Reply): void {
  assert.deepEqual([reply.line, reply.body.toString()], ['HTTP/1.1 401 Unauthorized', 'refused']);
}

const bodies: [string, string[], string][] = [
  ['with a length', [], 'x'.repeat(300_000)],
  ['in chunks', ['Transfer-Encoding: chunked'], `${`1000\r\n${'y'.repeat(4096)}\r\n`.repeat(20)}0\r\n\r\n`],
];

export const refusedTokens: Promised[] = [
  promise(
    'after a 401 the token is refreshed and the call sent once more, as it was',
    async (calls, subject) => {
      const headers = ['Accept: a/b', `${subject.headerPrefix}X-Mine: 1`];
      const reply = await calls.ask({ path: '/x?a=%2F', headers }, refusing());
      assert.deepEqual([reply.status, reply.body.toString(), reply.isWhole], [200, 'ok', true]);
      const [first, second, ...more] = subject.provider.seen;
      assert.deepEqual([second?.line, more.length], [first?.line, 0]);
      assert.notEqual(tokenOf(first), tokenOf(second));
      const others = (seen: Seen | undefined) =>
        seen?.headers.filter(([name]) => !/^authorization$/i.test(name));
      assert.deepEqual(others(second), others(first));
    },
  ),
  ...bodies.map(([how, headers, body]) =>
    promise(`a body ${how} is sent once more after a 401, whole`, async (calls, subject) => {
      const reply = await calls.ask({ method: 'POST', headers, body }, refusing());
      assert.deepEqual([reply.status, subject.provider.seen.length], [200, 2]);
      const [first, second] = await Promise.all(subject.provider.seen.map((seen) => seen.body));
      assert.ok(first !== undefined && first.length > 50_000 && second?.equals(first));
    }),
  ),
  promise(
    'a body beyond 1 MB is sent once, and the 401 is the answer; the next call goes with another token',
    async (calls, subject) => {
      const reply = await calls.ask({ method: 'PUT', body: Buffer.alloc(1024 * 1024 + 1) }, refusing());
      isRefusal(reply);
      assert.equal(subject.provider.seen.length, 1);
      const token = tokenOf(subject.provider.seen[0]);
      // It is fetched behind the answer.
      do await calls.ask();
      while (tokenOf(subject.provider.seen[0]) === token);
    },
  ),
  promise(
    'a body of up to 1 MB that is still coming when the 401 does is sent once more, whole',
    async (calls, subject) => {
      const body = 'x'.repeat(300_000);
      const headers = [`Content-Length: ${body.length}`];
      let refused: string | undefined;
      const talk = calls.open({ method: 'POST', headers }, async (seen) => {
        refused ??= tokenOf(seen);
        if (tokenOf(seen) !== refused) {
          await seen.body;
          seen.write(ok);
          return;
        }
        await seen.firstPart;
        seen.write(refusal);
      });
      for (let at = 0; at < body.length; at += 60_000) {
        talk.socket.write(body.slice(at, at + 60_000));
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      const reply = await talk.ended();
      assert.deepEqual([reply.status, reply.body.toString()], [200, 'ok']);
      assert.equal((await subject.provider.seen[1]?.body)?.toString(), body);
    },
  ),
  promise('a 401 to a body that does not go on is the answer', async (calls, subject) => {
    const talk = calls.open({ method: 'POST', headers: ['Content-Length: 10'] }, async (seen) => {
      await seen.firstPart;
      seen.write(refusal);
    });
    talk.socket.write('first');
    isRefusal(await talk.ended());
    assert.equal(subject.provider.seen.length, 1);
  }),
  promise(
    'a 401 to the refreshed token is the answer, and nothing is sent a third time',
    async (calls, subject) => {
      const reply = await calls.ask({}, (seen) => seen.write(refusal));
      isRefusal(reply);
      const tokens = subject.provider.seen.map(tokenOf);
      assert.deepEqual([tokens.length, new Set(tokens).size], [2, 2]);
    },
  ),
  promise('twenty calls whose token is refused at once share one refresh', async (calls, subject) => {
    const refused: Seen[] = [];
    const script: Script = (seen) => {
      if (refused.length === 20) return seen.write(ok);
      // None hears of it before all have been sent.
      if (refused.push(seen) === 20) for (const one of refused) one.write(refusal);
    };
    const replies = await Promise.all(Array.from({ length: 20 }, () => calls.ask({}, script)));
    assert.ok(replies.every(({ status, body }) => status === 200 && body.toString() === 'ok'));
    const tokens = subject.provider.seen.map(tokenOf);
    assert.deepEqual([tokens.length, new Set(tokens.slice(0, 20)).size, new Set(tokens).size], [40, 1, 2]);
  }),
  promise('the call that follows a refresh is not one of its retries', async (calls, subject) => {
    let answered = 0;
    const then: Script = (seen) => seen.write(answered++ === 0 ? answer('503 No', ['Retry-After: 0']) : ok);
    const reply = await calls.ask({ headers: ['Retries: 1'] }, refusing(then));
    assert.deepEqual([reply.status, subject.provider.seen.length], [200, 3]);
  }),
  promise(
    'a POST is sent once more after a 401, which says that nothing was done, and after no other answer',
    async (calls, subject) => {
      const then: Script = (seen) => seen.write(answer('503 No', ['Retry-After: 0']));
      const reply = await calls.ask({ method: 'POST', body: '{}', headers: ['Retries: 3'] }, refusing(then));
      assert.deepEqual([reply.status, subject.provider.seen.length], [503, 2]);
    },
  ),
  promise('a 403 refreshes nothing', async (calls, subject) => {
    const reply = await calls.ask({}, (seen) => seen.write(answer('403 Forbidden', [], 'no')));
    assert.deepEqual([reply.status, subject.provider.seen.length], [403, 1]);
    const token = tokenOf(subject.provider.seen[0]);
    await calls.ask();
    assert.equal(tokenOf(subject.provider.seen[0]), token);
  }),
];
