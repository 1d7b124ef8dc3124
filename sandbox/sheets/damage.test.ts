import assert from 'node:assert/strict';
import test from 'node:test';
import { openBench } from '../testing.ts';

test('each kind of damage to a table can be applied', async (t) => {
  const bench = await openBench(t);
  const { access_token: token } = await bench.connect();
  const headers = { authorization: `Bearer ${token}` };
  const rows = [
    ['id', 'n', 'note'],
    ['a', 1, 'x'],
    ['b', 2, 'y'],
  ];
  const after = async (damage: string) => {
    const { spreadsheetId } = await bench.control<{ spreadsheetId: string }>('POST /spreadsheets', {
      account: 'ada@example.com',
      title: 'Numbers',
      sheet: "Ada's",
      rows,
    });
    await bench.control('POST /spreadsheets/damage', { spreadsheet_id: spreadsheetId, damage });
    const url = `${bench.sandbox.url}/v4/spreadsheets/${spreadsheetId}`;
    const info = await (await fetch(`${url}?fields=sheets.properties.title`, { headers })).json();
    const { sheets } = info as { sheets: { properties: { title: string } }[] };
    const { title } = sheets[0]!.properties;
    const range = encodeURIComponent(`'${title.replaceAll("'", "''")}'!A1:C3`);
    const read = await fetch(`${url}/values/${range}?valueRenderOption=UNFORMATTED_VALUE`, { headers });
    const { values } = (await read.json()) as { values?: unknown[][] };
    return { title, values };
  };
  assert.deepEqual((await after('header_renamed')).values?.[0], ['Renamed', 'n', 'note']);
  assert.deepEqual((await after('column_deleted')).values, [
    ['id', 'note'],
    ['a', 'x'],
    ['b', 'y'],
  ]);
  assert.deepEqual((await after('rows_sorted')).values, [rows[0], rows[2], rows[1]]);
  assert.deepEqual(await after('tab_renamed'), { title: "Ada's renamed", values: rows });
  assert.deepEqual(await after('tab_deleted'), { title: "Ada's deleted", values: undefined });
  assert.deepEqual((await after('key_duplicated')).values?.[2], ['a', 2, 'y']);
  assert.deepEqual((await after('types_mixed')).values?.[1], ['a', 'n/a', 'x']);
  assert.deepEqual(await after('emptied'), { title: "Ada's", values: undefined });

  const unknown = await bench.ask('POST /spreadsheets/damage', { spreadsheet_id: 'x', damage: 'emptied' });
  assert.equal(unknown.status, 400);
});
