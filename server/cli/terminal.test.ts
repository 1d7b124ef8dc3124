import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createProgress, oneLine } from './terminal.ts';

test('a name ends no line and moves no cursor', () => {
  for (const sign of ['\n', '\r', '\t', '\u0085', '\u001b', '\u2028', '\u2029', '\u202e'])
    assert.equal(oneLine(`a${sign}b`), 'a b', JSON.stringify(sign));
  assert.equal(oneLine('Größe 大小'), 'Größe 大小');
});

const outputOf = (isTTY: boolean) => {
  const written: string[] = [];
  return { isTTY, written, write: (text: string) => written.push(text) > 0 };
};

test('on a terminal one line shows the newest progress and is left whole', () => {
  const out = outputOf(true);
  const progress = createProgress(out, () => 0);
  progress.show('1 of 2');
  progress.show('2 of 2');
  progress.end();
  assert.deepEqual(out.written, ['\r\x1b[K1 of 2', '\r\x1b[K2 of 2', '\n']);
});

test('elsewhere there is a line at first and then one every two seconds', () => {
  const out = outputOf(false);
  let now = 0;
  const progress = createProgress(out, () => now);
  for (const ms of [0, 1_000, 1_999, 2_000, 3_000, 4_001]) {
    now = ms;
    progress.show(`at ${ms}`);
  }
  progress.end();
  assert.deepEqual(out.written, ['at 0\n', 'at 2000\n', 'at 4001\n']);
});
