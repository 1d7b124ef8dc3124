// Slow: it runs functions on large sheets.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  type Counts,
  catalogWith,
  openSheets,
  type RunSeen,
  refusalOf,
  type Sheets,
} from '../support/sheets.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What the sync `rows` makes of what people do to a sheet. */
let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

const nothing = { added: 0, updated: 0, deleted: 0 };
const changes = ({ counts }: RunSeen) => {
  const { unchanged: _, ...rest } = (counts.Row ?? { ...nothing, unchanged: 0 }) as Counts;
  return rest;
};
const schemaChanges = async () => {
  const { body } = await trellis.call('GET', '/events?types=sync.schema_changed&limit=100');
  return (body.events as { data: { variant: string; changes: object[] } }[]).map(({ data }) => data);
};
const header = ['Order', 'Customer', 'Amount', 'Placed'];
const orders = (count: number) =>
  Array.from({ length: count }, (_, at) => [
    `o-${at}`,
    `customer ${at % 97}`,
    (at * 7919) % 10_007,
    46_000 + at / 8,
  ]);
const allColumns = (sheetId = 0) => ({ sheetId, startRowIndex: 1, startColumnIndex: 0, endColumnIndex: 4 });
const formatted = (column: number, type: string) => ({
  repeatCell: {
    range: { sheetId: 0, startRowIndex: 1, startColumnIndex: column, endColumnIndex: column + 1 },
    cell: { userEnteredFormat: { numberFormat: { type } } },
    fields: 'userEnteredFormat.numberFormat',
  },
});
const rowsOf = (startIndex: number, endIndex: number, sheetId = 0) => ({
  sheetId,
  dimension: 'ROWS',
  startIndex,
  endIndex,
});
const sortBy = (dimensionIndex: number, sortOrder = 'ASCENDING') => ({
  sortRange: { range: allColumns(), sortSpecs: [{ dimensionIndex, sortOrder }] },
});

type Step = {
  name: string;
  act: (sheets: Sheets, id: string) => Promise<unknown>;
  expect?: Partial<typeof nothing>;
  requests?: number;
  fails?: string;
};

/** Each step is done to the sheet, and the sync is run: these changes, so many requests, or this failure. */
async function walk(sheets: Sheets, { id, variant, steps }: { id: string; variant: string; steps: Step[] }) {
  for (const { name, act, expect = {}, requests, fails } of steps) {
    await act(sheets, id);
    const live = await sheets.live(variant);
    const run = await sheets.run('rows', variant);
    assert.deepEqual(
      [run.state, run.error?.code],
      fails ? ['failed', fails] : ['succeeded', undefined],
      `${name}: ${run.error?.message}`,
    );
    if (fails) {
      assert.ok(live > 0);
      assert.equal(await sheets.live(variant), live, name);
    } else assert.deepEqual(changes(run), { ...nothing, ...expect }, name);
    if (requests !== undefined) assert.equal(run.requests, requests, `${name}: requests`);
  }
}

const idle = async () => {};

