/**
 * For the tests of this folder: the API on a real HTTP server, with one account per bearer token.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Access } from '../api.ts';
import { createSheetsApi, type SheetsApi } from './api.ts';

const scopes = 'https://www.googleapis.com/auth/';
export const ann = { email: 'ann@example.com', sub: '101' };
const bob = { email: 'bob@example.com', sub: '102' };

const tokens: Readonly<Record<string, Access>> = {
  ann: { ok: true, ...ann, clientId: 'client', scopes: new Set([`${scopes}spreadsheets`, 'openid']) },
  'ann-reads': { ok: true, ...ann, clientId: 'client', scopes: new Set([`${scopes}spreadsheets.readonly`]) },
  'ann-files': { ok: true, ...ann, clientId: 'client', scopes: new Set([`${scopes}drive.file`]) },
  'ann-identity': { ok: true, ...ann, clientId: 'client', scopes: new Set(['openid', 'email']) },
  bob: { ok: true, ...bob, clientId: 'client', scopes: new Set([`${scopes}spreadsheets`]) },
};

export interface Bench {
  readonly api: SheetsApi;
  readonly origin: string;
  /** Sends a request with the path exactly as written; answers status, headers and the parsed body. */
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  /** Makes a spreadsheet of ann's with one sheet, `Sheet1`. */
  spreadsheet(rows: (string | number | boolean | null)[][]): Promise<string>;
  close(): Promise<void>;
}

interface CallOptions {
  readonly body?: unknown;
  readonly token?: string;
  readonly headers?: Record<string, string>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // The tests read answers of every shape the API has.
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly json: any;
  /** `error.message` of an error answer. */
  readonly message: string;
}

/** Starts an API over an empty directory on a free port. */
export async function startBench(): Promise<Bench> {
  const dataDir = await mkdtemp(join(tmpdir(), 'sheets-'));
  const api = createSheetsApi({ dataDir, url: 'https://docs.example', now: () => 1_700_000_000_000 });
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
    const access =
      token === undefined ? undefined : (tokens[token] ?? ({ ok: false, kind: 'invalid' } as const));
    const answer = await api
      .handle({
        method: request.method ?? '',
        rawUrl: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(chunks),
        access: access ?? { ok: false, kind: 'missing' },
      })
      .catch((error: Error) => ({ status: 500, headers: {}, body: String(error.stack), route: '' }));
    response.writeHead(answer.status, { ...answer.headers, 'X-Route': answer.route });
    response.end(answer.body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  async function call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const { body, token = 'ann', headers } = options;
    const response = await fetch(origin + path, {
      method,
      headers: {
        ...(token !== '' && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    const json = response.headers.get('content-type')?.startsWith('application/json')
      ? JSON.parse(text)
      : undefined;
    return { status: response.status, headers: response.headers, text, json, message: json?.error?.message };
  }

  return {
    api,
    origin,
    call,
    async spreadsheet(rows) {
      const { spreadsheetId } = await api.createSpreadsheet({
        account: ann,
        title: 'Book',
        sheet: 'Sheet1',
        rows,
      });
      return spreadsheetId;
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await api.close();
      await rm(dataDir, { recursive: true });
    },
  };
}

export const grid = (
  startRowIndex: number,
  endRowIndex: number,
  startColumnIndex: number,
  endColumnIndex: number,
) => ({
  sheetId: 0,
  startRowIndex,
  endRowIndex,
  startColumnIndex,
  endColumnIndex,
});
export const rows = (startIndex: number, endIndex: number) => ({
  sheetId: 0,
  dimension: 'ROWS',
  startIndex,
  endIndex,
});
export const columns = (startIndex: number, endIndex: number) => ({
  ...rows(startIndex, endIndex),
  dimension: 'COLUMNS',
});

/** Short ways to edit and look at a spreadsheet of `bench`. */
export function editing(bench: Bench) {
  const edit = (id: string, ...requests: object[]) =>
    bench.call('POST', `/v4/spreadsheets/${id}:batchUpdate`, { body: { requests } });
  const rowsOf = async (id: string, range = 'Sheet1', render = 'UNFORMATTED_VALUE') =>
    (
      await bench.call(
        'GET',
        `/v4/spreadsheets/${id}/values/${encodeURIComponent(range)}?valueRenderOption=${render}`,
      )
    ).json.values;
  const get = async (id: string, query = '') =>
    (await bench.call('GET', `/v4/spreadsheets/${id}${query}`)).json;
  const put = (id: string, range: string, values: unknown[][]) =>
    bench.call(
      'PUT',
      `/v4/spreadsheets/${id}/values/${encodeURIComponent(range)}?valueInputOption=USER_ENTERED`,
      { body: { values } },
    );
  return { edit, rowsOf, get, put };
}
