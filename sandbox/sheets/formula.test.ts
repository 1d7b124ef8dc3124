import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorText } from './cell-value.ts';
import { createEvaluator, isError } from './formula.ts';
import { type Cell, createSheet, type Spreadsheet, setCells } from './spreadsheet.ts';

function sheetWith(rows: (Cell | undefined)[][]): Spreadsheet {
  const sheet = createSheet({ sheetId: 0, title: 'Sheet1' });
  for (const [row, cells] of rows.entries()) setCells(sheet, { row, startColumn: 0 }, cells);
  const other = createSheet({ sheetId: 1, title: "It's other" });
  setCells(other, { row: 0, startColumn: 0 }, [100]);
  return {
    spreadsheetId: 'x',
    owner: { email: '', sub: '' },
    modifiedAt: 0,
    properties: { title: '' },
    sheets: [sheet, other],
    namedRanges: [
      { namedRangeId: 'n', name: 'numbers', range: { sheetId: 0, endRowIndex: 1, endColumnIndex: 3 } },
    ],
    developerMetadata: [],
  };
}

/** What `formula` shows in Z9 of a sheet whose first rows are `1 2 3` and `a 4 TRUE`, with an empty third. */
function result(formula: string): unknown {
  const spreadsheet = sheetWith([
    [1, 2, 3],
    ['a', '4', true],
  ]);
  const [sheet] = spreadsheet.sheets;
  assert.ok(sheet);
  setCells(sheet, { row: 8, startColumn: 25 }, [{ formula }]);
  const value = createEvaluator(spreadsheet).value(sheet, 8, 25);
  return isError(value) ? errorText(value) : value;
}

test('formulas come out as in Sheets', () => {
  for (const [formula, expected] of [
    ['=1+2*3', 7],
    ['=(1+2)*3', 9],
    ['=2^3^1', 8],
    ['=-2^2', 4],
    ['=10/4', 2.5],
    ['=50%', 0.5],
    ['=1/0', '#DIV/0!'],
    ['=A1+B1', 3],
    ['=A1&"-"&A2', '1-a'],
    ['="say ""hi"""', 'say "hi"'],
    ['=A2+1', '#VALUE!'],
    ['=B2+1', 5],
    ['=A3', 0],
    ['=A3=""', true],
    ['="a"=A2', true],
    ['=A1<>B1', true],
    ['=2>=2', true],
    ['=SUM(A1:C1)', 6],
    ['=sum(a1:c1, 4, TRUE)', 11],
    ['=SUM(A1:C2)', 6],
    ['=SUM(A:A)', 1],
    ['=SUM(numbers)', 6],
    ["=SUM('It''s other'!A1:A1, A1)", 101],
    ['=AVERAGE(A1:C1)', 2],
    ['=AVERAGE(A3:C3)', '#DIV/0!'],
    ['=MIN(A1:C1)', 1],
    ['=MAX(A1:C1)', 3],
    ['=MIN(A3:C3)', 0],
    ['=COUNT(A1:C2)', 3],
    ['=COUNTA(A1:C3)', 6],
    ['=CONCATENATE(A1:C1,"x",TRUE)', '123xTRUE'],
    ['=IF(A1>1,"yes","no")', 'no'],
    ['=IF(A1=1,"yes",1/0)', 'yes'],
    ['=IFERROR(1/0,"none")', 'none'],
    ['=AND(TRUE,1)', true],
    ['=ROUND(2.345,2)', 2.35],
    ['=ROUND(-2.5)', -3],
    ['=$A$1+C$1', 4],
    ['=Nope!A1', '#REF!'],
    ['=nothing', '#NAME?'],
    ['=VLOOKUP(1,A1:B2,2)', '#NAME?'],
    ['=1+', '#ERROR!'],
    ['=A1:C1', '#VALUE!'],
    ['=Z9', '#REF!'],
  ] as const) {
    assert.equal(result(formula), expected, formula);
  }
});

test('an unknown function is reported as such', () => {
  const spreadsheet = sheetWith([[{ formula: '=TEXTJOIN(",",TRUE,B1)' }]]);
  const [sheet] = spreadsheet.sheets;
  assert.ok(sheet);
  assert.deepEqual(createEvaluator(spreadsheet).value(sheet, 0, 0), {
    type: 'NAME',
    message: "The sandbox does not evaluate the function 'TEXTJOIN'.",
  });
});

test('a chain of formulas thousands long is computed or refused, never a crash', () => {
  const rows = Array.from({ length: 20_000 }, (_, row): Cell[] => [
    row === 0 ? 1 : { formula: `=A${row}+1` },
  ]);
  const spreadsheet = sheetWith(rows);
  const [sheet] = spreadsheet.sheets;
  assert.ok(sheet);
  const value = createEvaluator(spreadsheet).value(sheet, 19_999, 0);
  assert.ok(value === 20_000 || isError(value));
});
