import assert from 'node:assert/strict';
import { test } from 'node:test';
import { oneLine } from './one-line.ts';

test('a name ends no line and moves no cursor, whatever stands in it', () => {
  for (const sign of ['\n', '\r', '\t', '\u0085', '\u001b', '\u2028', '\u2029', '\u202e'])
    assert.equal(oneLine(`a${sign}b`), 'a b', JSON.stringify(sign));
  assert.equal(oneLine('Größe 大小'), 'Größe 大小');
});
