import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { confinementOf } from './confinement.ts';
import { CustomerProcess } from './customer-process.ts';
import { Run } from './run.ts';
import type { RunOutcome } from './run-order.ts';
import { defaultLimits } from './runtime.ts';

const confinement = await confinementOf('off');

/** A process whose side of the channel is all the attacker's: it has the frames of its run sent by `forge`. */
async function runForged(t: TestContext, forge: string): Promise<{ outcome: RunOutcome; asked: string[] }> {
  const script = `
    const fs = require('fs');
    const frame = (kind, number, content) => {
      const head = Buffer.alloc(9); head.writeUInt32BE(content.length + 5); head[4] = kind; head.writeUInt32BE(number, 5);
      const all = Buffer.concat([head, content]);
      for (let at = 0; at < all.length; ) try { at += fs.writeSync(3, all, at) } catch (e) { if (e.code !== 'EAGAIN') throw e }
    };
    const send = (message, payload = '') => {
      const text = Buffer.from(typeof message === 'string' ? message : JSON.stringify(message));
      frame(0, text.length, Buffer.concat([text, Buffer.from(payload)]));
    };
    const raw = (bytes) => fs.writeSync(3, bytes);
    send({ t: 'up' });
    let seen = '';
    const buffer = Buffer.alloc(65536);
    for (;;) {
      let n = 0;
      try { n = fs.readSync(3, buffer) } catch (e) { if (e.code === 'EAGAIN') continue; throw e }
      if (n === 0) break;
      seen += buffer.toString('latin1', 0, n);
      if (seen.includes('"t":"run"')) { seen = ''; ${forge} }
    }`;
  const process = await CustomerProcess.start({
    environmentId: 1,
    memoryMb: 64,
    confinement,
    script,
    boot: { modules: {}, harness: '' },
  });
  t.after(() => process.stop({ cause: 'unavailable', message: 'the test is over' }));
  const asked: string[] = [];
  const outcome = await new Run(process, {
    environmentId: 1,
    bundle: { id: 'forged', code: '' },
    exportName: 'default',
    kind: 'action',
    input: null,
    limits: { ...defaultLimits, timeoutMs: 20_000 },
    serve: async (name, _args, { signal }) => {
      asked.push(name);
      if (name === 'slow') await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return { value: null };
    },
    log: () => {},
  }).outcome();
  await process.settled();
  return { outcome, asked };
}

const forgeries: Record<string, [string, RegExp]> = {
  'no JSON': [`send('{"t":')`, /no known form/],
  'an unknown message': [`send({ t: 'grant' })`, /no known form/],
  'a field too many': [
    `send({ t: 'call', id: 1, name: 'records', body: false, connectionId: 'other', environmentId: 2 })`,
    /no known form/,
  ],
  'an unknown kind of frame': [`frame(9, 0, Buffer.from('x'))`, /of no known kind/],
  'a frame of 4 GB': [`raw(Buffer.from([255, 255, 255, 255, 0]))`, /says that it has 4294967295 bytes/],
  'an empty frame': [`raw(Buffer.alloc(9))`, /says that its content has -5 bytes/],
  'a message whose text is longer than its frame': [`frame(0, 9, Buffer.from('{}'))`, /its text has 9 bytes/],
  'a message whose text is no message but megabytes': [
    `frame(0, 1e6, Buffer.alloc(1e6))`,
    /its text has 1000000 bytes/,
  ],
  'a result that is too large': [`send({ t: 'done' }, '1'.repeat(11e6))`, /a result that is too large/],
  'bytes of no stream': [`frame(1, 7, Buffer.from([1, 2]))`, /bytes that no stream accepts/],
  'bytes beyond the window': [
    `send({ t: 'call', id: 1, name: 'slow', body: true }, '{}');
     for (let at = 0; at < 80; at++) frame(1, 1, Buffer.alloc(65536))`,
    /bytes that no stream accepts/,
  ],
  'the number of a call twice': [
    `for (const id of [5, 5]) send({ t: 'call', id, name: 'a', body: false }, '{}')`,
    /number of a call twice/,
  ],
  'more than its open calls may hold': [
    `for (let id = 1; id < 5; id++) send({ t: 'call', id, name: 'slow', body: false }, ' '.repeat(10e6))`,
    /more open calls than it may hold/,
  ],
  'an answer to no ping': [`send({ t: 'pong', id: 77 })`, /answer to no ping/],
  'up again': [`send({ t: 'up' })`, /"up" during a run/],
  'ready before the end': [`send({ t: 'ready', clean: true })`, /"ready" during a run/],
  'a log line of 1 MB': [
    `send({ t: 'log', level: 'info', text: 'x'.repeat(1e6) })`,
    /its text has \d+ bytes/,
  ],
};

for (const [name, [forge, message]] of Object.entries(forgeries)) {
  test(`a process that sends ${name} is ended`, async (t) => {
    const { outcome } = await runForged(t, forge);
    assert.ok('failure' in outcome);
    assert.equal(outcome.failure.cause, 'protocol');
    assert.match(outcome.failure.message, message);
  });
}

test('the calls of a process after its end are ignored', async (t) => {
  const { outcome, asked } = await runForged(
    t,
    `send({ t: 'done' }, '1'); send({ t: 'call', id: 9, name: 'records', body: false })`,
  );
  assert.deepEqual(outcome, { result: 1 });
  assert.deepEqual(asked, []);
});

test('a process that ends itself and one that floods the log have different errors', async (t) => {
  const exits = await runForged(t, `process.exit(3)`);
  assert.deepEqual(exits.outcome, {
    failure: { cause: 'exited', message: 'The process of the run ended with code 3.' },
  });
  const floods = await runForged(t, `for (;;) send({ t: 'log', level: 'info', text: 'x'.repeat(8000) })`);
  assert.ok('failure' in floods.outcome);
  assert.equal(floods.outcome.failure.cause, 'log_flood');
});
