// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { exported, holdCalls, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect } from '../support/trellis.ts';

/** What an owner, and a viewer, see and do with records, in a real browser and in this order. */
describe('the records pages in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let at: Awaited<ReturnType<typeof connect>>;
  let root: string;

  const call = async (method: string, path: string, body?: unknown) => {
    const { trellis } = dashboard;
    const answer = await trellis.call(method, path, {
      headers: at.headers,
      ...(body !== undefined && { body }),
    });
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  };
  const open = async (path: string, on = page) => void (await on.goto(`${root}/records${path}`));
  const dataset = (model: string) => `/of/${at.integration}/${at.connectionId}/${model}`;
  const rows = () => page.locator('tbody tr.fill-row');

  before(async () => {
    dashboard = await openDashboard();
    root = `${dashboard.trellis.baseUrl}/app/dev`;
    ({ page } = await dashboard.openAs('owner'));
  });
  after(() => dashboard?.close());

  test('without a connection the page shows the first step', async () => {
    await open('');
    await page.getByText('Create a connection first').waitFor();
    await picture(page, 'records-empty');
  });

  test('a connection is found by its account, and a new one shows how to save records', async () => {
    at = await connect(dashboard.trellis);
    const release = await holdCalls(page, '**/connections?*');
    await open('');
    await page.getByRole('status', { name: 'Loading' }).waitFor();
    await picture(page, 'records-loading');
    await release();
    await page.getByRole('link', { name: 'ada@example.com' }).waitFor();
    await picture(page, 'records');
    await page.getByLabel('Search connections').fill('nobody');
    await page.getByText('No match').waitFor();
    assert.equal(new URL(page.url()).searchParams.get('search'), 'nobody');
    await page.getByLabel('Search connections').fill('ada@');
    await page.getByRole('link', { name: 'ada@example.com' }).click();
    await page.getByText('No records yet').waitFor();
    await page.getByText(`Connection-Id: ${at.connectionId}`).waitFor();
    await picture(page, 'datasets-empty');
  });

  test('datasets are shown with their counts and bytes', async () => {
    await call('PATCH', '/records/datasets', { model: 'City', keep_previous: true });
    const city = (id: number, more: object = {}) => ({ id, city: `City ${id}`, country: 'NO', ...more });
    await call('POST', '/records', {
      model: 'City',
      records: Array.from({ length: 120 }, (_, index) => city(index + 1)),
    });
    const cities = [119, 120].map((id) => city(id, { city: `Renamed ${id}`, people: 700_000 }));
    await call('POST', '/records', { model: 'City', records: cities });
    await call('POST', '/records/delete', { model: 'City', ids: [1, 2, 3] });
    const contacts = Array.from({ length: 150 }, (_, id) => ({ id, name: `Contact ${id}` }));
    await call('POST', '/records', { model: 'Contact', variant: 'eu', records: contacts });
    await call('POST', '/records/track-deletes/start', { model: 'Contact', variant: 'eu' });
    const held = await dashboard.trellis.call('POST', '/records/track-deletes/end', {
      headers: at.headers,
      body: { model: 'Contact', variant: 'eu' },
    });
    assert.equal(held.status, 409, held.text);
    const release = await holdCalls(page, '**/records/datasets');
    await open(`/of/${at.integration}/${at.connectionId}`);
    await page.getByRole('status', { name: 'Loading' }).waitFor();
    await picture(page, 'datasets-loading');
    await release();
    await page.getByText('deletion held').waitFor();
    await page.getByRole('heading', { name: 'Bytes stored, encrypted' }).waitFor();
    assert.match(await rows().filter({ hasText: 'City' }).innerText(), /^City\s+117\s+3\s/);
    await picture(page, 'datasets');
  });

  test('an unknown connection is reported as such', async () => {
    dashboard.expectComplaint(/status of 40\d/);
    await open(`/of/${at.integration}/nobody`);
    await page.getByRole('alert').filter({ hasText: 'not_found' }).waitFor();
    await picture(page, 'datasets-error');
  });

  test('a dataset is browsed forward and back, and its address leads to the same page', async () => {
    const release = await holdCalls(page, '**/records?*');
    await open(dataset('City'));
    await page.getByRole('status', { name: 'Loading' }).waitFor();
    await picture(page, 'dataset-loading');
    await release();
    await rows().first().waitFor();
    assert.equal(await rows().count(), 50);
    assert.match(await rows().first().innerText(), /^4\s+added/);
    await picture(page, 'dataset');
    await page.getByRole('link', { name: 'Next' }).click();
    await rows().getByText('54', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'Next' }).click();
    await page.getByText('Page 3').waitFor();
    await rows().getByText('120', { exact: true }).waitFor();
    assert.equal(await rows().count(), 20);
    assert.equal(await page.getByRole('button', { name: 'Next' }).isDisabled(), true);
    await page.reload();
    await rows().getByText('120', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'Previous' }).click();
    await rows().getByText('54', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'Next' }).click();
    await rows().getByText('120', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'First' }).click();
    await rows().getByText('4', { exact: true }).waitFor();
  });

  test('filters are kept in the address and go together', async () => {
    await page.getByLabel('Last action').first().click();
    await page.getByRole('option', { name: 'Deleted' }).click();
    await rows().getByText('deleted').first().waitFor();
    assert.equal(await rows().count(), 3);
    await page.getByRole('option', { name: 'Updated' }).click();
    await rows().getByText('updated').first().waitFor();
    assert.equal(await rows().count(), 5);
    await page.keyboard.press('Escape');
    await page.getByLabel('Record IDs').fill('2, 120, 7');
    await page.waitForURL(/ids=/);
    await rows().getByText('120', { exact: true }).waitFor();
    await rows().getByText('119', { exact: true }).waitFor({ state: 'hidden' });
    assert.equal(await rows().count(), 2);
    assert.equal(new URL(page.url()).searchParams.get('action'), 'deleted,updated');
    await page.getByLabel('Changed at or after').fill('2030-01-01T00:00');
    await page.getByText('No match').waitFor();
    await picture(page, 'dataset-nothing-fits');
    await page.getByRole('button', { name: 'Clear' }).click();
    await rows().getByText('4', { exact: true }).waitFor();
  });

  test('a record is shown whole, with what its last change changed', async () => {
    await page.getByLabel('Record IDs').fill('120');
    await rows().getByText('4', { exact: true }).waitFor({ state: 'hidden' });
    await rows().getByRole('link').click();
    const drawer = page.getByRole('dialog', { name: 'Record' });
    await drawer.getByRole('heading', { name: 'Last change' }).waitFor();
    const changed = drawer.locator('tr', { hasText: 'City 120' });
    assert.match((await changed.textContent()) ?? '', /^city"City 120""Renamed 120"$/);
    await drawer.locator('tr', { hasText: 'people' }).getByText('absent').waitFor();
    await drawer.getByRole('button', { name: 'Copy the cursor' }).click();
    const copied = await page.evaluate('navigator.clipboard.readText()');
    const { records } = await call('GET', '/records?model=City&ids=120');
    const [record] = records as { _trellis_metadata: { cursor: string } }[];
    assert.equal(copied, record?._trellis_metadata.cursor);
    await picture(page, 'record');
    await page.keyboard.press('Escape');
    await drawer.waitFor({ state: 'hidden' });
  });

  test('an invalid cursor is reported, with a way to correct it', async () => {
    await open(`${dataset('City')}?cursor=nonsense`);
    await page.getByText('invalid_cursor').waitFor();
    await picture(page, 'dataset-error');
    await page.getByRole('link', { name: 'Go to the first page' }).click();
    await rows().getByText('4', { exact: true }).waitFor();
  });

  test('consumers are shown with how far they are behind, and can be forgotten', async () => {
    await open(`${dataset('City')}?tab=consumers`);
    await page.getByText('No consumers').waitFor();
    await picture(page, 'consumers-empty');
    const { next_cursor: cursor } = await call('GET', '/records?model=City&limit=50');
    await call('PUT', '/records/consumers/billing', { model: 'City', cursor });
    await call('PUT', '/records/consumers/search-index', { model: 'City', cursor: null });
    await call('PUT', '/records/consumers/warehouse', { model: 'City', cursor });
    await call('PUT', '/records/consumers/elsewhere', { model: 'Contact', variant: 'eu', cursor: null });
    await dashboard.trellis.db.query(
      "update consumer set acknowledged_at = now() - interval '31 days' where name = 'search-index'",
      [],
    );
    // One of a key that has ended, at one cursor for long.
    await dashboard.trellis.db.query(
      "update consumer set owner_key_id = null, held_seq = seq, held_since = now() - interval '40 days' where name = 'warehouse'",
      [],
    );
    await page.reload();
    const row = page.locator('tr', { hasText: 'search-index' });
    await row.getByText('stale', { exact: true }).waitFor();
    await page.locator('tr', { hasText: 'billing' }).getByText('70', { exact: true }).waitFor();
    const stalled = page.locator('tr', { hasText: 'warehouse' });
    await stalled
      .getByText(
        /^stalled since \d+ \w+: it acknowledges the same cursor repeatedly; retention policies wait/,
      )
      .waitFor();
    await row.getByText('no acknowledgement for 30 days: retention policies no longer wait for it').waitFor();
    await stalled.getByText('none', { exact: true }).filter({ visible: true }).waitFor();
    assert.equal(await page.getByText('stalled', { exact: true }).count(), 1);
    const acknowledged = row.getByText(/ago|last month/).filter({ visible: true });
    const size = page.viewportSize();
    await page.setViewportSize({ width: 390, height: 844 });
    await acknowledged.waitFor();
    await stalled.getByText('none', { exact: true }).filter({ visible: true }).waitFor();
    if (size !== null) await page.setViewportSize(size);
    assert.equal(await page.getByText('elsewhere').count(), 0);
    await picture(page, 'consumers');
    await page.getByRole('button', { name: 'Forget search-index' }).click();
    await page.getByRole('dialog').getByText('The stored cursor is removed.').waitFor();
    await picture(page, 'consumer-forget');
    await page.getByRole('button', { name: 'Forget consumer' }).click();
    await row.waitFor({ state: 'hidden' });
    const { consumers } = await call('GET', '/records/consumers');
    assert.deepEqual((consumers as { name: string }[]).map(({ name }) => name).sort(), [
      'billing',
      'elsewhere',
      'warehouse',
    ]);
  });

  test('settings of a dataset are changed and kept', async () => {
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.getByText('With 117 live records, 101 deletions or more are held.').waitFor();
    await page.getByLabel('Number of records').fill('10');
    await page.getByLabel('Share of the live records').fill('20');
    await page.getByText('24 deletions or more are held').waitFor();
    await page.getByLabel('Ignored fields').first().fill('fetched_at');
    await page.keyboard.press('Enter');
    await page.getByLabel('Keep the previous payload of a record').uncheck({ force: true });
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('The settings are saved.').waitFor();
    await picture(page, 'dataset-settings');
    const { datasets } = await call('GET', '/records/datasets');
    const [city] = datasets as Record<string, unknown>[];
    assert.deepEqual(city?.mass_delete, { share: 0.2, number: 10 });
    assert.deepEqual(city?.ignore_fields, ['fetched_at']);
    assert.equal(city?.keep_previous, false);
  });

  test('an export is a file with the records that the filters show', async () => {
    await open(dataset('City'));
    const all = await exported(page, 'NDJSON');
    assert.equal(all.name, 'City.ndjson');
    assert.match(all.text, /\{"_trellis_export":\{"count":120\}\}\n$/);
    await open(`${dataset('City')}?ids=7`);
    const { name, text } = await exported(page, 'CSV');
    assert.equal(name, 'City.csv');
    assert.match(text, /^id,_trellis_metadata\.first_seen_at,.*\r\n7,.*\r\n$/);
    await page.getByRole('button', { name: 'Export' }).click();
    await page.getByRole('menuitem', { name: 'CSV' }).waitFor();
    await picture(page, 'records-export');
  });

  test('a viewer reads everything, and is offered nothing that changes it', async () => {
    const { page: theirs } = await dashboard.openAs('viewer');
    await open(dataset('City'), theirs);
    const link = theirs.locator('tbody tr.fill-row').first().getByRole('link');
    await link.waitFor();
    for (const name of [/^Prune/, 'Export']) {
      assert.equal(await theirs.getByRole('button', { name }).count(), 0);
    }
    await link.click();
    await theirs.getByRole('dialog').getByText('"City 4"').waitFor();
    assert.equal(await theirs.getByRole('button', { name: /^Prune/ }).count(), 0);
    await picture(theirs, 'record-viewer');
    await theirs.keyboard.press('Escape');
    await theirs.getByRole('tab', { name: 'Settings' }).click();
    await theirs.getByText('Your role is read-only').waitFor();
    assert.equal(await theirs.getByRole('button', { name: 'Save' }).count(), 0);
    await picture(theirs, 'dataset-settings-viewer');
    await theirs.getByRole('tab', { name: 'Consumers' }).click();
    await theirs.getByText('billing').waitFor();
    assert.equal(await theirs.getByRole('button', { name: /Forget/ }).count(), 0);
    await open('/retention', theirs);
    await theirs.getByText('No retention policy').waitFor();
    assert.equal(await theirs.getByRole('button', { name: 'Add a policy' }).count(), 0);
    const prune = await theirs.evaluate(
      `fetch('/records/prune', { method: 'PATCH', headers: {
        'x-trellis-environment': 'dev', 'content-type': 'application/json',
        'connection-id': '${at.connectionId}', 'provider-config-key': '${at.integration}',
      }, body: JSON.stringify({ model: 'City', until_cursor: 'any' }) }).then(({ status }) => status)`,
    );
    assert.equal(prune, 403);
  });

  test('the list shows the datasets of each connection, with their counts, sizes and consumers', async () => {
    const records = [1, 2, 3].map((id) => ({ id, name: `Town ${id}` }));
    await call('POST', '/records', { model: 'Town', records });
    const { next_cursor: cursor } = await call('GET', '/records?model=Town&limit=2');
    await call('PATCH', '/records/prune', { model: 'Town', until_cursor: cursor });
    await call('PUT', '/records/consumers/billing', { model: 'Town', cursor });
    await open('');
    const row = rows().filter({ hasText: 'Town' });
    await row.getByText('billing: 1 behind').waitFor();
    const cells = await row.locator('td').allTextContents();
    assert.deepEqual([cells[1], cells[2], cells[3]], ['Town', '3', '2']);
    await picture(page, 'records-datasets');
    await row.getByRole('link', { name: 'Town' }).click();
    await page.waitForURL(/\/Town$/);
  });

  test('a page of ten connections takes two calls', async () => {
    for (let n = 0; n < 11; n += 1) await connect(dashboard.trellis, { integration: 'many' });
    const asked: string[] = [];
    page.on('request', (request) => {
      const { pathname } = new URL(request.url());
      if (/^\/(records|connections)(\/|$)/.test(pathname)) asked.push(pathname);
    });
    await open('');
    await page.getByRole('link', { name: 'Older' }).waitFor();
    await page.getByText('No records').filter({ visible: true }).first().waitFor();
    assert.equal(await rows().count(), 10);
    assert.deepEqual(asked.slice(0, 2), ['/connections', '/records/datasets/of-connections']);
    // The page asks again every ten seconds.
    assert.equal(new Set(asked).size, 2);
  });
});
