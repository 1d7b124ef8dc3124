import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countSteps, maxDays, maxStepsOf, stepsS } from '../../../server/activity/series.ts';
import { eventsOf } from './queries.ts';
import { chartTimesOf, timesOf } from './time-range.ts';

const nowMs = Date.parse('2026-01-31T10:13:59.733Z');

test('charts ask for no more steps than the service makes, whatever time is chosen', () => {
  const given = [
    {},
    { range: '1h' },
    { range: '24h' },
    { range: '7d' },
    { from: '2020-01-01T00:00:00.000Z' },
    { from: '2026-01-31T10:00:00.000Z', to: '2026-01-31T10:00:01.000Z' },
    { to: '2026-01-01T00:00:01.000Z' },
    { from: '2025-10-01T00:00:01.000Z' },
    { from: '2025-12-30T10:00:00.000Z' },
    { from: '2026-01-01T23:59:59.000Z', to: '2026-01-31T00:00:01.000Z' },
  ] as const;
  for (const one of given) {
    const { from, to, step_s: stepS } = chartTimesOf(one, nowMs);
    // The clock of the service may be ahead of the browser's.
    const range = { from: new Date(from), to: to === undefined ? new Date(nowMs + 60_000) : new Date(to) };
    assert.ok(countSteps(range, stepS) <= maxStepsOf(stepS), JSON.stringify(one));
    const days = stepS === 86_400 ? maxDays : 31;
    assert.ok(range.to.getTime() - range.from.getTime() <= days * 86_400_000, JSON.stringify(one));
    assert.ok((stepsS as readonly number[]).includes(stepS));
  }
});

test('a time counted back moves on with the minutes alone', () => {
  assert.deepEqual(timesOf({ range: '1h' }, nowMs), { from: '2026-01-31T09:13:00.000Z' });
  assert.deepEqual(timesOf({ range: '1h' }, nowMs + 200), timesOf({ range: '1h' }, nowMs));
  assert.deepEqual(timesOf({}, nowMs), {});
});

test('events are read whole, however their bytes are cut', async () => {
  const text =
    'retry: 1000\n\n: nothing new\n\nid: 1\nevent: operation\ndata: {"a":"ü"}\n\nevent: end\ndata: {}\n\n';
  const all = new TextEncoder().encode(text);
  for (const size of [1, 7, 1000]) {
    const parts = Array.from({ length: Math.ceil(all.length / size) }, (_, at) =>
      all.slice(at * size, (at + 1) * size),
    );
    const events: unknown[] = [];
    for await (const one of eventsOf(new Response(ReadableStream.from(parts)))) events.push(one);
    assert.deepEqual(events, [
      { event: 'operation', data: '{"a":"ü"}' },
      { event: 'end', data: '{}' },
    ]);
  }
});