describe('ten thousand rows, identified by their content', () => {
  let sheets: Sheets;
  let id: string;
  const count = 10_000;
  let kept: (string | number | boolean | null)[][];

  before(async () => {
    sheets = await openSheets(trellis);
    id = await sheets.make([header, ...orders(count)], { sheet: 'Orders' });
    await sheets.edit(id, formatted(3, 'DATE_TIME'));
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
  });

  test('every step reports its changes', async () => {
    await walk(sheets, {
      id,
      variant: 'base',
      steps: [
        { name: 'a first sync', act: idle, expect: { added: count }, requests: 3 },
        { name: 'an unchanged sheet', act: idle, requests: 1 },
        { name: 'sorted', act: () => sheets.edit(id, sortBy(2)), requests: 2 },
        { name: 'sorted the other way', act: () => sheets.edit(id, sortBy(1, 'DESCENDING')) },
        {
          name: 'a row put in between',
          act: async () => {
            await sheets.edit(id, {
              insertDimension: { range: rowsOf(5000, 5001), inheritFromBefore: true },
            });
            await sheets.put(id, { range: 'Orders!A5001:D5001', values: [['o-new', 'new', 1, 46_000]] });
          },
          expect: { added: 1 },
        },
        {
          name: 'a row taken out',
          act: () => sheets.edit(id, { deleteDimension: { range: rowsOf(20, 21) } }),
          expect: { deleted: 1 },
        },
        {
          name: 'rows moved',
          act: () => sheets.edit(id, { moveDimension: { source: rowsOf(100, 150), destinationIndex: 9000 } }),
        },
        {
          name: 'a cell changed',
          act: () => sheets.put(id, { range: 'Orders!B70', values: [['somebody else']] }),
          expect: { updated: 1 },
        },
        {
          name: 'a cell changed and all of it sorted',
          act: async () => {
            await sheets.put(id, { range: 'Orders!B80', values: [['yet another']] });
            await sheets.edit(id, sortBy(0));
          },
          expect: { updated: 1 },
        },
        {
          name: 'formulas, one of which cannot be worked out',
          act: () =>
            sheets.put(id, { range: 'Orders!C2:C3', values: [['=6*7'], ['=1/0']], input: 'USER_ENTERED' }),
          expect: { updated: 2 },
        },
        {
          name: 'the tab renamed, and its name given to another',
          act: () =>
            sheets.edit(
              id,
              { updateSheetProperties: { properties: { sheetId: 0, title: 'Old' }, fields: 'title' } },
              { addSheet: { properties: { sheetId: 7, title: 'Orders' } } },
            ),
        },
        {
          name: 'emptied',
          act: async () => {
            kept = await sheets.values(id, 'Old');
            await sheets.edit(id, { updateCells: { range: { sheetId: 0 }, fields: 'userEnteredValue' } });
          },
          fails: 'mass_delete_held',
        },
        {
          name: 'brought back, in another order',
          act: async () => {
            const [head = [], ...rows] = kept;
            await sheets.put(id, { range: 'Old!A1', values: [head, ...rows.toReversed()] });
          },
        },
        {
          name: 'a header renamed',
          act: () => sheets.put(id, { range: 'Old!C1', values: [['Total']] }),
          expect: { updated: count },
        },
        {
          name: 'the tab deleted',
          act: () => sheets.edit(id, { deleteSheet: { sheetId: 0 } }),
          fails: 'source_unavailable',
        },
      ],
    });
    const records = await sheets.records();
    const one = records.find(({ fields }) => fields.Order === 'o-1')!;
    assert.deepEqual(one.fields, {
      Order: 'o-1',
      Customer: 'customer 1',
      Total: { error: '#DIV/0!' },
      Placed: '2025-12-09T03:00:00+00:00',
    });
    assert.deepEqual(await schemaChanges(), [
      {
        integration_id: 'google-sheet',
        provider_config_key: 'google-sheet',
        connection_id: sheets.connectionId,
        function: 'rows',
        variant: 'base',
        model: 'Row',
        changes: [{ change: 'renamed', field: 'Total', previous: 'Amount' }],
      },
    ]);
  });
});

