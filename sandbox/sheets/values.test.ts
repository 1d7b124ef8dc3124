import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Answer, type Bench, startBench } from './testing.ts';

type Rows = (string | number | boolean | null)[][];

let bench: Bench;
before(async () => {
  bench = await startBench();
});
after(() => bench.close());

const read = async (id: string, range: string, query = ''): Promise<Answer> =>
  bench.call('GET', `/v4/spreadsheets/${id}/values/${encodeURIComponent(range)}${query}`);
const write = async (id: string, range: string, values: unknown, query = 'valueInputOption=USER_ENTERED') =>
  bench.call('PUT', `/v4/spreadsheets/${id}/values/${encodeURIComponent(range)}?${query}`, {
    body: { values },
  });
const append = async (id: string, range: string, values: unknown, query = 'valueInputOption=RAW') =>
  bench.call('POST', `/v4/spreadsheets/${id}/values/${encodeURIComponent(range)}:append?${query}`, {
    body: { values },
  });
const edit = async (id: string, ...requests: object[]) =>
  bench.call('POST', `/v4/spreadsheets/${id}:batchUpdate`, { body: { requests } });

test('a range is returned in normal form, limited to the grid', async () => {
  const id = await bench.spreadsheet([['a']]);
  await edit(
    id,
    { addSheet: { properties: { title: "Q1 '24", gridProperties: { rowCount: 5, columnCount: 3 } } } },
    {
      addNamedRange: {
        namedRange: {
          name: 'box',
          range: { sheetId: 0, startRowIndex: 1, endRowIndex: 3, startColumnIndex: 0, endColumnIndex: 2 },
        },
      },
    },
  );
  for (const [asked, echoed] of [
    ['A1', 'Sheet1!A1'],
    ['b2:a1', 'Sheet1!A1:B2'],
    ['Sheet1', 'Sheet1!A1:Z1000'],
    ['sheet1!A1', 'Sheet1!A1'],
    ["'Sheet1'!$A$1:$B$2", 'Sheet1!A1:B2'],
    ['A:C', 'Sheet1!A1:C1000'],
    ['A2:C', 'Sheet1!A2:C1000'],
    ['1:3', 'Sheet1!A1:Z3'],
    ['A1:ZZ5000', 'Sheet1!A1:Z1000'],
    ['R2C1:R3C2', 'Sheet1!A2:B3'],
    ["'Q1 ''24'", "'Q1 ''24'!A1:C5"],
    ["'Q1 ''24'!A:A", "'Q1 ''24'!A1:A5"],
    ['box', 'Sheet1!A2:B3'],
  ] as const) {
    assert.equal((await read(id, asked)).json.range, echoed, asked);
  }
});

test('an invalid range, or one that starts outside the grid, is refused with Google’s message', async () => {
  const id = await bench.spreadsheet([['a']]);
  assert.equal((await read(id, 'NOPE!A5:F15')).message, 'Unable to parse range: NOPE!A5:F15');
  assert.equal((await read(id, 'Sheet1!A0')).message, 'Unable to parse range: Sheet1!A0');
  const beyond = await read(id, 'Sheet1!A1001:B');
  assert.deepEqual(
    [beyond.status, beyond.json.error.status, beyond.message],
    [400, 'INVALID_ARGUMENT', 'Range (Sheet1!A1001:B) exceeds grid limits. Max rows: 1000, max columns: 26'],
  );
});

test('values end with the last cell that shows something, and blanks between are empty texts', async () => {
  const id = await bench.spreadsheet([['a', null, 'c', null], [], [null, 'b'], [null]]);
  assert.deepEqual((await read(id, 'A1:D9')).json, {
    range: 'Sheet1!A1:D9',
    majorDimension: 'ROWS',
    values: [['a', '', 'c'], [], ['', 'b']],
  });
  assert.deepEqual((await read(id, 'A1:D9', '?majorDimension=COLUMNS')).json.values, [
    ['a'],
    ['', '', 'b'],
    ['c'],
  ]);
  assert.deepEqual((await read(id, 'F1:G9')).json, { range: 'Sheet1!F1:G9', majorDimension: 'ROWS' });
});

