/**
 * The Sheets API v4 of the sandbox.
 *
 * It checks a request in Google's order: route, token, transcoding, scope, file, method. The discovery document
 * (discovery.ts) defines the methods and their parameters; values-methods.ts, spreadsheet-methods.ts and batch-update.ts
 * implement them. README.md lists the assumptions about Google.
 */
import type { Access, Api, ApiRequest } from '../api.ts';
import { htmlPage, jsonAnswer, type SheetsAnswer } from './answers.ts';
import { batchUpdate } from './batch-update.ts';
import { findMethod, type Method } from './discovery.ts';
import {
  badFields,
  GoogleError,
  notFound,
  notImplemented,
  permissionDenied,
  scopeInsufficient,
  unauthenticated,
} from './errors.ts';
import { type Mask, MaskError, parseMask, pick } from './field-mask.ts';
import type { Spreadsheet } from './spreadsheet.ts';
import {
  copySheet,
  createSpreadsheet,
  getSpreadsheet,
  getSpreadsheetByDataFilter,
} from './spreadsheet-methods.ts';
import { createSpreadsheetStore } from './store.ts';
import { type Message, transcode } from './transcode.ts';
import * as values from './values-methods.ts';

interface SpreadsheetSummary {
  readonly spreadsheetId: string;
  readonly title: string;
  readonly owner: { readonly email: string; readonly sub: string };
  /** The OAuth client that created it; absent if no client did. */
  readonly clientId?: string;
  /** Milliseconds since 1970. */
  readonly modifiedAt: number;
  readonly version: number;
  readonly trashed: boolean;
  readonly sheets: readonly { title: string; rowCount: number; columnCount: number }[];
}

export interface SheetsApi extends Omit<Api, 'routeOf'> {
  /** Handles a request like Google; never rejects because of the request. */
  handle(request: ApiRequest): Promise<SheetsAnswer>;
  /** Creates a spreadsheet of `account` with one sheet with the values `rows`, entered as RAW. */
  createSpreadsheet(content: {
    account: { email: string; sub: string };
    title: string;
    sheet: string;
    rows: readonly (readonly (string | number | boolean | null)[])[];
  }): Promise<{ spreadsheetId: string }>;
  listSpreadsheets(): Promise<SpreadsheetSummary[]>;
  /** Moves a spreadsheet to Drive's trash, or restores it. */
  setTrashed(spreadsheetId: string, trashed: boolean): Promise<void>;
}

interface Invocation {
  readonly message: Message;
  readonly mask: Mask | undefined;
  readonly url: string;
}

type Step = (spreadsheet: Spreadsheet, message: Message, invocation: Invocation) => values.Outcome;

/** The methods by their ids in the discovery document, with their names in Google's RPC service. */
const implementations: Readonly<Record<string, { readonly rpc: string; readonly run?: Step }>> = {
  'sheets.spreadsheets.create': { rpc: 'CreateSpreadsheet' },
  'sheets.spreadsheets.get': { rpc: 'GetSpreadsheet', run: getSpreadsheet },
  'sheets.spreadsheets.getByDataFilter': {
    rpc: 'GetSpreadsheetByDataFilter',
    run: getSpreadsheetByDataFilter,
  },
  'sheets.spreadsheets.batchUpdate': { rpc: 'BatchUpdateSpreadsheet', run: batchUpdate },
  'sheets.spreadsheets.sheets.copyTo': { rpc: 'CopySheetToAnotherSpreadsheet' },
  'sheets.spreadsheets.developerMetadata.get': {
    rpc: 'GetDeveloperMetadata',
    run: values.getDeveloperMetadata,
  },
  'sheets.spreadsheets.developerMetadata.search': {
    rpc: 'SearchDeveloperMetadata',
    run: values.searchDeveloperMetadata,
  },
  'sheets.spreadsheets.values.get': { rpc: 'GetValues', run: values.getValues },
  'sheets.spreadsheets.values.update': { rpc: 'UpdateValues', run: values.updateValues },
  'sheets.spreadsheets.values.append': { rpc: 'AppendValues', run: values.appendToValues },
  'sheets.spreadsheets.values.clear': { rpc: 'ClearValues', run: values.clearRange },
  'sheets.spreadsheets.values.batchGet': { rpc: 'BatchGetValues', run: values.batchGetValues },
  'sheets.spreadsheets.values.batchUpdate': { rpc: 'BatchUpdateValues', run: values.batchUpdateValues },
  'sheets.spreadsheets.values.batchClear': { rpc: 'BatchClearValues', run: values.batchClearValues },
  'sheets.spreadsheets.values.batchGetByDataFilter': {
    rpc: 'BatchGetValuesByDataFilter',
    run: values.batchGetValuesByDataFilter,
  },
  'sheets.spreadsheets.values.batchUpdateByDataFilter': {
    rpc: 'BatchUpdateValuesByDataFilter',
    run: values.batchUpdateValuesByDataFilter,
  },
  'sheets.spreadsheets.values.batchClearByDataFilter': {
    rpc: 'BatchClearValuesByDataFilter',
    run: values.batchClearValuesByDataFilter,
  },
};

