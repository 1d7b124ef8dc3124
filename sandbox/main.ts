/**
 * The sandbox: a provider that behaves like Google (OAuth, Sheets and Drive) and can be broken on purpose.
 *
 * `startSandbox` runs it inside another program; `node sandbox/main.ts` runs it alone, set up by SANDBOX_PORT,
 * SANDBOX_URL, SANDBOX_DATA_DIR and SANDBOX_KEY. Imports nothing of the service.
 */
import { join, resolve } from 'node:path';
import { createDriveApi } from './drive/api.ts';
import { createDriveSpreadsheets } from './drive/spreadsheets.ts';
import { type Sandbox, type SandboxOptions, serveSandbox } from './server.ts';
import { createSheetsApi } from './sheets/api.ts';
import { damageSpreadsheet } from './sheets/damage.ts';
import { findMethod } from './sheets/discovery.ts';

export type { Sandbox, SandboxOptions } from './server.ts';

/** Starts a sandbox and resolves once it answers. Rejects when the port is taken or the data dir cannot be read. */
export function startSandbox(options: SandboxOptions): Promise<Sandbox> {
  return serveSandbox(options, ({ url, now }) => {
    const sheets = createSheetsApi({
      ...{ dataDir: join(options.dataDir, 'spreadsheets'), url, now },
      changed: ({ spreadsheetId, owner: { sub } }) =>
        drive.channels.tell(spreadsheetId, { sub, state: 'update', changed: 'content,properties' }),
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
          const owner = all.find((one) => one.spreadsheetId === spreadsheetId)?.owner;
          if (owner === undefined) return false;
          await damageSpreadsheet(sheets, { spreadsheetId, owner, damage });
          return true;
        },
      },
    };
  });
}

// A path of no known method gets one name: the list of calls must not grow with what a caller makes up.
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
    throw new Error(`SANDBOX_PORT must be a port, not ${SANDBOX_PORT}`);
  }
  if (SANDBOX_URL !== undefined && !/^https?:\/\/[^/]+\/?$/.test(SANDBOX_URL)) {
    throw new Error(`SANDBOX_URL must be an address without a path, not ${SANDBOX_URL}`);
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
  console.log(`its client ${sandbox.client.clientId}; its data ${resolve(SANDBOX_DATA_DIR)}`);
}

if (import.meta.main) {
  main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}
