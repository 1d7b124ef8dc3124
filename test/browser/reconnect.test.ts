// A sync that stopped in the dashboard: by a dead connection, until the account is connected again, and by a held mass deletion.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { consent, popupBy } from '../support/connect-pages.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { deployBody, flowConfig } from '../support/functions.ts';
import { connect } from '../support/trellis.ts';

// As many rows as the metadata say.
const rows = `const { z } = require('zod');
exports.default = {
  type: 'sync', description: 'Rows.', frequency: 'every hour', autoStart: false,
  models: { Row: z.object({ id: z.string() }) },
  async exec(nango) {
    const { count } = await nango.getMetadata();
    await nango.trackDeletesStart('Row');
    await nango.batchSave(Array.from({ length: count }, (_, n) => ({ id: String(n) })), 'Row');
    await nango.trackDeletesEnd('Row');
  },
};`;

describe('a sync that stopped, in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let context: BrowserContext;
  let connectionId: string;

  before(async () => {
    dashboard = await openDashboard();
    // A refresh that is refused.
    dashboard.expectComplaint(/424/);
    // Progress that is not answered, and the callback's page of a trip that made no connection.
    dashboard.expectComplaint(/ERR_FAILED|oauth\/callback.* 400/);
    ({ page, context } = await dashboard.openAs('developer'));
    ({ connectionId } = await connect(dashboard.trellis));
    const body = deployBody([flowConfig({ name: 'rows', code: rows, type: 'sync', source: rows })], {
      reconcile: false,
    });
    assert.equal((await dashboard.trellis.call('POST', '/sync/deploy', { body })).status, 200);
    await setCount(300);
    await post('/sync/start');
    await trigger('succeeded');
  });
  after(() => dashboard?.close());

  const open = (path: string) => page.goto(`${dashboard.trellis.baseUrl}/app/dev${path}`);
  const post = async (path: string) => {
    const at = { provider_config_key: 'google-sheet', connection_id: connectionId, syncs: ['rows'] };
    assert.equal((await dashboard.trellis.call('POST', path, { body: at })).status, 200);
  };
  const setCount = (count: number) =>
    dashboard.trellis.call('POST', '/connections/metadata', {
      body: { connection_id: connectionId, provider_config_key: 'google-sheet', metadata: { count } },
    });
  const sync = async () =>
    (
      (await dashboard.trellis.call('GET', '/functions/syncs?function=rows')).body.syncs as {
        state: string;
        last_run: { state: string } | null;
      }[]
    )[0];
  const settled = async (state: string) => {
    for (;;) {
      const found = await sync();
      if (found?.state !== 'running' && found?.last_run?.state === state) return;
      await new Promise((next) => setTimeout(next, 50));
    }
  };
  const trigger = async (state: string) => {
    await post('/sync/trigger');
    await settled(state);
  };

  const dialog = () => page.getByRole('dialog');
  /** Opens the link of the dialog, and leads on to the provider; gives both windows. */
  const travel = async () => {
    const tab = await popupBy(context, () => dialog().getByRole('link', { name: 'Open' }).click());
    const popup = await popupBy(context, () => tab.getByRole('button', { name: /^Continue/ }).click());
    return { tab, popup };
  };

  test('the dialog shows the fault, and makes a new link once the link has expired', async () => {
    await open(`/connections/google-sheet/${connectionId}`);
    const button = page.getByRole('button', { name: 'Reconnect' });
    await button.click();
    await dialog().getByRole('link', { name: 'Open' }).and(page.locator(':focus')).waitFor();
    await page.route('**/connect/session/progress', (route) => route.abort());
    await dialog().getByText('The service does not respond. This page tries again.').waitFor();
    await picture(page, 'reconnect-unanswered');
    await page.unroute('**/connect/session/progress');
    await dialog().getByText('Waiting for the account').waitFor();

    const { tab, popup } = await travel();
    // The account is known, so nothing is to be chosen.
    await popup.getByRole('button', { name: /cancel|deny/i }).click();
    await dialog()
      .getByText('Access was declined at the provider. The owner can open the link again.')
      .waitFor();
    await tab.close();
    // The service's own answer as of a later time, at which nothing else is to happen.
    await page.route('**/connect/session/progress', async (route) => {
      const answer = await route.fetch();
      const { data } = (await answer.json()) as { data: object };
      await route.fulfill({ response: answer, json: { data: { ...data, state: 'expired' } } });
    });
    await dialog().getByText('The link has expired.').waitFor();
    await picture(page, 'reconnect-expired');
    assert.equal(await dialog().getByText('The owner of the account opens this link').count(), 0);
    assert.equal(await dialog().getByRole('link', { name: 'Open' }).count(), 0);
    await page.unroute('**/connect/session/progress');
    await dialog().getByRole('button', { name: 'Create a new link' }).and(page.locator(':focus')).click();
    await dialog().getByRole('link', { name: 'Open' }).and(page.locator(':focus')).waitFor();
    await page.keyboard.press('Escape');
    await dialog().waitFor({ state: 'detached' });
    await button.and(page.locator(':focus')).waitFor();
  });

  test('the dialog notices that the account is connected again, and the sync runs at once without its old error', async () => {
    await dashboard.trellis.control('POST', 'faults', { case: 'refresh_revoked' });
    await open(`/connections/google-sheet/${connectionId}?tab=syncs`);
    await page.getByRole('button', { name: 'Refresh now' }).click();
    await page.getByText('Reconnect needed').waitFor();
    await dashboard.trellis.control('DELETE', 'faults');
    await post('/sync/trigger');
    const card = page.getByRole('region', { name: 'Syncs' });
    await card
      .getByText(/its user needs to connect again/)
      .first()
      .waitFor();
    await page.getByRole('button', { name: 'Reconnect' }).click();
    await dialog().getByText('Waiting for the account').waitFor();
    await picture(page, 'reconnect-waiting');

    const { tab, popup } = await travel();
    await consent(popup, { untick: true });
    await dialog().getByText('Reconnected, but some scopes are missing').waitFor();
    const missing = 'Not granted: https://www.googleapis.com/auth/spreadsheets.';
    await dialog().getByText(`${missing} The owner can still grant them on the open page.`).waitFor();
    await picture(page, 'reconnect-partly');
    const rest = await popupBy(context, () =>
      tab.getByRole('button', { name: 'Grant missing access' }).click(),
    );
    await consent(rest);
    await dialog().getByText('Syncs that stopped because of this connection run again.').waitFor();
    await picture(page, 'reconnect-done');
    await tab.close();
    await dialog().getByRole('button', { name: 'Done' }).and(page.locator(':focus')).click();
    await page.getByText('Reconnect needed').waitFor({ state: 'detached' });
    await settled('succeeded');
    await card.getByText(/its user needs to connect again/).waitFor({ state: 'detached' });
  });

  test('a held deletion shows how many records it is about, and is allowed once', async () => {
    await setCount(100);
    await trigger('failed');
    await open('/functions/of/google-sheet/sync/rows?tab=syncs');
    const held = 'Held: 200 of 300 records of Row would be deleted.';
    await page.getByText(`${held} Open the menu of the sync to allow it.`).waitFor();
    await picture(page, 'syncs-held-deletion');
    await page.getByRole('button', { name: /^Actions for rows of/ }).click();
    await page.getByRole('menuitem', { name: 'Allow held deletion' }).click();
    await page.getByText('200 of 300 records of Row', { exact: true }).waitFor();
    await picture(page, 'allow-held-deletion');
    await page.getByRole('button', { name: 'Cancel' }).click();

    const [run] = (await dashboard.trellis.call('GET', '/functions/runs?state=failed&limit=1')).body.runs as {
      id: string;
    }[];
    await open(`/functions/runs/${run?.id}`);
    const fault = page.getByRole('alert').filter({ hasText: 'Deletion held' });
    await fault.getByText(held, { exact: true }).waitFor();
    const byApi = fault.getByText('"allow_mass_delete":{"Row":200}');
    assert.equal(await byApi.isVisible(), false);
    assert.equal(await fault.getByLabel('Stack').count(), 0);
    await picture(page, 'run-held-deletion');
    await fault.getByRole('button', { name: 'Allow the deletion with the API' }).click();
    await byApi.waitFor();
    await open(`/records/of/google-sheet/${connectionId}/Row`);
    await page.getByText('choose Allow held deletion on the sync').waitFor();
    await picture(page, 'dataset-held-deletion');
    await page.goBack();
    await page.getByRole('button', { name: 'Allow held deletion' }).click();
    await page.getByText('neither this run nor the held one found').waitFor();
    await page.getByRole('button', { name: 'Delete up to 200 records' }).click();
    await page.getByText('The sync reads everything again, then deletes.').waitFor();
    await page.waitForURL((url) => !url.pathname.endsWith(`/${run?.id}`));
    await settled('succeeded');
    await open(`/functions/runs/${run?.id}`);
    await page.getByText('This deletion is no longer held.').waitFor();
  });
});
