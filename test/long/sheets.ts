// Many tabs of one file and a large sheet, followed under the reads that Google gives an account.

import { setTimeout as pause } from 'node:timers/promises';
import { catalogWith, openSheets, type RunSeen, type Sheets } from '../support/sheets.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

type Load = {
  /** Tabs of one file, each a variant of its own, of ten rows each. */
  tabs: number;
  /** Of a sheet in another file. */
  rows: number;
  /** Of the account, in each window. */
  reads: number;
  windowS: number;
};

type Outcome = {
  /** Of the tabs, in order. */
  tabs: RunSeen[];
  large: RunSeen;
  /** Calls that the provider refused. */
  refused: number;
  tookS: number;
};

/** Runs the first sync of all of them at once. */
export async function followAll({ tabs, rows, reads, windowS }: Load): Promise<Outcome> {
  const trellis = await openTrellis({}, { catalog: catalogWith({ reads, windowS }) });
  try {
    const sheets = await openSheets(trellis, { account: 'many@example.com', quota: 'on' });
    const file = await sheets.make([]);
    const added = Array.from({ length: tabs - 1 }, (_, at) => ({
      addSheet: { properties: { sheetId: at + 1, title: `Tab ${at + 1}` } },
    }));
    await sheets.edit(file, ...added);
    await sheets.edit(file, ...Array.from({ length: tabs }, (_, sheetId) => cellsOf(sheetId)));
    const header = ['Order', 'Customer', 'Amount'];
    const orders = Array.from({ length: rows }, (_, at) => [`o-${at}`, `customer ${at % 97}`, at]);
    // A sync has a hundred variants for a connection, so the large sheet is another connection's, of the same account.
    const other = await openSheets(trellis, { account: 'many@example.com', quota: 'on' });
    const large = await other.make([header, ...orders]);
    await other.choose({ base: { spreadsheetId: large, sheetId: 0 } });
    const variants = Array.from({ length: tabs }, (_, sheetId) =>
      sheetId === 0 ? 'base' : `tab-${sheetId}`,
    );
    const chosen = variants.map((variant, sheetId) => [variant, { spreadsheetId: file, sheetId }]);
    await sheets.choose(Object.fromEntries(chosen));
    // A call that is released late in one window and arrives in the next counts there: twice the quota is never used up.
    await trellis.control('POST', 'quota', {
      reads_per_account: 2 * reads,
      reads_per_project: 10 * reads,
      window_s: windowS,
    });
    const started = performance.now();
    const syncs = variants.map((variant) => (variant === 'base' ? 'rows' : `rows::${variant}`));
    for (const body of [
      { ...sheets.place, syncs },
      { ...other.place, syncs: ['rows'] },
    ]) {
      const triggered = await trellis.call('POST', '/sync/trigger', { body });
      if (triggered.status !== 200) throw new Error(triggered.text);
    }
    const [ofLarge] = await settledAll(other, ['base']);
    const runs = await settledAll(sheets, variants);
    const { refused } = await trellis.control('GET', 'quota');
    return {
      large: ofLarge!,
      tabs: runs,
      refused: Number(refused),
      tookS: (performance.now() - started) / 1000,
    };
  } finally {
    await trellis.close();
  }
}

function cellsOf(sheetId: number): object {
  const rows = [['Name', 'Count'], ...Array.from({ length: 10 }, (_, at) => [`${sheetId}/${at}`, at])];
  const values = (row: (string | number)[]) =>
    row.map((value) => ({
      userEnteredValue: typeof value === 'number' ? { numberValue: value } : { stringValue: value },
    }));
  return {
    updateCells: {
      start: { sheetId, rowIndex: 0, columnIndex: 0 },
      fields: 'userEnteredValue',
      rows: rows.map((row) => ({ values: values(row) })),
    },
  };
}

type Listed = RunSeen & { variant: string };

/** The newest runs of these variants, once all of them are over. */
async function settledAll(
  { trellis, connectionId }: Sheets,
  variants: readonly string[],
): Promise<RunSeen[]> {
  const newest = new Map<string, string>();
  for (let cursor: string | null = ''; cursor !== null; ) {
    const query = `function=rows&connection_id=${connectionId}&limit=100${cursor === '' ? '' : `&cursor=${cursor}`}`;
    const { body } = await trellis.call('GET', `/functions/runs?${query}`);
    // Newest first.
    for (const { id, variant } of body.runs as Listed[]) {
      if (!newest.has(variant)) newest.set(variant, id);
    }
    cursor = body.next_cursor as string | null;
  }
  const runs: RunSeen[] = [];
  for (const variant of variants) {
    const id = newest.get(variant);
    if (id === undefined) throw new Error(`the variant ${variant} does not run`);
    runs.push(await endOf(trellis, id));
  }
  return runs;
}

async function endOf(trellis: TestTrellis, id: string): Promise<RunSeen> {
  for (;;) {
    const run = (await trellis.call('GET', `/functions/runs/${id}`)).body as unknown as RunSeen;
    if (!['waiting', 'running'].includes(run.state)) return run;
    await pause(100);
  }
}
