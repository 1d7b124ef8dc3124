// What people may do to the application of the examples beside its ordinary course: see examples.test.ts.
// Slow: it starts services and a browser.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { TrellisError } from '../../sdk/client/errors.ts';
import { skipBrowser } from '../support/browser.ts';
import { picture } from '../support/dashboard.ts';
import { type Application, openApplication } from './application.ts';
import { type Newcomer, openNewcomer } from './newcomer.ts';

const account = 'ada@example.com';
let newcomer: Newcomer;
let app: Application;

async function makeSheet(title: string, ...rows: unknown[][]): Promise<string> {
  const made = await newcomer.service.sandbox('POST', 'spreadsheets', { account, title, sheet: 'A', rows });
  return (made as { spreadsheetId: string }).spreadsheetId;
}

/** What the tab holds at Google. */
async function valuesOf(spreadsheetId: string): Promise<unknown[][]> {
  const [{ connection_id } = { connection_id: '' }] = await app.connections();
  const headers = { 'connection-id': connection_id, 'provider-config-key': 'google-sheet' };
  const path = `/proxy/v4/spreadsheets/${spreadsheetId}/values/A?valueRenderOption=UNFORMATTED_VALUE`;
  return ((await newcomer.service.call('GET', path, { headers })) as { values: unknown[][] }).values;
}

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  for (let left = 200; left > 0; left -= 1) {
    if (await isSo()) return;
    await pause(50);
  }
  assert.fail(`it never came to it that ${what}`);
}

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const cell = (page: Page, name: string) => page.getByRole('cell', { name, exact: true });

