import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FairQueue } from './bucket.ts';

function lineOf(text: string): FairQueue<{ lane: number; name: string }> {
  const line = new FairQueue<{ lane: number; name: string }>();
  for (const name of text.split(' ')) line.add({ lane: Number(name[0]), name });
  return line;
}
const namesOf = (line: ReturnType<typeof lineOf>) => [...line.drain()].map(({ name }) => name).join(' ');

test('lanes are served in turn, and each lane in order of arrival', () => {
  assert.equal(namesOf(lineOf('1a 1b 1c 1d 2a 3a 3b')), '1a 2a 3a 1b 3b 1c 1d');
});

test('a lane that comes later has its turn before the second turn of the others', () => {
  const line = lineOf('1a 1b 1c 2a');
  assert.equal(line.next()?.name, '1a');
  line.add({ lane: 3, name: '3a' });
  assert.equal(namesOf(line), '2a 1b 3a 1c');
});

test('a newcomer is served after those of his own lane, and at most one more of every other', () => {
  const line = lineOf('1a 1b 1c 1d 2a 3a 3b');
  assert.deepEqual(
    [4, 2, 1].map((lane) => line.before(lane)),
    [3, 5, 7],
  );
});

test('the last of the longest lane has the most of its own before it', () => {
  assert.equal(lineOf('1a 1b 2a 2b 2c 3a').lastOfLongest()?.name, '2c');
  const line = lineOf('1a');
  line.remove(line.next()!);
  assert.equal(line.lastOfLongest(), undefined);
});

test('a removed item is not served, and an empty lane has no turn', () => {
  const line = lineOf('1a 2a 3a');
  const gone = line.next()!;
  line.remove(gone);
  assert.deepEqual([line.size, line.lanes, line.in(1)], [2, 2, 0]);
  assert.equal(namesOf(line), '2a 3a');
  assert.deepEqual([line.size, line.lanes], [0, 0]);
});
