// Slow: it runs functions on large sheets.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { actionCode, deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { openSheets, refusalOf, type Sheets } from '../support/sheets.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** Setting sheets up, writing back, and what goes wrong: the functions that ship for Google Sheets. */
const auth = 'https://www.googleapis.com/auth/';
let trellis: TestTrellis;
let sheets: Sheets;
before(async () => {
  trellis = await openTrellis();
  sheets = await openSheets(trellis);
});
after(() => trellis.close());

const header = ['SKU', 'Name', 'Price', 'Since', 'Active'];
const goods = (count: number) =>
  Array.from({ length: count }, (_, at) => [`s-${at}`, `thing ${at}`, at * 1.5, 46_000 + at, at % 2 === 0]);
const dates = {
  repeatCell: {
    range: { sheetId: 0, startRowIndex: 1, startColumnIndex: 3, endColumnIndex: 4 },
    cell: { userEnteredFormat: { numberFormat: { type: 'DATE' } } },
    fields: 'userEnteredFormat.numberFormat',
  },
};
const fault = (name: string, more: object = {}) =>
  trellis.control('POST', 'faults', { case: name, times: 1, ...more });
const clearFaults = () => trellis.control('DELETE', 'faults');

describe('setting up', () => {
  test('a link is described: title, tabs, and which of them it names', async () => {
    const id = await sheets.make([header, ...goods(3)]);
    await sheets.edit(id, { addSheet: { properties: { sheetId: 9, title: 'Hidden', hidden: true } } });
    const spreadsheet = `https://docs.google.com/spreadsheets/d/${id}/edit#gid=9`;
    const { status, body, text } = await sheets.action('describe-spreadsheet', { spreadsheet });
    assert.equal(status, 200, text);
    assert.deepEqual([body.spreadsheetId, body.title, body.sheetId], [id, 'Book', 9]);
    assert.deepEqual(body.identities, ['key', 'metadata', 'content']);
    assert.deepEqual(body.tabs, [
      {
        sheetId: 0,
        title: 'Sheet1',
        index: 0,
        kind: 'grid',
        rows: 1000,
        columns: 26,
        hidden: false,
        protected: false,
      },
      {
        sheetId: 9,
        title: 'Hidden',
        index: 1,
        kind: 'grid',
        rows: 1000,
        columns: 26,
        hidden: true,
        protected: false,
      },
    ]);
    const refused = await sheets.action('describe-spreadsheet', { spreadsheet: 'my orders' });
    assert.equal(refusalOf(refused).type, 'invalid_link');
    const gone = await sheets.action('describe-spreadsheet', { spreadsheet: `1${'x'.repeat(43)}` });
    assert.equal(refusalOf(gone).type, 'source_unavailable');
  });

  test('a preview finds the header, types and keys, and shows rows as they would be saved', async () => {
    const id = await sheets.make([['Our goods'], header, ...goods(4), ['s-0', 'again', 1, 46_000, true]]);
    await sheets.edit(id, dates);
    const { body, text } = await sheets.action('preview-rows', {
      spreadsheet: id,
      keyColumn: 'SKU',
      limit: 1,
    });
    assert.deepEqual([body.headerRow, body.suggestedHeaderRow, body.totalRows], [2, 2, 5], text);
    assert.deepEqual(
      (body.columns as { field: string; type: string }[]).map(({ field, type }) => [field, type]),
      [
        ['SKU', 'text'],
        ['Name', 'text'],
        ['Price', 'number'],
        ['Since', 'date'],
        ['Active', 'boolean'],
      ],
    );
    assert.deepEqual(body.keys, { column: 'SKU', empty: 0, duplicates: 1, examples: ['s-0'] });
    assert.equal(body.suggestedKeyColumn, null);
    assert.deepEqual(body.rows, [
      { SKU: 's-0', Name: 'thing 0', Price: 0, Since: '2025-12-09', Active: true },
    ]);
    const unique = await sheets.make([header, ...goods(4)]);
    const suggested = await sheets.action('preview-rows', { spreadsheet: unique });
    assert.equal(suggested.body.suggestedKeyColumn, 'SKU');
    const reader = await trellis.keyWith('functions:read');
    const call = { action_name: 'preview-rows', input: { spreadsheet: unique } };
    const read = await trellis.call('POST', '/action/trigger', {
      key: reader,
      headers: sheets.headers,
      body: call,
    });
    assert.equal(read.status, 200, read.text);
  });

  test('spreadsheets are listed if the connection may call Drive; otherwise a link is needed', async () => {
    const none = await sheets.action('list-spreadsheets', {});
    assert.deepEqual([none.body.available, none.body.spreadsheets], [false, []], none.text);
    const seeing = await openSheets(trellis, {
      integration: 'with-drive',
      account: 'drive@example.com',
      scopes: [`${auth}drive`],
    });
    const id = await seeing.make([header]);
    const { body, text } = await seeing.action('list-spreadsheets', { search: 'book' });
    assert.deepEqual([body.available, body.ownFilesOnly, body.nextPageToken], [true, false, null], text);
    assert.deepEqual(
      (body.spreadsheets as { spreadsheetId: string }[]).map((one) => one.spreadsheetId),
      [id],
    );

    // With Drive an unchanged sheet costs one request, and none of the Sheets API.
    await seeing.choose({ base: { spreadsheetId: id, sheetId: 0 } });
    await seeing.put(id, { range: 'A2', values: [['s-1']] });
    assert.equal((await seeing.run()).counts.Row?.added, 1);
    const unchanged = await seeing.run();
    assert.deepEqual([unchanged.requests, unchanged.counts], [1, {}]);
    await seeing.put(id, { range: 'A3', values: [['s-2']] });
    assert.equal((await seeing.run()).counts.Row?.added, 1);

    // A format that changes alone is seen by the run that takes everything again, which is every twelfth.
    await seeing.put(id, { range: 'D2', values: [[46_000]] });
    assert.equal((await seeing.run()).counts.Row?.updated, 1);
    await seeing.edit(id, dates);
    const formatted = await seeing.run();
    assert.deepEqual([formatted.counts, formatted.requests], [{}, 2]);
    for (let left = 10; left > 0; left--) assert.equal((await seeing.run()).requests, 1);
    const due = await seeing.run();
    assert.deepEqual([due.counts.Row?.updated, due.requests], [1, 3]);

    const trash = await trellis.call('PATCH', `/proxy/drive/v3/files/${id}`, {
      headers: seeing.headers,
      body: { trashed: true },
    });
    assert.equal(trash.status, 200, trash.text);
    const trashed = await seeing.run();
    assert.deepEqual([trashed.state, trashed.error?.code], ['failed', 'source_unavailable']);
  });

  test('who may only read has its rows too, and cannot write', async () => {
    const reading = await openSheets(trellis, {
      integration: 'reads-only',
      account: 'reader@example.com',
      scopes: [`${auth}spreadsheets.readonly`],
    });
    const id = await reading.make([header, ...goods(3)]);
    await reading.choose({
      base: { spreadsheetId: id, sheetId: 0 },
      marked: { spreadsheetId: id, sheetId: 0, identity: 'metadata' },
    });
    const first = await reading.run();
    assert.deepEqual([first.error, first.counts.Row?.added, first.requests], [null, 3, 3]);
    assert.equal((await reading.run()).requests, 1);
    const marked = await reading.run('rows', 'marked');
    assert.equal(marked.error?.code, 'missing_scopes');
    const written = await reading.action('append-rows', { rows: [{ SKU: 'x' }] });
    assert.equal(refusalOf(written).type, 'missing_scopes');
  });
});