const typed: [input: unknown, shown: string, stored: unknown, dated?: unknown][] = [
  ['12', '12', 12],
  ['1,234', '1,234', 1234],
  ['$1,234.50', '$1,234.50', 1234.5],
  ['12%', '12%', 0.12],
  ['12.5%', '12.50%', 0.125],
  ['2024-01-15', '2024-01-15', 45306, '2024-01-15'],
  ['1/15/2024', '1/15/2024', 45306, '1/15/2024'],
  ['1/1/1900', '1/1/1900', 2, '1/1/1900'],
  ['10:30', '10:30', 0.4375, '10:30'],
  ['1/2/2024 10:30', '1/2/2024 10:30', 45293.4375, '1/2/2024 10:30'],
  ['true', 'TRUE', true],
  ['00123', '123', 123],
  ["'00123", '00123', '00123'],
  ['plain text', 'plain text', 'plain text'],
  [123456789012, '123456789012', 123456789012],
  [0.1 + 0.2, '0.3', 0.1 + 0.2],
  [1 / 3, '0.3333333333', 1 / 3],
  [1234.5, '1234.5', 1234.5],
  [-0.5, '-0.5', -0.5],
  [0, '0', 0],
  [false, 'FALSE', false],
  ['=1+1', '2', 2],
];

test('USER_ENTERED reads values as a person would type them', async () => {
  const id = await bench.spreadsheet([]);
  await write(
    id,
    'A1',
    typed.map(([input]) => [input]),
  );
  const column = async (query: string) =>
    ((await read(id, 'A:A', query)).json.values as unknown[][]).map(([one]) => one);
  assert.deepEqual(
    await column(''),
    typed.map(([, shown]) => shown),
  );
  assert.deepEqual(
    await column('?valueRenderOption=UNFORMATTED_VALUE'),
    typed.map(([, , stored]) => stored),
  );
  assert.deepEqual(
    await column('?valueRenderOption=UNFORMATTED_VALUE&dateTimeRenderOption=FORMATTED_STRING'),
    typed.map(([, , stored, dated]) => dated ?? stored),
  );
  assert.deepEqual(
    await column('?valueRenderOption=FORMULA'),
    typed.map(([input, , stored]) => (input === '=1+1' ? input : stored)),
  );
});

test('RAW stores text as it comes', async () => {
  const id = await bench.spreadsheet([]);
  const inputs = ['12', '=1+1', '2024-01-15', 5, true];
  await write(id, 'A1', [inputs], 'valueInputOption=RAW');
  assert.deepEqual((await read(id, '1:1', '?valueRenderOption=UNFORMATTED_VALUE')).json.values, [inputs]);
});

test('null leaves a cell alone, an empty text clears it and keeps its format', async () => {
  const id = await bench.spreadsheet([['a', 'b', 'c']]);
  await write(id, 'C1', [['50%']]);
  const answer = await write(id, 'A1:C1', [[null, '', '']]);
  assert.deepEqual(answer.json, {
    spreadsheetId: id,
    updatedRange: 'Sheet1!A1:C1',
    updatedRows: 1,
    updatedColumns: 2,
    updatedCells: 2,
  });
  assert.deepEqual((await read(id, '1:1')).json.values, [['a']]);
  await write(id, 'C1', [[0.25]]);
  assert.deepEqual((await read(id, 'C1')).json.values, [['25%']]);
});

test('a write stays within its range; a single cell extends to the edge of the grid', async () => {
  const id = await bench.spreadsheet([]);
  assert.equal(
    (
      await write(id, 'B2', [
        ['a', 'b'],
        ['c', 'd'],
      ])
    ).json.updatedRange,
    'Sheet1!B2:C3',
  );
  assert.equal(
    (await write(id, 'A1:B2', [[1, 2, 3]])).message,
    "Requested writing within range ['Sheet1'!A1:B2], but tried writing to column [C]",
  );
  assert.equal(
    (await write(id, 'A1:B2', [[1], [2], [3]])).message,
    "Requested writing within range ['Sheet1'!A1:B2], but tried writing to row [3]",
  );
  assert.equal(
    (await write(id, 'A999', [[1], [2], [3]])).message,
    "Requested writing within range ['Sheet1'!A999], but tried writing to row [1001]",
  );
  assert.deepEqual(
    (await read(id, 'A1:C3')).json.values,
    [[], ['', 'a', 'b'], ['', 'c', 'd']],
    'nothing was half done',
  );
  assert.equal(
    (await write(id, 'A1', [[1]], '')).message,
    "'valueInputOption' is required but not specified",
  );
});

