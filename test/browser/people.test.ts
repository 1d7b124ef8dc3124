// What a developer, an operator and an end user do from start to end: by keyboard alone and with a mouse, in narrow, usual
// and wide windows, light and dark. Each pair of these is tried once.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BrowserContext, Locator, Page } from 'playwright-core';
import { createSetUp } from '../../server/users/invitations.ts';
import { invitationLink } from '../../server/users/links.ts';
import { skipBrowser } from '../support/browser.ts';
import { openConnectPages, popupBy, type TestConnectPages } from '../support/connect-pages.ts';
import { openDashboard } from '../support/dashboard.ts';
import { deployBody, flowConfig } from '../support/functions.ts';
import { assertUsable, type Hand, press, takeUp, toggle, write } from '../support/hand.ts';
import { connect } from '../support/trellis.ts';

const nameOf = ({ by, width, colorScheme }: Hand) => `by ${by}, ${width} pixels, ${colorScheme}`;

/** Opens a window by a press, as this person. */
async function opened(hand: Hand, context: BrowserContext, target: Locator): Promise<Page> {
  const page = await popupBy(context, () => press(hand, target));
  await takeUp(page, hand);
  return page;
}

/**
 * Leaves the connect page for the provider, which has a window of its own unless this one is narrow, chooses the account if
 * that is asked, and decides.
 */
async function decide(
  hand: Hand,
  { leave, decision, untick = false }: { leave: Locator; decision: 'Continue' | 'Cancel'; untick?: boolean },
): Promise<void> {
  const connect = leave.page();
  const isNarrow = hand.width < 640;
  if (isNarrow) await press(hand, leave);
  const page = isNarrow ? connect : await opened(hand, connect.context(), leave);
  const account = page.getByRole('button', { name: 'ada@example.com' });
  const button = page.getByRole('button', { name: decision, exact: true });
  await account.or(button).first().waitFor();
  if (await account.isVisible()) await press(hand, account);
  await button.waitFor();
  if (untick) for (const box of await page.getByRole('checkbox').all()) await toggle(hand, box);
  const end = isNarrow ? page.waitForURL(/\/connect\//) : page.waitForEvent('close');
  await press(hand, button);
  await end;
}

/** By the navigation of the dashboard, which is behind a button in a narrow window. */
async function go(hand: Hand, page: Page, name: string): Promise<void> {
  const navigation = page.getByRole('button', { name: 'Navigation' });
  if (await navigation.isVisible()) await press(hand, navigation);
  await press(hand, page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name }));
  await page.getByRole('heading', { name, exact: true, level: 1 }).waitFor();
}