describe('rows identified by a key, in two tabs', () => {
  test('every step reports its changes', async () => {
    const sheets = await openSheets(trellis, { account: 'grace@example.com' });
    const count = 300;
    const id = await sheets.make([header, ...orders(count)]);
    await sheets.edit(id, formatted(3, 'DATE'), {
      addSheet: { properties: { sheetId: 5, title: 'People' } },
    });
    await sheets.put(id, {
      range: 'People!A1:B3',
      values: [
        ['E-mail', 'Name'],
        ['a@example.com', 'Ann'],
        ['b@example.com', 'Bo'],
      ],
    });
    const keyed = { spreadsheetId: id, identity: 'key' };
    await sheets.choose({
      base: { ...keyed, sheetId: 0, keyColumn: 'Order' },
      people: { ...keyed, sheetId: 5, keyColumn: 'E-mail' },
    });
    await walk(sheets, {
      id,
      variant: 'base',
      steps: [
        { name: 'a first sync', act: idle, expect: { added: count } },
        { name: 'sorted', act: () => sheets.edit(id, sortBy(2)) },
        {
          name: 'every cell but the key changed, and sorted',
          act: async () => {
            await sheets.put(id, { range: 'B2:D2', values: [['x', -1, 1]] });
            await sheets.edit(id, sortBy(0));
          },
          expect: { updated: 1 },
        },
        {
          name: 'a key twice, and a row without one',
          act: async () => {
            await sheets.put(id, { range: 'A3:A4', values: [['o-0'], ['']] });
          },
          expect: { added: 2, deleted: 2 },
        },
        { name: 'sorted with a key twice', act: () => sheets.edit(id, sortBy(2, 'DESCENDING')) },
        {
          name: 'the key column renamed',
          act: () => sheets.put(id, { range: 'A1', values: [['Order no.']] }),
          expect: { updated: count },
        },
        {
          name: 'the key column deleted',
          act: () =>
            sheets.edit(id, {
              deleteDimension: { range: { sheetId: 0, dimension: 'COLUMNS', startIndex: 0, endIndex: 1 } },
            }),
          fails: 'key_column_missing',
        },
      ],
    });
    await walk(sheets, {
      id,
      variant: 'people',
      steps: [{ name: 'the other tab', act: idle, expect: { added: 2 } }],
    });
    const people = await sheets.records('people');
    assert.deepEqual(
      people.map((one) => [one.id, one.fields]),
      [
        ['a@example.com', { 'E-mail': 'a@example.com', Name: 'Ann' }],
        ['b@example.com', { 'E-mail': 'b@example.com', Name: 'Bo' }],
      ],
    );
    const ids = (await sheets.records()).map((one) => one.id);
    assert.ok(ids.includes('o-0') && ids.includes('o-0~2') && ids.some((one) => one.startsWith('~')));
    const tabs = await sheets.run('worksheets');
    assert.deepEqual([tabs.state, tabs.counts.Worksheet?.added, tabs.requests], ['succeeded', 2, 1]);
    const worksheets = await sheets.records('base', 'Worksheet');
    assert.deepEqual(
      worksheets.map((one) => one.id),
      [`${id}/0`, `${id}/5`],
    );
  });
});

describe('a tab that is too large for one answer', () => {
  test('is read in parts until two readings agree, and rows keep their positions', async () => {
    const sheets = await openSheets(trellis, { account: 'large@example.com' });
    const id = await sheets.make([header, ...orders(10)]);
    const gridProperties = { rowCount: 60_000, columnCount: 26 };
    const fields = 'gridProperties(rowCount,columnCount)';
    await sheets.edit(id, { updateSheetProperties: { properties: { sheetId: 0, gridProperties }, fields } });
    await sheets.put(id, { range: 'A50000:D50001', values: orders(2) });
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
    await walk(sheets, {
      id,
      variant: 'base',
      steps: [
        // The tab; twice the tab and its three pieces; its formats.
        { name: 'a first sync', act: idle, expect: { added: 12 }, requests: 10 },
        { name: 'by now it is known how little of it is used', act: idle, requests: 2 },
        { name: 'an unchanged sheet', act: idle, requests: 1 },
        {
          name: 'a row in the last piece',
          act: () => sheets.put(id, { range: 'B50001', values: [['changed']] }),
          expect: { updated: 1 },
          requests: 2,
        },
      ],
    });
  });
});

