import type { SheetsApi } from './api.ts';

/** Damages by a careless user to a table with one header row and keys in the first column. */
export const damageKinds = [
  'header_renamed',
  'column_deleted',
  'rows_sorted',
  'tab_renamed',
  'tab_deleted',
  'key_duplicated',
  'types_mixed',
  'emptied',
] as const;

export type Damage = (typeof damageKinds)[number];

/** Damages the first tab of a spreadsheet by requests to the Sheets API as its owner. */
export async function damageSpreadsheet(
  sheets: Pick<SheetsApi, 'handle'>,
  on: { spreadsheetId: string; owner: { email: string; sub: string }; damage: Damage },
): Promise<void> {
  const { spreadsheetId, owner, damage } = on;
  const scopes = new Set(['https://www.googleapis.com/auth/spreadsheets']);
  const access = { ok: true, ...owner, scopes, clientId: '' } as const;
  const call = async (method: string, path: string, body?: object): Promise<unknown> => {
    const answer = await sheets.handle({
      method,
      rawUrl: `/v4/spreadsheets/${spreadsheetId}${path}`,
      headers: { 'content-type': 'application/json' },
      body: Buffer.from(body === undefined ? '' : JSON.stringify(body)),
      access,
    });
    if (answer.status !== 200) throw new Error(`damage ${damage}: ${answer.body}`);
    return JSON.parse(answer.body.toString());
  };
  const edit = (...requests: object[]) => call('POST', ':batchUpdate', { requests });
  const read = (await call('GET', '?fields=sheets.properties')) as {
    sheets: { properties: { sheetId?: number; title: string; gridProperties: { rowCount: number } } }[];
  };
  const { sheetId = 0, title, gridProperties } = read.sheets[0]!.properties;
  const range = (cells: string) => encodeURIComponent(`'${title.replaceAll("'", "''")}'!${cells}`);
  const write = (cell: string, value: unknown) =>
    call('PUT', `/values/${range(cell)}?valueInputOption=RAW`, { values: [[value]] });

  switch (damage) {
    case 'header_renamed':
      await write('A1', 'Renamed');
      return;
    case 'column_deleted':
      await edit({
        deleteDimension: { range: { sheetId, dimension: 'COLUMNS', startIndex: 1, endIndex: 2 } },
      });
      return;
    case 'rows_sorted':
      await edit({
        sortRange: {
          range: { sheetId, startRowIndex: 1, endRowIndex: gridProperties.rowCount },
          sortSpecs: [{ dimensionIndex: 0, sortOrder: 'DESCENDING' }],
        },
      });
      return;
    case 'tab_renamed':
      await edit({
        updateSheetProperties: { properties: { sheetId, title: `${title} renamed` }, fields: 'title' },
      });
      return;
    case 'tab_deleted':
      // A spreadsheet has at least one tab.
      await edit({ addSheet: { properties: { title: `${title} deleted` } } }, { deleteSheet: { sheetId } });
      return;
    case 'key_duplicated': {
      const { values } = (await call(
        'GET',
        `/values/${range('A2')}?valueRenderOption=UNFORMATTED_VALUE`,
      )) as {
        values?: unknown[][];
      };
      await write('A3', values?.[0]?.[0] ?? '');
      return;
    }
    case 'types_mixed':
      await write('B2', 'n/a');
      return;
    case 'emptied':
      await call('POST', `/values/${range('A1:ZZ')}:clear`);
  }
}
