/** The files that `trellis init` writes, by their paths below the folder. They are the reader's to change. */

const rows = `import { createSync } from 'trellis';
import { z } from 'zod';
import { readRows } from '../read-rows.ts';

/** What is saved. Each model has a field \`id\`; what is saved again under one id takes the place of what was there. */
const Row = z.object({ id: z.string(), cells: z.record(z.string(), z.string()) });

export default createSync({
  description: 'The rows of a spreadsheet, by their numbers.',
  // It starts by itself for each connection, and then at its times.
  frequency: 'every 5 minutes',
  models: { Row },
  // What a connection's metadata holds: set it once by POST /connections/metadata.
  metadata: z.object({ spreadsheetId: z.string() }),
  exec: async (trellis) => {
    const { spreadsheetId } = await trellis.getMetadata();
    if (!spreadsheetId) {
      await trellis.log('The connection names no spreadsheetId in its metadata yet.', { level: 'warn' });
      return;
    }
    // Rows that are not saved between the two are deleted by the second.
    await trellis.trackDeletesStart('Row');
    const rows = await readRows(trellis, { spreadsheetId, range: 'A1:Z1000' });
    await trellis.batchSave(
      // The first row of a sheet holds the names.
      rows.map((cells, at) => ({ id: String(at + 2), cells })),
      'Row',
    );
    await trellis.trackDeletesEnd('Row');
    await trellis.log(\`Read \${rows.length} rows.\`);
  },
});
`;

const readRows = `import type { ActionContext, SyncContext } from 'trellis';

/** Other files are yours to import. This one gives rows as objects, by the names in the first. */
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
  // What does not fit is refused before \`exec\` runs, with the field's name.
  input: z.object({
    spreadsheetId: z.string().min(1),
    values: z.array(z.union([z.string(), z.number(), z.boolean()])).min(1),
  }),
  output: z.object({ range: z.string() }),
  exec: async (trellis, { spreadsheetId, values }) => {
    // https://developers.google.com/workspace/sheets/api/reference/rest/v4/spreadsheets.values/append
    const { data } = await trellis.post({
      // Encoded: a caller could otherwise reach another method of the provider, with the user's access.
      endpoint: \`/v4/spreadsheets/\${encodeURIComponent(spreadsheetId)}/values/A1:append\`,
      params: { valueInputOption: 'RAW' },
      data: { values: [values] },
    });
    if (!data.updates) {
      // Its payload is what the caller of the action gets.
      throw new trellis.ActionError({ type: 'nothing_appended', message: 'The provider appended nothing.' });
    }
    return { range: data.updates.updatedRange };
  },
});
`;

const firstLook = `import { createOnEvent } from 'trellis';

export default createOnEvent({
  description: 'Says in its log whose connection was made.',
  // Others: pre-connection-deletion, and validate-connection, which can refuse.
  event: 'post-connection-creation',
  exec: async (trellis) => {
    const connection = await trellis.getConnection();
    await trellis.log(\`Connected by \${String(connection.end_user?.id ?? 'nobody who was named')}.\`);
  },
});
`;

const readme = `# Functions

Functions for Trellis: \`<integration>/{syncs,actions,on-events}/<name>.ts\`. \`trellis dev\` in the folder above deploys them at each save.
`;

/** `paths` are modules that lie elsewhere than beside the folder, by their names. */
export function filesToBegin({
  paths,
  typeRoots,
}: {
  paths: Record<string, string[]>;
  typeRoots: string[] | undefined;
}): Record<string, string> {
  const tsconfig = {
    compilerOptions: {
      ...{ target: 'esnext', lib: ['esnext'], module: 'esnext', moduleResolution: 'bundler' },
      ...{ strict: true, noEmit: true, skipLibCheck: true, allowImportingTsExtensions: true },
      ...(typeRoots === undefined ? { types: [] } : { types: ['node'], typeRoots }),
      ...(Object.keys(paths).length > 0 && { paths }),
    },
    include: ['**/*.ts'],
  };
  return {
    'README.md': readme,
    'tsconfig.json': `${JSON.stringify(tsconfig, null, 2)}\n`,
    'google-sheet/read-rows.ts': readRows,
    'google-sheet/syncs/rows.ts': rows,
    'google-sheet/actions/append-row.ts': appendRow,
    'google-sheet/on-events/first-look.ts': firstLook,
  };
}
