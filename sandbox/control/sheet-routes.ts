/** Control routes about spreadsheets: make one, spoil one, and see who is told of changes. */
import { z } from 'zod';
import { type Cell, parseCsv, typeCells } from '../csv.ts';
import { DAMAGES } from '../sheets/damage.ts';
import { ControlError, invalid, readBody } from './answer.ts';
import { type ControlRoute, getAccount, NAME, timeToWire } from './parts.ts';

const CELL = z.union([z.string(), z.number(), z.boolean(), z.null()]);
const SPREADSHEET = z.strictObject({
  account: z.string(),
  title: NAME,
  sheet: NAME.default('Sheet1'),
  csv: z.string().optional(),
  rows: z.array(z.array(CELL)).optional(),
});
const DAMAGE = z.strictObject({ spreadsheet_id: z.string(), damage: z.enum(DAMAGES) });

export const SHEET_ROUTES: Record<string, ControlRoute> = {
  'POST /spreadsheets': (request, parts) => {
    const { account, title, sheet, csv, rows } = readBody(request, SPREADSHEET);
    const owner = getAccount(account, parts.accounts);
    if ((csv === undefined) === (rows === undefined)) throw invalid('csv', 'give either csv or rows');
    return parts.spreadsheets.create({ account: owner, title, sheet, rows: rows ?? cellsOf(csv!) });
  },

  'GET /channels': (_request, { channels }) => ({
    channels: channels.list().map(({ id, address, fileId = null, expiresAt, messages }) => ({
      ...{ id, address, file_id: fileId, expires_at: timeToWire(expiresAt), messages },
    })),
  }),

  'POST /spreadsheets/damage': async (request, { spreadsheets }) => {
    const { spreadsheet_id: id, damage } = readBody(request, DAMAGE);
    if (await spreadsheets.damage(id, damage)) return {};
    throw new ControlError(400, 'invalid_body', 'spreadsheet_id: there is no such spreadsheet');
  },
};

function cellsOf(csv: string): Cell[][] {
  try {
    return typeCells(parseCsv(csv));
  } catch (error) {
    if (error instanceof SyntaxError) throw invalid('csv', error.message);
    throw error;
  }
}
