// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { createActivity } from '../../server/activity/writer.ts';
import { createLog } from '../../server/log.ts';
import { skipBrowser } from '../support/browser.ts';
import { holdCalls, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect, type TestTrellis } from '../support/trellis.ts';

/** What somebody who watches a service sees of what it does. */
describe('the activity of the dashboard', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let trellis: TestTrellis;
  let page: Page;
  let headers: Record<string, string>;

  before(async () => {
    dashboard = await openDashboard();
    ({ trellis } = dashboard);
    ({ page } = await dashboard.openAs('viewer'));
  });
  after(() => dashboard?.close());

  const open = (search = '') => page.goto(`${trellis.baseUrl}/app/dev/activity${search}`);
  const proxied = (path: string) => trellis.call('GET', `/proxy/v4/spreadsheets/${path}`, { headers });
  const line = (path: string) => page.getByRole('link', { name: `GET /v4/spreadsheets/${path}` });
  const live = (state: string) => page.getByRole('status', { name: `Live list: ${state}` }).waitFor();

  test('an environment without activity shows an empty state', async () => {
    await open();
    await page.getByText('No entries yet').waitFor();
    await live('Live');
    await picture(page, 'activity-empty');
  });

  test('a proxied call appears automatically, also in an empty list', async () => {
    ({ headers } = await connect(trellis));
    await page.getByRole('link', { name: 'connect' }).first().waitFor();
    await proxied('first');
    await line('first').waitFor();
    await proxied('second');
    await line('second').waitFor();
    // Newest first, each once.
    const paths = await page.getByRole('link', { name: /^proxy/ }).allTextContents();
    assert.deepEqual(paths, ['proxyGET /v4/spreadsheets/second', 'proxyGET /v4/spreadsheets/first']);
  });

  test('a pause holds the list, and going on misses nothing', async () => {
    await page.getByRole('button', { name: 'Pause' }).click();
    await live('Paused');
    await proxied('while-paused');
    const { page: other } = await dashboard.openAs('viewer');
    await other.goto(`${trellis.baseUrl}/app/dev/activity`);
    await other.getByRole('link', { name: /while-paused/ }).waitFor();
    await other.close();
    assert.equal(await line('while-paused').count(), 0);
    await page.getByRole('button', { name: 'Resume' }).click();
    await line('while-paused').waitFor();
    await live('Live');
  });

  test('a stream that ends is reopened, and the page shows this meanwhile', async () => {
    const tail = /\/operations\/tail/;
    dashboard.expectComplaint(/ERR_FAILED|ERR_INTERNET_DISCONNECTED|status of 503/);
    await page.route(tail, (route) => route.fulfill({ status: 503, body: '' }));
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume' }).click();
    await live('Reconnecting');
    await proxied('meanwhile');
    // Polled while the stream is away.
    await line('meanwhile').waitFor();
    await page.unroute(tail);
    await live('Live');
    await proxied('again-live');
    await line('again-live').waitFor();
  });

  test('an operation that is logged before the stream opens, and after the list was read, is shown', async () => {
    const open = await holdCalls(page, '**/operations/tail*');
    await page.reload();
    await line('again-live').waitFor();
    await live('Connecting');
    // The list is polled until the stream opens.
    const list = await holdCalls(page, '**/operations?*');
    await proxied('between');
    await open();
    await live('Live');
    await line('between').waitFor();
    await list();
  });

  test('filters are in the URL and apply to the list, also to live entries', async () => {
    await page.getByRole('textbox', { name: 'Search' }).fill('SECOND');
    await page.waitForURL(/text=SECOND/);
    await line('first').waitFor({ state: 'detached' });
    await line('second').waitFor();
    await proxied('nothing-of-it');
    await proxied('of-the-second-kind');
    await line('of-the-second-kind').waitFor();
    assert.equal(await line('nothing-of-it').count(), 0);
    await page.getByRole('combobox', { name: 'Outcome' }).click();
    await page.getByRole('option', { name: 'Succeeded' }).click();
    await page.waitForURL(/status=success/);
    await page.getByRole('heading', { name: 'No match' }).waitFor();
    await open('?type=connect&range=1h');
    await page.getByRole('link', { name: 'connect' }).first().waitFor();
    assert.equal(await page.getByRole('combobox', { name: 'Time' }).inputValue(), 'Last hour');
    assert.equal(await page.getByRole('link', { name: /^proxy/ }).count(), 0);
    await open('?from=2020-01-01T00:00:00.000Z&to=2020-01-02T00:00:00.000Z');
    await page.getByRole('heading', { name: 'No match' }).waitFor();
    await page.getByText('Fixed time range').waitFor();
    await picture(page, 'activity-nothing-fits');
    await open('?from=2020-01-02T00:00:00.000Z&to=2020-01-01T00:00:00.000Z');
    await page.getByText('The end is before the start.').waitFor();
    await picture(page, 'activity-reversed');
  });

  test('the charts show counts, failures and durations', async () => {
    const { body } = await trellis
      .control('POST', 'spreadsheets', {
        account: 'ada@example.com',
        title: 'Cities',
        sheet: 'cities',
        rows: [['Oslo']],
      })
      .then(async (sheet) =>
        trellis.call('GET', `/proxy/v4/spreadsheets/${sheet.spreadsheetId}/values/cities`, { headers }),
      );
    assert.deepEqual(body.values, [['Oslo']]);
    const { body: log } = await trellis.call('GET', '/operations?type=proxy');
    const failed = (log.operations as { status: string }[]).filter(
      ({ status }) => status === 'failed',
    ).length;
    await open('?type=proxy&range=1h');
    await page.getByText(`${failed + 1} operations, ${failed} failed`).waitFor();
    await page.getByRole('img', { name: /The number of operations/ }).waitFor();
    await page.getByRole('img', { name: /The durations p50 \(median\) and p95/ }).waitFor();
    await page.getByText('p95', { exact: true }).waitFor();
    await picture(page, 'activity');
  });

  test('one operation in full: phases, request, where it belongs, and once more as curl', async () => {
    await line('first').click();
    const drawer = page.getByRole('dialog');
    await drawer
      .getByRole('group', { name: 'Phases' })
      .getByText(/first byte/)
      .waitFor();
    await drawer.getByRole('link', { name: 'ada@example.com' }).waitFor();
    await drawer.getByText(headers['connection-id'] ?? '', { exact: true }).waitFor();
    await drawer.getByRole('link', { name: 'google-sheet', exact: true }).waitFor();
    await picture(page, 'activity-operation');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await drawer.getByRole('button', { name: 'Copy as curl' }).click();
    const text = String(await page.evaluate('navigator.clipboard.readText()'));
    assert.match(text, /^curl -g 'http:\/\/localhost:\d+\/proxy\/v4\/spreadsheets\/first'/);
    await drawer.getByRole('link', { name: 'Open in the playground' }).click();
    await page.waitForURL(/\/app\/dev\/playground\?/);
  });

  test('a failed attempt shows its steps', async () => {
    await trellis.control('POST', 'faults', { case: 'api_reset' });
    await proxied('reset');
    await trellis.control('DELETE', 'faults');
    await open('?type=proxy&text=upstream_unreachable');
    await line('reset').click();
    const drawer = page.getByRole('dialog');
    await drawer.getByText('Messages').waitFor();
    await drawer.getByText('error', { exact: true }).waitFor();
    await picture(page, 'activity-failed-operation');
  });

  test('a failure has its code, and leaves space for its time', async () => {
    const { headers: of } = await connect(trellis, { account: 'grace@example.com' });
    await trellis.control('POST', 'revoke', { account: 'grace@example.com' });
    const path = `${'1x'.repeat(22)}/values/${encodeURIComponent("'Orders of the year'!A1:Z1000")}`;
    const failed = await trellis.call('GET', `/proxy/v4/spreadsheets/${path}`, { headers: of });
    assert.equal(failed.headers.get('x-trellis-error'), 'connection_needs_reauth');
    await open('?type=proxy');
    await page
      .getByText(/connection_needs_reauth/)
      .first()
      .waitFor();
    const table = await page.getByRole('table').boundingBox();
    const frame = await page.locator('.framed').boundingBox();
    assert.ok(table!.width <= frame!.width, `a table of ${table!.width} in ${frame!.width}`);
    await picture(page, 'activity-failures');
  });

  test('a page leads to older ones, and back', async () => {
    // No proxied calls: the provider's quota would make them wait.
    for (let n = 0; n < 55; n += 1) {
      await trellis.call('POST', '/records', { headers, body: { model: 'Row', records: [{ id: n }] } });
    }
    await page.goto(`${trellis.baseUrl}/app/dev/getting-started`);
    await open('?type=records.save');
    await page.getByRole('link', { name: 'Older' }).click();
    await page.waitForURL(/cursor=/);
    await page.getByText('Older operations').waitFor();
    // Back leaves the list.
    await page.goBack();
    await page.waitForURL(/getting-started$/);
    await page.goForward();
    await page.getByText('Older operations').waitFor();
    const focused = page.locator('main :focus');
    await page.getByRole('button', { name: 'To the newest' }).click();
    await live('Live');
    await focused.filter({ has: page.getByRole('link', { name: 'Older' }) }).waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.waitForURL(/cursor=/);
    await focused.filter({ has: page.getByRole('button', { name: 'To the newest' }) }).waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await live('Live');
    assert.ok(!page.url().includes('cursor'));
  });

  test('an address with an invalid cursor shows the first page and a notice', async () => {
    dashboard.expectComplaint(/status of 400/);
    await open('?type=records.save&cursor=nonsense');
    await page.getByText('The address named a page that does not exist. This is the first page.').waitFor();
    await page.getByRole('link', { name: 'records.save' }).first().waitFor();
    await live('Live');
    assert.ok(!page.url().includes('cursor'));
  });

  test('the layout is stable during loading, and an error shows the next step', async () => {
    const list = /\/operations\?/;
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route(list, async (route) => {
      await held;
      const error = { code: 'unavailable', message: 'The database does not answer.' };
      await route.fulfill({ status: 400, contentType: 'application/json', body: JSON.stringify({ error }) });
    });
    dashboard.expectComplaint(/status of 400/);
    await open();
    await page.getByRole('status', { name: 'Loading' }).first().waitFor();
    await picture(page, 'activity-loading');
    release();
    await page.getByRole('alert').getByText('The database does not answer.').waitFor();
    await picture(page, 'activity-error');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('alert').getByText('The database does not answer.').waitFor();
    // The page also reads the list every few seconds: from here on the button may be gone at any time.
    await page.unroute(list);
    await page.getByRole('link', { name: 'records.save' }).first().waitFor();
  });

  test('counts are exact without a filter, and lower bounds are labelled as such', async () => {
    const { db } = trellis;
    const [environment] = await db.query<{ id: number }>(`select id from environment where name = 'dev'`);
    const of = { environmentId: environment!.id, type: 'connect', connection: 'busy' } as const;
    const activity = createActivity({
      db,
      log: createLog({ level: 'silent', format: 'json' }),
      settings: { sampleRate: 1 },
    });
    // More in a minute than a step of an hour looks at: 40,000 entries for 60 or 61 steps.
    // The newest of them failed, so that those are counted.
    for (let n = 0; n < 1_500; n += 1) {
      activity.log({ ...of, status: n >= 1_487 ? 'failed' : 'success', durationMs: 20 });
    }
    await activity.stop();
    assert.equal(activity.dropped, 0);
    const { body } = await trellis.call('GET', '/operations/stats?type=connect&by=type');
    const [all] = body.groups as { count: number; failed: number }[];
    await open('?type=connect&range=1h');
    await page
      .getByText(`${all!.count.toLocaleString('en')} operations, ${all!.failed} failed`, { exact: true })
      .waitFor();
    await page.getByText('Counts are exact. Durations may differ by up to 12%.').waitFor();
    await open('?type=connect&connection=busy&range=1h');
    await page.getByText(/^at least [\d,]+ operations, at least \d+ failed$/).waitFor();
    await page
      .getByText('Too many operations match to count all of them. The numbers are lower bounds')
      .waitFor();
    await picture(page, 'activity-at-least');
    await open('?type=connect&connection=busy&status=success&range=1h');
    await page.getByText(/^at least [\d,]+ operations$/).waitFor();
  });
});
