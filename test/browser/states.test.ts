// Each page about integrations and connections as it loads, with nothing to show, refused, and full.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect } from '../support/trellis.ts';

type Shown = {
  name: string;
  path: string;
  /** The calls that the page waits for. */
  asks: RegExp;
  /** What is there when all is loaded, and when there is nothing. */
  full: string;
  empty?: string;
  heading: string;
};

describe('pages in their four states', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let connectionId: string;

  before(async () => {
    dashboard = await openDashboard();
    dashboard.expectComplaint(/403/);
    ({ page } = await dashboard.openAs('owner'));
  });
  after(() => dashboard?.close());

  const open = (path: string) => page.goto(`${dashboard.trellis.baseUrl}/app/dev${path}`);
  const pages = (): Shown[] => [
    {
      name: 'getting-started',
      path: '/getting-started',
      asks: /\/(integrations|connections|operations)(\?|$)/,
      heading: 'Getting started',
      empty: '0 of 5',
      full: '2 of 5',
    },
    {
      name: 'integrations',
      path: '/integrations',
      asks: /\/integrations\?/,
      heading: 'Integrations',
      empty: 'No integration yet',
      full: 'google-sheet',
    },
    {
      name: 'catalogue',
      path: '/integrations/new?search=nothing+of+the+kind',
      asks: /\/providers$/,
      heading: 'Add an integration',
      empty: 'No match',
      full: 'No match',
    },
    {
      name: 'integration',
      path: '/integrations/of/google-sheet?tab=settings',
      asks: /\/integrations\/google-sheet/,
      heading: 'google-sheet',
      full: 'This integration uses the sandbox',
    },
    {
      name: 'connections',
      path: '/connections',
      asks: /\/connections\?/,
      heading: 'Connections',
      empty: 'Add an integration first',
      full: 'ada@example.com',
    },
    {
      name: 'connection',
      path: `/connections/google-sheet/${connectionId}`,
      asks: /\/connections\/[^?]+\?/,
      heading: connectionId,
      full: 'Connection ID',
    },
  ];

  test('each empty page shows the next step, and no filter', async () => {
    for (const { name, path, empty } of pages()) {
      if (empty === undefined) continue;
      await open(path);
      await page.getByText(empty).waitFor();
      assert.equal(await page.getByRole('search', { name: 'Filters' }).count(), 0, name);
      await picture(page, `${name}-empty`);
    }
  });

  test('while it loads, each page has its title and reserves space for its content', async () => {
    ({ connectionId } = await connect(dashboard.trellis));
    for (const { name, path, asks, heading } of pages()) {
      // Never answered; the browser cancels the request with the page.
      await page.route(asks, () => undefined);
      await open(path);
      await page.getByRole('heading', { name: heading, exact: true }).waitFor();
      await page.getByRole('status', { name: 'Loading' }).first().waitFor();
      if (name !== 'catalogue') await picture(page, `${name}-loading`);
      await page.goto('about:blank');
      await page.unroute(asks);
    }
  });

  test('when the service refuses, each page shows the code and can be tried again', async () => {
    for (const { name, path, asks, full } of pages()) {
      await page.route(asks, (route) =>
        route.fulfill({
          status: 403,
          headers: { 'content-type': 'application/json', 'x-request-id': 'req-4711' },
          body: '{"error":{"code":"forbidden","message":"The service has refused."}}',
        }),
      );
      await open(path);
      const alert = page.getByRole('alert').filter({ hasText: 'The service has refused.' }).first();
      await alert.getByText('forbidden · req-4711').waitFor();
      if (name !== 'catalogue') await picture(page, `${name}-error`);
      await Promise.all([
        page.waitForRequest(asks),
        alert.getByRole('button', { name: 'Try again' }).click(),
      ]);
      await page.unroute(asks);
      await page.reload();
      await page.getByText(full).first().waitFor();
      assert.equal(await page.getByText('The service has refused.').count(), 0, name);
    }
  });

  test('with data, the first steps are marked as done, and the next one is described', async () => {
    // The other pages are pictured full where they are used.
    await open('/getting-started');
    await page.getByText('2 of 5').waitFor();
    await page.getByRole('link', { name: 'Open the playground' }).waitFor();
    await picture(page, 'getting-started-full');
  });
});