test('columns are written as columns', async () => {
  const id = await bench.spreadsheet([]);
  const answer = await bench.call(
    'PUT',
    `/v4/spreadsheets/${id}/values/A1?valueInputOption=RAW&includeValuesInResponse=True`,
    {
      body: { range: 'A1', majorDimension: 'COLUMNS', values: [['a', 'b'], ['c']] },
    },
  );
  assert.equal(answer.json.updatedRange, 'Sheet1!A1:B2');
  assert.deepEqual(answer.json.updatedData.values, [['a', 'b'], ['c']]);
  assert.deepEqual((await read(id, 'A1:B2')).json.values, [['a', 'c'], ['b']]);
});

// The guide's own example: tables A1:C2 and B4:D6.
const guide: Rows = [
  ['x', 'y', 'z'],
  ['x', 'y', 'z'],
  [],
  [null, 'x', 'y', 'z'],
  [null, 'x', 'y', 'z'],
  [null, 'x', 'y', 'z'],
];

test('append finds the last table that its range touches', async () => {
  for (const [range, table, updated] of [
    ['Sheet1', 'Sheet1!B4:D6', 'Sheet1!B7'],
    ['C5:D5', 'Sheet1!B4:D6', 'Sheet1!B7'],
    ['B2:D4', 'Sheet1!B4:D6', 'Sheet1!B7'],
    ['A3:G10', 'Sheet1!B4:D6', 'Sheet1!B7'],
    ['A1', 'Sheet1!A1:C2', 'Sheet1!A3'],
    ['E4', undefined, 'Sheet1!E4'],
  ] as const) {
    const id = await bench.spreadsheet(guide);
    const { json } = await append(id, range, [['new']]);
    assert.deepEqual([json.tableRange, json.updates.updatedRange], [table, updated], range);
  }
});

test('append to an empty sheet starts at its first cell', async () => {
  const id = await bench.spreadsheet([]);
  const { json } = await append(
    id,
    "'Sheet1'!A1",
    [
      ['a', 1],
      ['b', 2],
    ],
    'valueInputOption=RAW&includeValuesInResponse=true',
  );
  assert.deepEqual(json, {
    spreadsheetId: id,
    updates: {
      spreadsheetId: id,
      updatedRange: 'Sheet1!A1:B2',
      updatedRows: 2,
      updatedColumns: 2,
      updatedCells: 4,
      updatedData: {
        range: 'Sheet1!A1:B2',
        majorDimension: 'ROWS',
        values: [
          ['a', '1'],
          ['b', '2'],
        ],
      },
    },
  });
});

test('OVERWRITE replaces the cells below, INSERT_ROWS moves them down', async () => {
  const rows: Rows = [['a', 'b'], [], ['below']];
  const over = await bench.spreadsheet(rows);
  await append(over, 'A1', [['1'], ['2']]);
  assert.deepEqual((await read(over, 'A1:B6')).json.values, [['a', 'b'], ['1'], ['2']]);
  const pushed = await bench.spreadsheet(rows);
  await append(pushed, 'A1', [['1'], ['2']], 'valueInputOption=RAW&insertDataOption=INSERT_ROWS');
  assert.deepEqual((await read(pushed, 'A1:B6')).json.values, [['a', 'b'], ['1'], ['2'], [], ['below']]);
});

test('append grows the grid', async () => {
  const id = await bench.spreadsheet(Array.from({ length: 1000 }, (_, row) => [row]));
  assert.equal(
    (await append(id, 'Sheet1', [[1000], [1001]])).json.updates.updatedRange,
    'Sheet1!A1001:A1002',
  );
  assert.equal((await read(id, 'Sheet1')).json.range, 'Sheet1!A1:Z1002');
});

test('clear empties values and needs neither body nor content type', async () => {
  const id = await bench.spreadsheet([
    ['a', 'b'],
    ['c', 'd'],
  ]);
  const answer = await bench.call('POST', `/v4/spreadsheets/${id}/values/B:B:clear`);
  assert.deepEqual(answer.json, { spreadsheetId: id, clearedRange: 'Sheet1!B1:B1000' });
  assert.deepEqual((await read(id, 'A1:B2')).json.values, [['a'], ['c']]);
});

