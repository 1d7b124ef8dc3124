import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Bench, columns, editing, grid, rows, startBench } from './testing.ts';

let bench: Bench;
let edit: ReturnType<typeof editing>['edit'];
let rowsOf: ReturnType<typeof editing>['rowsOf'];
let get: ReturnType<typeof editing>['get'];
before(async () => {
  bench = await startBench();
  ({ edit, rowsOf, get } = editing(bench));
});
after(() => bench.close());

test('a batch happens together or not at all', async () => {
  const id = await bench.spreadsheet([['a']]);
  const answer = await edit(
    id,
    {
      updateCells: {
        start: { sheetId: 0 },
        fields: 'userEnteredValue',
        rows: [{ values: [{ userEnteredValue: { stringValue: 'b' } }] }],
      },
    },
    { addSheet: { properties: { title: 'Sheet1' } } },
  );
  assert.equal(answer.status, 400);
  assert.equal(
    answer.message,
    'Invalid requests[1].addSheet: A sheet with the name "Sheet1" already exists. Please enter another name.',
  );
  assert.deepEqual(await rowsOf(id), [['a']]);
});

test('faults in a request are reported with their place', async () => {
  const id = await bench.spreadsheet([['a']]);
  for (const [request, message] of [
    [
      { deleteSheet: { sheetId: 0 } },
      "Invalid requests[0].deleteSheet: You can't remove all the sheets in a document.",
    ],
    [{ deleteSheet: { sheetId: 7 } }, 'Invalid requests[0].deleteSheet: No grid with id: 7'],
    [
      { repeatCell: { range: { sheetId: 7 }, fields: '*' } },
      'Invalid requests[0].repeatCell: No grid with id: 7',
    ],
    [
      { repeatCell: { range: grid(1000, 1001, 0, 1), fields: '*' } },
      'Invalid requests[0].repeatCell: Range (Sheet1!A1001) exceeds grid limits. Max rows: 1000, max columns: 26',
    ],
    [
      { repeatCell: { range: grid(0, 1, 0, 1), fields: 'nope' } },
      'Invalid requests[0].repeatCell: Invalid field: nope',
    ],
    [
      { updateSheetProperties: { properties: { title: 'x' } } },
      "Invalid requests[0].updateSheetProperties: At least one field must be listed in 'fields'. (Use '*' to indicate all fields.)",
    ],
    [
      { deleteDimension: { range: rows(1000, 1001) } },
      "Invalid requests[0].deleteDimension: Cannot delete a row that doesn't exist. Tried to delete row index 1000 but there are only 1000 rows.",
    ],
    [
      { deleteDimension: { range: rows(0, 1000) } },
      "Invalid requests[0].deleteDimension: You can't delete all the rows on the sheet.",
    ],
    [{}, 'Invalid requests[0]: No request set.'],
  ] as const) {
    assert.equal((await edit(id, request)).message, message);
  }
  assert.equal((await edit(id)).message, 'Must specify at least one request.');
});

test('tabs are added, renamed, moved, copied and removed', async () => {
  const id = await bench.spreadsheet([['a']]);
  const tabs = async () =>
    (await get(id)).sheets.map(
      (one: { properties: { title: string; index: number } }) =>
        `${one.properties.index} ${one.properties.title}`,
    );
  const added = await edit(
    id,
    {
      addSheet: {
        properties: { title: 'Two', gridProperties: { rowCount: 3, columnCount: 2, frozenRowCount: 1 } },
      },
    },
    { addSheet: {} },
  );
  const two = added.json.replies[0].addSheet.properties;
  assert.deepEqual(
    { ...two, sheetId: 0 },
    {
      sheetId: 0,
      title: 'Two',
      index: 1,
      sheetType: 'GRID',
      gridProperties: { rowCount: 3, columnCount: 2, frozenRowCount: 1 },
    },
  );
  assert.deepEqual(await tabs(), ['0 Sheet1', '1 Two', '2 Sheet3']);
  await edit(id, {
    updateSheetProperties: { properties: { sheetId: 0, index: 2, title: 'One' }, fields: 'title,index' },
  });
  assert.deepEqual(await tabs(), ['0 Two', '1 One', '2 Sheet3']);
  const copied = await edit(id, { duplicateSheet: { sourceSheetId: 0, insertSheetIndex: 3 } });
  assert.equal(copied.json.replies[0].duplicateSheet.properties.title, 'Copy of One');
  assert.deepEqual(await rowsOf(id, 'Copy of One'), [['a']]);
  await edit(id, { deleteSheet: { sheetId: two.sheetId } });
  assert.deepEqual(await tabs(), ['0 One', '1 Sheet3', '2 Copy of One']);
});

