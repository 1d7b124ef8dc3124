// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { holdCalls, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect } from '../support/trellis.ts';

/** Pruning of payloads in the dashboard: by hand and by age, in this order. */
describe('pruning in a browser', { skip: skipBrowser }, () => {
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
  const open = async (path: string) => void (await page.goto(`${root}/records${path}`));
  const dataset = (model: string) => `/of/${at.integration}/${at.connectionId}/${model}`;
  const rows = () => page.locator('tbody tr.fill-row');

  before(async () => {
    dashboard = await openDashboard();
    root = `${dashboard.trellis.baseUrl}/app/dev`;
    ({ page } = await dashboard.openAs('owner'));
    at = await connect(dashboard.trellis);
  });
  after(() => dashboard?.close());

  test('20,000 records are pruned: estimate, progress, a portion that fails, receipt', async () => {
    for (const half of [0, 1]) {
      const records = Array.from({ length: 10_000 }, (_, index) => ({
        id: half * 10_000 + index,
        value: index,
      }));
      await call('POST', '/records', { model: 'Row', records });
    }
    await open(dataset('Row'));
    await page.getByRole('button', { name: 'Prune all' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Prune 20,000 records' }).waitFor();
    const [before] = await page.getByText(/of encrypted storage/).allTextContents();
    await picture(page, 'prune-question');
    let portions = 0;
    const { promise: seen, resolve: go } = Promise.withResolvers<void>();
    dashboard.expectComplaint(/ERR_FAILED/);
    await page.route('**/records/prune', async (route) => {
      portions += 1;
      if (portions === 6) return route.abort();
      if (portions === 9) await seen;
      const asked = route.request().postDataJSON() as { limit: number };
      assert.equal(asked.limit, 10_000, 'the maximum, for few entries in the audit log');
      return route.continue({ postData: { ...asked, limit: 1_000 } });
    });
    await dialog.getByRole('button', { name: 'Prune 20,000 records' }).click();
    await dialog.getByText('5,000 of 20,000 records pruned').waitFor();
    await dialog.getByText('unreachable').waitFor();
    await picture(page, 'prune-failed');
    await dialog.getByRole('button', { name: 'Try again' }).click();
    await dialog.getByText('7,000 of 20,000 records pruned').waitFor();
    await picture(page, 'prune-running');
    go();
    await dialog.getByText('The payloads are removed.').waitFor();
    assert.equal(portions, 21);
    assert.match((await dialog.locator('tr', { hasText: 'Records' }).textContent()) ?? '', /20,000$/);
    const size = /, ([\d.]+ [kM]B)/.exec(before ?? '')?.[1];
    assert.ok(size !== undefined && (await dialog.locator('tr', { hasText: size }).count()) === 1);
    await picture(page, 'prune-receipt');
    await page.unroute('**/records/prune');
    await dialog.getByRole('button', { name: 'Done' }).click();
    await rows().getByText('pruned').filter({ visible: true }).first().waitFor();
    await page.getByText('0 bytes').waitFor();
    const { datasets } = await call('GET', '/records/datasets');
    const row = (datasets as Record<string, unknown>[]).find(({ model }) => model === 'Row');
    assert.deepEqual([row?.pruned, row?.payload_bytes], [20_000, 0]);
    await rows().first().getByRole('link').click();
    await page.getByText('Save the record again to restore it.').waitFor();
    await picture(page, 'record-pruned');
  });

  test('a prune from a chosen record takes those before it, and can be stopped', async () => {
    for (const half of [0, 1]) {
      const records = Array.from({ length: 6_000 }, (_, id) => ({ id: `r${half * 6_000 + id}`, value: id }));
      await call('POST', '/records', { model: 'Stopped', records });
    }
    await open(`${dataset('Stopped')}?ids=r10999`);
    await rows().getByRole('link').click();
    await page.getByRole('button', { name: 'Prune up to this record' }).click();
    const release = await holdCalls(page, '**/records/prune');
    await page.getByRole('button', { name: 'Prune 11,000 records' }).click();
    await page.getByRole('button', { name: 'Stop' }).click();
    await release();
    await page.getByText('Stopped before the end').waitFor();
    await picture(page, 'prune-stopped');
    const { datasets } = await call('GET', '/records/datasets');
    const stopped = (datasets as Record<string, unknown>[]).find(({ model }) => model === 'Stopped');
    assert.equal(stopped?.pruned, 10_000);
  });

  test('by keyboard: Escape closes only the question, and the receipt has the focus', async () => {
    await call('POST', '/records', { model: 'Keyed', records: [{ id: 1 }, { id: 2 }] });
    await open(dataset('Keyed'));
    await rows().first().getByRole('link').press('Enter');
    const prune = page.getByRole('button', { name: 'Prune up to this record' });
    await prune.press('Enter');
    const act = page.getByRole('button', { name: 'Prune 1 record' });
    await act.waitFor();
    await page.keyboard.press('Escape');
    await act.waitFor({ state: 'detached' });
    assert.equal(await page.evaluate('document.activeElement.textContent'), 'Prune up to this record');
    await page.keyboard.press('Enter');
    await act.press('Enter');
    await page.getByText('The payloads are removed.').waitFor();
    assert.equal(await page.evaluate("document.activeElement.closest('[role=dialog]') !== null"), true);
    await page.getByRole('button', { name: 'Done' }).press('Enter');
    await page.getByText('Save the record again to restore it.').waitFor();
  });

  test('a retention policy is described before it is set, and can be removed', async () => {
    await open('/retention');
    await page.getByRole('button', { name: 'Add a policy' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Payloads are pruned 30 days after').waitFor();
    await dialog.getByLabel('Remove deleted records after').fill('90');
    await dialog.getByText('deleted more than 90 days ago are removed completely').waitFor();
    await picture(page, 'retention-policy');
    await dialog.getByRole('button', { name: 'Set the policy' }).click();
    await dialog.waitFor({ state: 'hidden' });
    await page.getByText('Every other integration').waitFor();
    await picture(page, 'retention');
    const { policies } = await call('GET', '/records/retention');
    const [policy] = policies as Record<string, unknown>[];
    assert.deepEqual(
      [policy?.provider_config_key, policy?.prune_after_days, policy?.remove_tombstones_after_days],
      [null, 30, 90],
    );
    await page.getByRole('button', { name: 'Edit' }).click();
    await dialog.getByLabel('Prune payloads after').fill('60');
    await dialog.getByRole('button', { name: 'Set the policy' }).click();
    await page.getByText('Payloads are pruned 60 days after').waitFor();
    await page.getByRole('button', { name: 'Remove' }).click();
    await page.getByRole('button', { name: 'Remove policy' }).click();
    await page.getByText('No retention policy').waitFor();
  });

  test('an unreachable service is reported with the code, and the request can be repeated', async () => {
    dashboard.expectComplaint(/ERR_FAILED/);
    await page.route('**/records/retention', (route) =>
      route.request().resourceType() === 'fetch' ? route.abort() : route.continue(),
    );
    await open('/retention');
    await page.getByText('unreachable').waitFor();
    await picture(page, 'retention-error');
    await page.unroute('**/records/retention');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByText('No retention policy').waitFor();
    await picture(page, 'retention-empty');
  });
});
