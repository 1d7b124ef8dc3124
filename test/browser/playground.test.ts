// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { after, before, beforeEach, describe, test } from 'node:test';
import { promisify } from 'node:util';
import type { BrowserContext, Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect, type TestTrellis } from '../support/trellis.ts';

const run = promisify(execFile);

/** What a developer does in the playground, against the sandbox. */
describe('the playground', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let trellis: TestTrellis;
  let context: BrowserContext;
  let page: Page;
  let connectionId: string;
  let spreadsheetId: string;

  before(async () => {
    dashboard = await openDashboard();
    ({ trellis } = dashboard);
    ({ context, page } = await dashboard.openAs('developer'));
  });
  after(() => dashboard?.close());
  beforeEach(() => trellis.control('DELETE', 'faults'));

  const open = async (search: Record<string, unknown> = {}) => {
    const query = new URLSearchParams(
      Object.entries(search).map(([name, value]): [string, string] => [name, JSON.stringify(value)]),
    );
    await page.goto(`${trellis.baseUrl}/app/dev/playground?${query}`);
  };
  const answer = () => page.getByRole('region', { name: 'Response' });
  const send = () => page.getByRole('button', { name: 'Send' }).click();
  const valuesOf = (range: string) => ({
    path: '/v4/spreadsheets/{spreadsheetId}/values/{range}',
    fields: { spreadsheetId, range },
  });

  test('without a connection the playground shows the first step', async () => {
    await open();
    await page.getByText('Create a connection first').waitFor();
    await picture(page, 'playground-empty');
  });

  test("a newcomer's test connection shows a spreadsheet's values at one click", async () => {
    ({ connectionId } = await connect(trellis));
    await page.goto(`${trellis.baseUrl}/app/dev/getting-started`);
    await page.getByRole('link', { name: 'Open the playground' }).click();
    await page.getByText('No response yet').waitFor();
    await picture(page, 'playground');
    await page.getByRole('button', { name: "Read the first sheet's values" }).click();
    await answer().getByRole('cell', { name: 'Bonn' }).waitFor();
    assert.deepEqual(await answer().getByRole('row').first().getByRole('columnheader').allTextContents(), [
      '',
      'A',
      'B',
      'C',
    ]);
    await answer().getByText('Next step: Save records').waitFor();
    await picture(page, 'playground-table');
    // It reads the same spreadsheet again, and makes no other.
    await page.getByRole('button', { name: "Read the first sheet's values" }).click();
    await answer().getByRole('cell', { name: 'Bonn' }).waitFor();
    const calls = (await trellis.control('GET', 'calls')) as Record<string, number>;
    assert.equal(calls['POST /v4/spreadsheets'], 1);
    spreadsheetId = await page.getByLabel('spreadsheetId').inputValue();
  });

  test('the answer is shown as a tree and as text, with its headers and where the time went', async () => {
    await answer().getByText('Tree', { exact: true }).click();
    await answer().getByText('majorDimension: ').waitFor();
    await picture(page, 'playground-tree');
    await answer().getByText('Text', { exact: true }).click();
    await answer().getByText('"majorDimension": "ROWS"').waitFor();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      answer()
        .getByRole('link', { name: /Download/ })
        .click(),
    ]);
    const { values } = JSON.parse(await readFile(await download.path(), 'utf8')) as { values: unknown[] };
    assert.equal(values.length, 5);
    await answer()
      .getByRole('tab', { name: /Headers/ })
      .click();
    await answer()
      .getByRole('cell', { name: /application\/json/ })
      .waitFor();
    await answer().getByRole('tab', { name: 'Timing' }).click();
    await answer().getByText('One request to the provider').waitFor();
    await answer()
      .getByText(/first byte \d+ ms/)
      .waitFor();
    await picture(page, 'playground-timing');
    await answer().getByRole('link', { name: 'Open the entry in the activity log' }).click();
    await page.getByRole('dialog').getByText(`GET /v4/spreadsheets/${spreadsheetId}`).waitFor();
  });

  test('the address holds the call, but nothing that is named like a secret', async () => {
    await open(valuesOf('A2:B3'));
    await page.getByRole('tab', { name: 'Headers' }).click();
    await page.getByRole('button', { name: 'Add a header' }).click();
    await page.getByRole('combobox', { name: 'Header 1: name' }).fill('trellis-proxy-X-Api-Key');
    await page.getByLabel('Header 1: value').fill('hunter2-hunter2');
    await page.getByRole('button', { name: 'Add a header' }).click();
    await page.getByRole('combobox', { name: 'Header 2: name' }).fill('Retries');
    await page.getByLabel('Header 2: value').fill('2');
    await page.waitForURL(/Retries/);
    await send();
    await answer().getByRole('cell', { name: 'Norway' }).waitFor();
    const address = page.url();
    assert.ok(!address.includes('hunter2'), address);
    await page.getByRole('button', { name: 'Copy link' }).click();
    const link = String(await page.evaluate('navigator.clipboard.readText()'));
    assert.ok(!link.includes('hunter2'), link);
    await page.goto(link);
    await page.getByLabel('range').waitFor();
    assert.equal(await page.getByLabel('range').inputValue(), 'A2:B3');
    await page.getByRole('tab', { name: 'Headers' }).click();
    assert.equal(await page.getByLabel('Header 2: value').inputValue(), '2');
    assert.equal(await page.getByLabel('Header 1: value').inputValue(), '');
  });

  test('a body is checked before it is sent, and rows are appended', async () => {
    await open();
    await page.getByRole('combobox', { name: 'Start from' }).click();
    await picture(page, 'playground-suggestions');
    await page.getByRole('option', { name: /Append rows/ }).click();
    await page
      .getByLabel('spreadsheetId')
      .fill(`https://docs.google.com/spreadsheets/d/${spreadsheetId}/edit#gid=0`);
    await page.getByLabel('range').fill('Cities');
    await page.getByLabel('Body as JSON').fill('{"values": [["Bern", ]]}');
    await page
      .getByText(/The body is no JSON/)
      .first()
      .waitFor();
    assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled());
    await picture(page, 'playground-bad-body');
    await page.getByLabel('Body as JSON').fill('{"values": [["Bern", "Switzerland", 1191]]}');
    await send();
    await answer().getByText('200', { exact: true }).waitFor();
    await answer().getByText('Cities!A6:C6').first().waitFor();
  });

  test('an error of the provider is shown as such, with the next step', async () => {
    dashboard.expectComplaint(/status of 404/);
    await open({ path: '/v4/spreadsheets/nowhere' });
    await send();
    await answer().getByText('The provider did not find the resource').waitFor();
    await answer().getByText('This is the unchanged response of the provider.').waitFor();
    await answer().getByText('NOT_FOUND').waitFor();
    await picture(page, 'playground-provider-error');
  });

  test('an error of the service is shown as such, and links to the page that fixes it', async () => {
    dashboard.expectComplaint(/status of 424/);
    const dead = await connect(trellis, { account: 'grace@example.com' });
    await trellis.control('POST', 'revoke', { account: 'grace@example.com' });
    await open({ integration: 'google-sheet', connection: dead.connectionId, path: '/v4/spreadsheets/any' });
    await send();
    await answer().getByText('Reconnect needed').waitFor();
    await answer().getByText('connection_needs_reauth').first().waitFor();
    await picture(page, 'playground-own-error');
    await answer().getByRole('link', { name: 'Open the connection' }).click();
    await page.getByRole('heading', { name: 'grace@example.com' }).waitFor();
  });

  test('a call that takes long can be cancelled, here and at the provider', async () => {
    await trellis.control('POST', 'faults', { case: 'api_timeout' });
    await open(valuesOf('A1:B2'));
    await send();
    await page.getByText('Waiting for the response').waitFor();
    await picture(page, 'playground-running');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Cancelled', { exact: true }).waitFor();
    for (let found = false; !found; ) {
      const { body } = await trellis.call('GET', '/operations?type=proxy&status=failed');
      const [newest] = body.operations as { details: { outcome?: string } }[];
      found = newest?.details.outcome === 'client_gone';
    }
    await trellis.control('DELETE', 'faults');
    await send();
    await answer().getByRole('cell', { name: 'Oslo' }).waitFor();
  });

  test('an answer that breaks off is not shown as one', async () => {
    dashboard.expectComplaint(/ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONTENT_LENGTH_MISMATCH|ERR_CONNECTION/);
    await trellis.control('POST', 'faults', { case: 'api_truncated', times: 1 });
    await open(valuesOf('A1:B2'));
    await send();
    await page
      .getByRole('alert')
      .getByText(/There is no complete response/)
      .waitFor();
    await picture(page, 'playground-broken-off');
    await page.getByRole('button', { name: 'Try again' }).click();
    await answer().getByRole('cell', { name: 'Oslo' }).waitFor();
  });

  test('a big table is cut for the page and whole in the download', async () => {
    const csv = Array.from({ length: 3_000 }, (_, row) => `${row},${'x'.repeat(60)}`).join('\n');
    const big = await trellis.control('POST', 'spreadsheets', {
      account: 'ada@example.com',
      title: 'Big',
      sheet: 'big',
      csv,
    });
    await open({ ...valuesOf('big'), fields: { spreadsheetId: String(big.spreadsheetId), range: 'big' } });
    await send();
    await answer().getByText('200 of 3,000 rows').waitFor();
    await answer().getByText('Text', { exact: true }).click();
    await answer()
      .getByText(/The first 100,000 of/)
      .waitFor();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      answer()
        .getByRole('link', { name: /Download/ })
        .click(),
    ]);
    const { values } = JSON.parse(await readFile(await download.path(), 'utf8')) as { values: unknown[] };
    assert.equal(values.length, 3_000);
  });

  test('bytes that are no text are offered as a download', async () => {
    const bytes = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0xff, 0xfe]);
    const route = /\/proxy\/v4\/spreadsheets\/picture/;
    await page.route(route, (call) => call.fulfill({ contentType: 'image/png', body: bytes }));
    await open({ path: '/v4/spreadsheets/picture' });
    await send();
    await answer().getByText('7 B of binary data.').waitFor();
    await picture(page, 'playground-binary');
    await page.unroute(route);
  });

  test('the copied curl command makes the same call in a shell, whatever the call contains', async () => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await open({
      method: 'PUT',
      path: '/v4/spreadsheets/{spreadsheetId}/values/{range}',
      fields: { spreadsheetId, range: "'Cities'!A7:B7" },
      query: [['valueInputOption', 'RAW']],
      body: JSON.stringify({ values: [["It's $HOME", '`date` "x" \\n {a,b}']] }),
    });
    await page.getByRole('button', { name: 'Copy as code' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('curl -g -X PUT').waitFor();
    await picture(page, 'playground-code');
    await dialog.getByRole('button', { name: 'Copy the code' }).click();
    const text = String(await page.evaluate('navigator.clipboard.readText()'));
    assert.ok(!text.includes(trellis.keys.dev));
    const { stdout } = await run('bash', ['-c', `${text} -s`], {
      env: { PATH: process.env.PATH, TRELLIS_SECRET_KEY: trellis.keys.dev },
    });
    assert.equal((JSON.parse(stdout) as { updatedCells: number }).updatedCells, 2, stdout);
    const { body } = await trellis.call(
      'GET',
      `/proxy/v4/spreadsheets/${spreadsheetId}/values/Cities!A7:B7`,
      {
        headers: { 'connection-id': connectionId, 'provider-config-key': 'google-sheet' },
      },
    );
    assert.deepEqual(body.values, [["It's $HOME", '`date` "x" \\n {a,b}']]);
  });

  test('the copied code for Node runs, by fetch and by the official client', async () => {
    const dialog = page.getByRole('dialog');
    for (const [name, begins] of [
      ['JavaScript', 'const response'],
      ['@googleapis/sheets', 'import { auth'],
    ] as const) {
      await dialog.getByLabel('Language').selectOption(name);
      await dialog.getByText(begins).waitFor();
      await dialog.getByRole('button', { name: /the code/ }).click();
      const text = String(await page.evaluate('navigator.clipboard.readText()'));
      assert.ok(text.startsWith(begins), text);
      const { stdout } = await run(process.execPath, ['--input-type=module', '-e', text], {
        env: { PATH: process.env.PATH, TRELLIS_SECRET_KEY: trellis.keys.dev },
      });
      assert.match(stdout, /"?updatedCells"?: 2/);
    }
  });

  test('a viewer sees that viewers cannot make calls', async () => {
    const { page: theirs } = await dashboard.openAs('viewer');
    await theirs.goto(`${trellis.baseUrl}/app/dev/playground`);
    await theirs.getByText('Viewers cannot call providers').waitFor();
    assert.equal(await theirs.getByRole('button', { name: 'Send' }).count(), 0);
    await picture(theirs, 'playground-viewer');
  });
});
