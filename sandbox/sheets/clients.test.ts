import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { auth, sheets as createClient, type sheets_v4 } from '@googleapis/sheets';
import { GoogleSpreadsheet } from 'google-spreadsheet';
import { type Bench, startBench } from './testing.ts';

let bench: Bench;
let google: sheets_v4.Sheets;
before(async () => {
  bench = await startBench();
  const credentials = new auth.OAuth2();
  credentials.setCredentials({ access_token: 'ann' });
  google = createClient({ version: 'v4', auth: credentials });
});
after(() => bench.close());

/** Google's client takes another root only call by call. */
const here = () => ({ rootUrl: `${bench.origin}/` });

/** google-spreadsheet has no option for another root: its HTTP client is put in place of the one it made. */
function openDocument(spreadsheetId: string): GoogleSpreadsheet {
  const document = new GoogleSpreadsheet(spreadsheetId, { token: 'ann' });
  const sheetsApi = document.sheetsApi.extend({ prefix: `${bench.origin}/v4/spreadsheets/${spreadsheetId}` });
  return Object.assign(document, { sheetsApi });
}

test("Google's own client creates, writes, reads, appends, clears and edits", async () => {
  const made = await google.spreadsheets.create({ requestBody: { properties: { title: 'Made' } } }, here());
  const spreadsheetId = made.data.spreadsheetId ?? '';
  const { values, developerMetadata } = google.spreadsheets;
  const updated = await values.update(
    {
      spreadsheetId,
      range: 'Sheet1!A1',
      valueInputOption: 'USER_ENTERED',
      requestBody: {
        values: [
          ['name', 'due'],
          ['Ann', '2024-01-15'],
          ['Bob', '=B2+1'],
        ],
      },
    },
    here(),
  );
  assert.equal(updated.data.updatedRange, 'Sheet1!A1:B3');
  const got = await values.get({ spreadsheetId, range: "'Sheet1'!A1:B" }, here());
  assert.deepEqual(got.data.values, [
    ['name', 'due'],
    ['Ann', '2024-01-15'],
    ['Bob', '45307'],
  ]);
  const appended = await values.append(
    {
      spreadsheetId,
      range: 'Sheet1',
      valueInputOption: 'RAW',
      insertDataOption: 'INSERT_ROWS',
      requestBody: { values: [['Cy']] },
    },
    here(),
  );
  assert.equal(appended.data.updates?.updatedRange, 'Sheet1!A4');
  const many = await values.batchGet(
    { spreadsheetId, ranges: ['A1:A2', 'A4'], majorDimension: 'COLUMNS' },
    here(),
  );
  assert.deepEqual(
    many.data.valueRanges?.map((one) => one.values),
    [[['name', 'Ann']], [['Cy']]],
  );
  await values.batchUpdate(
    { spreadsheetId, requestBody: { valueInputOption: 'RAW', data: [{ range: 'C1', values: [['x']] }] } },
    here(),
  );
  await values.clear({ spreadsheetId, range: 'Sheet1!C1' }, here());
  await values.batchClear({ spreadsheetId, requestBody: { ranges: ['A4'] } }, here());
  await google.spreadsheets.batchUpdate(
    { spreadsheetId, requestBody: { requests: [{ addSheet: { properties: { title: 'Q1/2024 data' } } }] } },
    here(),
  );
  const other = await values.get({ spreadsheetId, range: "'Q1/2024 data'!A1:B2" }, here());
  assert.equal(other.data.range, "'Q1/2024 data'!A1:B2");
  const found = await developerMetadata.search(
    { spreadsheetId, requestBody: { dataFilters: [{ developerMetadataLookup: { metadataKey: 'none' } }] } },
    here(),
  );
  assert.deepEqual(found.data, {});
  const whole = await google.spreadsheets.get(
    { spreadsheetId, includeGridData: true, ranges: ['Sheet1!A1:B3'] },
    here(),
  );
  assert.equal(whole.data.sheets?.[0]?.data?.[0]?.rowData?.[1]?.values?.[1]?.formattedValue, '2024-01-15');
});

test("Google's own client shows the sandbox's errors as Google's", async () => {
  const spreadsheetId = await bench.spreadsheet([]);
  await assert.rejects(google.spreadsheets.values.get({ spreadsheetId, range: 'Nope!A1' }, here()), {
    code: 400,
    message: 'Unable to parse range: Nope!A1',
  });
  await assert.rejects(google.spreadsheets.get({ spreadsheetId: 'nothing' }, here()), {
    code: 404,
    message: 'Requested entity was not found.',
  });
});

test('google-spreadsheet works with rows', async () => {
  const document = openDocument(
    await bench.spreadsheet([
      ['name', 'age'],
      ['Ann', 30],
      ['Bob', 40],
    ]),
  );
  await document.loadInfo();
  assert.equal(document.title, 'Book');
  const [sheet] = document.sheetsByIndex;
  assert.ok(sheet);
  const rows = await sheet.getRows();
  assert.deepEqual(
    rows.map((row) => row.toObject()),
    [
      { name: 'Ann', age: '30' },
      { name: 'Bob', age: '40' },
    ],
  );
  const added = await sheet.addRow({ name: 'Cy', age: 50 });
  assert.equal(added.rowNumber, 4);
  rows[0]?.set('age', 31);
  await rows[0]?.save();
  await rows[1]?.delete();
  assert.deepEqual(
    (await sheet.getRows()).map((row) => row.toObject()),
    [
      { name: 'Ann', age: '31' },
      { name: 'Cy', age: '50' },
    ],
  );
  await sheet.clearRows();
  assert.equal((await sheet.getRows()).length, 0);
});

test('google-spreadsheet works with cells and tabs', async () => {
  const document = openDocument(
    await bench.spreadsheet([
      ['name', 'age'],
      ['Ann', 30],
    ]),
  );
  await document.loadInfo();
  const added = await document.addSheet({ title: 'More', headerValues: ['a', 'b'] });
  assert.equal(added.title, 'More');
  await added.addRows([
    { a: '1', b: '2' },
    { a: '3', b: '=A2+A3' },
  ]);
  await added.loadCells('A1:B3');
  assert.equal(added.getCell(2, 1).value, 4);
  assert.equal(added.getCell(2, 1).formula, '=A2+A3');
  const cell = added.getCell(1, 0);
  cell.value = 10;
  cell.textFormat = { bold: true };
  await added.saveUpdatedCells();
  await added.loadCells('A1:B3');
  assert.deepEqual([added.getCell(2, 1).value, added.getCell(1, 0).textFormat?.bold], [13, true]);
  await added.updateProperties({ title: 'Renamed' });
  await added.resize({ rowCount: 10, columnCount: 3 });
  await added.insertDimension('ROWS', { startIndex: 1, endIndex: 2 }, false);
  assert.equal(added.rowCount, 11);
  await added.clear();
  await document.updateProperties({ title: 'Title' });
  assert.equal(document.title, 'Title');
  await added.delete();
  assert.equal(document.sheetCount, 1);
  await assert.rejects(
    document.addSheet({ title: 'Sheet1' }),
    /A sheet with the name "Sheet1" already exists/,
  );
});
