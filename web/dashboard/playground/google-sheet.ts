import type { SuggestedApi } from './calls.ts';

const spreadsheetId = { about: 'Or the whole address of the spreadsheet', example: '1AbC...xYz' };
const range = { about: 'Cells, a sheet, or both', example: "'Sheet 1'!A1:D20" };
const cells = [
  ['Name', 'Born'],
  ['Ada', 1815],
];
const parameter = (name: string, value = '') => ({ name, value });

/**
 * The methods of the Sheets API v4 that applications use most:
 * developers.google.com/workspace/sheets/api/reference/rest.
 */
export const googleSheet: SuggestedApi = {
  client: { package: '@googleapis/sheets', make: 'sheets', version: 'v4', name: 'sheets' },
  calls: [
    {
      id: 'values.get',
      title: 'Read a range',
      about: 'The values of one range, row by row.',
      method: 'GET',
      path: '/v4/spreadsheets/{spreadsheetId}/values/{range}',
      query: [parameter('valueRenderOption'), parameter('majorDimension')],
      fields: { spreadsheetId, range },
      client: 'spreadsheets.values.get',
    },
    {
      id: 'values.batchGet',
      title: 'Read several ranges',
      about: 'The values of several ranges, in one call.',
      method: 'GET',
      path: '/v4/spreadsheets/{spreadsheetId}/values:batchGet',
      query: [parameter('ranges', 'A1:B2'), parameter('ranges', 'A5:B6'), parameter('valueRenderOption')],
      fields: { spreadsheetId },
      client: 'spreadsheets.values.batchGet',
    },
    {
      id: 'values.append',
      title: 'Append rows',
      about: 'Puts rows below the last one of a table.',
      method: 'POST',
      path: '/v4/spreadsheets/{spreadsheetId}/values/{range}:append',
      query: [parameter('valueInputOption', 'USER_ENTERED'), parameter('insertDataOption')],
      fields: { spreadsheetId, range },
      body: { values: cells.slice(1) },
      client: 'spreadsheets.values.append',
    },
    {
      id: 'values.update',
      title: 'Write a range',
      about: 'Puts values into a range, over what is there.',
      method: 'PUT',
      path: '/v4/spreadsheets/{spreadsheetId}/values/{range}',
      query: [parameter('valueInputOption', 'USER_ENTERED')],
      fields: { spreadsheetId, range },
      body: { values: cells },
      client: 'spreadsheets.values.update',
    },
    {
      id: 'values.batchUpdate',
      title: 'Write several ranges',
      about: 'Puts values into several ranges, all or none.',
      method: 'POST',
      path: '/v4/spreadsheets/{spreadsheetId}/values:batchUpdate',
      fields: { spreadsheetId },
      body: { valueInputOption: 'USER_ENTERED', data: [{ range: 'A1:B2', values: cells }] },
      client: 'spreadsheets.values.batchUpdate',
    },
    {
      id: 'values.clear',
      title: 'Clear a range',
      about: 'Empties the cells of a range and keeps their format.',
      method: 'POST',
      path: '/v4/spreadsheets/{spreadsheetId}/values/{range}:clear',
      fields: { spreadsheetId, range },
      body: {},
      client: 'spreadsheets.values.clear',
    },
    {
      id: 'spreadsheets.get',
      title: 'Describe a spreadsheet',
      about: 'Its title, its sheets and their sizes.',
      method: 'GET',
      path: '/v4/spreadsheets/{spreadsheetId}',
      query: [parameter('fields', 'properties.title,sheets.properties'), parameter('includeGridData')],
      fields: { spreadsheetId },
      client: 'spreadsheets.get',
    },
    {
      id: 'spreadsheets.create',
      title: 'Make a spreadsheet',
      about: 'A new one, in the account of the connection.',
      method: 'POST',
      path: '/v4/spreadsheets',
      body: { properties: { title: 'Made in the playground' } },
      client: 'spreadsheets.create',
    },
    {
      id: 'spreadsheets.batchUpdate',
      title: 'Change sheets and formats',
      about: 'Adds, renames and formats, all or nothing.',
      method: 'POST',
      path: '/v4/spreadsheets/{spreadsheetId}:batchUpdate',
      fields: { spreadsheetId },
      body: { requests: [{ addSheet: { properties: { title: 'Another sheet' } } }] },
      client: 'spreadsheets.batchUpdate',
    },
  ],
};
