import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bodyOf, lettersOf, sizeOf, tableOf } from './answer.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

test('a body is read for what it is', () => {
  assert.equal(bodyOf(bytes(''), 'application/json').kind, 'empty');
  assert.deepEqual(bodyOf(bytes('{"a":1}'), 'application/json; charset=UTF-8'), {
    kind: 'json',
    text: '{"a":1}',
    value: { a: 1 },
  });
  assert.equal(bodyOf(bytes('[1]'), 'text/plain').kind, 'json');
  assert.equal(bodyOf(bytes('<p>Hi</p>'), 'application/json').kind, 'text');
  assert.equal(bodyOf(bytes('<svg/>'), 'image/svg+xml').kind, 'text');
  assert.equal(bodyOf(bytes('x'), 'image/png').kind, 'binary');
  assert.equal(bodyOf(new Uint8Array([0xff, 0xfe]), 'text/plain').kind, 'binary');
  assert.equal(bodyOf(bytes('a\0b'), 'application/octet-stream').kind, 'binary');
});

test('values of a sheet stand under the letters and numbers that they have there', () => {
  const table = tableOf({ range: "'My A1 sheet'!AA5:AB6", values: [['a'], [1, null, { b: 2 }]] });
  assert.deepEqual(table, {
    name: '',
    columns: ['AA', 'AB', 'AC'],
    firstRow: 5,
    rows: [
      ['a', '', ''],
      ['1', '', '{"b":2}'],
    ],
    rowCount: 2,
    columnCount: 3,
  });
  assert.deepEqual([0, 25, 26, 701, 702].map(lettersOf), ['A', 'Z', 'AA', 'ZZ', 'AAA']);
});

test('a list of objects is a table, alone or in a field', () => {
  const list = [{ id: 1 }, { id: 2, name: 'b' }];
  assert.deepEqual(tableOf(list)?.columns, ['id', 'name']);
  assert.deepEqual(tableOf({ kind: 'x', files: list })?.name, 'files');
  for (const other of [[], [1], 'text', null, { a: 1 }, { values: [] }])
    assert.equal(tableOf(other), undefined);
});

test('a long table is truncated, with its full length', () => {
  const table = tableOf({ values: Array.from({ length: 500 }, () => Array.from({ length: 60 }, () => 1)) });
  assert.deepEqual([table?.rows.length, table?.rowCount], [200, 500]);
  assert.deepEqual([table?.columns.length, table?.columnCount], [40, 60]);
});

test('sizes are shown in steps of a thousand', () => {
  assert.deepEqual([7, 1_250, 3_400_000].map(sizeOf), ['7 B', '1.3 KB', '3.4 MB']);
});
