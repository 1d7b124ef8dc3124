// A sheet becomes records without code: from the first page to pruned rows, and every state of the pages on the way.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { holdCalls, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { openSheets, type Sheets } from '../support/sheets.ts';
import { connect } from '../support/trellis.ts';

describe('a sheet without code, in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let context: BrowserContext;
  let page: Page;
  /** Of the account that the journey connects. */
  let root: string;

  before(async () => {
    dashboard = await openDashboard();
    // A run that comes by its schedule meanwhile would be the last one in place of what is looked for.
    await dashboard.trellis.db.query(
      `create function tomorrow() returns trigger language plpgsql as
       $$ begin new.next_at := new.next_at + interval '1 day'; return new; end $$`,
    );
    await dashboard.trellis.db.query(
      'create trigger tomorrow before insert or update of next_at on sync for each row execute function tomorrow()',
    );
    // What is refused on purpose: links that lead nowhere, sheets that are not shared.
    dashboard.expectComplaint(/40[0-9]|42[0-9]|500/);
    ({ page, context } = await dashboard.openAs('owner'));
  });
  after(() => dashboard?.close());

  const open = (path: string) => page.goto(`${dashboard.trellis.baseUrl}/app/dev${path}`);
  /** No preview is on its way. */
  const previewed = () => region('Rows').locator('table[aria-busy=false]').waitFor();
  const region = (name: string) => page.getByRole('region', { name, exact: true });
  const metadataOf = async (at: { connectionId: string; integration: string }) => {
    const path = `/connections/${at.connectionId}?provider_config_key=${at.integration}`;
    return (await dashboard.trellis.call('GET', path)).body.metadata as { sheets?: Record<string, object> };
  };

  describe('two minutes', () => {
    let at: { connectionId: string; integration: string; headers: Record<string, string> };
    const records = async () =>
      (await dashboard.trellis.call('GET', '/records?model=Row', { headers: at.headers })).body.records as {
        id: string;
        fields?: Record<string, unknown>;
        _trellis_metadata: { last_action: string; pruned_at: string | null };
      }[];

    test('test credentials, and an account at the sandbox', async () => {
      await open('/integrations/new?provider=google-sheet');
      await page.getByRole('button', { name: 'Add', exact: true }).click();
      await page.getByRole('button', { name: 'Connect an account' }).click();
      const [connect] = await Promise.all([
        context.waitForEvent('page'),
        page.getByRole('dialog').getByRole('button', { name: 'Connect' }).click(),
      ]);
      const [provider] = await Promise.all([
        connect.waitForEvent('popup'),
        connect
          .getByRole('button', { name: /google/i })
          .first()
          .click(),
      ]);
      await provider.getByText('ada@example.com').first().click();
      await provider.getByRole('button', { name: /continue|allow/i }).click();
      await connect
        .getByText(/connected/i)
        .first()
        .waitFor();
      await connect.close();
      await page.getByRole('button', { name: 'Done' }).click();
      const { body } = await dashboard.trellis.call('GET', '/connections');
      const [made] = body.connections as { connection_id: string; provider_config_key: string }[];
      const headers = {
        'connection-id': made!.connection_id,
        'provider-config-key': made!.provider_config_key,
      };
      at = { connectionId: made!.connection_id, integration: made!.provider_config_key, headers };
      root = `/connections/${at.integration}/${at.connectionId}`;
    });

    test('a sheet is chosen, and its rows are records', async () => {
      await page.getByRole('link', { name: 'Getting started' }).click();
      await page.getByText('2 of 5').waitFor();
      await page.getByRole('link', { name: 'Choose a sheet' }).click();
      await page.getByText('This connection cannot list').waitFor();
      await picture(page, 'sheet-link');
      await page.getByRole('button', { name: 'Create a sample spreadsheet' }).click();
      await page.getByRole('heading', { name: 'Cities of the playground' }).waitFor();
      const rows = region('Rows');
      await rows.getByText('The service adds a hidden ID').waitFor();
      await rows.getByText('4 rows.').waitFor();
      // No column is called a key, so nothing that could go wrong is chosen for the reader.
      assert.ok(await rows.getByRole('radio', { name: 'Match by content' }).isChecked());
      assert.equal(await rows.getByRole('row').count(), 5);
      await rows.getByRole('radio', { name: 'Key column' }).click();
      await rows.getByText('A · key').waitFor();
      await previewed();
      await picture(page, 'sheet-rows');
      await page.getByRole('button', { name: 'Save and read the sheet' }).click();
      await page.getByText('The last run: 4 added.').waitFor();
      const { body } = await dashboard.trellis.call('GET', '/functions/runs?function=rows');
      assert.equal((body.runs as unknown[]).length, 1);
      await region('Records').getByRole('cell', { name: 'Oslo' }).first().waitFor();
      await picture(page, 'sheet');
      assert.deepEqual(
        (await records()).map(({ id, fields }) => [id, fields?.Country]),
        [
          ['Oslo', 'Norway'],
          ['Rome', 'Italy'],
          ['Bonn', 'Germany'],
          ['Lima', 'Peru'],
        ],
      );
      const { sheets = {} } = await metadataOf(at);
      const { spreadsheetId, ...chosen } = sheets.base as { spreadsheetId: string };
      assert.ok(spreadsheetId.length > 20);
      assert.deepEqual(chosen, {
        sheetId: 0,
        headerRow: 1,
        identity: 'key',
        keyColumn: 'City',
        title: 'Cities of the playground',
        tab: 'Cities',
      });
    });

    test('a cell that is changed at the sandbox is the only change', async () => {
      const sandbox = await context.newPage();
      await sandbox.goto(dashboard.trellis.sandbox.url);
      await sandbox
        .getByLabel('Damage to Cities of the playground')
        .selectOption('put text into a column of numbers');
      await sandbox
        .locator('#spreadsheets .card', { hasText: 'Cities of the playground' })
        .getByRole('button', { name: 'Apply' })
        .click();
      await sandbox.waitForLoadState();
      await sandbox.close();
      await page.getByRole('button', { name: 'Run now' }).click();
      await page.getByText('The last run: 1 updated.').waitFor();
      await region('Records').getByRole('cell', { name: 'n/a' }).waitFor();
      const last = (await records()).at(-1);
      assert.deepEqual([last?.id, last?.fields?.Country], ['Oslo', 'n/a']);
      assert.equal(last?._trellis_metadata.last_action, 'UPDATED');
    });

    test('read records are pruned, and the sheet shows this', async () => {
      await page.getByRole('link', { name: 'Open the dataset' }).click();
      await page.getByRole('button', { name: 'Prune all' }).click();
      await page.getByRole('button', { name: 'Prune 4 records' }).click();
      await page.getByText('The payloads are removed.').waitFor();
      assert.ok((await records()).every(({ _trellis_metadata: { pruned_at: at } }) => at !== null));
      await open(`${root}/sheets/of/base`);
      await region('Records').getByText('pruned').filter({ visible: true }).nth(3).waitFor();
      await open('/getting-started');
      await page.getByText('All steps are done').waitFor();
    });

    test('the identity of rows is changed, after the page has named the consequences for the records', async () => {
      await open(`${root}/sheets/of/base`);
      await page.getByRole('link', { name: 'Edit' }).click();
      const rows = region('Rows');
      await rows.getByText('A · key').waitFor();
      assert.equal(await page.getByText('The records get new IDs').count(), 0);
      await rows.getByRole('radio', { name: 'Match by content' }).click();
      await page.getByText('The records get new IDs').waitFor();
      await previewed();
      await picture(page, 'sheet-edit');
      await page.getByRole('button', { name: 'Save and read the sheet again' }).click();
      await page.getByText('The last run: 4 added.').waitFor();
      assert.ok((await records()).every(({ id }) => id !== 'Oslo'));
    });

    test('the sheet is paused and removed, with its records on request', async () => {
      await open(`${root}?tab=syncs`);
      const sheets = region('Sheets');
      await sheets.getByText('4 records').waitFor();
      await picture(page, 'sheets');
      await sheets.getByRole('button', { name: /^Actions for rows/ }).click();
      await page.getByRole('menuitem', { name: 'Pause' }).click();
      await sheets.getByText('Paused').waitFor();
      await sheets.getByRole('link', { name: /^Cities/ }).click();
      await page.getByRole('button', { name: 'Remove', exact: true }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByText('They can still be read').waitFor();
      await picture(page, 'sheet-remove');
      await dialog.getByRole('radio', { name: 'Remove the records' }).click();
      await dialog.getByRole('button', { name: 'Remove sheet and records' }).click();
      await sheets.getByText('Add a tab of a spreadsheet').waitFor();
      assert.deepEqual(await metadataOf(at), { sheets: {} });
      assert.deepEqual(await records(), []);
      await open(`${root}/sheets/of/base`);
      await page.getByText('Unknown sheet').waitFor();
    });
  });

  describe('every state', () => {
    let seeing: Sheets;
    let id: string;
    let set: string;

    before(async () => {
      seeing = await openSheets(dashboard.trellis, {
        integration: 'with-drive',
        account: 'drive@example.com',
        scopes: ['https://www.googleapis.com/auth/drive'],
      });
      id = await seeing.make([
        ['Our goods, as of today'],
        ['SKU', 'Name', 'Price', 'Since'],
        ['s-1', 'Thing', 1.5, 46_000],
        ['s-1', 'Another thing', 'n/a', 46_001],
        ['', 'Third', 3, 46_002],
      ]);
      await seeing.edit(id, {
        repeatCell: {
          range: { sheetId: 0, startRowIndex: 2, startColumnIndex: 3, endColumnIndex: 4 },
          cell: { userEnteredFormat: { numberFormat: { type: 'DATE' } } },
          fields: 'userEnteredFormat.numberFormat',
        },
      });
      await seeing.edit(id, { addSheet: { properties: { sheetId: 7, title: 'Bestellungen 2026' } } });
      set = `/connections/with-drive/${seeing.connectionId}/sheets/new`;
    });

    test('spreadsheets that the account can see are listed and searched', async () => {
      await open(set);
      const list = page.getByRole('list', { name: 'Spreadsheets' });
      await list.getByRole('button', { name: /^Book/ }).waitFor();
      await picture(page, 'sheet-list');
      await page.getByPlaceholder('Title').fill('nothing of the kind');
      await page.getByText('The account has no spreadsheet with this title.').waitFor();
      await picture(page, 'sheet-list-empty');
      await page.getByPlaceholder('Title').fill('boo');
      await list.getByRole('button', { name: /^Book/ }).click();
      await page.getByRole('heading', { name: 'Book' }).waitFor();
      // The link of the browser, with what was chosen, opens at the same place.
      await page.reload();
      await page.getByRole('heading', { name: 'Book' }).waitFor();
    });

    test('the header row is found, and missing or duplicate keys are reported', async () => {
      const rows = region('Rows');
      await rows.getByText('3 rows.').waitFor();
      assert.equal(await rows.getByLabel('Header row').inputValue(), '2');
      const types = await rows.getByRole('columnheader').allTextContents();
      assert.deepEqual(types, ['ASKUtext', 'BNametext', 'CPricemixed', 'DSincedate']);
      await rows.getByRole('radio', { name: 'Key column' }).click();
      await rows.getByText('One key occurs in more than one row: s-1.').waitFor();
      await rows.getByText('One row has no key').waitFor();
      await previewed();
      await picture(page, 'sheet-keys');
      await rows.getByRole('combobox', { name: 'Key column' }).click();
      await page.getByRole('option', { name: 'Name' }).click();
      await rows.getByText('B · key').waitFor();
      await rows.getByText('Not every row has a unique key').waitFor({ state: 'hidden' });
      await rows.getByLabel('Header row').fill('1');
      await rows.getByRole('button', { name: 'Row 2 is probably the header' }).click();
      await rows.getByText('3 rows.').waitFor();
    });

    test('a second tab gets a name of its own, and an empty one is not saved', async () => {
      await page.getByRole('combobox', { name: 'Tab' }).click();
      await page.getByRole('option', { name: 'Bestellungen 2026' }).click();
      await page.getByText('There are no columns in this row').waitFor();
      assert.equal(await page.getByRole('button', { name: 'Save and read the sheet' }).count(), 0);
      await picture(page, 'sheet-tab-empty');
      await seeing.put(id, {
        range: "'Bestellungen 2026'!A1:B2",
        values: [
          ['ID', 'Was'],
          [1, 'Tee'],
        ],
      });
      await seeing.choose({ base: { spreadsheetId: id, sheetId: 0, headerRow: 2 } });
      await page.reload();
      await page.getByText('1 row.').waitFor();
      assert.ok(await page.getByRole('radio', { name: 'Key column' }).isChecked());
      const name = page.getByRole('textbox', { name: 'Name' });
      assert.equal(await name.inputValue(), 'bestellungen-2026');
      await name.fill('base');
      await page.getByText('Another sheet of this connection has this name').waitFor();
      await name.fill('orders');
      await page.getByRole('combobox', { name: 'Frequency' }).click();
      await page.getByRole('option', { name: 'every hour' }).click();
      await page.getByRole('button', { name: 'Save and read the sheet' }).click();
      await page.getByText('The last run: 1 added.').waitFor();
      await region('State').getByText('every 1h').waitFor();
      assert.equal(await seeing.live('orders'), 1);
      const { sheets = {} } = await metadataOf(seeing);
      assert.deepEqual(Object.keys(sheets).sort(), ['base', 'orders']);
    });

    test('a removed sheet keeps its records, and its name is reported as having records', async () => {
      await page.getByRole('button', { name: 'Remove', exact: true }).click();
      await page.getByRole('button', { name: 'Remove the sheet' }).click();
      await region('Sheets').getByText('Bestellungen 2026').waitFor({ state: 'hidden' });
      await region('Sheets').getByText(id).waitFor();
      assert.equal(await seeing.live('orders'), 1);
      assert.deepEqual(Object.keys((await metadataOf(seeing)).sheets ?? {}), ['base']);
      await open(`${set}?spreadsheet=${id}&tab=7`);
      await page.getByRole('textbox', { name: 'Name' }).fill('orders');
      await page.getByText('Records of another sheet have this name').waitFor();
      await previewed();
      await picture(page, 'sheet-leftover');
    });

    test('the reason why a sheet cannot be read is shown with the next step', async () => {
      const fault = (name: string) => dashboard.trellis.control('POST', 'faults', { case: name, times: 1 });
      const cases: [fault: string | undefined, message: string, step: string][] = [
        [undefined, 'neither a link to a Google spreadsheet nor an ID', 'copy the full address'],
        [
          'api_403',
          'Share the spreadsheet with drive@example.com',
          'this account can open it. Then try again',
        ],
        ['api_404', 'The spreadsheet does not exist', 'this account can open it. Then try again'],
        ['api_scope_insufficient', 'lacks a permission', 'Reconnect the account'],
        [
          'api_service_disabled',
          'has not been used in project',
          'Enable the API in the Google Cloud project',
        ],
      ];
      for (const [name, message, step] of cases) {
        if (name !== undefined) await fault(name);
        await open(`${set}?spreadsheet=${name === undefined ? 'my+orders' : id}`);
        const alert = page.getByRole('alert').filter({ hasText: message });
        await alert.waitFor();
        await alert.getByText(step).waitFor();
        if (name === 'api_403') {
          await picture(page, 'sheet-refused');
          await alert.getByRole('button', { name: 'Try again' }).click();
          // No call is under way that could get the next fault.
          await region('Rows').getByText('3 rows.').waitFor();
        }
      }
      await page.getByRole('button', { name: 'Choose another spreadsheet' }).click();
      await page.getByLabel('Link or ID').waitFor();
    });

    test('a function of the integration that has a name which is needed is not touched', async () => {
      const own = await connect(dashboard.trellis, { integration: 'own-rows' });
      const rows = flowConfig({ name: 'rows', code: syncCode(), integration: 'own-rows', type: 'sync' });
      const body = deployBody([rows], { reconcile: false });
      assert.equal((await dashboard.trellis.call('POST', '/sync/deploy', { body })).status, 200);
      await open(`/connections/own-rows/${own.connectionId}/sheets/new`);
      const alert = page.getByRole('alert').filter({ hasText: 'a function of its own that is called rows' });
      await alert.getByText('Remove or rename this function').waitFor();
      const { body: listed } = await dashboard.trellis.call('GET', '/integrations/own-rows/functions');
      assert.equal((listed.data as object[]).length, 1);
    });

    test('a failed run is shown on the page of its sheet', async () => {
      await seeing.edit(id, { deleteSheet: { sheetId: 0 } });
      await open(`/connections/with-drive/${seeing.connectionId}/sheets/of/base`);
      await page.getByRole('button', { name: 'Run now' }).click();
      await page.getByText('The tab was deleted. Choose another tab').first().waitFor();
      await picture(page, 'sheet-failed');
    });

    test('while it loads each page reserves space for its content', async () => {
      for (const [name, path, asked] of [
        ['sheet-set-up', set, '**/action/trigger'],
        ['sheet-page', set.replace('/new', '/of/base'), '**/functions/syncs?*'],
      ] as const) {
        const release = await holdCalls(page, asked);
        await open(path);
        await page.getByRole('status', { name: 'Loading' }).first().waitFor();
        await picture(page, `${name}-loading`);
        await release();
      }
      await page.route('**/functions/syncs?*', (route) =>
        route.fulfill({
          status: 403,
          contentType: 'application/json',
          body: '{"error":{"code":"forbidden","message":"The service has refused."}}',
        }),
      );
      await open(set.replace('/new', '/of/base'));
      await page.getByRole('alert').getByText('The service has refused.').waitFor();
      await page.unroute('**/functions/syncs?*');
    });

    test('a viewer sees sheets, and is offered nothing to change', async () => {
      const { page: viewed } = await dashboard.openAs('viewer');
      await viewed.goto(
        `${dashboard.trellis.baseUrl}/app/dev/connections/with-drive/${seeing.connectionId}/sheets/of/base`,
      );
      await viewed.getByRole('region', { name: 'State' }).waitFor();
      assert.equal(await viewed.getByRole('button', { name: 'Run now' }).count(), 0);
      await viewed.goto(`${dashboard.trellis.baseUrl}/app/dev${set}`);
      await viewed.getByText('Your role is read-only').waitFor();
    });
  });
});