describe('a developer, from the set-up link to a pruned record', { skip: skipBrowser }, () => {
  const hands: Hand[] = [
    { by: 'keyboard', width: 390, colorScheme: 'dark' },
    { by: 'mouse', width: 1280, colorScheme: 'light' },
    { by: 'keyboard', width: 1920, colorScheme: 'light' },
  ];
  for (const hand of hands) {
    test(nameOf(hand), async (t) => {
      const dashboard = await openDashboard();
      t.after(() => dashboard.close());
      const { trellis } = dashboard;
      const { page, context } = await dashboard.openAsNobody();
      await takeUp(page, hand);
      const button = (name: string | RegExp) => page.getByRole('button', { name, exact: true });
      const link = (name: string) => page.getByRole('main').getByRole('link', { name, exact: true });

      const { token } = await createSetUp(trellis.db, new Date());
      await page.goto(invitationLink(trellis.baseUrl, token));
      await write(hand, page.getByLabel('Name'), 'Grace Hopper');
      await write(hand, page.getByLabel('E-mail'), 'grace@example.com');
      await write(hand, page.getByRole('textbox', { name: 'Password' }), 'correct horse battery');
      await press(hand, button('Create account'));
      await page.getByText('0 of 5').waitFor();
      await assertUsable(page);

      await press(hand, link('Choose a provider'));
      await write(hand, page.getByRole('textbox', { name: 'Search providers' }), 'google sheets');
      await page.getByText(/^\d of \d+ providers$/).waitFor();
      await press(hand, link('Google Sheets'));
      await press(hand, button('Add'));
      await page.getByText('This integration uses the sandbox').waitFor();

      await press(hand, button('Connect an account'));
      await press(hand, button('Create a link'));
      const tab = await opened(hand, context, page.getByRole('link', { name: 'Open', exact: true }));
      await decide(hand, { leave: tab.getByRole('button', { name: /^Continue to/ }), decision: 'Continue' });
      await tab.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
      await tab.close();
      await page.bringToFront();
      await press(hand, page.getByRole('link', { name: 'Open the connection' }));
      await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
      await page.getByRole('list', { name: 'Timeline' }).getByText('Connected').waitFor();
      await assertUsable(page);

      await go(hand, page, 'Getting started');
      await press(hand, button('Sync a sample sheet'));
      await page.getByText('3 of 5').waitFor();
      await go(hand, page, 'Playground');
      await press(hand, button(/^Read the first sheet/));
      const response = page.getByRole('region', { name: 'Response' });
      await response.getByText('200').first().waitFor();
      await assertUsable(page);

      await go(hand, page, 'Getting started');
      await press(hand, link('Choose a record'));
      await press(hand, button('Prune all'));
      await press(hand, button('Prune 4 records'));
      await page.getByText('The payloads are removed.').waitFor();
      await assertUsable(page);

      const { body } = await trellis.call('GET', '/connections');
      const [made] = body.connections as { connection_id: string; provider_config_key: string }[];
      const at = {
        'connection-id': made?.connection_id ?? '',
        'provider-config-key': made?.provider_config_key ?? '',
      };
      const listed = await trellis.call('GET', '/records?model=Row', { headers: at });
      const records = listed.body.records as { _trellis_metadata: { pruned_at: string | null } }[];
      assert.deepEqual(
        records.map(({ _trellis_metadata: { pruned_at } }) => pruned_at !== null),
        [true, true, true, true],
      );
    });
  }
});

// Fails until the metadata have a page.
const rows = `const { z } = require('zod');
exports.default = {
  type: 'sync', description: 'Rows.', frequency: 'every hour', autoStart: false,
  models: { Row: z.object({ id: z.string() }) },
  async exec(nango) {
    const { page } = await nango.getMetadata();
    await nango.batchSave(page.rows, 'Row');
  },
};`;

