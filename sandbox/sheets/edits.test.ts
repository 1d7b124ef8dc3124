import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Bench, columns, editing, grid, rows, startBench } from './testing.ts';

let bench: Bench;
let edit: ReturnType<typeof editing>['edit'];
let rowsOf: ReturnType<typeof editing>['rowsOf'];
let get: ReturnType<typeof editing>['get'];
let put: ReturnType<typeof editing>['put'];
before(async () => {
  bench = await startBench();
  ({ edit, rowsOf, get, put } = editing(bench));
});
after(() => bench.close());

test('rows and columns are inserted, deleted and moved, and references to them are updated', async () => {
  const id = await bench.spreadsheet([
    ['a', 1],
    ['b', 2],
    ['c', 3],
    ['d', 4],
  ]);
  await put(id, 'D1', [['=SUM(B2:B3)', '=B3', '=$B$4', "=SUM('Sheet1'!B:B)"]]);
  await edit(
    id,
    { addNamedRange: { namedRange: { namedRangeId: 'n', name: 'middle', range: grid(1, 3, 0, 2) } } },
    { insertDimension: { range: rows(2, 4) } },
  );
  assert.deepEqual(await rowsOf(id, 'D1:G1', 'FORMULA'), [
    ['=SUM(B2:B5)', '=B5', '=$B$6', "=SUM('Sheet1'!B:B)"],
  ]);
  assert.deepEqual(await rowsOf(id, 'D1:G1'), [[5, 3, 4, 10]]);
  assert.deepEqual(await rowsOf(id, 'middle'), [['b', 2], [], [], ['c', 3]]);
  await edit(id, { deleteDimension: { range: rows(2, 5) } });
  assert.deepEqual(await rowsOf(id, 'D1:G1', 'FORMULA'), [
    ['=SUM(B2:B2)', '=#REF!', '=$B$3', "=SUM('Sheet1'!B:B)"],
  ]);
  assert.deepEqual(await rowsOf(id, 'D1:G1', 'FORMATTED_VALUE'), [['2', '#REF!', '4', '7']]);
  await edit(id, { moveDimension: { source: columns(0, 1), destinationIndex: 2 } });
  assert.deepEqual(await rowsOf(id, 'A1:B3'), [
    [1, 'a'],
    [2, 'b'],
    [4, 'd'],
  ]);
  assert.deepEqual(await rowsOf(id, 'D1', 'FORMULA'), [['=SUM(A2:A2)']]);
  await edit(id, { moveDimension: { source: rows(2, 3), destinationIndex: 0 } });
  assert.deepEqual(await rowsOf(id, 'A1:B3'), [
    [4, 'd'],
    [1, 'a'],
    [2, 'b'],
  ]);
  await edit(id, { appendDimension: { sheetId: 0, dimension: 'COLUMNS', length: 4 } });
  assert.equal((await get(id)).sheets[0].properties.gridProperties.columnCount, 30);
});

test('metadata of a row stays with the row until the row is gone', async () => {
  const id = await bench.spreadsheet([['a'], ['b'], ['c']]);
  const made = await edit(id, {
    createDeveloperMetadata: {
      developerMetadata: {
        metadataId: 5,
        metadataKey: 'k',
        visibility: 'PROJECT',
        location: { dimensionRange: rows(1, 2) },
      },
    },
  });
  assert.equal(made.json.replies[0].createDeveloperMetadata.developerMetadata.metadataId, 5);
  const where = async () =>
    (await bench.call('GET', `/v4/spreadsheets/${id}/developerMetadata/5`)).json.location?.dimensionRange
      ?.startIndex;
  await edit(id, { insertDimension: { range: rows(0, 2) } });
  assert.equal(await where(), 3);
  await edit(id, { moveDimension: { source: rows(3, 4), destinationIndex: 0 } });
  assert.equal(await where(), 0);
  const lookup = { developerMetadataLookup: { metadataId: 5 } };
  const updated = await edit(id, {
    updateDeveloperMetadata: {
      dataFilters: [lookup],
      developerMetadata: { metadataValue: 'v' },
      fields: 'metadataValue',
    },
  });
  assert.equal(updated.json.replies[0].updateDeveloperMetadata.developerMetadata[0].metadataValue, 'v');
  await edit(id, { deleteDimension: { range: rows(0, 1) } });
  assert.equal((await bench.call('GET', `/v4/spreadsheets/${id}/developerMetadata/5`)).status, 404);
});

