/**
 * The sandbox: a provider that behaves like Google (OAuth, Sheets and Drive), with fault injection.
 *
 * `startSandbox` runs it inside another program; `node sandbox/main.ts` runs it alone, configured by SANDBOX_PORT,
 * SANDBOX_URL, SANDBOX_DATA_DIR and SANDBOX_KEY. It imports nothing of the service.
 */
import { join, resolve } from 'node:path';
import { createDriveApi } from './drive/api.ts';
import type { SpreadsheetFiles } from './drive/files.ts';
import { type Sandbox, type SandboxOptions, serveSandbox } from './server.ts';
import { createSheetsApi, type SheetsApi } from './sheets/api.ts';
import { damageSpreadsheet } from './sheets/damage.ts';
import { findMethod } from './sheets/discovery.ts';

export type { Sandbox, SandboxOptions } from './server.ts';

/** Starts a sandbox; resolves once it accepts requests. Rejects if the port is in use or the data dir cannot be read. */
export function startSandbox(options: SandboxOptions): Promise<Sandbox> {
  return serveSandbox(options, ({ url, now }) => {
    const sheets = createSheetsApi({
      dataDir: join(options.dataDir, 'spreadsheets'),
      url,
      now,
      changed: ({ spreadsheetId, owner: { sub } }) =>
        drive.channels.notify(spreadsheetId, { sub, state: 'update', changed: 'content,properties' }),
    });
    const drive = createDriveApi({
      dataDir: join(options.dataDir, 'drive'),
      url,
      now,
      spreadsheets: createDriveSpreadsheets(sheets),
    });
    return {
      apis: [{ ...sheets, routeOf: sheetsRoute }, drive],
      channels: drive.channels,
      spreadsheets: {
        create: sheets.createSpreadsheet,
        list: sheets.listSpreadsheets,
        damage: async (spreadsheetId, damage) => {
          const all = await sheets.listSpreadsheets();
          const owner = all.find((sheet) => sheet.spreadsheetId === spreadsheetId)?.owner;
          if (owner === undefined) return false;
          await damageSpreadsheet(sheets, { spreadsheetId, owner, damage });
          return true;
        },
      },
    };
  });
}

/** The spreadsheets of the Sheets API for the Drive API. They are created by a request to the Sheets API. */
function createDriveSpreadsheets(sheets: SheetsApi): SpreadsheetFiles {
  return {
    async create(access, title) {
      const answer = await sheets.handle({
        method: 'POST',
        rawUrl: '/v4/spreadsheets?fields=spreadsheetId',
        headers: { 'content-type': 'application/json' },
        body: Buffer.from(JSON.stringify({ properties: { title } })),
        access,
      });
      if (answer.status !== 200) throw new Error(`The spreadsheet was not created: ${answer.body}`);
      return (JSON.parse(answer.body.toString()) as { spreadsheetId: string }).spreadsheetId;
    },
    list: () => sheets.listSpreadsheets(),
    setTrashed: (id, trashed) => sheets.setTrashed(id, trashed),
  };
}

// All unknown paths share one name, so that callers cannot grow the list of calls.
function sheetsRoute(method: string, path: string): string {
  try {
    const found = findMethod(method, path);
    return found === undefined ? '/v4/{unknown}' : `/${found.method.flatPath}`;
  } catch (error) {
    if (error instanceof URIError) return '/v4/{unknown}';
    throw error;
  }
}

async function main(): Promise<void> {
  const {
    SANDBOX_PORT = '3004',
    SANDBOX_URL,
    SANDBOX_KEY,
    SANDBOX_DATA_DIR = '.trellis/sandbox',
  } = process.env;
  if (!/^\d{1,5}$/.test(SANDBOX_PORT) || Number(SANDBOX_PORT) > 65_535) {
    throw new Error(`SANDBOX_PORT is not a valid port: ${SANDBOX_PORT}`);
  }
  if (SANDBOX_URL !== undefined && !/^https?:\/\/[^/]+\/?$/.test(SANDBOX_URL)) {
    throw new Error(`SANDBOX_URL is not an http(s) address without a path: ${SANDBOX_URL}`);
  }
  const sandbox = await startSandbox({
    port: Number(SANDBOX_PORT),
    dataDir: resolve(SANDBOX_DATA_DIR),
    ...(SANDBOX_URL === undefined ? {} : { url: SANDBOX_URL }),
    ...(SANDBOX_KEY === undefined || SANDBOX_KEY === '' ? {} : { key: SANDBOX_KEY }),
    log: (message, error) => console.error(message, error),
  });
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void sandbox.close());
  console.log(`sandbox ${sandbox.url}`);
  console.log(`client ${sandbox.client.clientId}, data in ${resolve(SANDBOX_DATA_DIR)}`);
}

if (import.meta.main) {
  main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}
