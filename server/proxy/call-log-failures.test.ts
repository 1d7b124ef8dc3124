import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import { FailureLog } from './call-log.ts';
import { definitionAt, send, startProxy, startTcp } from './proxy.fixture.ts';

type Line = { reqId: string; origin?: string; count: number; err: { code: string } };

function openLog() {
  const lines: Line[] = [];
  const log = createLog(
    { level: 'warn', format: 'json' },
    { write: (line) => lines.push(JSON.parse(line) as Line) },
  );
  return { log, lines };
}

function open(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { log, lines } = openLog();
  return {
    failures: new FailureLog(log),
    said: () => lines.map(({ reqId, count }) => [reqId, count]),
    lines,
  };
}

const away = new AppError('upstream_unreachable');
const origin = 'https://api.example';

test('the first failure is logged at once, and those within a second as one line with their count', (t) => {
  const { failures, said, lines } = open(t);
  for (let call = 1; call <= 500; call += 1) failures.add({ reqId: `r${call}`, origin, error: away });
  assert.deepEqual(said(), [['r1', 1]]);
  t.mock.timers.tick(1_000);
  failures.add({ reqId: 'r501', origin, error: away });
  t.mock.timers.tick(1_000);
  assert.deepEqual(said(), [
    ['r1', 1],
    ['r500', 499],
    ['r501', 1],
  ]);
  assert.deepEqual([lines[1]?.origin, lines[1]?.err.code], [origin, 'upstream_unreachable']);
  t.mock.timers.tick(10_000);
  assert.equal(lines.length, 3);
  failures.add({ reqId: 'later', origin, error: away });
  assert.deepEqual(said().at(-1), ['later', 1]);
});

test('another origin and another code have lines of their own', (t) => {
  const { failures, said } = open(t);
  failures.add({ reqId: 'a', origin, error: away });
  failures.add({ reqId: 'b', origin: 'https://other.example', error: away });
  failures.add({ reqId: 'c', origin, error: new AppError('upstream_timeout') });
  failures.add({ reqId: 'd', origin: undefined, error: new AppError('unavailable') });
  assert.deepEqual(said(), [
    ['a', 1],
    ['b', 1],
    ['c', 1],
    ['d', 1],
  ]);
});

test('a provider that is down does not fill the log: each call gets the error, and the log few lines', async (t) => {
  const { log, lines } = openLog();
  const provider = await startTcp((socket) => socket.destroy());
  const proxy = await startProxy({ definition: definitionAt(provider.url), log });
  t.after(() => Promise.all([proxy.close(), provider.close()]));
  const answers = await Promise.all(
    Array.from({ length: 40 }, async () => {
      const answer = await send(`${proxy.url}/proxy/x`).answer;
      answer.resume();
      return answer.statusCode;
    }),
  );
  assert.deepEqual(answers, new Array(40).fill(502));
  assert.ok(lines.length >= 1 && lines.length < 40, `${lines.length} lines`);
  assert.equal(lines[0]?.origin, provider.url);
});
