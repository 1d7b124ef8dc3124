import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Counter, Histogram } from './metrics.ts';

test('a counter counts by the values of its labels', () => {
  const counter = new Counter({ name: 'a_total', help: '', labels: ['x', 'y'] });
  counter.add(['1', '2']);
  counter.of(['1', '2']).add(4);
  counter.add(['12', '']);
  assert.deepEqual(counter.samples(), [
    { labels: ['1', '2'], value: 5 },
    { labels: ['12', ''], value: 1 },
  ]);
  assert.deepEqual(new Counter({ name: 'b_total', help: '', labels: [] }).samples(), [
    { labels: [], value: 0 },
  ]);
});

test('a figure whose labels take too many values counts the rest as other', () => {
  const counter = new Counter({ name: 'a_total', help: '', labels: ['x'] });
  for (let i = 0; i < 5_000; i++) counter.add([String(i)]);
  const samples = counter.samples();
  assert.equal(samples.length, 2_001);
  assert.deepEqual(samples.at(-1), { labels: ['other'], value: 3_000 });
  // What was known before still counts as itself.
  counter.add(['7']);
  assert.equal(counter.samples()[7]?.value, 2);
});

test('each bucket of a histogram counts the values up to its bound', () => {
  const histogram = new Histogram({ name: 'a_seconds', help: '', labels: [], bounds: [1, 2] });
  for (const value of [0.5, 1, 1.5, 2, 7]) histogram.observe([], value);
  const { counts, sum } = histogram.of([]);
  assert.deepEqual([...counts], [2, 2, 1]);
  assert.equal(sum, 12);
});
