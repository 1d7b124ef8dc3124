// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import {
  closeWindow,
  consent,
  deny,
  openConnectPages,
  popupBy,
  type TestConnectPages,
} from '../support/connect-pages.ts';
import { picture } from '../support/dashboard.ts';

/** The steps of the connect page that end well or ask for something, each looked at. */
describe('the steps of the connect page', { skip: skipBrowser }, () => {
  let pages: TestConnectPages;
  let page: Page;
  let context: BrowserContext;
  before(async () => {
    pages = await openConnectPages();
    ({ page, context } = await pages.openAsNobody());
    // The callback's own page, where a trip made no connection.
    pages.expectComplaint(/oauth\/callback.* 400/);
  });
  after(() => pages?.close());

  const sheets = (more: Record<string, unknown> = {}) =>
    pages.link({
      end_user: { id: 'ada', email: 'ada@example.com', display_name: 'Ada Lovelace' },
      allowed_integrations: ['google-sheet'],
      ...more,
    });
  const travel = () => popupBy(context, () => page.getByRole('button', { name: /^Continue to/ }).click());

  test('the token leaves the address before anything else happens', async () => {
    const { url, token } = await pages.link();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(`${request.url()} ${request.headers().referer ?? ''}`));
    await page.goto(url);
    await page.getByRole('heading', { name: 'What would you like to connect?' }).waitFor();
    page.removeAllListeners('request');
    assert.equal(page.url(), `${pages.trellis.baseUrl}/connect/`);
    assert.equal(await page.evaluate('history.length'), 2);
    assert.deepEqual(
      asked.filter((line) => line.includes(token)),
      [`${url} `],
    );
  });

  test('what may be chosen is shown, and a reload keeps the session', async () => {
    await page.reload();
    await page.getByRole('heading', { name: 'What would you like to connect?' }).waitFor();
    await picture(page, 'connect-choose');
    for (const name of ['Google Sheets', 'Own Host'])
      assert.ok(await page.getByRole('button', { name }).isVisible());
  });

  test('the chosen integration shows the end user and the requested access, and has a link back', async () => {
    await page.getByRole('button', { name: 'Google Sheets' }).click();
    await page.getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
    assert.ok(await page.getByText('Ada Lovelace (ada@example.com)').isVisible());
    assert.ok(await page.getByText('See, edit, create and delete all spreadsheets').isVisible());
    await picture(page, 'connect-begin');
    await page.getByRole('button', { name: 'Connect another account' }).click();
    await page.getByRole('heading', { name: 'What would you like to connect?' }).waitFor();
  });

  test('many can be searched', async () => {
    for (let index = 1; index <= 4; index += 1) {
      await pages.trellis.call('POST', '/integrations', {
        body: {
          provider: 'unauthenticated',
          unique_key: `more-${index}`,
          display_name: `More ${index}`,
          integration_config: { base_url: pages.trellis.sandbox.url },
        },
      });
    }
    await page.goto((await pages.link()).url);
    await page.getByRole('searchbox', { name: 'Search' }).fill('more 3');
    await page.getByRole('button', { name: 'More 3' }).waitFor();
    assert.equal(await page.locator('.choice').count(), 1);
    await page.getByRole('searchbox').fill('nowhere');
    await page.getByText('No match for “nowhere”.').waitFor();
    await picture(page, 'connect-search');
  });

  test('of very many a hundred are shown, and the rest on demand', async () => {
    const { page: own } = await pages.openAsNobody();
    // The service's own answer, with its first choice in place of many that would have to be made.
    await own.route('**/connect/session/choices', async (route) => {
      const answer = await route.fetch();
      const { data } = (await answer.json()) as { data: { choices: { integration_id: string }[] } };
      const choices = Array.from({ length: 150 }, (_, index) => ({
        ...data.choices[0],
        integration_id: `many-${index}`,
        display_name: `Many ${index}`,
      }));
      await route.fulfill({ response: answer, json: { data: { ...data, choices } } });
    });
    await own.goto((await pages.link()).url);
    await own.getByRole('button', { name: 'Many 99' }).waitFor();
    assert.equal(await own.locator('.choice').count(), 100);
    await picture(own, 'connect-many');
    await own.getByRole('button', { name: 'Show more' }).click();
    await own.getByRole('button', { name: 'Many 149' }).waitFor();
    assert.equal(await own.getByRole('button', { name: 'Show more' }).count(), 0);
    await own.close();
  });

  test('while the user is at the provider the page waits, and after some seconds shows possible causes', async () => {
    await page.clock.install();
    await page.goto((await sheets()).url);
    const popup = await travel();
    await page.getByRole('heading', { name: 'Continue in the pop-up window' }).waitFor();
    assert.equal(await page.getByText('admin_policy_enforced').count(), 0);
    await picture(page, 'connect-waiting');
    await page.clock.fastForward(16_000);
    await page.getByText('Did Google Sheets show an error?').click();
    for (const words of [
      /isn’t verified/,
      /as a tester/,
      /admin_policy/,
      /Use another account/,
      /disallowed_user/,
    ])
      await page.getByText(words).first().waitFor();
    await picture(page, 'connect-waiting-long');
    await popup.close();
    await page.clock.fastForward(1_000);
    await page.getByRole('heading', { name: 'The pop-up window is closed' }).waitFor();
    await picture(page, 'connect-window-closed');
    // The next window is looked after like the first.
    const second = await popupBy(context, () => page.getByRole('button', { name: 'Try again' }).click());
    await page.getByRole('heading', { name: 'Continue in the pop-up window' }).waitFor();
    await closeWindow(second);
    await page.clock.fastForward(1_000);
    await page.getByRole('heading', { name: 'The pop-up window is closed' }).waitFor();
    const again = await popupBy(context, () => page.getByRole('button', { name: 'Try again' }).click());
    await consent(again);
    await page.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    await picture(page, 'connect-done');
    await page.close();
    page = await context.newPage();
  });

  test('a user who is at the provider when the link expires can still finish, and the page waits', async () => {
    await page.goto((await sheets()).url);
    await page.getByRole('button', { name: /^Continue to/ }).waitFor();
    await pages.trellis.advance(20 * 60);
    const popup = await travel();
    await popup.getByText('ada@example.com').first().waitFor();
    await pages.trellis.advance(11 * 60);
    await page.getByText(/can still finish/).waitFor();
    assert.equal(await page.getByRole('button').count(), 0);
    await page.reload();
    await page.getByText(/can still finish/).waitFor();
    await picture(page, 'connect-expired-under-way');
    await consent(popup);
    await page.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
  });

  test('a user who declines in the second window sees this, although the first window never came back', async () => {
    await page.goto((await sheets()).url);
    const first = await travel();
    await first.getByText('ada@example.com').first().waitFor();
    const second = await popupBy(context, () =>
      page.getByRole('button', { name: 'Open the window again' }).click(),
    );
    await deny(second);
    await page.getByRole('heading', { name: 'Access was denied' }).waitFor();
  });

  test('a user who declines sees this, and may try again', async () => {
    await page.goto((await sheets()).url);
    await deny(await travel());
    await page.getByRole('heading', { name: 'Access was denied' }).waitFor();
    await picture(page, 'connect-denied');
    await page.getByRole('button', { name: 'Try again' }).click();
    await consent(await travel());
    await page.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
  });

  test('scopes that were not ticked are named, and are granted by one more click', async () => {
    const before = await pages.connections();
    await page.goto((await sheets()).url);
    await consent(await travel(), { untick: true });
    await page
      .getByRole('heading', { name: 'Google Sheets is connected, but some permissions are missing' })
      .waitFor();
    await picture(page, 'connect-missing-scopes');
    const [made] = await pages.connections();
    assert.deepEqual(made?.health.missing_scopes, ['https://www.googleapis.com/auth/spreadsheets']);
    const popup = await popupBy(context, () =>
      page.getByRole('button', { name: 'Grant missing access' }).click(),
    );
    await consent(popup);
    await page.getByRole('heading', { name: 'Google Sheets is connected', exact: true }).waitFor();
    const now = await pages.connections();
    assert.equal(now.length, before.length + 1);
    assert.deepEqual([now[0]?.connection_id, now[0]?.health.missing_scopes], [made?.connection_id, []]);
  });

  test('a reconnect shows which account, and another one is refused', async () => {
    const [made] = await pages.connections();
    await page.goto(await pages.reconnectLink(made!.connection_id));
    await page.getByRole('heading', { name: 'Reconnect Google Sheets' }).waitFor();
    assert.ok(await page.getByText('a…@example.com').isVisible());
    await picture(page, 'connect-reconnect');
    const popup = await travel();
    await consent(popup, { account: 'grace@example.com' });
    await page.getByRole('heading', { name: 'This is another account' }).waitFor();
    assert.ok(await page.getByText('a…@example.com').isVisible());
    await picture(page, 'connect-other-account');
  });
});