describe('writing back', () => {
  let id: string;
  before(async () => {
    id = await sheets.make([header, ...goods(5)]);
    await sheets.edit(id, dates);
    await sheets.choose({
      base: { spreadsheetId: id, sheetId: 0 },
      keyed: { spreadsheetId: id, sheetId: 0, identity: 'key', keyColumn: 'SKU' },
      marked: { spreadsheetId: id, sheetId: 0, identity: 'metadata' },
    });
    for (const variant of ['base', 'keyed', 'marked']) {
      const run = await sheets.run('rows', variant);
      assert.deepEqual([run.error, run.counts.Row?.added], [null, 5], variant);
    }
  });
  const recordOf = async (variant: string, sku: string) =>
    (await sheets.records(variant)).find(({ fields }) => fields.SKU === sku)!;
  const update = (variant: string, updates: object[], more: object = {}) =>
    sheets.action('update-cells', { variant, updates, ...more });

  for (const variant of ['base', 'keyed', 'marked']) {
    test(`${variant}: a row is found by its record at any position, and its cells are written`, async () => {
      const record = await recordOf(variant, 's-3');
      const at = (await sheets.values(id, 'A1:A9')).flat().indexOf('s-3');
      const row = at === 1 ? 4 : 2;
      await sheets.edit(id, {
        moveDimension: {
          source: { sheetId: 0, dimension: 'ROWS', startIndex: at, endIndex: at + 1 },
          destinationIndex: at === 1 ? 4 : 1,
        },
      });
      const { cursor, last_modified_at } = record._trellis_metadata;
      const values = { Name: `by ${variant}`, Since: '2026-01-31', Price: null };
      const answer = await update(variant, [{ id: record.id, values, cursor, last_modified_at }]);
      assert.equal(answer.status, 200, answer.text);
      assert.deepEqual(answer.body, { updated: [{ id: record.id, row }] });
      assert.deepEqual(await sheets.values(id, `A${row}:E${row}`), [
        ['s-3', `by ${variant}`, '', 46_053, false],
      ]);
      for (const each of ['base', 'keyed', 'marked']) await sheets.run('rows', each);
      const after = await recordOf(variant, 's-3');
      assert.equal(after.id, record.id);
      assert.deepEqual(after.fields, {
        SKU: 's-3',
        Name: `by ${variant}`,
        Price: null,
        Since: '2026-01-31',
        Active: false,
      });
      const marks = await sheets.api(
        'GET',
        `/${id}?fields=sheets(data(rowMetadata(developerMetadata(metadataKey))))&includeGridData=true`,
      );
      assert.ok(!marks.text.includes('trellis.at'), 'a mark was left');
      // Put back for the next one.
      await sheets.put(id, { range: `C${row}`, values: [[4.5]] });
      for (const each of ['base', 'keyed', 'marked']) await sheets.run('rows', each);
    });
  }

  test('a row that has changed since is refused with what it holds, unless it is forced', async () => {
    const record = await recordOf('base', 's-1');
    const [[, ...rest] = []] = await sheets.values(id, 'A4:E4');
    assert.ok(rest.length > 0);
    const rows = await sheets.values(id, 'A1:E6');
    const at = rows.findIndex(([sku]) => sku === 's-1') + 1;
    await sheets.put(id, { range: `B${at}`, values: [['changed by somebody']] });
    const refused = await update('base', [{ id: record.id, values: { Price: 1 } }]);
    assert.equal(refused.status, 500);
    const { type, current } = refusalOf(refused);
    assert.deepEqual([type, (current as { Name: string }).Name], ['row_changed', 'changed by somebody']);
    const forced = await update('base', [{ id: record.id, values: { Price: 1 } }], { force: true });
    assert.equal(forced.status, 200, forced.text);
    await sheets.run();
    const stale = await update('base', [
      { id: record.id, values: { Price: 2 }, cursor: record._trellis_metadata.cursor },
    ]);
    assert.equal(refusalOf(stale).type, 'row_changed');
    assert.deepEqual((await sheets.values(id, `C${at}`)).flat(), [1]);
  });

  test('a missing record, field or variant is reported, and nothing is written', async () => {
    const { id: record } = await recordOf('base', 's-2');
    const before = await sheets.values(id, 'A1:E9');
    for (const [updates, more, type] of [
      [[{ id: 'none', values: { Price: 1 } }], {}, 'unknown_row'],
      [[{ id: record, values: { Nothing: 1 } }], {}, 'unknown_field'],
      [
        [
          { id: record, values: {} },
          { id: record, values: {} },
        ],
        {},
        'refused',
      ],
      [[{ id: record, values: {} }], { variant: 'other' }, 'invalid_settings'],
    ] as const) {
      const refused = await sheets.action('update-cells', { variant: 'base', updates, ...more });
      assert.equal(refusalOf(refused).type, type, refused.text);
    }
    assert.deepEqual(await sheets.values(id, 'A1:E9'), before);
  });

  test('rows that are pushed down between looking and writing are found where they went', async () => {
    const record = await recordOf('base', 's-2');
    // The tab, its values and its formats are read before the rows are marked.
    await fault('api_slow', { every: 4, delay_ms: 800 });
    const answer = update('base', [{ id: record.id, values: { Name: 'in the right row' } }]);
    const isStruck = async () => ((await trellis.control('GET', 'faults')).faults as object[]).length === 0;
    while (!(await isStruck())) await pause(10);
    const range = { sheetId: 0, dimension: 'ROWS', startIndex: 1, endIndex: 2 };
    await sheets.edit(id, { insertDimension: { range } });
    assert.equal((await answer).status, 200, (await answer).text);
    const rows = await sheets.values(id, 'A1:B9');
    assert.deepEqual(
      rows.filter(([sku, name]) => sku === 's-2' || name === 'in the right row'),
      [['s-2', 'in the right row']],
    );
    await sheets.edit(id, { deleteDimension: { range } });
  });

  test("protected cells are refused with Google's message", async () => {
    const record = await recordOf('keyed', 's-4');
    await fault('api_protected_range', { every: 6 });
    const answer = await update('keyed', [{ id: record.id, values: { Name: 'not written' } }]);
    await clearFaults();
    const { type, message } = refusalOf(answer);
    assert.deepEqual([type, /protected cell/.test(message)], ['refused', true], answer.text);
    assert.ok(!(await sheets.values(id, 'B1:B9')).flat().includes('not written'));
  });

  test('a pruned record is written back as any other', async () => {
    await sheets.run('rows', 'keyed');
    const record = await recordOf('keyed', 's-4');
    const { cursor } = record._trellis_metadata;
    const body = { model: 'Row', variant: 'keyed', until_cursor: cursor };
    const pruned = await trellis.call('PATCH', '/records/prune', { headers: sheets.headers, body });
    assert.equal(pruned.status, 200, pruned.text);
    const answer = await update('keyed', [{ id: record.id, values: { Name: 'pruned' }, cursor }]);
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual((await sheets.run('rows', 'keyed')).counts.Row?.updated, 1);
  });

  test('a value that is displayed differently is not reported as missing if the response is lost', async () => {
    const record = await recordOf('marked', 's-4');
    // The tab, all of it with its marks, a look at the row. Then the write.
    await fault('api_reset_after', { every: 4 });
    const updates = [{ id: record.id, values: { Price: '50%' } }];
    const answer = await update('marked', updates, { input: 'USER_ENTERED', force: true });
    await clearFaults();
    const { type, arrived } = refusalOf(answer);
    assert.deepEqual([type, arrived], ['outcome_unknown', 'unknown'], answer.text);
    assert.ok((await sheets.values(id, 'C1:C9')).flat().includes(0.5));
  });

  test('an update whose answer is lost is looked for, and not called lost', async () => {
    await sheets.run('rows', 'keyed');
    const record = await recordOf('keyed', 's-4');
    // Reads and marks come first: the tab, its values, its formats, marks, a look at them. Then the write.
    await fault('api_reset_after', { every: 6 });
    const answer = await update('keyed', [{ id: record.id, values: { Name: 'lost and found' } }]);
    await clearFaults();
    assert.equal(answer.status, 200, answer.text);
    assert.ok((await sheets.values(id, 'B1:B9')).flat().includes('lost and found'));
  });
});

