import type { SheetsApi } from '../sheets/api.ts';
import type { SpreadsheetFiles } from './files.ts';

/** The spreadsheets that the Sheets API keeps, for Drive to show. They are made by the API that anybody else uses. */
export function createDriveSpreadsheets(sheets: SheetsApi): SpreadsheetFiles {
  return {
    async create(access, title) {
      const answer = await sheets.handle({
        method: 'POST',
        rawUrl: '/v4/spreadsheets?fields=spreadsheetId',
        headers: { 'content-type': 'application/json' },
        body: Buffer.from(JSON.stringify({ properties: { title } })),
        access,
      });
      if (answer.status !== 200) throw new Error(`no spreadsheet was made: ${answer.body}`);
      return (JSON.parse(answer.body.toString()) as { spreadsheetId: string }).spreadsheetId;
    },
    list: () => sheets.listSpreadsheets(),
    setTrashed: (id, trashed) => sheets.setTrashed(id, trashed),
  };
}