test('the batch forms do the same to many ranges, all or none', async () => {
  const id = await bench.spreadsheet([
    ['a', 'b'],
    ['c', 'd'],
  ]);
  const path = `/v4/spreadsheets/${id}/values`;
  const got = await bench.call('GET', `${path}:batchGet?ranges=A1:A2&ranges=Sheet1!B1`);
  assert.deepEqual(
    got.json.valueRanges.map((one: { range: string; values: unknown }) => [one.range, one.values]),
    [
      ['Sheet1!A1:A2', [['a'], ['c']]],
      ['Sheet1!B1', [['b']]],
    ],
  );
  const bad = await bench.call('POST', `${path}:batchUpdate`, {
    body: {
      valueInputOption: 'RAW',
      data: [
        { range: 'A1', values: [['X']] },
        { range: 'Nope!A1', values: [['Y']] },
      ],
    },
  });
  assert.equal(bad.message, 'Invalid data[1]: Unable to parse range: Nope!A1');
  assert.deepEqual((await read(id, 'A1')).json.values, [['a']]);
  const good = await bench.call('POST', `${path}:batchUpdate`, {
    body: {
      valueInputOption: 'RAW',
      data: [
        { range: 'A1', values: [['X']] },
        { range: 'B1:B2', values: [['Y'], ['Z']] },
      ],
    },
  });
  assert.equal(good.json.totalUpdatedCells, 3);
  assert.deepEqual(
    good.json.responses.map((one: { updatedRange: string }) => one.updatedRange),
    ['Sheet1!A1', 'Sheet1!B1:B2'],
  );
  const cleared = await bench.call('POST', `${path}:batchClear`, { body: { ranges: ['A1', 'B2'] } });
  assert.deepEqual(cleared.json.clearedRanges, ['Sheet1!A1', 'Sheet1!B2']);
  assert.deepEqual((await read(id, 'A1:B2')).json.values, [['', 'Y'], ['c']]);
});

test('data filters reach ranges by name and by developer metadata', async () => {
  const id = await bench.spreadsheet([['a'], ['b'], ['c']]);
  await edit(id, {
    createDeveloperMetadata: {
      developerMetadata: {
        metadataKey: 'row',
        metadataValue: 'two',
        visibility: 'DOCUMENT',
        location: { dimensionRange: { sheetId: 0, dimension: 'ROWS', startIndex: 1, endIndex: 2 } },
      },
    },
  });
  const filter = { developerMetadataLookup: { metadataKey: 'row', metadataValue: 'two' } };
  const path = `/v4/spreadsheets/${id}/values`;
  await bench.call('POST', `${path}:batchUpdateByDataFilter`, {
    body: {
      valueInputOption: 'RAW',
      data: [{ dataFilter: filter, majorDimension: 'ROWS', values: [['B']] }],
    },
  });
  await edit(id, {
    insertDimension: { range: { sheetId: 0, dimension: 'ROWS', startIndex: 0, endIndex: 3 } },
  });
  const got = await bench.call('POST', `${path}:batchGetByDataFilter`, {
    body: { dataFilters: [filter, { a1Range: 'A4' }] },
  });
  assert.deepEqual(
    got.json.valueRanges.map((one: { valueRange: object }) => one.valueRange),
    [
      { range: 'Sheet1!A5:Z5', majorDimension: 'ROWS', values: [['B']] },
      { range: 'Sheet1!A4', majorDimension: 'ROWS', values: [['a']] },
    ],
  );
  const found = await bench.call('POST', `/v4/spreadsheets/${id}/developerMetadata:search`, {
    body: { dataFilters: [filter] },
  });
  const metadata = found.json.matchedDeveloperMetadata[0].developerMetadata;
  assert.equal(metadata.location.locationType, 'ROW');
  const one = await bench.call('GET', `/v4/spreadsheets/${id}/developerMetadata/${metadata.metadataId}`);
  assert.deepEqual(one.json, metadata);
});

test('forty thousand rows are read whole, in order', async () => {
  const rows = Array.from({ length: 42_049 }, (_, row) => [
    row,
    `name ${row}`,
    row / 7,
    true,
    row % 2 === 0 ? 'e' : null,
    'x',
    -row,
  ]);
  const id = await bench.spreadsheet(rows);
  const { json } = await read(id, 'Sheet1', '?valueRenderOption=UNFORMATTED_VALUE&prettyPrint=false');
  assert.equal(json.values.length, 42_049);
  assert.deepEqual(json.values[42_048], [42_048, 'name 42048', 42_048 / 7, true, 'e', 'x', -42_048]);
  assert.equal((await append(id, 'Sheet1', [['end']])).json.tableRange, 'Sheet1!A1:G42049');
});
