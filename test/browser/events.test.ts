// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { Webhook } from 'standardwebhooks';
import { answer, ok, openReceiver, type Receiver } from '../../server/deliveries/deliveries.fixture.ts';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect, type TestTrellis } from '../support/trellis.ts';

/** Endpoints, deliveries, feed and signing key, as an owner sees them in this order; then as a viewer. */
describe('events in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let trellis: TestTrellis;
  let page: Page;
  let receiver: Receiver;

  before(async () => {
    dashboard = await openDashboard({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.1/32' });
    trellis = dashboard.trellis;
    receiver = await openReceiver();
    ({ page } = await dashboard.openAs('owner'));
  });
  after(async () => {
    await dashboard?.close();
    await receiver?.close();
  });
  const open = (search = '') => page.goto(`${trellis.baseUrl}/app/dev/events${search}`);
  const tab = (name: string) => page.getByRole('tab', { name }).click();
  /** What is raised by it has its position afterwards, which a node gives each tenth of a second. */
  const connectAnother = async () => {
    await connect(trellis);
    await trellis.call('GET', '/events');
  };
  const card = () => page.getByRole('article');

  test('each empty tab shows the next step, and no filter', async () => {
    const filters = page.getByRole('search', { name: 'Filters' });
    await open();
    await page.getByText('No endpoint yet').waitFor();
    await picture(page, 'events-endpoints-empty');
    await tab('Deliveries');
    await page.getByText('No deliveries yet').waitFor();
    assert.equal(await filters.count(), 0);
    await picture(page, 'events-deliveries-empty');
    await tab('Feed');
    await page.getByText('No events yet').waitFor();
    assert.equal(await filters.count(), 0);
    await picture(page, 'events-feed-empty');
    // A filter that is set stays, so that it can be cleared.
    await open('?tab=feed&type=connection.created');
    await page.getByText('No match').waitFor();
    assert.equal(await filters.count(), 1);
    await page.goBack();
  });

  test('an address that may not be called is refused with its code', async () => {
    await tab('Endpoints');
    await page.getByRole('button', { name: 'Add an endpoint' }).click();
    await page.getByRole('textbox', { name: 'Address' }).fill('https://10.0.0.1/hook');
    dashboard.expectComplaint(/400/);
    await page.getByRole('button', { name: 'Add endpoint' }).click();
    const address = page.getByRole('textbox', { name: 'Address' });
    await page.getByText('10.0.0.1 is a private, loopback or reserved address').waitFor();
    assert.equal(await address.getAttribute('aria-invalid'), 'true');
    await picture(page, 'events-endpoint-refused');
    const notice = page.getByRole('status').filter({ hasText: 'Not encrypted' });
    await address.fill('http://app.example.com/hook');
    await notice.waitFor();
    await picture(page, 'events-endpoint-plain-http');
    await address.fill('http://localhost:8080/hook');
    await notice.waitFor({ state: 'detached' });
  });

  test('without a mail server, the settings that a mail needs are named', async () => {
    await page.getByText('set SMTP_URL and SMTP_FROM').waitFor();
    assert.ok(await page.getByRole('radio', { name: 'E-mail' }).isDisabled());
    await picture(page, 'events-alert-no-mail');
  });

  test('an endpoint for some types is made with what each means in sight', async () => {
    await page.getByRole('textbox', { name: 'Address' }).fill(receiver.url);
    await page.getByRole('textbox', { name: 'Description' }).fill('The billing service');
    await page.getByRole('radio', { name: 'Selected events' }).click();
    await page.getByRole('checkbox', { name: 'connection.*' }).check();
    await picture(page, 'events-endpoint-create');
    await page.getByRole('button', { name: 'Add endpoint' }).click();
    await card().getByText('connection.*').waitFor();
    // The button of the empty list, which opened the dialog, is gone.
    await page.locator('main:focus').waitFor();
    await card().getByText('No deliveries yet').waitFor();
  });

  test('an account that is connected arrives there, and is seen delivered with its data', async () => {
    await connectAnother();
    await tab('Deliveries');
    const row = page.getByRole('row').filter({ hasText: 'connection.created' });
    await row.getByText('Delivered').waitFor();
    assert.equal(receiver.got.length, 1);
    await picture(page, 'events-deliveries');
    await row.getByRole('link').click();
    await page.getByRole('dialog').getByText('"connection_id"').waitFor();
    await picture(page, 'events-delivery');
    await page.keyboard.press('Escape');
    await tab('Endpoints');
    await card().getByText('Healthy').waitFor();
  });

  test('a receiver that fails is seen with its answer, and its dead letter is replayed', async () => {
    receiver.answers = answer(500, {}, 'the database is away');
    await connectAnother();
    await tab('Deliveries');
    const tried = page.getByRole('row').filter({ hasText: 'Retrying' });
    await tried.getByRole('link').click();
    const drawer = page.getByRole('dialog');
    await drawer.getByText('the database is away').waitFor();
    await drawer.getByText('It answered 500').waitFor();
    assert.ok(await drawer.getByRole('button', { name: 'Send again' }).isDisabled());
    await picture(page, 'events-delivery-failed');
    await page.keyboard.press('Escape');
    await trellis.db.query(
      `update delivery set status = 'dead', settled_at = now() where status = 'waiting'`,
    );
    const dead = page.getByRole('row').filter({ hasText: 'Dead' });
    await dead.getByRole('link').click();
    receiver.answers = ok;
    await drawer.getByRole('button', { name: 'Send again' }).click();
    await drawer.getByText('Delivered').waitFor();
    await page.locator('[role=dialog]:focus-within').waitFor();
    await page.keyboard.press('Escape');
  });

  test('filters are in the URL, and a list without matches shows an empty state', async () => {
    await open('?tab=deliveries&status=dead&type=connection.deleted');
    await page.getByText('No match').waitFor();
    await open('?tab=deliveries&type=connection.created');
    const arrived = page.getByRole('row').filter({ hasText: 'Delivered' });
    await arrived.nth(1).waitFor();
    assert.equal(await arrived.count(), 2);
  });

  test('a range is replayed, whether it arrived or not', async () => {
    const before = receiver.got.length;
    await page.getByRole('button', { name: 'Replay a range' }).click();
    await picture(page, 'events-replay');
    await page.getByRole('checkbox', { name: 'Only undelivered events' }).uncheck();
    await page.getByRole('button', { name: 'Replay', exact: true }).click();
    await page.getByText('2 events are queued.').waitFor();
    await page.locator('[role=dialog]:focus-within').waitFor();
    await page.getByRole('button', { name: 'Done' }).click();
    while (receiver.got.length < before + 2) await page.waitForTimeout(20);
  });

  test('one that is gone is disabled with the reason, and switched on again', async () => {
    receiver.answers = answer(410);
    await tab('Endpoints');
    await page.getByRole('button', { name: /Actions for/ }).click();
    await page.getByRole('menuitem', { name: 'Send the latest event' }).click();
    await card().getByText('It responded with 410 Gone').waitFor();
    await picture(page, 'events-endpoints');
    receiver.answers = ok;
    await card().getByRole('button', { name: 'Turn on again' }).click();
    await card().getByText('Healthy').waitFor();
  });

  test('the feed shows the latest events with their data', async () => {
    await tab('Feed');
    await page.getByRole('button', { name: /endpoint.disabled/ }).click();
    await page.getByText('"cause": "gone"').waitFor();
    await picture(page, 'events-feed');
  });

  test('the signing key is masked until it is requested, and its rotation keeps the previous key', async () => {
    await tab('Signing key');
    const shown = page.getByTestId('signing-key');
    await shown.waitFor();
    assert.match((await shown.textContent()) ?? '', /^whsec_•+$/);
    await page.getByRole('button', { name: 'Reveal' }).click();
    const first = (await shown.textContent()) ?? '';
    const got = receiver.got[0]!;
    assert.ok(new Webhook(first).verify(got.body, got.headers as Record<string, string>));
    await page.getByRole('button', { name: 'Hide' }).click();
    await page.getByRole('button', { name: 'Rotate' }).click();
    await picture(page, 'events-rotate');
    await page.getByRole('dialog').getByRole('button', { name: 'Rotate' }).click();
    await page.getByText('The previous key still signs').waitFor();
    await picture(page, 'events-signing');
    await page.getByRole('button', { name: 'Reveal' }).click();
    assert.notEqual(await shown.textContent(), first);
  });

  test('addresses for official clients are set, and get their own body', async () => {
    await tab('Nango webhooks');
    await page.getByRole('textbox', { name: 'webhook_url', exact: true }).fill(`${receiver.url}/official`);
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    await picture(page, 'events-addresses');
    await connectAnother();
    while (!receiver.got.some(({ path }) => path === '/hook/official')) await page.waitForTimeout(20);
    const told = JSON.parse(receiver.got.find(({ path }) => path === '/hook/official')!.body) as object;
    assert.equal((told as { operation: string }).operation, 'creation');
    await tab('Endpoints');
    await page.getByText('webhook_url', { exact: true }).waitFor();
  });

  test('an unavailable service is reported, and its data are shown as soon as it answers', async () => {
    await page.route('**/events/endpoints?*', (route) => route.abort());
    dashboard.expectComplaint(/ERR_FAILED/);
    await page.reload();
    await page.getByRole('button', { name: 'Try again' }).waitFor();
    await picture(page, 'events-error');
    await page.unroute('**/events/endpoints?*');
    await card().first().waitFor();
  });

  test('the latest event is queued once, until it is delivered', async () => {
    const sendLatest = async (result: string) => {
      await page.getByRole('button', { name: `Actions for ${receiver.url}`, exact: true }).click();
      await page.getByRole('menuitem', { name: 'Send the latest event' }).click();
      await page.getByText(result).waitFor();
    };
    receiver.answers = answer(503);
    await sendLatest('The latest event is queued.');
    await sendLatest('The latest event is already queued for this endpoint.');
    receiver.answers = ok;
  });

  test('an endpoint is deleted after the page has named the consequences', async () => {
    await page.getByRole('button', { name: `Actions for ${receiver.url}`, exact: true }).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await page.getByText('The events stay in the feed.').waitFor();
    await picture(page, 'events-endpoint-delete');
    await page.getByRole('button', { name: 'Delete endpoint' }).click();
    await page.getByRole('article', { name: receiver.url, exact: true }).waitFor({ state: 'detached' });
  });

  test('a viewer reads, and is offered nothing that writes', async () => {
    const viewer = await dashboard.openAs('viewer');
    await viewer.page.goto(`${trellis.baseUrl}/app/dev/events`);
    await viewer.page.getByRole('article').first().waitFor();
    assert.equal(await viewer.page.getByRole('button', { name: /Actions for|Add an endpoint/ }).count(), 0);
    await viewer.page.getByRole('tab', { name: 'Deliveries' }).click();
    await viewer.page.getByRole('table').waitFor();
    assert.equal(await viewer.page.getByRole('button', { name: /Replay/ }).count(), 0);
    await viewer.page.getByRole('tab', { name: 'Signing key' }).click();
    await viewer.page.getByText('Viewers cannot see the signing key').waitFor();
    await picture(viewer.page, 'events-signing-viewer');
    await viewer.page.getByRole('tab', { name: 'Nango webhooks' }).click();
    assert.ok(await viewer.page.getByRole('textbox', { name: 'webhook_url', exact: true }).isDisabled());
    for (const [method, path, body] of [
      ['POST', '/events/endpoints', { url: receiver.url }],
      ['PATCH', '/events/endpoints/1', { enabled: false }],
      ['DELETE', '/events/endpoints/1', undefined],
      ['POST', '/events/endpoints/1/replay', { after: '0' }],
      ['POST', '/events/endpoints/1/test', undefined],
      ['POST', '/events/deliveries/1/replay', undefined],
      ['PATCH', '/environment/settings', { on_auth_creation: false }],
      ['GET', '/environment/webhook-signing-key', undefined],
      ['POST', '/environment/webhook-signing-key/rotate', undefined],
    ] as const) {
      const answered = await viewer.person.call(method, path, {
        environment: 'dev',
        ...(body !== undefined && { body }),
      });
      assert.equal(answered.status, 403, `${method} ${path}: ${answered.text}`);
    }
  });

  test('a sign-out on a page that polls shows no error', async () => {
    await open('?tab=feed');
    await page.getByRole('button', { name: 'connection.created' }).first().waitFor();
    await page.route('**/api/auth/sign-out', async (route) => {
      const response = await route.fetch();
      // The session has ended, and the page polls several times in this time unless it stopped. A 401 in the console fails.
      await page.waitForTimeout(1_500);
      await route.fulfill({ response });
    });
    await page.getByRole('button', { name: 'Your account' }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in to Trellis' }).waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
    assert.equal(page.url(), `${trellis.baseUrl}/app/sign-in`);
  });
});