describe('rows identified by metadata', () => {
  test('every step reports its changes, with one request if nothing changed', async () => {
    const sheets = await openSheets(trellis, { account: 'linus@example.com' });
    const count = 40;
    const id = await sheets.make([header, ...orders(count)]);
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0, identity: 'metadata' } });
    await walk(sheets, {
      id,
      variant: 'base',
      steps: [
        // The tab, its rows, their marks, and the rows again.
        { name: 'a first sync', act: idle, expect: { added: count }, requests: 4 },
        { name: 'an unchanged sheet', act: idle, requests: 1 },
        {
          name: 'every cell of a row changed, and moved',
          act: async () => {
            await sheets.put(id, { range: 'A5:D5', values: [['x', 'y', 'z', 'w']] });
            await sheets.edit(id, { moveDimension: { source: rowsOf(4, 5), destinationIndex: 20 } });
          },
          expect: { updated: 1 },
          requests: 1,
        },
        {
          name: 'a row copied: the copy is a record of its own',
          act: async () => {
            const [row = []] = await sheets.values(id, 'A3:D3');
            await sheets.edit(id, { insertDimension: { range: rowsOf(10, 11), inheritFromBefore: true } });
            await sheets.put(id, { range: 'A11:D11', values: [row] });
          },
          expect: { added: 1 },
          requests: 3,
        },
        {
          name: 'a row taken out',
          act: () => sheets.edit(id, { deleteDimension: { range: rowsOf(7, 8) } }),
          expect: { deleted: 1 },
        },
      ],
    });
    // A header that comes up from below its place has new rows where it stood.
    const lower = await sheets.make([['Orders'], ['of May'], header, ...orders(5)]);
    await sheets.choose({
      low: { spreadsheetId: lower, sheetId: 0, identity: 'metadata', headerRow: 3 },
    });
    await walk(sheets, {
      id: lower,
      variant: 'low',
      steps: [
        { name: 'a header in the third row', act: idle, expect: { added: 5 } },
        {
          name: 'two rows above it deleted, and two rows put in below it',
          act: async () => {
            await sheets.edit(lower, { deleteDimension: { range: rowsOf(0, 2) } });
            await sheets.edit(lower, { insertDimension: { range: rowsOf(1, 3) } });
            await sheets.put(lower, {
              range: 'A2',
              values: [
                ['new', 'one', 1, 1],
                ['new', 'two', 2, 2],
              ],
            });
          },
          expect: { added: 2 },
        },
      ],
    });
    assert.ok((await sheets.records('low')).every((one) => /^\d+$/.test(one.id)));
  });
});

describe('a fault in a sheet', () => {
  test('is reported as such, and as nothing else', async () => {
    const sheets = await openSheets(trellis, { account: 'wrong@example.com' });
    const count = 300;
    const id = await sheets.make([header, ...orders(count)]);
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
    let kept: (string | number | boolean | null)[][] = [];
    await walk(sheets, {
      id,
      variant: 'base',
      steps: [
        { name: 'a first sync', act: idle, expect: { added: count } },
        {
          name: 'the header deleted',
          act: () => sheets.edit(id, { deleteDimension: { range: rowsOf(0, 1) } }),
          fails: 'header_row_missing',
        },
        {
          name: 'the header brought back',
          act: async () => {
            await sheets.edit(id, { insertDimension: { range: rowsOf(0, 1) } });
            await sheets.put(id, { range: 'A1', values: [header] });
          },
        },
        {
          name: 'most rows deleted',
          act: async () => {
            kept = await sheets.values(id, 'A52:D301');
            await sheets.edit(id, { deleteDimension: { range: rowsOf(51, 301) } });
          },
          fails: 'mass_delete_held',
        },
        {
          name: 'all but one brought back, and one taken out that the held run has seen',
          act: async () => {
            await sheets.put(id, { range: 'A52', values: kept.slice(1) });
            await sheets.edit(id, { deleteDimension: { range: rowsOf(5, 6) } });
          },
          expect: { deleted: 2 },
        },
        { name: 'all of it is told by now', act: idle, requests: 1 },
        {
          name: 'a header with more characters than an event can hold',
          act: () => sheets.put(id, { range: 'C1', values: [['x'.repeat(5_000)]] }),
          expect: { updated: count - 2 },
        },
      ],
    });
  });

  test('rows that are large together are saved, a row that is too large is reported, and nothing overwrites it', async () => {
    const sheets = await openSheets(trellis, { account: 'heavy@example.com' });
    const long = 'x'.repeat(45_000);
    const heavy = Array.from({ length: 400 }, (_, at) => [`row ${at}`, long]);
    const id = await sheets.make([['Name', 'Text'], ...heavy]);
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
    const first = await sheets.run();
    assert.deepEqual([first.error, first.counts.Row?.added], [null, 400]);

    // More than a record can have: the run ends between what it knows and what it saves.
    const small = await sheets.make([
      ['Name', 'Text'],
      ['a', 1],
      ['b', 2],
    ]);
    await sheets.choose({
      base: { spreadsheetId: small, sheetId: 0 },
      small: { spreadsheetId: small, sheetId: 0 },
    });
    assert.equal((await sheets.run('rows', 'small')).counts.Row?.added, 2);
    await sheets.put(small, { range: 'B2', values: [['changed']] });
    await sheets.edit(small, { appendDimension: { sheetId: 0, dimension: 'COLUMNS', length: 200 } });
    await sheets.edit(small, { insertDimension: { range: rowsOf(1, 2) } });
    const half = Array.from({ length: 95 }, () => long);
    for (const range of ['C2', 'DA2']) await sheets.put(small, { range, values: [half] });
    const large = await sheets.run('rows', 'small');
    assert.deepEqual(
      [large.state, large.error?.code],
      ['failed', 'invalid_record'],
      large.error?.message ?? '',
    );
    const [one] = await sheets.records('small');
    assert.equal(one?.fields.Text, 1);
    const update = { variant: 'small', updates: [{ id: one!.id, values: { Name: 'by us' } }] };
    const { type, current } = refusalOf(await sheets.action('update-cells', update));
    assert.deepEqual([type, (current as { Text: string }).Text], ['row_changed', 'changed']);

    await sheets.edit(small, { deleteDimension: { range: rowsOf(1, 2) } });
    const after = await sheets.run('rows', 'small');
    assert.deepEqual([after.error, changes(after)], [null, { ...nothing, updated: 1 }]);
    assert.equal((await sheets.action('update-cells', update)).status, 200);
  });
});

