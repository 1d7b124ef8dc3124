// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { createSetUp } from '../../server/users/invitations.ts';
import { invitationLink } from '../../server/users/links.ts';
import { skipBrowser } from '../support/browser.ts';
import { assertAccessible, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import type { TestTrellis } from '../support/trellis.ts';

/** What an owner does with the dashboard, in a real browser and in this order. */
describe('the dashboard in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let trellis: TestTrellis;
  let context: BrowserContext;
  let page: Page;

  before(async () => {
    dashboard = await openDashboard();
    trellis = dashboard.trellis;
    ({ context, page } = await dashboard.openAsNobody());
  });
  after(() => dashboard?.close());
  const owner = { email: 'ada@example.com', password: 'correct horse battery' };
  const fillPassword = (password: string) => page.getByRole('textbox', { name: 'Password' }).fill(password);

  test('before there is an owner, the sign-in page says where the set-up link is', async () => {
    dashboard.expectComplaint(/status of 401/);
    await page.goto(trellis.baseUrl);
    await page.getByRole('note').getByText('Each start of the service writes it to the log').waitFor();
    await picture(page, 'sign-in-no-owner');
  });

  test('the set-up link makes the owner and leads in', async () => {
    const { token } = await createSetUp(trellis.db, new Date());
    await page.goto(invitationLink(trellis.baseUrl, token));
    await page.getByLabel('Name').and(page.locator(':focus')).waitFor();
    await page.keyboard.type('Ada Lovelace');
    await page.getByLabel('E-mail').fill(owner.email);
    await fillPassword(owner.password);
    await assertAccessible(page);
    await page.getByRole('button', { name: 'Create account' }).click();
    await page.getByText('0 of 5').waitFor();
    await picture(page, 'getting-started-empty');
    assert.equal(new URL(page.url()).pathname, '/app/dev/getting-started');
    await assertAccessible(page);
  });

  test('an integration with test credentials needs no input', async () => {
    await page.getByRole('link', { name: 'Choose a provider' }).click();
    await page.getByRole('link', { name: 'Google Sheets', exact: true }).click();
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByText('This integration uses the sandbox').waitFor();
    await assertAccessible(page);
  });

  test('a connection that is made in another window appears automatically', async () => {
    await page.getByRole('link', { name: 'Connections', exact: true }).first().click();
    await page.getByText('No connection yet').waitFor();
    await page.getByRole('button', { name: 'Connect an account' }).first().click();
    await page.getByRole('button', { name: 'Create a link' }).click();
    const [connect] = await Promise.all([
      context.waitForEvent('page'),
      page.getByRole('link', { name: 'Open' }).click(),
    ]);
    const [popup] = await Promise.all([
      connect.waitForEvent('popup'),
      connect
        .getByRole('link', { name: /google/i })
        .or(connect.getByRole('button', { name: /google/i }))
        .first()
        .click(),
    ]);
    await popup.getByText('ada@example.com').first().click();
    await popup.getByRole('button', { name: /continue|allow/i }).click();
    await connect
      .getByText(/connected/i)
      .first()
      .waitFor();
    await connect.close();
    await page.bringToFront();
    await page.getByText('Connected', { exact: true }).first().waitFor();
    await picture(page, 'connect-dialog-done');
    await page.getByRole('button', { name: 'Done' }).click();
    await page.getByRole('link', { name: 'ada@example.com' }).click();
    await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
    await assertAccessible(page);
  });

  test('pages are reached by keyboard, and the shortcuts are listed', async () => {
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
    await picture(page, 'shortcuts');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    await page.keyboard.press('g');
    await page.keyboard.press('i');
    await page.getByRole('heading', { name: 'Integrations' }).waitFor();
    assert.equal(await page.title(), 'Integrations · Trellis');
    assert.equal(await page.evaluate('document.activeElement.id'), 'main');
    await page.goto(`${trellis.baseUrl}/app/dev/integrations`);
    await page.getByRole('heading', { name: 'Integrations' }).waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate('document.activeElement.textContent'), 'Skip to the content');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate('document.activeElement.id'), 'main');
    await page.keyboard.press('?');
    await page.getByRole('switch', { name: 'Single-key shortcuts' }).uncheck({ force: true });
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    await page.keyboard.press('g');
    await page.keyboard.press('c');
    await page.keyboard.press('Control+k');
    await page.getByPlaceholder('Pages, connections, functions…').waitFor();
    assert.equal(new URL(page.url()).pathname, '/app/dev/integrations');
    await page.keyboard.press('Escape');
    await page.evaluate('localStorage.removeItem("trellis-single-keys")');
    await page.goto(`${trellis.baseUrl}/app/dev/connections`);
    await page.getByRole('link', { name: 'ada@example.com' }).click();
    await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
  });

  test('light and dark are a choice that stays', async () => {
    const scheme = () => page.evaluate('document.documentElement.dataset.mantineColorScheme');
    for (const [word, value] of [
      ['Dark', 'dark'],
      ['Light', 'light'],
    ] as const) {
      await page.getByRole('button', { name: 'Your account' }).click();
      await page.getByText(word, { exact: true }).click();
      await page.keyboard.press('Escape');
      await page.reload();
      await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
      assert.equal(await scheme(), value);
    }
    await page.evaluate('localStorage.removeItem("mantine-color-scheme-value")');
    await page.reload();
  });

  test('metadata that was edited is kept', async () => {
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.getByRole('button', { name: 'Edit', exact: true }).click();
    await page.getByLabel('Metadata as JSON').fill('{"plan": "team"}');
    await page.getByRole('button', { name: 'Save' }).click();
    // Not what is being typed, which holds the same words.
    await page.locator('pre', { hasText: '"plan": "team"' }).waitFor();
    const { body } = await trellis.call('GET', '/connections');
    assert.deepEqual((body.connections as { metadata: object }[])[0]?.metadata, { plan: 'team' });
  });

  test('the command palette finds a connection by its account, and its datasets', async () => {
    const { body } = await trellis.call('GET', '/connections');
    const [connection] = body.connections as { connection_id: string; provider_config_key: string }[];
    await trellis.call('POST', '/records', {
      headers: {
        'connection-id': connection?.connection_id ?? '',
        'provider-config-key': connection?.provider_config_key ?? '',
      },
      body: { model: 'City', records: [{ id: '7', city: 'Oslo' }] },
    });
    const find = async (what: string) => {
      await page.keyboard.press('Control+k');
      await page.getByPlaceholder('Pages, connections, functions…').fill('ada@');
      const found = page.locator('.mantine-Spotlight-action', { hasText: what });
      await found.first().waitFor();
      return found.first();
    };
    const dataset = await find('City');
    await picture(page, 'palette');
    await dataset.click();
    await page.waitForURL(/\/records\/of\/google-sheet\/[^/]+\/City$/);
    await (await find(`google-sheet · ${connection?.connection_id}`)).click();
    await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
  });

  test('the command palette opens in a field, finds settings and prunes, and Enter opens the first result', async () => {
    const search = page.getByPlaceholder('Pages, connections, functions…');
    const open = async (typed: string, result: RegExp) => {
      await page.goto(`${trellis.baseUrl}/app/dev/connections`);
      await page.getByRole('textbox', { name: 'Search connections' }).focus();
      await page.keyboard.press('Control+k');
      await search.fill(typed);
      await page.locator('.mantine-Spotlight-action[data-selected]', { hasText: result }).waitFor();
      await page.keyboard.press('Enter');
    };
    await open('keys', /Keys/);
    await page.waitForURL(/\/settings\?tab=keys$/);
    await open('prune', /Records/);
    await page.waitForURL(/\/dev\/records$/);
    await open('ada@', /ada@example.com/);
    await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
  });

  test('a deletion names what it deletes, and deletes it', async () => {
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByText('the credentials of the account').waitFor();
    await page.getByRole('button', { name: 'Delete permanently' }).click();
    await page.getByText('No connection yet').waitFor();
    const { body } = await trellis.call('GET', '/connections');
    assert.deepEqual(body.connections, []);
  });

  test('the URL contains the environment, and another environment shows none of its data', async () => {
    await page.getByRole('link', { name: 'Activity' }).click();
    await page.getByRole('link', { name: 'connect' }).first().waitFor();
    await assertAccessible(page);
    await page.getByRole('button', { name: /Environment/ }).click();
    await page.getByRole('menuitem', { name: 'prod' }).click();
    await page.getByText('No entries yet').waitFor();
    assert.equal(await page.getByRole('search', { name: 'Filters' }).count(), 0);
    assert.equal(new URL(page.url()).pathname, '/app/prod/activity');
  });

  test('an environment alone leads to its home, and the menu of the account to its settings', async () => {
    await page.goto(`${trellis.baseUrl}/app/dev`);
    await page.getByRole('heading', { name: 'Home' }).waitFor();
    await page.getByRole('button', { name: 'Your account' }).press('Enter');
    await page.getByRole('menuitem', { name: 'Account settings' }).press('Enter');
    await page.getByRole('tab', { name: 'Your account', selected: true }).waitFor();
  });

  test('a signed-out user returns to the same address after signing in', async () => {
    await page.getByRole('button', { name: 'Your account' }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in to Trellis' }).waitFor();
    const address = `${trellis.baseUrl}/app/dev/connections?search=nobody`;
    await page.goto(address);
    await page.getByLabel('E-mail').fill(owner.email);
    await fillPassword('a wrong password');
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    dashboard.expectComplaint(/401/);
    await page.getByRole('alert').waitFor();
    await assertAccessible(page);
    await fillPassword(owner.password);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.getByText('No match').waitFor();
    assert.equal(page.url(), address);
  });
});