describe('an operator and an end user', { skip: skipBrowser }, () => {
  let pages: TestConnectPages;
  before(async () => {
    pages = await openConnectPages();
    // A refresh that is refused, and the callback's page of an authorization that was declined.
    pages.expectComplaint(/424|oauth\/callback.* 400/);
  });
  after(() => pages?.close());

  describe('the operator, from the home page to an account that works again', () => {
    let page: Page;
    let context: BrowserContext;
    let at: { connection_id: string; provider_config_key: string };
    const post = async (path: string, body: object) => {
      const answer = await pages.trellis.call('POST', path, { body: { ...at, ...body } });
      assert.ok(answer.status < 300, answer.text);
    };
    /** Waits until the last run of the sync ended like this. */
    const settled = async (state: string) => {
      for (;;) {
        const { body } = await pages.trellis.call('GET', '/functions/syncs?function=rows');
        const [sync] = body.syncs as { state: string; last_run: { state: string } | null }[];
        if (sync?.state !== 'running' && sync?.last_run?.state === state) return;
        await new Promise((next) => setTimeout(next, 50));
      }
    };
    before(async () => {
      const { connectionId, integration } = await connect(pages.trellis);
      at = { connection_id: connectionId, provider_config_key: integration };
      const body = deployBody([flowConfig({ name: 'rows', code: rows, type: 'sync', source: rows })], {
        reconcile: false,
      });
      assert.equal((await pages.trellis.call('POST', '/sync/deploy', { body })).status, 200);
      await post('/sync/start', { syncs: ['rows'] });
      await post('/sync/trigger', { syncs: ['rows'] });
      await settled('failed');
      ({ page, context } = await pages.openAs('developer'));
    });

    const hands: Hand[] = [
      { by: 'mouse', width: 390, colorScheme: 'light' },
      { by: 'keyboard', width: 1280, colorScheme: 'dark' },
      { by: 'mouse', width: 1920, colorScheme: 'dark' },
    ];
    for (const hand of hands) {
      test(nameOf(hand), async () => {
        const button = (name: string) => page.getByRole('button', { name, exact: true });
        await takeUp(page, hand);
        await page.goto(`${pages.trellis.baseUrl}/app/dev/home`);
        await page.getByRole('region', { name: 'Proxied calls' }).getByRole('img').first().waitFor();
        await assertUsable(page);
        const problems = page.getByRole('region', { name: 'Needs attention' });
        await press(hand, problems.getByRole('link', { name: /^rows of google-sheet: fails for/ }));
        await press(hand, page.getByRole('link', { name: 'Failed', exact: true }).filter({ visible: true }));
        await page.getByText('The code threw an error').waitFor();
        await assertUsable(page);

        await post('/connections/metadata', { metadata: { page: { rows: [{ id: '1' }] } } });
        const failed = page.url();
        await press(hand, button('Run again'));
        await page.waitForURL((url) => url.href !== failed);
        const timeline = page.getByRole('region', { name: 'Timeline' });
        await timeline.getByText('Succeeded').waitFor();
        await page.getByRole('region', { name: 'Records' }).getByRole('link', { name: 'Row' }).waitFor();

        await press(hand, page.getByRole('link', { name: 'ada@example.com', exact: true }));
        await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
        await pages.trellis.control('POST', 'faults', { case: 'refresh_revoked' });
        await press(hand, button('Refresh now'));
        // With it goes the focus, to what tells the cause.
        await button('Refresh now').waitFor({ state: 'detached' });
        await page.getByText('Access revoked or expired').first().waitFor();
        await pages.trellis.control('DELETE', 'faults');
        await assertUsable(page);

        await press(hand, button('Reconnect'));
        const dialog = page.getByRole('dialog', { name: 'Reconnect this account' });
        const tab = await opened(hand, context, dialog.getByRole('link', { name: 'Open', exact: true }));
        await decide(hand, {
          leave: tab.getByRole('button', { name: /^Continue to/ }),
          decision: 'Continue',
        });
        await dialog.getByText('Syncs that stopped because of this connection run again.').waitFor();
        await tab.close();
        await page.bringToFront();
        await press(hand, dialog.getByRole('button', { name: 'Done' }));
        await page.getByText('Healthy').waitFor();
        await assertUsable(page);

        // The next one finds it broken.
        await post('/connections/metadata', { metadata: {} });
        await post('/sync/trigger', { syncs: ['rows'] });
        await settled('failed');
      });
    }
  });

  describe('the end user, from the link to a page that closes', () => {
    const hands: Hand[] = [
      { by: 'mouse', width: 390, colorScheme: 'dark' },
      { by: 'keyboard', width: 1280, colorScheme: 'light' },
      { by: 'keyboard', width: 1920, colorScheme: 'dark' },
    ];
    for (const hand of hands) {
      test(nameOf(hand), async () => {
        const { page: application, context } = await pages.openAsNobody();
        await application.goto(pages.trellis.sandbox.url);
        const { url } = await pages.link();
        const page = await popupBy(context, () => application.evaluate(`void open(${JSON.stringify(url)})`));
        await takeUp(page, hand);
        const heading = (name: string | RegExp) => page.getByRole('heading', { name }).waitFor();
        const button = (name: string | RegExp) => page.getByRole('button', { name });

        await press(hand, button('Google Sheets'));
        await heading(/^Connect Google Sheets/);
        await assertUsable(page);
        await decide(hand, { leave: button(/^Continue to/), decision: 'Cancel' });
        await heading('Access was denied');
        await assertUsable(page);

        await press(hand, button('Try again'));
        await decide(hand, { leave: button(/^Continue to/), decision: 'Continue', untick: true });
        await heading('Google Sheets is connected, but some permissions are missing');
        await assertUsable(page);

        await decide(hand, { leave: button('Grant missing access'), decision: 'Continue' });
        await heading(/^Google Sheets is connected$/);
        await page.getByText('ada@example.com').waitFor();
        await assertUsable(page);
        await Promise.all([page.waitForEvent('close'), press(hand, button('Close'))]);
        const [made] = await pages.connections();
        assert.deepEqual(made?.health.missing_scopes, []);
        await context.close();
      });
    }
  });
});
