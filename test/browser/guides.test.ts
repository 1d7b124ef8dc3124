// The guides in a browser: pages, navigation, search, colours, copy buttons, at narrow and wide widths.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { assertAccessible, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';

describe('the guides', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  before(async () => {
    dashboard = await openDashboard();
    dashboard.expectComplaint(/404/);
    ({ page } = await dashboard.openAsNobody());
  });
  after(() => dashboard?.close());

  const open = (path: string) => page.goto(`${dashboard.trellis.baseUrl}${path}`);
  const schemeOf = () => page.locator('html').getAttribute('data-mantine-color-scheme');

  test('everybody can read them, page by page from the index', async () => {
    await open('/guides');
    await page.getByRole('heading', { name: 'Documentation', level: 1 }).waitFor();
    await picture(page, 'guides-index');
    await page.getByRole('main').getByRole('link', { name: 'Quickstart', exact: true }).click();
    await page.getByRole('heading', { name: 'Quickstart', level: 1 }).waitFor();
    await picture(page, 'guides-quickstart');
    const turn = page.getByRole('navigation', { name: 'Previous and next page' });
    await turn.getByRole('link', { name: /^Next/ }).click();
    await page.getByRole('heading', { level: 1 }).waitFor();
    assert.match(page.url(), /\/guides\/concepts$/);
    await turn.getByRole('link', { name: /^Previous/ }).click();
    await page.waitForURL('**/guides/quickstart');
  });

  test('a page of code and tables fits its window', async () => {
    for (const name of ['proxy', 'sdk', 'reference/errors', 'decisions/0010-proxy-speed']) {
      await open(`/guides/${name}`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await picture(page, `guides-${name.replace('/', '-')}`);
    }
  });

  test('the search finds an error code and opens the passage', async () => {
    await open('/guides/connect');
    await page.keyboard.press('/');
    const field = page.getByRole('searchbox', { name: 'Search the guides' });
    await field.fill('cursor_expired');
    const result = page.getByRole('dialog').getByRole('link').first();
    await result.getByText('cursor_expired').first().waitFor();
    await picture(page, 'guides-search');
    const address = (await result.getAttribute('href')) ?? '';
    await field.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForURL(`**${address}`);
    await page.keyboard.press('Control+k');
    await field.fill('nextjs');
    await result.getByText('Add it to your app').waitFor();
    await field.fill('qqqxyz');
    await page.getByText('No page has these words.').waitFor();
    await page.keyboard.press('Escape');
    await field.waitFor({ state: 'hidden' });
  });

  test('a page of an earlier build loads itself again when its search is asked for', async () => {
    await open('/guides/keys');
    await page.route(/\/assets\/search-[^/]+\.js$/, (route) => route.fulfill({ status: 404 }));
    const loaded = page.waitForEvent('load');
    await page.keyboard.press('/');
    await loaded;
    await page.unrouteAll();
  });

  test('colours follow the system until they are chosen, and the dashboard shares the choice', async () => {
    await page.emulateMedia({ colorScheme: 'dark' });
    await open('/guides/keys');
    assert.equal(await schemeOf(), 'dark');
    await page.getByRole('button', { name: 'Switch between light and dark' }).click();
    assert.equal(await schemeOf(), 'light');
    await open('/app/sign-in');
    await page.getByRole('textbox').first().waitFor();
    assert.equal(await schemeOf(), 'light');
    await page.evaluate("localStorage.setItem('mantine-color-scheme-value', 'auto')");
    await open('/guides/keys');
    assert.equal(await schemeOf(), 'dark');
    await page.emulateMedia({ colorScheme: 'light' });
    await page.locator('html[data-mantine-color-scheme=light]').waitFor({ state: 'attached' });
  });

  test('the button of a block copies its code', async () => {
    await open('/guides/quickstart');
    const block = page.locator('.code').first();
    await block.hover();
    await block.getByRole('button', { name: 'Copy' }).click();
    await block.getByText('Copied').waitFor();
    assert.equal(
      (await page.evaluate<string>('navigator.clipboard.readText()')).trim(),
      (await block.locator('code').textContent())?.trim(),
    );
  });

  test('code names the address of the service that shows it, also when it is copied', async () => {
    await open('/guides/quickstart');
    const block = page.locator('.code').filter({ hasText: 'TRELLIS_URL=' }).first();
    await block.hover();
    await block.getByRole('button', { name: 'Copy' }).click();
    await block.getByText('Copied').waitFor();
    const copied = await page.evaluate<string>('navigator.clipboard.readText()');
    const { baseUrl } = dashboard.trellis;
    assert.equal(/TRELLIS_URL=(.*)/.exec(copied)?.[1], new URL(baseUrl).origin);
    assert.doesNotMatch(copied, /localhost:300[34]/);
    await picture(page, 'guides-address');
  });

  test('on a narrow screen, the navigation opens by a button', async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    await open('/guides/records');
    const link = page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Syncs' });
    assert.equal(await link.isVisible(), false);
    await page.getByRole('button', { name: 'Pages' }).click();
    await link.waitFor();
    await page.screenshot({ path: 'test-output/pages/guides-menu-390-light.png' });
    await link.click();
    await page.waitForURL('**/guides/syncs');
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test('the API reference has the colours of the system, with enough contrast', async () => {
    const inkOf = () => page.evaluate("getComputedStyle(document.querySelector('.swagger-ui')).color");
    for (const [colorScheme, ink] of [
      ['light', 'rgb(59, 65, 81)'],
      ['dark', 'rgb(228, 230, 230)'],
    ] as const) {
      await page.emulateMedia({ colorScheme });
      await open('/docs/');
      await page.locator('#operations-integrations-createIntegration .opblock-summary-control').click();
      await page.getByRole('button', { name: 'Try it out' }).click();
      await page.getByRole('button', { name: 'Execute' }).waitFor();
      // The buttons change their colours slowly.
      await page.evaluate('Promise.allSettled(document.getAnimations().map(({ finished }) => finished))');
      assert.equal(await inkOf(), ink);
      await page.screenshot({ path: `test-output/pages/reference-1280-${colorScheme}.png` });
      await assertAccessible(page, 'color-contrast');
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await page.locator('html:not(.dark-mode)').waitFor();
  });

  test('an unknown address shows the way to the index', async () => {
    const answer = await open('/guides/no-such-page');
    assert.equal(answer?.status(), 404);
    await page.getByRole('heading', { name: 'Page not found' }).waitFor();
    await picture(page, 'guides-not-found');
    await page.getByRole('link', { name: 'the index of all pages' }).click();
    await page.waitForURL('**/guides');
  });
});