test('cells take the fields of the mask and keep the others', async () => {
  const id = await bench.spreadsheet([['a', 'b']]);
  const bold = { userEnteredFormat: { textFormat: { bold: true } } };
  await edit(
    id,
    { repeatCell: { range: grid(0, 1, 0, 2), cell: bold, fields: 'userEnteredFormat.textFormat.bold' } },
    { repeatCell: { range: grid(0, 1, 0, 1), cell: { note: 'look' }, fields: 'note' } },
    {
      updateCells: {
        range: grid(0, 1, 1, 3),
        rows: [
          {
            values: [
              {
                userEnteredValue: { numberValue: 45306 },
                userEnteredFormat: { numberFormat: { type: 'DATE' } },
              },
            ],
          },
        ],
        fields: 'userEnteredValue,userEnteredFormat.numberFormat',
      },
    },
    {
      repeatCell: {
        range: grid(1, 3, 0, 2),
        cell: { userEnteredValue: { formulaValue: '=A1&$A$1' } },
        fields: 'userEnteredValue',
      },
    },
    {
      appendCells: {
        sheetId: 0,
        rows: [{ values: [{ userEnteredValue: { boolValue: true } }] }],
        fields: '*',
      },
    },
  );
  const { sheets } = await get(id, '?ranges=A1:B2&includeGridData=true');
  const [first, second] = sheets[0].data[0].rowData[0].values;
  assert.deepEqual(
    [first.userEnteredValue, first.formattedValue, first.note, first.userEnteredFormat],
    [{ stringValue: 'a' }, 'a', 'look', { textFormat: { bold: true } }],
  );
  assert.equal(first.effectiveFormat.textFormat.fontSize, 10);
  assert.deepEqual(
    [second.effectiveValue, second.formattedValue, second.userEnteredFormat],
    [{ numberValue: 45306 }, '1/15/2024', { textFormat: { bold: true }, numberFormat: { type: 'DATE' } }],
  );
  assert.deepEqual(await rowsOf(id, 'A2:B4', 'FORMULA'), [
    ['=A1&$A$1', '=B1&$A$1'],
    ['=A2&$A$1', '=B2&$A$1'],
    [true],
  ]);
  const tooWide = await edit(id, {
    updateCells: { range: grid(0, 1, 0, 1), rows: [{ values: [{}, {}] }], fields: '*' },
  });
  assert.equal(
    tooWide.message,
    'Invalid requests[0].updateCells: Attempting to write column: 1, beyond the last requested column of: 0',
  );
  const chip = await edit(id, {
    updateCells: { start: { sheetId: 0 }, rows: [{ values: [{ chipRuns: [] }] }], fields: 'chipRuns' },
  });
  assert.equal(chip.status, 501);
});

test('rules, sizes and merges are kept and shown', async () => {
  const id = await bench.spreadsheet([['a', 'b']]);
  const rule = { condition: { type: 'ONE_OF_LIST', values: [{ userEnteredValue: 'a' }] }, strict: true };
  await edit(
    id,
    { setDataValidation: { range: grid(0, 1, 0, 1), rule } },
    {
      updateDimensionProperties: { range: columns(0, 1), properties: { pixelSize: 50 }, fields: 'pixelSize' },
    },
    { autoResizeDimensions: { dimensions: columns(0, 1) } },
    { mergeCells: { range: grid(0, 1, 0, 2), mergeType: 'MERGE_ALL' } },
  );
  const [sheet] = (await get(id, '?ranges=A1:B1&includeGridData=true')).sheets;
  assert.deepEqual(sheet.merges, [grid(0, 1, 0, 2)]);
  assert.deepEqual(sheet.data[0].columnMetadata, [{ pixelSize: 50 }, { pixelSize: 100 }]);
  assert.deepEqual(sheet.data[0].rowData[0].values[0].dataValidation, rule);
  assert.deepEqual(await rowsOf(id), [['a']]);
  await edit(id, { unmergeCells: { range: { sheetId: 0 } } });
  assert.equal((await get(id)).sheets[0].merges, undefined);
});

