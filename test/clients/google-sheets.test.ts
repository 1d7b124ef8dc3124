// Slow: it drives published clients.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { auth, sheets as createClient, type sheets_v4 } from '@googleapis/sheets';
import { type BothWays, comparable, openBothWays, type Way } from './both-ways.ts';

/** Google's own Sheets client, straight at the sandbox and through the proxy, with the same results. */
let ways: BothWays;
before(async () => {
  ways = await openBothWays('google-sheet');
});
after(() => ways.close());

function clientOf({ token, headers }: Way, rootUrl?: string): sheets_v4.Sheets {
  const credentials = new auth.OAuth2();
  credentials.setCredentials({ access_token: token });
  return createClient({
    version: 'v4',
    auth: credentials,
    headers,
    ...(rootUrl !== undefined && { rootUrl }),
  });
}

/** What a program does with a spreadsheet, and everything that it was told. */
async function useSpreadsheet(way: Way): Promise<{ told: unknown[]; ids: string[] }> {
  const { spreadsheets } = clientOf(way);
  const { values } = spreadsheets;
  const here = { rootUrl: `${way.root}/` };
  const told: unknown[] = [];
  const keep = <T extends { status: number; data: unknown }>(answer: T): T => {
    told.push(answer.status, answer.data);
    return answer;
  };
  const made = keep(await spreadsheets.create({ requestBody: { properties: { title: 'Made' } } }, here));
  const spreadsheetId = made.data.spreadsheetId as string;
  const addSheet = { properties: { title: 'Q1/2024 data', sheetId: 77 } };
  keep(await spreadsheets.batchUpdate({ spreadsheetId, requestBody: { requests: [{ addSheet }] } }, here));
  const rows = [
    ['name', 'due', 'amount'],
    ['Zoë', '2024-01-15', '=2*21'],
    ['Bob', '=B2+1', '12345678901234567'],
  ];
  const range = "'Q1/2024 data'!A1";
  const requestBody = { values: rows };
  keep(await values.update({ spreadsheetId, range, valueInputOption: 'USER_ENTERED', requestBody }, here));
  const read = keep(await values.get({ spreadsheetId, range: "'Q1/2024 data'!A1:C" }, here));
  assert.deepEqual(read.data.values?.[1], ['Zoë', '2024-01-15', '42']);
  const appended = { spreadsheetId, range: "'Q1/2024 data'!A1", valueInputOption: 'RAW' };
  keep(
    await values.append(
      { ...appended, insertDataOption: 'INSERT_ROWS', requestBody: { values: [['Cy', true, 1.5]] } },
      here,
    ),
  );
  keep(await values.clear({ spreadsheetId, range: "'Q1/2024 data'!B3" }, here));
  const ranges = ["'Q1/2024 data'!A1:A4", "'Q1/2024 data'!B1:C4"];
  keep(
    await values.batchGet(
      { spreadsheetId, ranges, majorDimension: 'COLUMNS', valueRenderOption: 'UNFORMATTED_VALUE' },
      here,
    ),
  );
  const data = [{ range: 'Sheet1!A1', values: [['x']] }];
  keep(await values.batchUpdate({ spreadsheetId, requestBody: { valueInputOption: 'RAW', data } }, here));
  keep(await values.batchClear({ spreadsheetId, requestBody: { ranges: ['Sheet1!A1'] } }, here));
  keep(
    await spreadsheets.get({ spreadsheetId, ranges: ["'Q1/2024 data'!A1:C4"], includeGridData: true }, here),
  );
  keep(await spreadsheets.get({ spreadsheetId, fields: 'sheets.properties(title,sheetId)' }, here));
  for (const wrong of [
    () => values.get({ spreadsheetId, range: 'Nope!A1' }, here),
    () => spreadsheets.get({ spreadsheetId: 'nothing' }, here),
    () => values.update({ spreadsheetId, range: 'A1', requestBody: { values: [['x']] } }, here),
  ]) {
    const error = await wrong().then(
      () => undefined,
      (reason: unknown) => reason as { status: number; message: string },
    );
    assert.ok(error);
    told.push(error.status, error.message);
  }
  return { told, ids: [spreadsheetId] };
}

test("Google's Sheets client creates, writes, reads, appends, clears and edits alike both ways", async () => {
  const straight = await useSpreadsheet(ways.straight);
  const proxied = await useSpreadsheet(ways.proxied);
  assert.deepEqual(comparable(proxied.told, proxied.ids), comparable(straight.told, straight.ids));
  assert.equal(straight.told.filter((one) => one === 200).length, 11);
});

test("the address in the client's constructor alone reaches the proxy as well", async () => {
  const { spreadsheets } = clientOf(ways.proxied, ways.proxied.root);
  const made = await spreadsheets.create({ requestBody: { properties: { title: 'Rooted' } } });
  const { data } = await spreadsheets.get({ spreadsheetId: made.data.spreadsheetId as string });
  assert.equal(data.properties?.title, 'Rooted');
});

test('a call for a connection that is not there fails with a text that a person can read', async () => {
  const { headers, ...way } = ways.proxied;
  const { spreadsheets } = clientOf({ ...way, headers: { ...headers, 'connection-id': 'nobody' } });
  await assert.rejects(
    spreadsheets.get({ spreadsheetId: 'x' }, { rootUrl: `${way.root}/` }),
    (error: { status: number; message: string }) => error.status === 400 && /connection/i.test(error.message),
  );
});
