import { Fault } from '../../api/client.ts';
import type { At } from '../connections/queries.ts';
import { type Caller, sendCall } from '../playground/queries.ts';
import { saveSheet } from './queries.ts';

/** The names of the cities are the keys of the rows. */
const sample = {
  sheetId: 0,
  headerRow: 1,
  identity: 'key',
  keyColumn: 'City',
  title: 'Cities of the playground',
  tab: 'Cities',
} as const;

/** Creates a small spreadsheet in a test account, and syncs its rows as the records of the connection. */
export async function syncSampleSheet(environment: string, at: At): Promise<void> {
  const caller = { environment, integration: at.integration, connection: at.id };
  const spreadsheetId = await makeSampleSheet(caller, new AbortController().signal);
  await saveSheet(environment, {
    at,
    variant: 'base',
    settings: { ...sample, spreadsheetId },
    frequency: undefined,
    isNew: true,
    emptied: false,
  });
}

/** Creates a small spreadsheet in a test account. */
export async function makeSampleSheet(caller: Caller, signal: AbortSignal): Promise<string> {
  const cell = (value: string | number) => ({
    userEnteredValue: typeof value === 'number' ? { numberValue: value } : { stringValue: value },
  });
  const rows: (string | number)[][] = [
    ['City', 'Country', 'Altitude'],
    ['Oslo', 'Norway', 23],
    ['Rome', 'Italy', 21],
    ['Bonn', 'Germany', 60],
    ['Lima', 'Peru', 154],
  ];
  const sheet = {
    properties: { sheetId: 0, title: sample.tab },
    data: [{ rowData: rows.map((row) => ({ values: row.map(cell) })) }],
  };
  const answer = await sendCall(
    caller,
    {
      method: 'POST',
      target: '/v4/spreadsheets?fields=spreadsheetId',
      headers: [['Content-Type', 'application/json']],
      body: JSON.stringify({ properties: { title: sample.title }, sheets: [sheet] }),
    },
    { signal, onProgress: () => {} },
  );
  const made =
    answer.status === 200 && answer.body.kind === 'json'
      ? (answer.body.value as { spreadsheetId?: string })
      : {};
  if (made.spreadsheetId === undefined) {
    throw new Fault({
      code: answer.ownError ?? `http_${answer.status}`,
      message: 'The sandbox did not make the spreadsheet to read.',
      status: answer.status,
    });
  }
  return made.spreadsheetId;
}
