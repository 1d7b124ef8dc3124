// The sheet that is chosen on the connect page, once the account is connected.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { consent, openConnectPages, popupBy, type TestConnectPages } from '../support/connect-pages.ts';
import { picture } from '../support/dashboard.ts';
import { openSheets } from '../support/sheets.ts';

describe('choosing a sheet on the connect page', { skip: skipBrowser }, () => {
  let pages: TestConnectPages;
  before(async () => {
    pages = await openConnectPages();
    // Links that lead nowhere, sheets that are not shared.
    pages.expectComplaint(/422/);
    await openSheets(pages.trellis, {
      integration: 'with-drive',
      account: 'drive@example.com',
      scopes: ['https://www.googleapis.com/auth/drive'],
    });
  });
  after(() => pages?.close());

  const metadataOf = async (at: { connectionId: string; integration: string }) => {
    const path = `/connections/${at.connectionId}?provider_config_key=${at.integration}`;
    return (await pages.trellis.call('GET', path)).body.metadata as { sheets?: Record<string, object> };
  };
  /** Once the first run has saved them. */
  const liveOf = async (connectionId: string): Promise<number> => {
    const headers = { 'connection-id': connectionId, 'provider-config-key': 'google-sheet' };
    for (;;) {
      const { body } = await pages.trellis.call('GET', '/records?model=Row', { headers });
      const { length } = body.records as object[];
      if (length > 0) return length;
      await pause(50);
    }
  };

  let asked: Page;
  let id: string;
  const begin = async (more: object) => {
    const body = {
      end_user: { id: 'eve' },
      allowed_integrations: ['google-sheet'],
      setup: 'sheet',
      ...more,
    };
    const { url } = await pages.link(body);
    ({ page: asked } = await pages.openAsNobody());
    await asked.goto(url);
    const go = asked.getByRole('button', { name: /^Continue to/ });
    await consent(await popupBy(asked.context(), () => go.click()));
    await asked.getByRole('heading', { name: 'Choose a sheet' }).waitFor();
  };
  const newest = async (integration: string) => {
    const { body } = await pages.trellis.call('GET', `/connections?integrationId=${integration}&limit=1`);
    const [made] = body.connections as { connection_id: string }[];
    return { integration, connectionId: made!.connection_id };
  };

  before(async () => {
    const rows = [
      ['Our customers', ''],
      ['E-mail', 'Name'],
      ['ann@example.com', 'Ann'],
      ['bo@example.com', 'Bo'],
    ];
    const made = await pages.trellis.control('POST', 'spreadsheets', {
      account: 'ada@example.com',
      title: 'Customers of the shop',
      sheet: 'All of them',
      rows,
    });
    id = String(made.spreadsheetId);
  });

  test('a sheet is chosen by its link, in each language', async () => {
    await begin({});
    await asked.getByLabel('Link of the spreadsheet').waitFor();
    await picture(asked, 'connect-sheet-link');
    await asked.getByLabel('Link of the spreadsheet').fill('my customers');
    await asked.getByRole('button', { name: 'Open the spreadsheet' }).click();
    await asked.getByRole('alert').getByText('This is not a link to a Google spreadsheet.').waitFor();
    await pages.trellis.control('POST', 'faults', { case: 'api_403', times: 1 });
    await asked
      .getByLabel('Link of the spreadsheet')
      .fill(`https://docs.google.com/spreadsheets/d/${id}/edit`);
    await asked.getByRole('button', { name: 'Open the spreadsheet' }).click();
    await asked.getByRole('alert').getByText('ada@example.com cannot read this spreadsheet').waitFor();
    await picture(asked, 'connect-sheet-refused');
    await asked.getByRole('button', { name: 'Try again' }).click();
    await asked.getByRole('cell', { name: 'Bo', exact: true }).waitFor();
    assert.equal(await asked.getByLabel('Header row').inputValue(), '2');
    assert.equal(await asked.getByLabel('Column that identifies the rows').inputValue(), 'E-mail');
    await asked.getByLabel('Column that identifies the rows').selectOption('Name');
    for (const language of ['de', 'fr', 'es', 'ja', 'en']) {
      await asked.locator('footer select').selectOption(language);
      await asked.locator(`html[lang=${language}]`).waitFor();
      await picture(asked, `connect-sheet-${language}`);
    }
    await asked.getByRole('button', { name: 'Use this sheet' }).click();
    await asked.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    const at = await newest('google-sheet');
    const { sheets = {} } = await metadataOf(at);
    assert.deepEqual(sheets.base, {
      spreadsheetId: id,
      sheetId: 0,
      headerRow: 2,
      identity: 'key',
      keyColumn: 'Name',
      title: 'Customers of the shop',
      tab: 'All of them',
    });
    assert.equal(await liveOf(at.connectionId), 2);
    // Opened again, the page has nothing to choose.
    await asked.reload();
    await asked.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    await asked.context().close();
  });

  test('a sheet is chosen from a list where files may be listed, or not at all', async () => {
    await begin({ allowed_integrations: ['with-drive'] });
    await asked.getByRole('heading', { name: 'Or choose one of these' }).waitFor();
    await asked.getByRole('searchbox').fill('nothing of the kind');
    await asked.getByText('No spreadsheet matches.').waitFor();
    await asked.getByRole('searchbox').fill('custom');
    await asked.getByRole('button', { name: 'Customers of the shop' }).waitFor();
    await picture(asked, 'connect-sheet-list');
    await asked.getByRole('button', { name: 'Customers of the shop' }).click();
    await asked.getByRole('cell', { name: 'Bo', exact: true }).waitFor();
    await asked.getByRole('button', { name: 'Choose another spreadsheet' }).click();
    await asked.getByRole('button', { name: 'Not now' }).click();
    await asked.getByRole('heading', { name: /is connected/ }).waitFor();
    assert.deepEqual(await metadataOf(await newest('with-drive')), {});
    await asked.context().close();
  });
});
