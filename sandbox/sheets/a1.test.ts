import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { columnIndex, columnName, formatA1, parseA1, quoteTitle } from './a1.ts';

const area = (startRow?: number, endRow?: number, startColumn?: number, endColumn?: number) => ({
  ...(startRow !== undefined && { startRow }),
  ...(endRow !== undefined && { endRow }),
  ...(startColumn !== undefined && { startColumn }),
  ...(endColumn !== undefined && { endColumn }),
});

const cells: [text: string, area: object][] = [
  ['A1', area(0, 1, 0, 1)],
  ['b3', area(2, 3, 1, 2)],
  ['A1:B2', area(0, 2, 0, 2)],
  ['B2:A1', area(0, 2, 0, 2)],
  ['B1:A2', area(0, 2, 0, 2)],
  ['$A$1:$B$2', area(0, 2, 0, 2)],
  ['A:C', area(undefined, undefined, 0, 3)],
  ['C:A', area(undefined, undefined, 0, 3)],
  ['A2:C', area(1, undefined, 0, 3)],
  ['A1:3', area(0, 3, 0, undefined)],
  ['2:5', area(1, 5)],
  ['AA10:AB', area(9, undefined, 26, 28)],
  ['ZZZ1', area(0, 1, 18277, 18278)],
  ['R1C1:R2C3', area(0, 2, 0, 3)],
  ['r5c2', area(4, 5, 1, 2)],
];

test('cells are read in every notation', () => {
  for (const [text, expected] of cells) {
    assert.deepEqual(parseA1(text), { kind: 'area', area: expected }, text);
    assert.deepEqual(parseA1(`Data!${text}`), { kind: 'area', sheet: 'Data', area: expected }, text);
    assert.deepEqual(
      parseA1(`'It''s 1/2!'!${text}`),
      { kind: 'area', sheet: "It's 1/2!", area: expected },
      text,
    );
  }
});

test('a title with an exclamation mark or brackets need not be quoted', () => {
  assert.deepEqual(parseA1('a!b!A1'), { kind: 'area', sheet: 'a!b', area: area(0, 1, 0, 1) });
});

test('text that is neither cells nor quoted is a name', () => {
  assert.deepEqual(parseA1('Sheet1'), { kind: 'name', name: 'Sheet1', quoted: false });
  assert.deepEqual(parseA1("'A1'"), { kind: 'name', name: 'A1', quoted: true });
  assert.deepEqual(parseA1("'My ''own'''"), { kind: 'name', name: "My 'own'", quoted: true });
  assert.deepEqual(parseA1('A'), { kind: 'name', name: 'A', quoted: false });
});

test('text that cannot be a range is refused', () => {
  for (const text of [
    '',
    '!A1',
    'Sheet1!',
    'Sheet1!A0',
    'Sheet1!A1:B2:C3',
    'Sheet1!AAAA1',
    'Sheet1!A:5:',
    'Sheet1!A:5',
    'Sheet1!5:A',
    'S!1A',
  ]) {
    assert.equal(parseA1(text), undefined, text);
  }
});

test('titles are quoted if they could be read as something else', () => {
  assert.equal(quoteTitle('Sheet1'), 'Sheet1');
  assert.equal(quoteTitle('my_data'), 'my_data');
  assert.equal(quoteTitle('My data'), "'My data'");
  assert.equal(quoteTitle("it's"), "'it''s'");
  assert.equal(quoteTitle('Q1'), "'Q1'");
  assert.equal(quoteTitle('2024'), "'2024'");
  assert.equal(quoteTitle('Größe'), "'Größe'");
});

test('a range survives being written and read again', () => {
  const index = fc.nat({ max: 18000 });
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), index, index, index, index, (title, r1, r2, c1, c2) => {
      const there = area(Math.min(r1, r2), Math.max(r1, r2) + 1, Math.min(c1, c2), Math.max(c1, c2) + 1);
      assert.deepEqual(parseA1(formatA1(title, there)), { kind: 'area', sheet: title, area: there });
    }),
  );
});

test('open ranges stay open when they are written', () => {
  for (const text of ['A:C', 'A2:C', '2:5', 'A1:B2', 'B7']) {
    const parsed = parseA1(`Data!${text}`);
    assert.ok(parsed?.kind === 'area');
    assert.equal(formatA1('Data', parsed.area), `Data!${text}`);
  }
  assert.equal(formatA1('My data', {}), "'My data'");
});

test('columns count A to Z, then AA', () => {
  for (const [index, name] of [
    [0, 'A'],
    [25, 'Z'],
    [26, 'AA'],
    [51, 'AZ'],
    [701, 'ZZ'],
    [702, 'AAA'],
  ] as const) {
    assert.equal(columnName(index), name);
    assert.equal(columnIndex(name), index);
  }
});