describe('a reset', () => {
  test('keeps the ids of rows, and with removal of the records starts with new ids', async () => {
    const id = await sheets.make([header, ...goods(3)]);
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
    await sheets.empty();
    await sheets.run();
    await sheets.put(id, { range: 'B2', values: [['changed since']] });
    await sheets.run();
    const idOf = async () =>
      (await sheets.records()).find(({ fields }) => fields.SKU === 's-0' && fields.Name === 'changed since')!
        .id;
    const before = await idOf();
    const body = { ...sheets.place, syncs: ['rows'], opts: { reset: true } };
    assert.equal((await trellis.call('POST', '/sync/trigger', { body })).status, 200);
    const again = await sheets.run();
    assert.deepEqual([again.state, again.counts.Row ?? {}], ['succeeded', {}]);
    assert.equal(await idOf(), before);
    await sheets.empty();
    assert.equal((await sheets.run()).counts.Row?.added, 3);
    assert.notEqual(await idOf(), before);
  });
});

describe('appending', () => {
  let id: string;
  const rowsIn = async () => (await sheets.values(id, 'A2:E99')).filter((row) => row.length > 0);
  before(async () => {
    id = await sheets.make([header, ...goods(2)]);
    await sheets.edit(id, dates);
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
  });

  test('rows are appended by their fields, as they are or as if they were typed', async () => {
    const row = { SKU: '=1+1', Name: '007', Since: '2026-03-01', Active: true };
    const raw = await sheets.action('append-rows', { rows: [row] });
    assert.deepEqual([raw.status, raw.body], [200, { appended: 1, confirmed_by: 'answer' }], raw.text);
    const typed = await sheets.action('append-rows', {
      rows: [{ SKU: '=1+1', Price: '12%' }],
      input: 'USER_ENTERED',
    });
    assert.equal(typed.status, 200, typed.text);
    assert.deepEqual((await rowsIn()).slice(2), [
      ['=1+1', '007', '', 46_082, true],
      [2, '', 0.12],
    ]);
    const unknown = await sheets.action('append-rows', { rows: [{ Colour: 'red' }] });
    assert.equal(refusalOf(unknown).type, 'unknown_field');
  });

  test('rows are appended under their headers, at any position and with any cells below', async () => {
    const other = await sheets.make([header, ...goods(3)]);
    await sheets.choose({ base: { spreadsheetId: other, sheetId: 0 } });
    await sheets.run();
    await sheets.edit(other, {
      insertDimension: { range: { sheetId: 0, dimension: 'ROWS', startIndex: 0, endIndex: 2 } },
    });
    await sheets.put(other, { range: 'A1', values: [['Goods of May']] });
    const rows = [{ SKU: 'new', Price: 9 }];
    const raw = await sheets.action('append-rows', { rows });
    assert.equal(raw.status, 200, raw.text);
    assert.deepEqual((await sheets.values(other, 'A7:E9'))[0], ['new', '', 9]);
    // Google appends to the lowest block of cells, from its first column on.
    await sheets.put(other, { range: 'C9', values: [['Total', 10]] });
    const input = 'USER_ENTERED';
    const refused = await sheets.action('append-rows', { rows, input });
    assert.deepEqual(refusalOf(refused).type, 'refused', refused.text);
    const fits = await sheets.action('append-rows', { rows: [{ Price: '7' }], input });
    assert.equal(fits.status, 200, fits.text);
    assert.deepEqual(await sheets.values(other, 'A9:E12'), [
      ['', '', 'Total', 10],
      ['', '', 7],
    ]);
    const nothing = await sheets.action('append-rows', { rows: [{ SKU: null }] });
    assert.equal(refusalOf(nothing).type, 'refused');
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
  });

  for (const [name, done] of [
    ['api_reset_after', true],
    ['api_reset', false],
  ] as const) {
    test(`${name}: sent rows are searched and never sent again, whatever retries are requested`, async () => {
      const before = (await rowsIn()).length;
      const calls = async () =>
        Number((await trellis.control('GET', 'calls'))['POST /v4/spreadsheets/{spreadsheetId}:batchUpdate']);
      const sent = await calls();
      // The tab and its first rows are read before.
      await fault(name, { every: 3 });
      const answer = await sheets.action('append-rows', { rows: [{ SKU: name }] }, { 'x-max-retries': '5' });
      await clearFaults();
      assert.equal((await calls()) - sent, 1);
      assert.equal((await rowsIn()).length - before, done ? 1 : 0);
      if (done) assert.deepEqual(answer.body, { appended: 1, confirmed_by: 'reread' }, answer.text);
      else {
        const { type, tried, arrived } = refusalOf(answer);
        assert.deepEqual([type, tried, arrived], ['outcome_unknown', 'append', 'not_seen']);
      }
    });
  }

  test('one that is left to run is not run again either, whatever becomes of its node', async () => {
    const left = { 'x-async': 'true', 'x-max-retries': '5' };
    const { status } = await sheets.action('append-rows', { rows: [{ SKU: 'left' }] }, left);
    assert.equal(status, 202);
    const { body } = await trellis.call('GET', '/functions/runs?function=append-rows&limit=1');
    const [run] = body.runs as { id: string; most_attempts: number }[];
    assert.equal(run?.most_attempts, 1);
    await sheets.settled(run.id);
  });

  test('a spreadsheet is made with tabs and headers', async () => {
    const tabs = [{ title: 'People', header: ['Name', 'E-mail'] }, { title: 'Empty' }];
    const { status, body, text } = await sheets.action('create-spreadsheet', { title: 'New', tabs });
    assert.equal(status, 200, text);
    assert.deepEqual(
      (body.tabs as { title: string }[]).map(({ title }) => title),
      ['People', 'Empty'],
    );
    assert.deepEqual(await sheets.values(String(body.spreadsheetId), 'People'), [['Name', 'E-mail']]);
  });
});