describe('the budget of an account', () => {
  const window = 2;
  const reads = 12;
  let shared: TestTrellis;
  before(async () => {
    shared = await openTrellis({}, { catalog: catalogWith({ reads, windowS: window }) });
  });
  after(() => shared.close());

  test('ten connections of one account share it: none is refused, none is starved', async () => {
    const all: Sheets[] = [];
    for (let n = 0; n < 10; n++) {
      const one = await openSheets(shared, {
        account: 'shared@example.com',
        integration: 'shared',
        quota: 'on',
      });
      const id = await one.make([header, ...orders(20)]);
      await one.choose({ base: { spreadsheetId: id, sheetId: 0 } });
      all.push(one);
    }
    // A call that is released late in one window and arrives in the next counts there: twice the quota is never used up.
    await shared.control('POST', 'quota', {
      reads_per_account: 2 * reads,
      reads_per_project: 1_000,
      window_s: window,
    });
    const started = performance.now();
    const runs = await Promise.all(all.map((one) => one.run()));
    const tookMs = performance.now() - started;
    assert.deepEqual(
      runs.map(({ state, counts, error }) => [state, counts.Row?.added, error]),
      all.map(() => ['succeeded', 20, null]),
    );
    assert.deepEqual((await shared.control('GET', 'quota')).refused, 0);
    // Thirty reads do not fit into one window, so some have waited, and no longer than it takes to get through.
    assert.ok(tookMs > window * 1000, `${tookMs}`);
  });

  test('a file of a hundred tabs is one read for all of its tabs, and one for each tab that is followed', async () => {
    const one = await openSheets(shared, { account: 'many@example.com', integration: 'shared' });
    const id = await one.make([header, ...orders(2)]);
    const tabs = Array.from({ length: 99 }, (_, at) => ({
      addSheet: { properties: { sheetId: at + 1, title: `Tab ${at + 1}` } },
    }));
    await one.edit(id, ...tabs);
    await one.choose({ base: { spreadsheetId: id, sheetId: 0 } });
    const run = await one.run('worksheets');
    assert.deepEqual([run.counts.Worksheet?.added, run.requests], [100, 1]);
  });
});