describe('the application', { skip: skipBrowser }, () => {
  before(async () => {
    newcomer = await openNewcomer();
    app = await openApplication(newcomer);
    await newcomer.service.sandbox('POST', 'accounts', { email: account });
    await app.start();
  });
  after(async () => {
    await app?.close();
    await newcomer?.close();
  });

  test('a row goes into the columns that it was typed for, which stand as in the sheet', async () => {
    const page = await (await app.open()).newPage();
    await app.signIn(page, 'Hedy');
    const header = [' Name ', 2024, 2023, 'Name', '', 'Note'];
    const sheet = await makeSheet('Years', header, ['Oslo', 1, 2, 'x', 'unnamed', 'first']);
    await app.chooseSheet(await app.openWindow(page), sheet);
    await cell(page, 'Oslo').waitFor();
    const names = ['Name', '2024', '2023', 'Name (2)', 'Column E', 'Note'];
    const shown = () => page.locator('th').allTextContents();
    await until('the columns stand as in the sheet', async () => `${await shown()}` === `${names}`);
    const typed = ['Rome', '12.5', '7', 'y', 'kept', 'second'];
    for (const [at, name] of names.entries())
      await page.locator('#add').getByRole('textbox', { name, exact: true }).fill(typed[at]!);
    await button(page, 'Add').click();
    await cell(page, 'Rome').waitFor();
    assert.deepEqual((await valuesOf(sheet)).at(-1), ['Rome', 12.5, 7, 'y', 'kept', 'second']);
    assert.equal(await page.getByRole('alert').count(), 0);
    await picture(page, 'example-columns');
    await button(page, 'Disconnect').click();
    await button(page, 'Connect a sheet').waitFor();
  });

  test('of two sheets that somebody connects in two tabs the later one stays, and disconnecting leaves none', async () => {
    const context = await app.open();
    const first = await context.newPage();
    await app.signIn(first, 'Ida');
    const second = await context.newPage();
    await second.goto(app.url());
    // Both have their session before there is a connection.
    const windows = [await app.openWindow(first), await app.openWindow(second)] as const;
    for (const one of windows) await one.getByRole('button', { name: /^Continue to/ }).waitFor();
    await app.chooseSheet(windows[0], await makeSheet('Before', ['Name'], ['old']));
    await cell(second, 'old').waitFor();
    await app.chooseSheet(windows[1], await makeSheet('After', ['Name'], ['new']));
    await cell(first, 'new').waitFor();
    await first.getByRole('heading', { name: 'After, A' }).waitFor();
    assert.equal(await cell(first, 'old').count(), 0);
    await until('one connection is left', async () => (await app.connections()).length === 1);
    await button(first, 'Disconnect').click();
    await button(first, 'Connect a sheet').waitFor();
    assert.deepEqual(await app.connections(), []);
    await first.reload();
    await button(first, 'Connect a sheet').waitFor();
  });

  test('a page that was drawn for somebody else asks for nothing in the name of who is signed in now', async () => {
    const context = await app.open();
    const page = await context.newPage();
    await app.signIn(page, 'Jean');
    await app.chooseSheet(await app.openWindow(page), await makeSheet('Mine', ['Name'], ['mine']));
    await cell(page, 'mine').waitFor();
    const stale = await (await app.open()).newPage();
    await app.signIn(stale, 'Kay');
    await stale.context().addCookies(await context.cookies());
    await button(stale, 'Connect a sheet').click();
    await stale.getByRole('alert').getByText('signed in as another user').waitFor();
    for (const [method, path] of [
      ['DELETE', '/account?person=Kay'],
      ['DELETE', '/account'],
      ['POST', '/sign-out?person=Kay'],
      ['GET', '/live?person=Kay'],
    ] as const) {
      const answer = await context.request.fetch(`${app.url()}${path}`, { method });
      assert.equal(answer.status(), 409, `${method} ${path}`);
    }
    assert.equal((await app.connections()).length, 1);
  });

  test('who signs out is signed out in every tab, and who signs in by another name is seen in every tab', async () => {
    const context = await app.open();
    const [first, second] = [await context.newPage(), await context.newPage()];
    await app.signIn(first, 'Lise');
    await second.goto(app.url());
    await button(second, 'Connect a sheet').waitFor();
    await button(first, 'Sign out').click();
    await second.getByLabel('Name').waitFor();
    await app.signIn(first, 'Mary');
    await second.getByLabel('Name').fill('Nina');
    await button(second, 'Sign in').click();
    await first.getByText('Nina', { exact: true }).waitFor();
  });

  test('where Trellis is not reached people are told so, without its address', async () => {
    const file = join(newcomer.clone, 'examples/app/sheets.ts');
    const { words } = (await import(file)) as { words(error: unknown): string };
    for (const code of ['network_error', 'timeout'])
      assert.match(
        words(new TrellisError({ code, message: 'http://10.0.0.7:3003 is off' })),
        /^[A-Z][a-z .]+$/i,
      );
  });

  test('all that is answered says how browsers are to take it, also what goes on', async () => {
    const context = await app.open();
    const page = await context.newPage();
    await app.signIn(page, 'Olga');
    const [{ name, value } = { name: '', value: '' }] = await context.cookies();
    const stop = new AbortController();
    const live = await fetch(`${app.url()}/live?person=Olga`, {
      headers: { cookie: `${name}=${value}` },
      signal: stop.signal,
    });
    assert.equal(live.status, 200);
    assert.equal(live.headers.get('x-content-type-options'), 'nosniff');
    assert.match(live.headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);
    stop.abort();
  });

  test('who needs to reconnect before there is a row is told that, and not what to write', async () => {
    const page = await (await app.open()).newPage();
    await app.signIn(page, 'Peg');
    await app.chooseSheet(await app.openWindow(page), await makeSheet('Empty', ['Name']));
    await button(page, 'Read it now').click();
    await page.getByText('No rows. Write a header').waitFor();
    await newcomer.service.sandbox('POST', 'revoke', { account });
    await button(page, 'Read it now').click();
    await page.getByText('Action required.').waitFor();
    assert.equal(await page.getByText('Write a header').count(), 0);
  });

  test('started again, it has events sent to it that were switched off', async () => {
    type Endpoint = { id: number; url: string; enabled: boolean };
    const endpointOf = async () => {
      const { endpoints } = (await newcomer.service.call('GET', '/events/endpoints')) as {
        endpoints: Endpoint[];
      };
      return endpoints.find(({ url }) => url.endsWith('/trellis/events'))!;
    };
    const { id } = await endpointOf();
    await newcomer.service.call('PATCH', `/events/endpoints/${id}`, { body: { enabled: false } });
    assert.equal((await endpointOf()).enabled, false);
    assert.equal(await app.terminal().interrupt(), 0, app.terminal().output());
    await app.start({}, app.again());
    assert.deepEqual([(await endpointOf()).id, (await endpointOf()).enabled], [id, true]);
  });
});
