/**
 * What it costs to keep the rows of a sheet as records: a first sync, one of an unchanged sheet and one where a row in a
 * hundred has changed, beside reading the same values straight from the sandbox, in turns.
 */
import { openSheets, type RunSeen, type Sheets } from '../test/support/sheets.ts';
import { openTrellis } from '../test/support/trellis.ts';
import { type Benchmark, median, rate, report, timed } from './support.ts';

const header = ['Order', 'Customer', 'Amount', 'Placed', 'Open'];
const names = ['first sync', 'unchanged sync', 'sync with 1 % changes', 'bare: read'] as const;

export const sheetsBenchmark: Benchmark = {
  about: 'syncs of a sheet, from trigger to end, beside reading its values from the sandbox',
  async run({ rounds, scale }) {
    const trellis = await openTrellis();
    try {
      const sheets = await openSheets(trellis);
      const { body } = await trellis.call(
        'GET',
        `/connections/${sheets.connectionId}?integration_id=google-sheet`,
      );
      const { access_token: token } = body.credentials as { access_token: string };
      for (const count of scale === 'full' ? [10_000, 100_000] : [1_000, 10_000]) {
        const figures = await measure(sheets, { count, rounds, url: trellis.sandbox.url, token });
        const floor = median(figures['bare: read']);
        for (const name of names) {
          const ms = median(figures[name]);
          const times = name.startsWith('bare') ? '' : `, ${(ms / floor).toFixed(1)} times the bare read`;
          report(`${count} rows, ${name}`, `${ms.toFixed(0)} ms, ${rate(count, ms)}${times}`);
        }
      }
    } finally {
      await trellis.close();
    }
  },
};

async function measure(
  sheets: Sheets,
  { count, rounds, url, token }: { count: number; rounds: number; url: string; token: string },
): Promise<Record<(typeof names)[number], number[]>> {
  const figures: Record<(typeof names)[number], number[]> = {
    'first sync': [],
    'unchanged sync': [],
    'sync with 1 % changes': [],
    'bare: read': [],
  };
  for (let round = 0; round < rounds; round++) {
    const rows = Array.from({ length: count }, (_, at) => [
      `o-${at}`,
      `customer ${at % 977}`,
      (at * 7919) % 100_003,
      46_000 + at / 64,
      at % 3 === 0,
    ]);
    const id = await sheets.make([header, ...rows]);
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
    const bare = async () => {
      const answer = await fetch(
        `${url}/v4/spreadsheets/${id}/values/Sheet1?valueRenderOption=UNFORMATTED_VALUE&prettyPrint=false`,
        { headers: { authorization: `Bearer ${token}` } },
      );
      const { values } = (await answer.json()) as { values: unknown[] };
      if (values.length !== count + 1) throw new Error(`${values.length} rows were read`);
    };
    const sync = async (name: (typeof names)[number], expected: number) => {
      figures['bare: read'].push(await timed(bare));
      let run: RunSeen | undefined;
      figures[name].push(
        await timed(async () => {
          run = await sheets.run();
        }),
      );
      const { added = 0, updated = 0 } = run?.counts.Row ?? {};
      if (run?.state !== 'succeeded' || added + updated !== expected)
        throw new Error(`${name}: ${JSON.stringify(run)}`);
    };
    // Of another spreadsheet under the same variant: its records are removed first, as a reset does it.
    await sheets.empty();
    await sync('first sync', count);
    // A large grid is read in pieces once; by the next run it is known how much of it is used.
    await sheets.run();
    await sync('unchanged sync', 0);
    const changed = rows.flatMap((_, at) => (at % 100 === 0 ? [at] : []));
    const data = changed.map((at) => ({ range: `B${at + 2}`, values: [[`somebody else ${round}`]] }));
    const path = `/${id}/values:batchUpdate`;
    const answer = await sheets.api('POST', path, { valueInputOption: 'RAW', data });
    if (answer.status !== 200) throw new Error(answer.text);
    await sync('sync with 1 % changes', changed.length);
  }
  return figures;
}
