// Slow: it drives published clients.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { GoogleSpreadsheet } from 'google-spreadsheet';
import { type BothWays, comparable, openBothWays, type Way } from './both-ways.ts';

/** google-spreadsheet, straight at the sandbox and through the proxy, with the same results. */
let ways: BothWays;
before(async () => {
  ways = await openBothWays('google-sheet');
});
after(() => ways.close());

/** The client has no option for another address: its HTTP client is put in place of the one it made. */
function openDocument({ root, token, headers }: Way, spreadsheetId: string): GoogleSpreadsheet {
  const document = new GoogleSpreadsheet(spreadsheetId, { token });
  const prefix = `${root}/v4/spreadsheets/${spreadsheetId}`;
  return Object.assign(document, {
    sheetsApi: document.sheetsApi.extend({ prefix, headers: { ...headers } }),
  });
}

/** What a program does with a document, and everything that it sees of it. */
async function useDocument(way: Way): Promise<{ seen: unknown[]; id: string }> {
  const { spreadsheetId: id } = (await ways.trellis.control('POST', 'spreadsheets', {
    account: 'ada@example.com',
    title: 'Book',
    sheet: 'People',
    rows: [
      ['name', 'age'],
      ['Ann', 30],
      ['Bob', 40],
    ],
  })) as { spreadsheetId: string };
  const document = openDocument(way, id);
  await document.loadInfo();
  const seen: unknown[] = [document.title];
  const [sheet] = document.sheetsByIndex;
  assert.ok(sheet);
  const seeRows = async () => seen.push((await sheet.getRows()).map((row) => row.toObject()));
  await seeRows();
  const [ann, bob] = await sheet.getRows();
  await sheet.addRow({ name: 'Cy', age: 50 });
  ann?.set('age', 31);
  await ann?.save();
  await bob?.delete();
  await seeRows();
  const added = await document.addSheet({ title: "Zoë's/2024", headerValues: ['a', 'b'] });
  await added.addRows([
    { a: '1', b: '2' },
    { a: '3', b: '=A2+A3' },
  ]);
  await added.loadCells('A1:B3');
  const cell = added.getCell(1, 0);
  cell.value = 10;
  cell.textFormat = { bold: true };
  await added.saveUpdatedCells();
  await added.loadCells('A1:B3');
  seen.push(added.getCell(2, 1).value, added.getCell(2, 1).formula, added.getCell(1, 0).textFormat);
  await added.resize({ rowCount: 10, columnCount: 3 });
  await added.insertDimension('ROWS', { startIndex: 1, endIndex: 2 }, false);
  seen.push(added.rowCount, added.columnCount);
  await added.clear();
  await document.updateProperties({ title: 'Title' });
  await added.delete();
  await sheet.clearRows();
  await seeRows();
  seen.push(document.title, document.sheetCount);
  const again = document.addSheet({ title: 'People' });
  seen.push(await again.catch((error: Error) => error.message));
  return { seen, id };
}

test('google-spreadsheet works with rows, cells and tabs alike both ways', async () => {
  const straight = await useDocument(ways.straight);
  const proxied = await useDocument(ways.proxied);
  assert.deepEqual(comparable(proxied.seen, [proxied.id]), comparable(straight.seen, [straight.id]));
  assert.deepEqual(straight.seen.slice(0, 4), [
    'Book',
    [
      { name: 'Ann', age: '30' },
      { name: 'Bob', age: '40' },
    ],
    [
      { name: 'Ann', age: '31' },
      { name: 'Cy', age: '50' },
    ],
    13,
  ]);
});
