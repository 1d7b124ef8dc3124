import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { Channel } from './channel.ts';
import { TimeSlice } from './time-slice.ts';

test('frames that come together are delivered over many turns where each takes long', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const sender = connect((server.address() as { port: number }).port, '127.0.0.1');
  const [receiver] = (await once(server, 'connection')) as [Socket];
  t.after(() => {
    sender.destroy();
    receiver.destroy();
  });

  let nowMs = 0;
  let turn = 0;
  const turns: number[] = [];
  const texts: string[] = [];
  const all = Promise.withResolvers<void>();
  const count = () => {
    turn += 1;
    if (texts.length < 40) setImmediate(count);
  };
  setImmediate(count);
  new Channel(
    receiver,
    {
      message(text, payload) {
        // Each takes longer than a turn may.
        nowMs += 100;
        turns.push(turn);
        texts.push(`${text}${payload.toString()}`);
        if (texts.length === 40) all.resolve();
      },
      bytes() {},
      broken: (reason) => all.reject(new Error(reason)),
    },
    new TimeSlice(() => nowMs),
  );
  const channel = new Channel(sender, { message() {}, bytes() {}, broken() {} });
  const sent = Array.from(
    { length: 40 },
    (_, n) => [`{"n":${n}}`, 'p'.repeat(n % 3 === 0 ? 70_000 : n)] as const,
  );
  for (const [text, payload] of sent) channel.send(text, payload);
  await all.promise;
  assert.deepEqual(
    texts,
    sent.map(([text, payload]) => `${text}${payload}`),
  );
  assert.ok(new Set(turns).size >= 20, `40 frames in ${new Set(turns).size} turns`);
});
