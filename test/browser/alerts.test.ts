// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { answer, ok, openReceiver, type Receiver } from '../../server/deliveries/deliveries.fixture.ts';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { type MailServer, openMailServer } from '../support/mail-server.ts';

/** Alerts in a channel and by mail, as an owner adds and tests them in this order. */
describe('alerts in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let channel: Receiver;
  let mails: MailServer;

  before(async () => {
    [channel, mails] = [await openReceiver(), await openMailServer()];
    dashboard = await openDashboard({
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.1/32',
      SMTP_URL: mails.url,
      SMTP_FROM: 'Trellis <trellis@example.com>',
    });
    ({ page } = await dashboard.openAs('owner'));
    await page.goto(`${dashboard.trellis.baseUrl}/app/dev/events`);
  });
  after(async () => {
    await dashboard?.close();
    await channel?.close();
    await mails?.close();
  });
  const card = (name: string) => page.getByRole('article', { name, exact: true });
  const openForm = () => page.getByRole('button', { name: 'Add an endpoint' }).click();
  const choose = (kind: string) => page.getByRole('radio', { name: kind }).click();
  const add = () => page.getByRole('button', { name: 'Add endpoint' }).click();
  const sendTest = async (name: string) => {
    await page.getByRole('button', { name: `Actions for ${name}`, exact: true }).click();
    await page.getByRole('menuitem', { name: 'Send a test' }).click();
  };

  test('a channel gets alerts for problems unless other events are selected', async () => {
    await openForm();
    await choose('Slack-compatible');
    await page.getByRole('textbox', { name: 'Address of the incoming webhook' }).fill(channel.url);
    await picture(page, 'events-alert-slack');
    await add();
    await card(channel.url).getByText('Slack-compatible').waitFor();
    await card(channel.url)
      .getByText(/connection\.needs_reauth, .*sync\.failing/)
      .waitFor();
  });

  test('a test arrives in the channel, and a failed test is shown with its reason', async () => {
    await sendTest(channel.url);
    await page.getByText('The test was delivered.').waitFor();
    const { body } = channel.got[0]!;
    assert.match((JSON.parse(body) as { text: string }).text, /^\[dev\] This is a test/);
    channel.answers = answer(404, {}, 'no_service');
    await sendTest(channel.url);
    await page
      .getByText('It answered 404. Every status other than 2xx is a failure. Answer: no_service')
      .waitFor();
    await picture(page, 'events-alert-test-failed');
    channel.answers = ok;
  });

  test('a wrong mail address is an error at its field, and a right one gets the test', async () => {
    await openForm();
    await choose('E-mail');
    const address = page.getByRole('textbox', { name: 'E-mail address' });
    await address.fill('ops');
    await add();
    await page.getByText('Enter one e-mail address').waitFor();
    await address.fill('o..ps@example.com');
    dashboard.expectComplaint(/400/);
    await add();
    await page.getByText('must be mailto: and one address').waitFor();
    assert.equal(await address.getAttribute('aria-invalid'), 'true');
    assert.equal(await page.getByRole('dialog').getByRole('alert').count(), 0);
    await picture(page, 'events-alert-mail-refused');
    await address.fill('ops@example.com');
    await add();
    await card('ops@example.com').waitFor();
    await sendTest('ops@example.com');
    await page.getByText('The test was delivered.').first().waitFor();
    const [mail] = mails.mails;
    assert.equal(mail?.to, 'ops@example.com');
    assert.match(mail.text, /^Subject: \[trellis dev\] This is a test/m);
    await picture(page, 'events-alerts');
  });

  test('an alert is changed without another kind', async () => {
    await page.getByRole('button', { name: 'Actions for ops@example.com' }).click();
    await page.getByRole('menuitem', { name: 'Edit' }).click();
    await page.getByRole('textbox', { name: 'E-mail address' }).fill('team@example.com');
    assert.equal(await page.getByRole('radio', { name: 'Slack-compatible' }).count(), 0);
    await page.getByRole('checkbox', { name: 'connection.needs_reauth' }).uncheck();
    await picture(page, 'events-alert-edit');
    await page.getByRole('button', { name: 'Save' }).click();
    await card('team@example.com')
      .getByText(/^connection\.blocked/)
      .waitFor();
  });
});
