/** `trellis init`: creates a folder with example functions. */
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { compilerOptions, locateModules, type ModuleLocations } from '../compile/check-types.ts';
import { type CommandContext, processContext } from './arguments.ts';

/** Returns the exit code: 1 if a file exists already. */
export async function initCommand(
  name: string,
  { print, printError }: Pick<CommandContext, 'print' | 'printError'> = processContext,
): Promise<number> {
  const folder = resolve(name);
  const files = Object.entries(exampleFiles(relativeLocations(folder)));
  const existing = files.map(([file]) => file).filter((file) => existsSync(join(folder, file)));
  if (existing.length > 0) {
    printError(`Nothing was written: ${name} already has ${existing.join(', ')}.`);
    return 1;
  }
  for (const [file, text] of files) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    // `wx` fails if another process has created the file meanwhile.
    await writeFile(join(folder, file), text, { flag: 'wx' });
    print(`+ ${join(name, file)}`);
  }
  print(`
Next, with TRELLIS_URL and TRELLIS_SECRET_KEY of your development environment set:

  trellis dryrun google-sheet/sheet-rows --connection ID --folder ${name}
                               run the sync on this machine without writing
  trellis dev ${name}
                               deploy after each save`);
  return 0;
}

/** The locations of the modules that are not installed beside the folder, relative to it. */
function relativeLocations(folder: string): ModuleLocations {
  const { paths, typeRoots } = locateModules(folder);
  const fromFolder = (path: string) => {
    const relativePath = relative(folder, path).split(sep).join('/');
    return relativePath.startsWith('.') ? relativePath : `./${relativePath}`;
  };
  const missing = Object.entries(paths).filter(([name]) => !isInstalled(folder, name));
  return {
    paths: Object.fromEntries(missing.map(([name, locations]) => [name, locations.map(fromFolder)])),
    typeRoots: typeRoots?.map(fromFolder),
  };
}

function isInstalled(folder: string, name: string): boolean {
  try {
    createRequire(join(folder, 'x.js')).resolve(`${name}/package.json`);
    return true;
  } catch {
    return false;
  }
}

const rows = `import { createSync } from 'trellis';
import { z } from 'zod';
import { readRows } from '../read-rows.ts';

/** The model of the saved records. It must have a field \`id\`; saving an existing id replaces its record. */
const Row = z.object({ id: z.string(), cells: z.record(z.string(), z.string()) });

export default createSync({
  description: 'Saves the rows of a spreadsheet under their numbers.',
  // The sync starts automatically for each connection, and then runs on this schedule.
  frequency: 'every 5 minutes',
  models: { Row },
  // The metadata of a connection: set it with POST /connections/metadata.
  metadata: z.object({ spreadsheetId: z.string() }),
  exec: async (trellis) => {
    const { spreadsheetId } = await trellis.getMetadata();
    if (!spreadsheetId) {
      await trellis.log('Set spreadsheetId in the metadata of the connection.', { level: 'warn' });
      return;
    }
    // trackDeletesEnd deletes the rows that were not saved since trackDeletesStart.
    await trellis.trackDeletesStart('Row');
    const rows = await readRows(trellis, { spreadsheetId, range: 'A1:Z1000' });
    await trellis.batchSave(
      // The first row of the sheet has the column names.
      rows.map((cells, at) => ({ id: String(at + 2), cells })),
      'Row',
    );
    await trellis.trackDeletesEnd('Row');
    await trellis.log(\`Read \${rows.length} rows.\`);
  },
});
`;

const readRows = `import type { ActionContext, SyncContext } from 'trellis';

/** Functions can import other files. This one returns the rows as objects whose keys are the first row. */
export async function readRows(
  trellis: Pick<SyncContext | ActionContext, 'get'>,
  { spreadsheetId, range }: { spreadsheetId: string; range: string },
): Promise<Record<string, string>[]> {
  // https://developers.google.com/workspace/sheets/api/reference/rest/v4/spreadsheets.values/get
  const { data } = await trellis.get<{ values?: string[][] }>({
    endpoint: \`/v4/spreadsheets/\${encodeURIComponent(spreadsheetId)}/values/\${encodeURIComponent(range)}\`,
    retries: 3,
  });
  const [names = [], ...rows] = data.values ?? [];
  return rows.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at] ?? ''])));
}
`;

const appendRow = `import { createAction } from 'trellis';
import { z } from 'zod';

export default createAction({
  description: 'Appends a row below the table of a spreadsheet.',
  // An invalid input is refused before \`exec\` runs, with the name of the field.
  input: z.object({
    spreadsheetId: z.string().min(1),
    values: z.array(z.union([z.string(), z.number(), z.boolean()])).min(1),
  }),
  output: z.object({ range: z.string() }),
  exec: async (trellis, { spreadsheetId, values }) => {
    // https://developers.google.com/workspace/sheets/api/reference/rest/v4/spreadsheets.values/append
    const { data } = await trellis.post({
      // Encoded, because a caller could otherwise call another method of the provider with the user's credentials.
      endpoint: \`/v4/spreadsheets/\${encodeURIComponent(spreadsheetId)}/values/A1:append\`,
      params: { valueInputOption: 'RAW' },
      data: { values: [values] },
    });
    if (!data.updates) {
      // The caller of the action receives this payload.
      throw new trellis.ActionError({ type: 'nothing_appended', message: 'The provider appended nothing.' });
    }
    return { range: data.updates.updatedRange };
  },
});
`;

const firstLook = `import { createOnEvent } from 'trellis';

export default createOnEvent({
  description: 'Logs the end user of a new connection.',
  // Other events: pre-connection-deletion, and validate-connection, which can refuse the connection.
  event: 'post-connection-creation',
  exec: async (trellis) => {
    const connection = await trellis.getConnection();
    await trellis.log(\`Connected by \${String(connection.end_user?.id ?? 'an unnamed user')}.\`);
  },
});
`;

const readme = `# Functions

Functions for Trellis: \`<integration>/{syncs,actions,on-events}/<name>.ts\`. Run \`trellis dev\` in the parent folder to deploy them after each save.
`;

/** The files that `trellis init` creates, by their paths below the folder. */
export function exampleFiles(locations: ModuleLocations): Record<string, string> {
  const tsconfig = { compilerOptions: compilerOptions(locations), include: ['**/*.ts'] };
  return {
    'README.md': readme,
    'tsconfig.json': `${JSON.stringify(tsconfig, null, 2)}\n`,
    'google-sheet/read-rows.ts': readRows,
    // The name must not be "rows", because a shipped function has that name.
    'google-sheet/syncs/sheet-rows.ts': rows,
    'google-sheet/actions/append-row.ts': appendRow,
    'google-sheet/on-events/first-look.ts': firstLook,
  };
}
