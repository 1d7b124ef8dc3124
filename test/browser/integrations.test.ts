// What a developer does with integrations in the dashboard, and what a viewer cannot.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser, waitUntilTrue } from '../support/browser.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect } from '../support/trellis.ts';

const secret = 'GOCSPX-a-secret-of-our-own';
const readonlyScope = 'https://www.googleapis.com/auth/spreadsheets.readonly';

describe('integrations in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;

  before(async () => {
    dashboard = await openDashboard();
    ({ page } = await dashboard.openAs('developer'));
    dashboard.trellis.watch.made('client_secret', secret);
  });
  after(() => dashboard?.close());

  const open = (path: string) => page.goto(`${dashboard.trellis.baseUrl}/app/dev${path}`);
  const stored = async (key: string) =>
    (await dashboard.trellis.call('GET', `/integrations/${key}?include=credentials`)).body.data as {
      test: boolean;
      credentials: { client_id: string; client_secret: string; scopes: string };
    };

  test('the catalogue is searched by text and category, and every provider has a logo', async () => {
    await open('/integrations/new');
    await page.getByText('Google Sheets').waitFor();
    await picture(page, 'catalogue-full');
    await page.getByLabel('Search providers').fill('hubspot');
    await page.getByRole('link', { name: 'Google Sheets' }).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'HubSpot' }).waitFor();
    await page.waitForURL(/search=hubspot/);
    const logo = page.locator('.logo img').first();
    await logo.waitFor();
    await waitUntilTrue(page, 'document.querySelector(".logo img").naturalWidth > 0');
    await page.getByLabel('Search providers').fill('gmail');
    await page.getByRole('link', { name: 'HubSpot' }).waitFor({ state: 'detached' });
    assert.equal(await page.locator('main .fill-link').first().textContent(), 'Gmail');
    await page.getByLabel('Search providers').fill('salesfroce');
    await page.getByText(/^0 of \d+ providers\. Similar names:$/).waitFor();
    assert.equal(await page.locator('main .fill-link').first().textContent(), 'Salesforce');
    await picture(page, 'catalogue-similar');
    await page.getByLabel('Search providers').fill('OAuth 1.0a');
    await page.getByRole('link', { name: 'Tumblr' }).click();
    await page.getByRole('button', { name: 'How to register an application at Tumblr' }).waitFor();
    await page.getByRole('textbox', { name: 'Consumer secret' }).waitFor();
    await page.getByLabel('Consumer key').waitFor();
    assert.equal(await page.getByLabel('Scopes').count(), 0);
    await page.keyboard.press('Escape');
    await page.getByLabel('Search providers').fill('');
    await page.getByText(/^HR \d+$/).waitFor();
    await page.getByRole('button', { name: /^\d+ more categories$/ }).click();
    await page.locator('label', { hasText: /^music/ }).waitFor();
    const storage = page.locator('label', { hasText: /^storage/ });
    await storage.click();
    await page.waitForURL(/category=storage/);
    await page.getByRole('link', { name: 'HubSpot' }).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Dropbox' }).waitFor();
    await page.getByText(/^\d+ of \d+ providers$/).waitFor();
    await picture(page, 'catalogue-category');
    await storage.click();
    await page.getByRole('link', { name: 'HubSpot' }).waitFor();
  });

  test('a provider is defined by a text, whose faults have lines, and changed and deleted', async () => {
    await open('/integrations/new');
    await page.getByRole('button', { name: 'Define a provider' }).click();
    dashboard.expectComplaint(/integrations\/new\?define=new: .*400/);
    await page.getByLabel('Name').fill('own-acme');
    await page.getByRole('combobox', { name: 'Example' }).click();
    await page.getByRole('option', { name: 'API key' }).click();
    const definition = page.getByRole('textbox', { name: 'Definition' });
    const text = await definition.inputValue();
    assert.match(text, /auth_mode: API_KEY/);
    await definition.fill(text.replace('API_KEY', 'API_KEYS'));
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByText(/^Line 4: auth_mode: /).waitFor();
    await picture(page, 'provider-define');
    await definition.fill(text);
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('link', { name: 'Edit the definition' }).click();
    await definition.fill(text.replace('display_name: Acme', 'display_name: Acme CRM'));
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('link', { name: 'Acme CRM' }).waitFor();
    await picture(page, 'provider-defined');
    await open('/integrations/new?define=own-acme');
    await page.getByRole('button', { name: 'Delete this provider' }).click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('link', { name: 'Acme CRM' }).waitFor({ state: 'detached' });
    assert.equal((await dashboard.trellis.call('GET', '/providers/own-acme')).status, 404);
  });

  test('other providers have the steps in their console, with the address to register', async () => {
    await open('/integrations/new?provider=slack');
    await page.getByRole('button', { name: 'How to create an OAuth client at Slack' }).click();
    const steps = page.locator('.mantine-Timeline-item');
    await steps.nth(4).waitFor();
    const { baseUrl } = dashboard.trellis;
    await steps.nth(1).getByText(`${baseUrl}/oauth/callback`).waitFor();
    const console = page.getByRole('link', { name: 'api.slack.com' });
    assert.equal(await console.getAttribute('href'), 'https://api.slack.com/apps');
    await picture(page, 'integration-create-slack');
  });

  test('a client of one’s own is put in at once, with the addresses to register beside it', async () => {
    const { trellis } = dashboard;
    const taken = { provider: 'google-sheet', unique_key: 'taken' };
    assert.equal((await trellis.call('POST', '/integrations/quickstart', { body: taken })).status, 200);
    await open('/integrations/new?provider=google-sheet');
    await page.getByText('This works immediately.').waitFor();
    await page.getByLabel('Test credentials').uncheck({ force: true });
    await page.getByRole('button', { name: 'How to create an OAuth client at Google' }).click();
    await page.getByText('A Google Cloud account').waitFor();
    await picture(page, 'integration-create-own-client');
    // Each error is at its field, which gets the focus.
    const id = page.getByLabel('Integration ID');
    await id.fill('taken');
    await page.getByLabel('Client ID').fill('not-a-client');
    await page.getByRole('textbox', { name: 'Client secret' }).fill(secret);
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByText('A client ID of Google ends in .apps.googleusercontent.com.').waitFor();
    await page.getByText('An integration has this ID.').waitFor();
    await id.and(page.locator(':focus')).waitFor();
    await picture(page, 'integration-field-errors');
    assert.equal((await trellis.call('DELETE', '/integrations/taken')).status, 200);
    await id.fill('own-sheets');
    await page.getByLabel('Display name').fill('Sheets of the finance team');
    await page.getByLabel('Client ID').fill('123-abc.apps.googleusercontent.com');
    await page.getByRole('textbox', { name: 'Client secret' }).fill(secret);
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByText('A secret is stored, encrypted.').waitFor();
    assert.ok(!(await page.content()).includes(secret));
    await page.getByRole('heading', { name: 'Sheets of the finance team' }).waitFor();
    assert.equal(await page.getByLabel('Client ID').inputValue(), '123-abc.apps.googleusercontent.com');
  });

  test('a long name stays in one line beside the actions', async () => {
    const name = 'Sheets of the finance team of the northern region, for its reports and budgets';
    const rename = (display_name: string) =>
      dashboard.trellis.call('PATCH', '/integrations/own-sheets', { body: { display_name } });
    assert.equal((await rename(name)).status, 200);
    await page.reload();
    const heading = page.getByRole('heading', { name });
    await heading.waitFor();
    await picture(page, 'integration-long-name');
    const lines = '(({ clientHeight }, { lineHeight }) => Math.round(clientHeight / parseFloat(lineHeight)))';
    const h1 = "document.querySelector('h1')";
    assert.equal(await page.evaluate(`${lines}(${h1}, getComputedStyle(${h1}))`), 1);
    assert.equal(await heading.getAttribute('title'), name);
    assert.equal((await rename('Sheets of the finance team')).status, 200);
    await page.reload();
  });

  test('scopes that were set are shown and stay, and saving them needs no secret', async () => {
    await page.getByRole('combobox', { name: 'Scopes' }).fill(readonlyScope);
    await page.keyboard.press('Enter');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved. The secret is stored encrypted.').waitFor();
    await page.reload();
    await page.getByText(readonlyScope, { exact: true }).first().waitFor();
    const { credentials } = await stored('own-sheets');
    assert.equal(credentials.client_secret, secret);
    assert.ok(credentials.scopes.split(',').includes(readonlyScope));
    // Another save of something else leaves them alone.
    await page.getByLabel('Client ID').fill('456-def.apps.googleusercontent.com');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Another client has another secret').waitFor();
    await page.getByRole('textbox', { name: 'Client secret' }).fill(secret);
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved. The secret is stored encrypted.').first().waitFor();
    const after = await stored('own-sheets');
    assert.equal(after.credentials.client_id, '456-def.apps.googleusercontent.com');
    assert.equal(after.credentials.scopes, credentials.scopes);
    const reset = page.getByRole('button', { name: 'Use the default scopes' });
    await reset.click();
    await reset.waitFor({ state: 'detached' });
    const saved = page.waitForResponse((response) => response.request().method() === 'PATCH');
    await page.getByRole('button', { name: 'Save' }).click();
    assert.equal((await saved).status(), 200);
    assert.doesNotMatch((await stored('own-sheets')).credentials.scopes, /readonly/);
  });

  test("the guide has its six steps in order, with the service's own URLs", async () => {
    // At another address than BASE_URL, which must not be the one to register.
    const { baseUrl } = dashboard.trellis;
    const titles = await page.locator('.mantine-Timeline-itemTitle').allTextContents();
    assert.deepEqual(titles, [
      'A Google Cloud account',
      'A project',
      'The Google Sheets API',
      'The consent screen',
      'An OAuth client of type Web application',
      'The JavaScript origin',
    ]);
    const guide = page.locator('.mantine-Card-root', { hasText: 'Set-up at Google' });
    for (const words of [
      'App information',
      'Audience',
      'Contact',
      'Data policy',
      'Scopes',
      'Test users',
      'Verification',
      'after 7 days',
      '100 grants',
      'sensitive',
    ]) {
      await guide.getByText(words).first().waitFor();
    }
    await guide.getByRole('button', { name: 'Copy the redirect URI for Google' }).click();
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), `${baseUrl}/oauth/callback`);
    await guide.getByRole('button', { name: 'Copy the JavaScript origin' }).click();
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), baseUrl);
    await page.setViewportSize({ width: 1280, height: 2600 });
    await picture(page, 'integration-own-client');
  });

  test('an address that Google does not accept is reported as such', async () => {
    const { baseUrl } = dashboard.trellis;
    await page.route(/\/providers\/google-sheet$/, async (route) => {
      const answer = await route.fetch();
      // As of a service with another BASE_URL.
      await route.fulfill({
        response: answer,
        body: (await answer.text()).replaceAll(baseUrl, 'http://trellis.lan'),
      });
    });
    await page.reload();
    await page.getByText('Google will not take http://trellis.lan').waitFor();
    await page.getByText('no public top-level domain').waitFor();
    await page.unroute(/\/providers\/google-sheet$/);
  });

  test('test credentials are one switch, until there are connections', async () => {
    await page.reload();
    const toggle = page.getByRole('switch', { name: 'Test credentials' });
    await toggle.check({ force: true });
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('This integration uses the sandbox').waitFor();
    await page.getByText('test credentials', { exact: true }).waitFor();
    assert.equal((await stored('own-sheets')).test, true);
    await connect(dashboard.trellis, { integration: 'own-sheets' });
    await page.reload();
    // The guide was needed until now.
    await page.getByText('1 active').waitFor();
    await page.getByRole('link', { name: 'ada@example.com' }).waitFor();
    await page.getByText('No function is deployed for this integration.').waitFor();
    await page.getByRole('region', { name: 'Calls, 24 hours' }).getByRole('img').first().waitFor();
    assert.equal(await page.getByText('Set-up at Google').count(), 0);
    await picture(page, 'integration-overview');
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.waitForURL(/tab=settings/);
    await page.getByText('You cannot change this while the integration has connections').waitFor();
    assert.ok(await toggle.isDisabled());
    assert.ok(await page.getByRole('button', { name: 'Delete', exact: true }).isDisabled());
  });

  test('a fault of an integration is shown on its page and its card, with the next step', async () => {
    const { trellis } = dashboard;
    await trellis.control('POST', 'faults', { case: 'token_wrong_secret', times: 1 });
    const { body } = await trellis.call('GET', '/connections?integrationId=own-sheets');
    const [connection] = body.connections as { connection_id: string }[];
    await trellis.call(
      'POST',
      `/connections/${connection?.connection_id}/refresh?provider_config_key=own-sheets`,
    );
    await page.reload();
    await page.getByText('OAuth client rejected').waitFor();
    await page.getByText('The provider rejects the client ID').waitFor();
    await picture(page, 'integration-misconfigured');
    await open('/integrations');
    await page.getByText('OAuth client rejected').waitFor();
    await page.getByText('1 connection').waitFor();
    await picture(page, 'integrations-misconfigured');
  });

  test('an integration without connections is deleted after a question', async () => {
    await dashboard.trellis.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-drive', unique_key: 'drive' },
    });
    await open('/integrations/of/drive');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('button', { name: 'Delete permanently' }).click();
    await page.waitForURL(/\/integrations$/);
    await page.getByText('own-sheets').waitFor();
    await page.getByText('drive', { exact: true }).waitFor({ state: 'hidden' });
    assert.equal((await dashboard.trellis.call('GET', '/integrations/drive')).status, 404);
  });

  test('a viewer sees it all and is offered nothing to change', async () => {
    const { page: viewer } = await dashboard.openAs('viewer');
    await viewer.goto(`${dashboard.trellis.baseUrl}/app/dev/integrations`);
    await viewer.getByText('own-sheets').waitFor();
    assert.equal(await viewer.getByRole('link', { name: 'Add an integration' }).count(), 0);
    await viewer.goto(`${dashboard.trellis.baseUrl}/app/dev/integrations/of/own-sheets?tab=settings`);
    await viewer.getByText('Your role is read-only').waitFor();
    for (const name of ['Save', 'Delete', 'Connect an account']) {
      assert.equal(await viewer.getByRole('button', { name }).count(), 0, name);
    }
    assert.equal(await viewer.getByRole('switch').count(), 0);
    await picture(viewer, 'integration-viewer');
    await viewer.goto(`${dashboard.trellis.baseUrl}/app/dev/integrations/new?provider=google-sheet`);
    await viewer.getByText('Google Sheets', { exact: true }).waitFor();
    assert.equal(await viewer.getByRole('link', { name: 'Google Sheets' }).count(), 0);
    assert.equal(await viewer.getByRole('dialog').count(), 0);
  });

  test('what a provider has announced to end is shown with the connections that it concerns', async () => {
    const { trellis } = dashboard;
    const client = { type: 'OAUTH2', client_id: 'shop-client', client_secret: secret };
    await trellis.call('POST', '/integrations', {
      body: { provider: 'shopify', unique_key: 'shop', display_name: 'Our shops', credentials: client },
    });
    for (const shop of ['acme', 'umbrella']) {
      const imported = await trellis.call('POST', '/connections', {
        body: {
          provider_config_key: 'shop',
          connection_id: shop,
          connection_config: { shop },
          credentials: { type: 'OAUTH2', access_token: `token-of-${shop}` },
        },
      });
      assert.equal(imported.status, 201, imported.text);
    }
    await open('/integrations');
    await page.getByText('2 connections may stop working on 1 January 2027').waitFor();
    await picture(page, 'integrations-sunset');
    await page.getByRole('link', { name: 'Our shops' }).click();
    await page.getByText('2 connections may stop working on 1 January 2027').waitFor();
    await page.getByText('Shopify rejects non-expiring access tokens of public apps.').waitFor();
    await picture(page, 'integration-sunset');
    await page.clock.setFixedTime('2027-01-02T00:00:00Z');
    await page.reload();
    await page.getByText('2 connections may have stopped working since 1 January 2027').waitFor();
    await page.getByRole('link', { name: 'All connections of this integration' }).click();
    await page.getByRole('link', { name: 'umbrella' }).waitFor();
  });
});
