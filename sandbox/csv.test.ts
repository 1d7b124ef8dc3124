import assert from 'node:assert/strict';
import test from 'node:test';
import { parseCsv, typeCells } from './csv.ts';

test('CSV is read with quotes, doubled quotes, line breaks in quotes and both line ends', () => {
  assert.deepEqual(parseCsv('\uFEFFa,b\r\n"x, y","say ""hi"""\n"two\r\nlines",\n'), [
    ['a', 'b'],
    ['x, y', 'say "hi"'],
    ['two\r\nlines', ''],
  ]);
  assert.deepEqual(parseCsv(''), []);
  assert.deepEqual(parseCsv('a,'), [['a', '']]);
  assert.deepEqual(parseCsv('""'), [['']]);
});

test('a broken quote is refused with its line', () => {
  assert.throws(() => parseCsv('a\n"b'), /line 2: a quoted cell does not end/);
  assert.throws(() => parseCsv('a\n"b\nc"d'), /line 3: text follows a closing quote/);
});

test('cells become numbers and booleans, but a column of codes stays text as a whole', () => {
  const rows = [
    ['zip', 'amount', 'ok', 'note'],
    ['00601', '1,234.5', 'TRUE', '12%'],
    ['10001', '-0.5', 'false', '2024-01-02'],
    ['', '.5', '', '1e3'],
  ];
  assert.deepEqual(typeCells(rows), [
    ['zip', 'amount', 'ok', 'note'],
    ['00601', 1234.5, true, '12%'],
    ['10001', -0.5, false, '2024-01-02'],
    [null, 0.5, null, 1000],
  ]);
});
