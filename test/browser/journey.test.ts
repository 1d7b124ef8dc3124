// From `npm start` on an empty directory to a spreadsheet's values, by hand, in a real browser.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import type { BrowserContext, Locator, Page } from 'playwright-core';
import { openBrowser, prepare, skipBrowser, type TestBrowser } from '../support/browser.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

describe('the first two minutes', { skip: skipBrowser }, () => {
  let service: RunningService;
  let browser: TestBrowser;
  let context: BrowserContext;
  let page: Page;
  const complaints: string[] = [];
  let clicks = 0;
  let startedAt: number;
  const seconds = () => ((performance.now() - startedAt) / 1000).toFixed(1);
  const click = async (target: Locator) => {
    clicks += 1;
    await target.click();
  };

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
    await click(page.getByRole('button', { name: 'Create the account' }));
    await page.getByText('0 of 5').waitFor();
    t.diagnostic(`the owner is in after ${seconds()} s`);
  });

  test('the dashboard’s first load is less than 300 KB of compressed JavaScript', async (t) => {
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
    assert.ok(total < 300 * 1024, `${total} bytes: ${[...sizes].map((one) => one.join(' ')).join(', ')}`);
    await another.close();
  });

  test('an integration with test credentials, and an account at the sandbox', async (t) => {
    await click(page.getByRole('link', { name: 'Add Google Sheets' }));
    await click(page.getByRole('button', { name: 'Add', exact: true }));
    await page.getByText('This integration uses the sandbox').waitFor();
    await click(page.getByRole('button', { name: 'Add a test connection' }));
    clicks += 1;
    const [connect] = await Promise.all([
      context.waitForEvent('page'),
      page.getByRole('dialog').getByRole('button', { name: 'Connect' }).click(),
    ]);
    clicks += 1;
    const [provider] = await Promise.all([
      connect.waitForEvent('popup'),
      connect
        .getByRole('button', { name: /google/i })
        .first()
        .click(),
    ]);
    await click(provider.getByText('ada@example.com').first());
    await click(provider.getByRole('button', { name: /continue|allow/i }));
    await connect
      .getByText(/connected/i)
      .first()
      .waitFor();
    await connect.close();
    await page
      .getByRole('status')
      .getByText('ada@example.com')
      .or(page.getByText('Connected'))
      .first()
      .waitFor();
    await click(page.getByRole('button', { name: 'Done' }));
    t.diagnostic(`connected after ${seconds()} s and ${clicks} clicks`);
  });

  test('the playground shows the values of a spreadsheet', async (t) => {
    await click(page.getByRole('link', { name: 'Getting started' }));
    await page.getByText('2 of 5').waitFor();
    await click(page.getByRole('link', { name: 'Open the playground' }));
    await click(page.getByRole('button', { name: /Read the first sheet/ }));
    const answer = page.getByRole('region', { name: 'Answer' });
    await answer.getByText('200').first().waitFor();
    await answer.getByRole('table').waitFor();
    t.diagnostic(`the values are there after ${seconds()} s of machine time and ${clicks} clicks`);
    assert.ok(clicks <= 15, `${clicks} clicks`);
    await click(page.getByRole('link', { name: 'Getting started' }));
    await page.getByText('3 of 5').waitFor();
  });

  test('the other two steps tick themselves off when they have really happened', async () => {
    const { connections } = (await service.call('GET', '/connections')) as {
      connections: { connection_id: string; provider_config_key: string }[];
    };
    const [connection] = connections;
    const headers = {
      'connection-id': connection?.connection_id ?? '',
      'provider-config-key': connection?.provider_config_key ?? '',
    };
    const records = [
      { id: '1', name: 'Ada' },
      { id: '2', name: 'Alan' },
    ];
    await service.call('POST', '/records', { headers, body: { model: 'Row', records } });
    await page.getByText('4 of 5').waitFor();
    const listed = (await service.call('GET', '/records?model=Row', { headers })) as {
      records: { _trellis_metadata: { cursor: string } }[];
    };
    await service.call('PATCH', '/records/prune', {
      headers,
      body: { model: 'Row', until_cursor: listed.records.at(-1)?._trellis_metadata.cursor },
    });
    await page.getByText('All steps are done').waitFor();
    assert.deepEqual(complaints, []);
  });
});