const driveFile = 'https://www.googleapis.com/auth/drive.file';

/**
 * A Sheets API for the spreadsheets in `dataDir`. `url` is the origin of the web addresses of spreadsheets;
 * `now` returns milliseconds since 1970.
 */
export function createSheetsApi({
  dataDir,
  url,
  now,
  changed: onChange = () => {},
}: {
  dataDir: string;
  url: string;
  now: () => number;
  /** Called for each created or changed spreadsheet. */
  changed?: (spreadsheet: { spreadsheetId: string; owner: { sub: string } }) => void;
}): SheetsApi {
  const store = createSpreadsheetStore(dataDir);

  function keep(spreadsheet: Spreadsheet): void {
    store.put({ ...spreadsheet, modifiedAt: now(), version: (spreadsheet.version ?? 0) + 1 });
    onChange(spreadsheet);
  }

  async function run(method: Method, access: Access & { ok: true }, invocation: Invocation): Promise<object> {
    const { message, mask } = invocation;
    if (method.id === 'sheets.spreadsheets.create') {
      const { email, sub, clientId } = access;
      const spreadsheet = createSpreadsheet(message.body as object, { owner: { email, sub }, clientId });
      keep(spreadsheet);
      return getSpreadsheet(spreadsheet, { params: {}, body: {} }, { url, mask }).answer;
    }
    const spreadsheet = await open(method, access, String(message.params.spreadsheetId));
    const { changed, answer } =
      method.id === 'sheets.spreadsheets.sheets.copyTo'
        ? await copyTo(method, access, { source: spreadsheet, message })
        : runStep(method, spreadsheet, invocation);
    if (changed !== undefined) keep(changed);
    return answer;
  }

  async function copyTo(
    method: Method,
    access: Access & { ok: true },
    { source, message }: { source: Spreadsheet; message: Message },
  ): Promise<values.Outcome> {
    const { destinationSpreadsheetId } = message.body as { destinationSpreadsheetId?: string };
    const destination = await open(method, access, destinationSpreadsheetId ?? '');
    return copySheet(source, message.params.sheetId, destination);
  }

  /** The spreadsheet, if the account owns it and the token's scopes include it (`drive.file`: created by this client). */
  async function open(
    method: Method,
    access: Access & { ok: true },
    spreadsheetId: string,
  ): Promise<Spreadsheet> {
    const spreadsheet = await store.find(spreadsheetId);
    if (spreadsheet === undefined) throw notFound();
    const usable = method.scopes.filter((scope) => access.scopes.has(scope));
    const isOwnFilesOnly = usable.every((scope) => scope === driveFile);
    if (isOwnFilesOnly && spreadsheet.clientId !== access.clientId) throw notFound();
    if (spreadsheet.owner.sub !== access.sub) throw permissionDenied();
    return spreadsheet;
  }

  async function answer(method: Method, request: ApiRequest, target: Target): Promise<object> {
    const { access } = request;
    if (!access.ok) throw unauthenticated(access.kind);
    const message = transcode(method, { params: target.params, query: target.query, body: request.body });
    const mask = readMask(method, message, request.headers['x-goog-fieldmask']);
    if (!method.scopes.some((scope) => access.scopes.has(scope))) {
      throw scopeInsufficient(implementations[method.id]?.rpc ?? method.id, method.scopes);
    }
    const json = await run(method, access, { message, mask, url });
    return (mask === undefined ? json : pick(json, mask)) as object;
  }

  return {
    matches: (path) => path === '/v4' || path.startsWith('/v4/'),

    async handle(request) {
      const [path = '', ...rest] = request.rawUrl.split('?');
      const query = new URLSearchParams(rest.join('?'));
      const found = findRoute(request.method, path);
      if (found === 'malformed') return htmlPage(400, path);
      if (found === undefined) return htmlPage(404, path);
      const route = `${found.method.httpMethod} /${found.method.flatPath}`;
      const isCompact = /^(false|0)$/i.test(query.get('prettyPrint') ?? '');
      try {
        const json = await answer(found.method, request, { params: found.params, query });
        return await jsonAnswer({ status: 200, json, route, isCompact, extra: {} }, request.headers);
      } catch (error) {
        if (!(error instanceof GoogleError)) throw error;
        const content = { status: error.code, json: error.toJson(), route, isCompact, extra: error.headers };
        return await jsonAnswer(content, request.headers);
      }
    },

    async createSpreadsheet({ account, title, sheet, rows }) {
      const width = rows.reduce((widest, row) => Math.max(widest, row.length), 0);
      const gridProperties = { rowCount: Math.max(rows.length, 1000), columnCount: Math.max(width, 26) };
      const spreadsheet = createSpreadsheet(
        { properties: { title }, sheets: [{ properties: { title: sheet, gridProperties } }] },
        { owner: { email: account.email, sub: account.sub } },
      );
      const [first] = spreadsheet.sheets;
      if (first !== undefined) first.rows = rows.map((row) => row.map((cell) => (cell === '' ? null : cell)));
      keep(spreadsheet);
      return { spreadsheetId: spreadsheet.spreadsheetId };
    },

    async setTrashed(spreadsheetId, trashed) {
      const found = await store.find(spreadsheetId);
      if (found !== undefined) keep({ ...found, trashed });
    },

    async listSpreadsheets() {
      const all = await store.list();
      return all.map(
        ({ spreadsheetId, properties, owner, clientId, modifiedAt, version, trashed, sheets }) => ({
          spreadsheetId,
          title: properties.title,
          owner,
          ...(clientId !== undefined && { clientId }),
          modifiedAt,
          version: version ?? 1,
          trashed: trashed ?? false,
          sheets: sheets.map((one) => ({
            title: one.properties.title,
            rowCount: one.rowCount,
            columnCount: one.columnCount,
          })),
        }),
      );
    },

    close: () => store.close(),
  };
}