describe('errors of the provider', () => {
  let id: string;
  before(async () => {
    id = await sheets.make([header, ...goods(150)]);
    await sheets.choose({ base: { spreadsheetId: id, sheetId: 0 } });
    await sheets.run();
  });

  // Numbers as in the list of failures that the sandbox can switch on.
  for (const [name, code] of [
    ['api_scope_insufficient', 'missing_scopes'],
    ['api_403', 'source_unavailable'],
    ['api_404', 'source_unavailable'],
    ['api_service_disabled', 'integration_misconfigured'],
    ['api_bad_range', 'source_unavailable'],
    ['api_grid_limits', 'header_row_missing'],
    ['api_office_file', 'source_unavailable'],
    ['api_html_200', 'upstream_unreadable'],
  ] as const) {
    test(`${name}: the run fails with ${code}, and nothing is deleted`, async () => {
      const live = await sheets.live();
      await sheets.put(id, { range: 'A2', values: [[`changed for ${name}`]] });
      await fault(name);
      const run = await sheets.run();
      await clearFaults();
      assert.deepEqual([run.state, run.error?.code], ['failed', code]);
      assert.equal(await sheets.live(), live);
      assert.equal((await sheets.run()).state, 'succeeded');
    });
  }

  for (const name of ['api_truncated', 'api_gzip_broken']) {
    test(`${name}: it passes, and the next attempt finds what changed`, async () => {
      await sheets.put(id, { range: 'A3', values: [[`changed for ${name}`]] });
      await fault(name);
      const run = await sheets.run();
      await clearFaults();
      const after = run.state === 'failed' ? await sheets.run() : run;
      assert.deepEqual(
        [after.state, after.counts.Row?.updated, after.counts.Row?.deleted],
        ['succeeded', 1, 0],
      );
    });
  }
});

