// From `npm start` on an empty directory to a pruned record, by hand, in a real browser.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import type { BrowserContext, Page } from 'playwright-core';
import { openBrowser, prepare, skipBrowser, type TestBrowser } from '../support/browser.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

describe('the first two minutes', { skip: skipBrowser }, () => {
  let service: RunningService;
  let browser: TestBrowser;
  let context: BrowserContext;
  let page: Page;
  const complaints: string[] = [];
  /** The presses of the mouse on all pages, as the browser reports them. */
  let clicks = 0;
  let startedAt: number;
  const seconds = () => ((performance.now() - startedAt) / 1000).toFixed(1);

  const listenIn = (at: BrowserContext) =>
    at.on('page', (opened) => {
      opened.on('pageerror', ({ message }) => complaints.push(message));
      opened.on('console', (line) => {
        if (line.type() === 'error') complaints.push(`${opened.url()}: ${line.text()}`);
      });
    });

  before(async () => {
    startedAt = performance.now();
    service = await startRunningService();
    browser = await openBrowser();
    context = await browser.newContext();
    await prepare(context);
    listenIn(context);
    await context.exposeBinding('pressed', () => {
      clicks += 1;
    });
    await context.addInitScript(
      "addEventListener('pointerdown', (event) => event.isTrusted && pressed(), true)",
    );
    page = await context.newPage();
  });
  after(async () => {
    await browser?.close();
    await service?.stop();
  });

  test('the link from the log makes the owner', async (t) => {
    const [, link = ''] = /set up +(\S+)/.exec(service.greeting.join('\n')) ?? [];
    assert.match(link, /^http:\/\/localhost:\d+\//);
    await page.goto(link);
    // A clone builds its dashboard while the service already runs; the page turns into it by itself.
    await page.getByLabel('Name').waitFor();
    await page.getByLabel('Name').fill('Grace Hopper');
    await page.getByLabel('E-mail').fill('grace@example.com');
    await page.getByRole('textbox', { name: 'Password' }).fill('correct horse battery');
    await page.getByRole('button', { name: 'Create account' }).click();
    await page.getByText('0 of 5').waitFor();
    t.diagnostic(`the owner is in after ${seconds()} s`);
  });

  test('the dashboard’s first load is less than 200 KB of compressed JavaScript', async (t) => {
    // At its ordinary pace: this page is waited for until it is quiet.
    const another = await browser.newContext({ storageState: await context.storageState() });
    listenIn(another);
    const fresh = await another.newPage();
    const sizes = new Map<string, number>();
    fresh.on('response', async (response) => {
      const { pathname } = new URL(response.url());
      if (!pathname.endsWith('.js')) return;
      const encoding = response.headers()['content-encoding'];
      const sent = Number(response.headers()['content-length']);
      sizes.set(
        pathname,
        encoding !== undefined && sent > 0 ? sent : brotliCompressSync(await response.body()).length,
      );
    });
    await fresh.goto(`${service.baseUrl}/app`);
    await fresh.getByText('0 of 5').waitFor();
    await fresh.waitForLoadState('networkidle');
    const total = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    const interactiveMs = await fresh.evaluate(
      'performance.getEntriesByType("navigation")[0].domInteractive',
    );
    t.diagnostic(
      `${sizes.size} files, ${(total / 1024).toFixed(0)} KB; interactive after ${interactiveMs} ms`,
    );
    assert.ok(sizes.size > 0);
    assert.ok(total < 200 * 1024, `${total} bytes: ${[...sizes].map((one) => one.join(' ')).join(', ')}`);
    await another.close();
  });

  test('one button adds the sandbox and connects an account', async (t) => {
    const [connect] = await Promise.all([
      context.waitForEvent('page'),
      page.getByRole('button', { name: 'Start with the sandbox' }).click(),
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
    // The button of the browser that closes the tab.
    clicks += 1;
    await page.getByText('2 of 5').waitFor();
    t.diagnostic(`connected after ${seconds()} s and ${clicks} clicks`);
  });

  test('from the start to a pruned record it takes at most 12 clicks', async (t) => {
    await page.getByRole('button', { name: 'Sync a sample sheet' }).click();
    await page.getByText('4 of 5').waitFor();
    await page.getByRole('link', { name: 'Choose a record' }).click();
    await page.getByRole('button', { name: 'Prune all' }).click();
    await page.getByRole('button', { name: 'Prune 4 records' }).click();
    await page.getByText('The payloads are removed.').waitFor();
    t.diagnostic(`pruned after ${seconds()} s of machine time and ${clicks} clicks`);
    assert.ok(clicks >= 9, `${clicks} clicks: some were not counted`);
    assert.ok(clicks <= 12, `${clicks} clicks`);
    const { connections } = (await service.call('GET', '/connections')) as {
      connections: { connection_id: string; provider_config_key: string }[];
    };
    const { records } = (await service.call('GET', '/records?model=Row', {
      headers: {
        'connection-id': connections[0]?.connection_id ?? '',
        'provider-config-key': connections[0]?.provider_config_key ?? '',
      },
    })) as { records: { id: string; _trellis_metadata: { pruned_at: string | null } }[] };
    assert.deepEqual(records.map(({ id }) => id).sort(), ['Bonn', 'Lima', 'Oslo', 'Rome']);
    for (const { _trellis_metadata: metadata } of records) assert.notEqual(metadata.pruned_at, null);
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: 'Getting started' }).click();
    await page.getByText('All steps are done').waitFor();
  });

  test('the playground shows the values of a spreadsheet', async () => {
    await page.getByRole('link', { name: 'Playground', exact: true }).click();
    await page.getByRole('button', { name: /Read the first sheet/ }).click();
    const answer = page.getByRole('region', { name: 'Response' });
    await answer.getByText('200').first().waitFor();
    await answer.getByRole('table').waitFor();
    assert.deepEqual(complaints, []);
  });
});