interface Target {
  readonly params: Record<string, string>;
  readonly query: URLSearchParams;
}

function findRoute(httpMethod: string, path: string): ReturnType<typeof findMethod> | 'malformed' {
  try {
    return findMethod(httpMethod, path);
  } catch (error) {
    if (error instanceof URIError) return 'malformed';
    throw error;
  }
}

function runStep(method: Method, spreadsheet: Spreadsheet, invocation: Invocation): values.Outcome {
  const step = implementations[method.id]?.run;
  if (step === undefined) throw notImplemented(`the method ${method.id}`);
  return step(spreadsheet, invocation.message, invocation);
}

function readMask(
  method: Method,
  { params }: Message,
  header: string | string[] | undefined,
): Mask | undefined {
  if (params.alt !== undefined && params.alt !== 'json') throw notImplemented(`alt=${params.alt}`);
  if (params.callback !== undefined) throw notImplemented('JSONP');
  const fields = params.fields ?? header;
  if (typeof fields !== 'string' || fields === '') return undefined;
  try {
    return parseMask(fields, method.response.$ref);
  } catch (error) {
    if (!(error instanceof MaskError)) throw error;
    const description = `Error expanding 'fields' parameter. Cannot find matching fields for path '${error.path}'.`;
    throw badFields([{ field: error.path, description }]);
  }
}