describe('shipping', () => {
  const path = (name: string) => `/integrations/google-sheet/functions/${name}`;

  test('what ships is listed with its schemas, and is put on an integration once', async () => {
    const { body } = await trellis.call('GET', '/functions/shipped?provider=google-sheet');
    const listed = body.data as { name: string; type: string; read_only?: boolean }[];
    assert.deepEqual(listed.map(({ type, name, read_only }) => [type, name, read_only]).toSorted(), [
      ['action', 'append-rows', false],
      ['action', 'create-spreadsheet', false],
      ['action', 'describe-spreadsheet', true],
      ['action', 'list-spreadsheets', true],
      ['action', 'preview-rows', true],
      ['action', 'update-cells', false],
      ['sync', 'rows', undefined],
      ['sync', 'worksheets', undefined],
    ]);
    assert.deepEqual((await trellis.call('GET', '/functions/shipped?provider=github')).body, {
      data: [],
      next_cursor: null,
    });
    const again = await trellis.call('PUT', `${path('rows')}/shipped`, { body: { type: 'sync' } });
    const { version, source } = again.body.data as { version: number; source: string };
    assert.deepEqual([again.status, version, source], [200, 1, 'shipped']);
    for (const [name, type] of [
      ['none', 'sync'],
      ['rows', 'action'],
    ]) {
      const missing = await trellis.call('PUT', `${path(name!)}/shipped`, { body: { type } });
      assert.equal(missing.status, 404, missing.text);
    }
  });

  test('a deploy replaces it, the shipped one cannot replace the deploy, and a reconcile keeps shipped ones', async () => {
    const deploy = (body: object) => trellis.call('POST', '/sync/deploy', { body });
    assert.equal((await deploy(deployBody([]))).status, 200);
    assert.equal((await trellis.call('GET', path('worksheets'))).status, 200);
    const own = flowConfig({ name: 'create-spreadsheet', code: actionCode() });
    assert.equal((await deploy(deployBody([own], { reconcile: false }))).status, 200);
    const taken = (await trellis.call('GET', path('create-spreadsheet'))).body.data as {
      source: string;
      version: number;
    };
    assert.deepEqual([taken.source, taken.version], ['repo', 2]);
    const refused = await trellis.call('PUT', `${path('create-spreadsheet')}/shipped`, {
      body: { type: 'action' },
    });
    assert.deepEqual(
      [refused.status, (refused.body.error as { code: string }).code],
      [409, 'function_exists'],
    );
  });

  test('a start updates older functions to the shipped version, once, and keeps rolled back ones', async () => {
    const versions = async () =>
      (await trellis.call('GET', `${path('worksheets')}/versions`)).body.data as {
        version: number;
        deployed_by: string;
        current: boolean;
      }[];
    // As an older release left it: another text under the origin of the service.
    const old = flowConfig({ name: 'worksheets', code: syncCode({ model: 'Worksheet' }), type: 'sync' });
    const removed = await trellis.call('DELETE', `${path('worksheets')}?type=sync`);
    assert.equal(removed.status, 200);
    await trellis.call('POST', '/sync/deploy', { body: deployBody([old], { reconcile: false }) });
    await trellis.db.query("update function set origin = 'shipped' where name = 'worksheets'");
    const nodes = await Promise.all([trellis.serveAnother(), trellis.serveAnother()]);
    for (let left = 300; (await versions()).length < 2 && left > 0; left--)
      await new Promise((done) => setTimeout(done, 20));
    await Promise.all(nodes.map((node) => node.close()));
    assert.deepEqual(
      (await versions())
        .map(({ version, deployed_by, current }) => [version, deployed_by, current])
        .map(([version, by, current]) => [version, by === 'service', current]),
      [
        [2, true, true],
        [1, false, false],
      ],
    );
    const { body } = await trellis.call('GET', '/audit?limit=100');
    const entries = (body.entries as { action: string; target: string; actor: string }[]).filter(
      ({ action, target, actor }) =>
        action === 'function.deployed' && target.endsWith('/worksheets') && actor === 'service',
    );
    assert.equal(entries.length, 1);
    await trellis.call('POST', `${path('worksheets')}/rollback?type=sync`, { body: { version: 1 } });
    const node = await trellis.serveAnother();
    await node.close();
    assert.equal((await versions()).find(({ current }) => current)?.version, 1);
  });
});