test('the response contains the new spreadsheet on request', async () => {
  const id = await bench.spreadsheet([['a', 'b']]);
  const answer = await bench.call('POST', `/v4/spreadsheets/${id}:batchUpdate`, {
    body: {
      requests: [
        { updateSpreadsheetProperties: { properties: { title: 'New' }, fields: 'title' } },
        { addSheet: {} },
      ],
      includeSpreadsheetInResponse: true,
      responseRanges: ['Sheet1!B1'],
      responseIncludeGridData: true,
    },
  });
  assert.deepEqual(answer.json.replies[0], {});
  const { updatedSpreadsheet: updated } = answer.json;
  assert.equal(updated.properties.title, 'New');
  assert.equal(updated.sheets.length, 1);
  assert.equal(updated.sheets[0].data[0].startColumn, 1);
  assert.equal(updated.sheets[0].data[0].rowData[0].values[0].formattedValue, 'b');
});

test('a spreadsheet is created with sheets and data, and a sheet copied into another', async () => {
  const made = await bench.call('POST', '/v4/spreadsheets', {
    body: {
      properties: { title: 'Made' },
      sheets: [
        {
          properties: { title: 'Data' },
          data: [{ rowData: [{ values: [{ userEnteredValue: { numberValue: 4 } }] }] }],
        },
      ],
    },
  });
  const { spreadsheetId, spreadsheetUrl, properties } = made.json;
  assert.equal(spreadsheetUrl, `https://docs.example/spreadsheets/d/${spreadsheetId}/edit`);
  assert.deepEqual([properties.title, properties.locale, spreadsheetId.length], ['Made', 'en_US', 44]);
  assert.deepEqual(await rowsOf(spreadsheetId, 'Data'), [[4]]);
  const target = await bench.spreadsheet([['t']]);
  const copied = await bench.call('POST', `/v4/spreadsheets/${spreadsheetId}/sheets/0:copyTo`, {
    body: { destinationSpreadsheetId: target },
  });
  assert.equal(copied.json.title, 'Copy of Data');
  assert.deepEqual(await rowsOf(target, 'Copy of Data'), [[4]]);
  const refused = await bench.call('POST', '/v4/spreadsheets', { body: { sheets: [{ charts: [{}] }] } });
  assert.equal(refused.status, 501);
});

test('get answers cells for a range, or for a mask that asks for them', async () => {
  const id = await bench.spreadsheet([
    ['a', 'b'],
    ['c', 'd'],
  ]);
  await edit(id, { addSheet: { properties: { title: 'Other' } } });
  assert.equal((await get(id)).sheets[0].data, undefined);
  assert.equal((await get(id, '?ranges=Other!A1')).sheets.length, 1);
  const masked = await get(id, '?ranges=Sheet1!B2&fields=sheets.data.rowData.values.formattedValue');
  assert.deepEqual(masked, { sheets: [{ data: [{ rowData: [{ values: [{ formattedValue: 'd' }] }] }] }] });
  assert.equal((await get(id, '?includeGridData=true&fields=sheets.properties')).sheets[0].data, undefined);
  const filtered = await bench.call('POST', `/v4/spreadsheets/${id}:getByDataFilter`, {
    body: { dataFilters: [{ gridRange: { sheetId: 0, endRowIndex: 1 } }], includeGridData: true },
  });
  assert.equal(filtered.json.sheets[0].data[0].rowData[0].values[1].formattedValue, 'b');
});
