// Each page about records, events and settings, the playground and the sign-in pages: while it loads, refused, and empty.
// The tests that use the pages take pictures of them with data.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page, Route } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { assertFits, holdCalls, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { password, type TestPerson, tokenIn } from '../support/person.ts';
import { connect } from '../support/trellis.ts';

/** Where a page is, the path of the call that it waits for, and what it shows when that is answered. */
type Shown = {
  name: string;
  at: string;
  asks: string;
  full: string;
  /** The state that no other picture is like. */
  pictured?: 'loading' | 'error';
};

describe('further pages in their states', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let owner: TestPerson;
  let of: string;

  before(async () => {
    dashboard = await openDashboard();
    dashboard.expectComplaint(/status of 40[034]|Fault: The service has refused/);
    const { trellis } = dashboard;
    const { integration, connectionId, headers } = await connect(trellis);
    of = `/records/of/${integration}/${connectionId}`;
    const records = [{ id: 1, city: 'Oslo' }];
    const saved = await trellis.call('POST', '/records', { headers, body: { model: 'City', records } });
    assert.equal(saved.status, 200, saved.text);
    ({ page, person: owner } = await dashboard.openAs('owner'));
    await page.setViewportSize({ width: 390, height: 844 });
    // A page out of sight does not ask again by itself: the button alone does.
    await page.addInitScript("Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' })");
  });
  after(() => dashboard?.close());

  const open = (path: string, on = page) => on.goto(`${dashboard.trellis.baseUrl}/app${path}`);

  const refuse = (route: Route) =>
    route.fulfill({
      status: 403,
      headers: { 'content-type': 'application/json', 'x-request-id': 'req-4711' },
      body: '{"error":{"code":"forbidden","message":"The service has refused."}}',
    });

  /** Held first, then refused, then asked again by the button and answered: the three states one after the other. */
  async function assertStates({ name, at, asks, full, pictured }: Shown) {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const isAsked = ({ pathname }: URL) => pathname === asks;
    await page.route(isAsked, async (route) => {
      await released;
      await refuse(route);
    });
    await open(at);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.getByRole('status', { name: 'Loading' }).first().waitFor();
    if (pictured === 'loading') await picture(page, `${name}-loading`);
    else await assertFits(page, `${name} as it loads`);
    release();
    const alert = page.getByRole('alert').filter({ hasText: 'The service has refused.' });
    await alert.getByText('forbidden · req-4711').waitFor();
    if (pictured === 'error') await picture(page, `${name}-error`);
    else await assertFits(page, `${name} refused`);
    await page.unroute(isAsked);
    await alert.getByRole('button', { name: 'Try again' }).click();
    await page.getByText(full).first().waitFor();
    assert.equal(await alert.count(), 0, name);
    await assertFits(page, name);
  }

  async function assertTabInSight(name: string) {
    const box = await page.getByRole('tab', { selected: true }).boundingBox();
    assert.ok(box !== null && box.x >= 0 && box.x + box.width <= 390, `${name}: the tab is out of sight`);
  }

  test('records are loading, are refused, and are shown after a retry', async () => {
    const pages: Shown[] = [
      { name: 'records', at: '/records', asks: '/connections', full: 'ada@example.com', pictured: 'error' },
      { name: 'datasets', at: of, asks: '/records/datasets', full: 'City' },
      { name: 'dataset-whole', at: `${of}/City`, asks: '/records/datasets', full: 'Live' },
      { name: 'dataset-page', at: `${of}/City`, asks: '/records', full: 'added' },
      {
        name: 'consumers',
        at: `${of}/City?tab=consumers`,
        asks: '/records/consumers',
        full: 'No consumers',
      },
      {
        name: 'retention',
        at: '/records/retention',
        asks: '/records/retention',
        full: 'No retention policy',
        pictured: 'loading',
      },
      {
        name: 'playground',
        at: '/playground',
        asks: '/connections',
        full: 'No response yet',
        pictured: 'loading',
      },
    ];
    for (const shown of pages) await assertStates({ ...shown, at: `/dev${shown.at}` });
  });

  test('so do the tabs of the events', async () => {
    const key = '/environment/webhook-signing-key';
    const tabs: Shown[] = [
      { name: 'endpoints', at: '', asks: '/events/endpoints', full: 'No endpoint yet', pictured: 'loading' },
      { name: 'deliveries', at: '?tab=deliveries', asks: '/events/deliveries', full: 'No deliveries yet' },
      { name: 'feed', at: '?tab=feed', asks: '/events/latest', full: 'connection.' },
      { name: 'signing', at: '?tab=signing', asks: key, full: 'Signing key of dev', pictured: 'error' },
      { name: 'addresses', at: '?tab=addresses', asks: '/environment/settings', full: 'webhook_url' },
    ];
    for (const { name, at, ...shown } of tabs) {
      await assertStates({ ...shown, name: `events-${name}`, at: `/dev/events${at}` });
      await assertTabInSight(name);
    }
  });

  test('so do the tabs of the settings', async () => {
    const tabs: (Omit<Shown, 'at' | 'name'> & { tab: string })[] = [
      { tab: 'account', asks: '/api/auth/list-sessions', full: 'signed in', pictured: 'error' },
      { tab: 'keys', asks: '/environment/api-keys', full: 'Scopes' },
      { tab: 'variables', asks: '/environment-variables', full: 'No variable yet' },
      { tab: 'connect-page', asks: '/environment/settings', full: 'Preview', pictured: 'loading' },
      { tab: 'audit', asks: '/audit', full: 'created' },
      { tab: 'environments', asks: '/environments', full: 'current' },
      { tab: 'people', asks: '/users', full: 'The owner', pictured: 'loading' },
    ];
    for (const { tab, ...shown } of tabs) {
      await assertStates({ ...shown, name: `settings-${tab}`, at: `/dev/settings?tab=${tab}` });
      await assertTabInSight(tab);
    }
  });

  test('each empty page shows an explanation or the next step', async () => {
    await dashboard.trellis.db.query(
      "delete from api_key where environment_id = (select id from environment where name = 'prod')",
      [],
    );
    const empty = [
      ['dataset-missing', `/dev${of}/Town`, 'Unknown dataset'],
      ['settings-keys-empty', '/prod/settings?tab=keys', 'No key'],
      ['settings-audit-empty', '/prod/settings?tab=audit', 'No entries yet'],
      ['settings-people-alone', '/prod/settings?tab=people', 'None.'],
    ] as const;
    for (const [name, at, says] of empty) {
      await open(at);
      await page.getByText(says, { exact: true }).waitFor();
      if (name === 'settings-keys-empty') await picture(page, name);
      else await assertFits(page, name);
    }
  });

  test('an unknown URL shows an error and a link back', async () => {
    await open('/dev/nothing-of-the-kind');
    await page.getByRole('heading', { name: 'Page not found' }).waitFor();
    await picture(page, 'no-such-page');
    await page.getByRole('link', { name: 'Go to the start page', exact: true }).click();
    await page.getByRole('heading', { name: 'Home' }).waitFor();
  });

  test('an environment that does not exist is named, with a link to another one', async () => {
    await page.goto(`${dashboard.trellis.baseUrl}/app/nope/home`);
    await page.getByRole('heading', { name: 'There is no environment nope' }).waitFor();
    await page.getByRole('link', { name: 'Go to dev' }).click();
    await page.waitForURL(/\/app\/dev\/home$/);
  });

  test('without a response about the session only the reason is shown, until there is a response', async () => {
    const isAsked = ({ pathname }: URL) => pathname === '/users/me';
    await page.route(isAsked, refuse);
    await open('/dev/records');
    await page.getByRole('alert').getByText('forbidden · req-4711').waitFor();
    await picture(page, 'broken-page');
    await page.unroute(isAsked);
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByText('ada@example.com').waitFor();
  });

  test('a link to an account shows loading, and is reported if it is invalid or truncated', async () => {
    const { page: guest } = await dashboard.openAsNobody();
    const invited = await owner.call('POST', '/users/invitations', {
      body: { role: 'developer', environments: ['dev'] },
    });
    assert.equal(invited.status, 201, invited.text);
    const release = await holdCalls(guest, '**/users/invitation');
    await open(`/invitation#${tokenIn((invited.body.data as { link: string }).link)}`, guest);
    await guest.getByRole('status', { name: 'Loading' }).waitFor();
    await release();
    await guest.getByText('As developer in dev.').waitFor();
    await picture(guest, 'invitation');
    await guest.goto('about:blank');
    await open(`/invitation#${'a'.repeat(43)}`, guest);
    await guest.getByRole('heading', { name: 'This link no longer works' }).waitFor();
    await guest.getByRole('link', { name: 'Sign in' }).waitFor();
    await picture(guest, 'invitation-refused');
    await guest.goto('about:blank');
    for (const cut of ['/invitation', '/invitation#a-part-of-it']) {
      await open(cut, guest);
      await guest.getByText('This link is incomplete').waitFor();
      await guest.goto('about:blank');
    }
    await guest.context().close();
  });

  test('a link to a new password is refused with the next step, and must be complete', async () => {
    const { page: guest } = await dashboard.openAsNobody();
    await open('/reset-password', guest);
    await guest.getByText('This link is incomplete').waitFor();
    await guest.goto('about:blank');
    await open('/reset-password#a-link-of-nobody', guest);
    await guest.getByRole('textbox', { name: 'Password' }).fill(password);
    await guest.getByRole('button', { name: 'Set the password' }).click();
    await guest.getByText('This link has expired').waitFor();
    await picture(guest, 'reset-password-refused');
    await guest.context().close();
  });
});