test('ranges shift only their neighbours', async () => {
  const id = await bench.spreadsheet([
    ['a', 'b', 'c'],
    ['d', 'e', 'f'],
    ['g', 'h', 'i'],
  ]);
  await edit(id, { insertRange: { range: grid(0, 1, 1, 2), shiftDimension: 'ROWS' } });
  assert.deepEqual(await rowsOf(id), [
    ['a', '', 'c'],
    ['d', 'b', 'f'],
    ['g', 'e', 'i'],
    ['', 'h'],
  ]);
  await edit(id, { deleteRange: { range: grid(0, 1, 1, 2), shiftDimension: 'COLUMNS' } });
  assert.deepEqual(await rowsOf(id), [
    ['a', 'c'],
    ['d', 'b', 'f'],
    ['g', 'e', 'i'],
    ['', 'h'],
  ]);
});

test('find and replace counts what it changed', async () => {
  const id = await bench.spreadsheet([
    ['cat', 'Cat cat'],
    ['dog', 12],
  ]);
  await put(id, 'A3', [['=A1']]);
  const plain = await edit(id, {
    findReplace: { find: 'cat', replacement: 'c$&', allSheets: true, matchCase: true },
  });
  assert.deepEqual(plain.json.replies[0].findReplace, {
    valuesChanged: 2,
    rowsChanged: 1,
    sheetsChanged: 1,
    occurrencesChanged: 2,
  });
  assert.deepEqual(await rowsOf(id), [['c$&', 'Cat c$&'], ['dog', 12], ['c$&']]);
  await edit(id, {
    findReplace: { find: '(\\d)(\\d)', replacement: '$2$1', searchByRegex: true, sheetId: 0 },
  });
  assert.deepEqual(await rowsOf(id, 'B2'), [[21]]);
  assert.deepEqual((await edit(id, { findReplace: { find: 'nothing', allSheets: true } })).json.replies, [
    { findReplace: {} },
  ]);
});

test('sorting puts numbers before texts, blanks last, and keeps equals in order', async () => {
  const id = await bench.spreadsheet([
    ['h', 'n'],
    ['b', 2],
    [null, 1],
    [3, 1],
    ['a', 2],
  ]);
  const sort = (sortOrder: string) =>
    edit(id, { sortRange: { range: grid(1, 5, 0, 2), sortSpecs: [{ dimensionIndex: 0, sortOrder }] } });
  await sort('ASCENDING');
  assert.deepEqual(await rowsOf(id), [
    ['h', 'n'],
    [3, 1],
    ['a', 2],
    ['b', 2],
    ['', 1],
  ]);
  await sort('DESCENDING');
  assert.deepEqual(await rowsOf(id), [
    ['h', 'n'],
    ['b', 2],
    ['a', 2],
    [3, 1],
    ['', 1],
  ]);
});

test('a GridRange without a cell is refused', async () => {
  const id = await bench.spreadsheet([['a']]);
  const answer = await edit(id, { sortRange: { range: { sheetId: 0, endColumnIndex: 0 }, sortSpecs: [{}] } });
  assert.equal(answer.status, 400);
  assert.match(
    answer.message,
    /^Invalid requests\[0\]\.sortRange: GridRange\.endColumnIndex\[0\] must be after/,
  );
});

test('a merge pushed over the edge takes the grid with it', async () => {
  const id = await bench.spreadsheet([['a']]);
  await edit(
    id,
    { mergeCells: { range: grid(998, 1000, 0, 2), mergeType: 'MERGE_ALL' } },
    { insertRange: { range: grid(1, 4, 0, 26), shiftDimension: 'ROWS' } },
  );
  const [sheet] = (await get(id)).sheets;
  assert.equal(sheet.properties.gridProperties.rowCount, 1003);
  assert.deepEqual(sheet.merges, [grid(1001, 1003, 0, 2)]);
});

test('a smaller tab loses the cells beyond its new edge', async () => {
  const id = await bench.spreadsheet([
    ['a', 'b'],
    ['c', 'd'],
    ['e', 'f'],
  ]);
  const size = { rowCount: 2, columnCount: 1 };
  const answer = await edit(
    id,
    {
      createDeveloperMetadata: {
        developerMetadata: {
          metadataId: 9,
          metadataKey: 'k',
          visibility: 'DOCUMENT',
          location: { dimensionRange: rows(2, 3) },
        },
      },
    },
    {
      updateSheetProperties: {
        properties: { sheetId: 0, gridProperties: size },
        fields: 'gridProperties(rowCount,columnCount)',
      },
    },
  );
  assert.equal(answer.status, 200, answer.text);
  assert.deepEqual(await rowsOf(id), [['a'], ['c']]);
  assert.equal((await bench.call('GET', `/v4/spreadsheets/${id}/developerMetadata/9`)).status, 404);
});
