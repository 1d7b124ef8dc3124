// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser, type TestBrowser, waitUntilTrue } from '../support/browser.ts';
import { openDashboard, type TestDashboard } from '../support/dashboard.ts';
import type { TestTrellis } from '../support/trellis.ts';

/** What an end user does, in a real browser: the application's popup, and a link that was sent. */
describe('connecting in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let trellis: TestTrellis;
  let browser: TestBrowser;
  let application: Server;
  let applicationUrl: string;

  before(async () => {
    dashboard = await openDashboard();
    ({ trellis, browser } = dashboard);
    await trellis.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-sheet', unique_key: 'google-sheet' },
    });
    // An application of another origin, which opens a popup and listens.
    application = createServer((_request, response) => {
      response
        .setHeader('content-type', 'text/html')
        .end('<!doctype html><title>Application</title><h1>App</h1>');
    }).listen(0, '127.0.0.1');
    await once(application, 'listening');
    applicationUrl = `http://127.0.0.1:${(application.address() as AddressInfo).port}/`;
  });
  after(async () => {
    application?.close();
    await dashboard?.close();
  });

  const newSession = async () => {
    const { body } = await trellis.call('POST', '/connect/sessions', {
      body: { end_user: { id: 'ada', email: 'ada@example.com' } },
    });
    return body.data as { token: string; connect_link: string };
  };
  const connections = async () => {
    const { body } = await trellis.call('GET', '/connections');
    return body.connections as { connection_id: string; health: { missing_scopes: string[] } }[];
  };
  /** On the page that says for whom it is. */
  const goOn = (page: Page) => page.getByRole('link', { name: /^Continue to Google/ }).click();
  /** At the provider: chooses the account and agrees, with the boxes as they are unless they are to be emptied. */
  const consent = async (page: Page, { untick = false } = {}) => {
    await page.getByText('ada@example.com').first().click();
    if (untick) for (const box of await page.getByRole('checkbox').all()) await box.uncheck();
    await page.getByRole('button', { name: /continue|allow/i }).click();
  };

  test('a popup notifies its opener and closes', async () => {
    const page = await browser.newPage();
    await page.goto(applicationUrl);
    const { token } = await newSession();
    const before = (await connections()).length;
    const address = `${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`;
    const [popup] = await Promise.all([
      page.waitForEvent('popup'),
      page.evaluate(`
        window.told = [];
        addEventListener('message', (event) => told.push(event.data));
        window.open(${JSON.stringify(address)}, '_blank', 'width=500,height=600');
      `),
    ]);
    const closed = popup.waitForEvent('close');
    await goOn(popup);
    await consent(popup);
    await closed;
    const told = await page.evaluate('told');
    assert.deepEqual(told, [{ type: 'trellis_oauth_callback_success' }]);
    assert.equal((await connections()).length, before + 1);
    await page.close();
  });

  test('a direct link to the provider first shows its end user, and stays in no history', async () => {
    const page = await browser.newPage();
    await page.goto(applicationUrl);
    const { token } = await newSession();
    const address = `${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`;
    await page.evaluate(`location.href = ${JSON.stringify(address)}`);
    await page.getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
    assert.ok(await page.getByText('ada@example.com').isVisible());
    assert.equal(page.url(), `${trellis.baseUrl}/oauth/connect/google-sheet`);
    await waitUntilTrue(page, "document.querySelector('.head img').naturalWidth > 0");
    await goOn(page);
    await page.getByText('ada@example.com').first().waitFor();
    assert.ok(page.url().startsWith(trellis.sandbox.url));
    await page.goBack();
    assert.equal(page.url(), applicationUrl);
    await page.close();
  });

  test('a second click on the way to the provider begins nothing', async () => {
    const page = await browser.newPage();
    const { token } = await newSession();
    const address = `${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`;
    await page.goto(address);
    const button = page.getByRole('link', { name: /^Continue to Google/ });
    assert.equal(await button.getAttribute('href'), address, 'a tab of its own begins, too');
    // Both clicks in one turn, so that the second comes before any answer.
    await page.evaluate(`
      window.navigations = 0;
      navigation.addEventListener('navigate', () => { sessionStorage.navigations = ++window.navigations; });
      document.querySelector('a.button').click();
      document.querySelector('a.button').click();
    `);
    await page.getByText('ada@example.com').first().waitFor();
    await page.goto(`${trellis.baseUrl}/oauth/connect/none`);
    assert.equal(await page.evaluate('sessionStorage.navigations'), '1');
    await page.close();
  });

  test('two tabs of one browser do not take each other for done or failed', async () => {
    const context = await browser.newContext();
    const begin = async () => {
      const page = await context.newPage();
      await page.goto((await newSession()).connect_link);
      const [popup] = await Promise.all([
        page.waitForEvent('popup'),
        page.getByRole('button', { name: /^Continue to Google/ }).click(),
      ]);
      await popup.getByText('ada@example.com').first().waitFor();
      return { page, popup };
    };
    const refused = await begin();
    const waiting = await begin();
    const done = await begin();
    // Both are answered before anything else happens on the page that waits.
    const asked = waiting.page.waitForResponse(/\/connect\/session\/progress$/);
    await refused.popup.getByText('ada@example.com').first().click();
    await refused.popup.getByRole('button', { name: /cancel|deny/i }).click();
    await refused.page.getByText(/access was denied/).waitFor();
    await consent(done.popup);
    await done.page.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    await asked;
    assert.ok(await waiting.page.getByRole('heading', { name: 'Continue in the pop-up window' }).isVisible());
    assert.ok(!(await waiting.page.getByText(/access was denied/).isVisible()));
    // Its own answer comes by the channel alone, as where the browser has cut the tie to the window.
    await waiting.popup.evaluate('window.opener = null');
    await consent(waiting.popup);
    await waiting.page.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    await context.close();
  });

  test('a cookie that another person set before cannot complete an authorization of this browser', async () => {
    const [stranger, owner] = [await browser.newContext(), await browser.newContext()];
    const beginIn = async (context: typeof owner) => {
      const page = await context.newPage();
      const { token } = await newSession();
      await page.goto(`${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`);
      await goOn(page);
      await page.getByText('ada@example.com').first().waitFor();
      return page;
    };
    await beginIn(stranger);
    const planted = await stranger.cookies(trellis.baseUrl);
    await owner.addCookies(planted);
    const before = (await connections()).length;
    const theirs = await beginIn(owner);
    assert.equal((await owner.cookies(trellis.baseUrl)).length, planted.length + 1);
    const forwarded = await stranger.newPage();
    await forwarded.goto(theirs.url());
    await consent(forwarded);
    await forwarded.getByText(/in the browser in which you started/).waitFor();
    assert.equal(forwarded.url(), `${trellis.baseUrl}/oauth/callback`, 'code and state leave the address');
    assert.equal((await connections()).length, before);
    await stranger.close();
    await owner.close();
  });

  test('a link that cannot begin keeps its token in no address', async () => {
    const page = await browser.newPage();
    const { token } = await newSession();
    await page.goto(`${trellis.baseUrl}/oauth/connect/none?connect_session_token=${token}`);
    await page.getByRole('heading', { name: 'This integration does not exist' }).waitFor();
    assert.equal(page.url(), `${trellis.baseUrl}/oauth/connect/none`);
    await page.close();
  });

  test('an unticked box is named on the page and on the connection', async () => {
    const page = await browser.newPage();
    const { token } = await newSession();
    await page.goto(`${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`);
    await goOn(page);
    await consent(page, { untick: true });
    await page.getByRole('heading', { name: /not fully/ }).waitFor();
    assert.ok(await page.getByText('auth/spreadsheets').isVisible());
    const [newest] = await connections();
    assert.deepEqual(newest?.health.missing_scopes, ['https://www.googleapis.com/auth/spreadsheets']);
    await page.close();
  });

  test('scopes that were not ticked are requested alone by a link that adds them', async () => {
    const page = await browser.newPage();
    const [newest] = await connections();
    const { body } = await trellis.call('POST', '/connect/sessions/reconnect', {
      body: { integration_id: 'google-sheet', connection_id: newest?.connection_id, scopes: 'missing' },
    });
    await page.goto((body.data as { connect_link: string }).connect_link);
    await page.getByRole('heading', { name: 'Reconnect Google Sheets' }).waitFor();
    assert.equal(await page.locator('.scopes li').count(), 1);
    const [popup] = await Promise.all([
      page.waitForEvent('popup'),
      page.getByRole('button', { name: /^Continue/ }).click(),
    ]);
    // The account is known, so its page is skipped.
    await popup.getByRole('button', { name: /continue|allow/i }).click();
    await page.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    const [renewed] = await connections();
    assert.deepEqual(renewed?.health.missing_scopes, []);
    await page.close();
  });

  test('a consent without a refresh token is requested once more, in the same window', async () => {
    await trellis.control('POST', 'faults', { case: 'no_refresh_token', times: 1 });
    const page = await browser.newPage();
    const { token } = await newSession();
    await page.goto(`${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`);
    await goOn(page);
    const before = (await connections()).length;
    await consent(page);
    await page.getByRole('button', { name: /continue|allow/i }).click();
    await page.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    assert.equal((await connections()).length, before + 1);
    await page.close();
  });

  test('a user who returns from an error page of the provider sees hints and may begin again', async () => {
    await trellis.control('POST', 'faults', { case: 'error_page_org_internal', times: 1 });
    const page = await browser.newPage({ viewport: { width: 390, height: 844 } });
    const { connect_link: link } = await newSession();
    await page.goto(link);
    assert.ok(!(await page.getByText('disallowed_useragent').isVisible()));
    const go = page.getByRole('button', { name: /^Continue/ });
    await go.click();
    await page.getByText(/restricted to users within its organization/).waitFor();
    await page.goBack();
    await page.getByText(/has not responded yet/).waitFor();
    assert.ok(!(await page.getByText('disallowed_useragent').isVisible()));
    await page.getByText('Did Google Sheets show an error?').click();
    assert.ok(await page.getByText('disallowed_useragent').isVisible());
    await go.click();
    await consent(page);
    await page.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    await page.close();
  });

  test('no page of the service or of the sandbox requests a resource of another origin, or logs an error', async () => {
    const page = await browser.newPage();
    const elsewhere: string[] = [];
    const errors: string[] = [];
    const own = [trellis.baseUrl, trellis.sandbox.url];
    page.on('request', (request) => {
      if (!own.some((url) => request.url().startsWith(url)) && !request.url().startsWith('data:'))
        elsewhere.push(request.url());
    });
    page.on('pageerror', (error) => errors.push(error.message));
    page.on('console', (message) => {
      if (message.type() === 'error') errors.push(message.text());
    });
    const { connect_link: link } = await newSession();
    // The dashboard's own console is watched by its tests.
    for (const url of [`${trellis.baseUrl}/docs/`, link, `${trellis.sandbox.url}/`]) {
      await page.goto(url, { waitUntil: 'networkidle' });
    }
    assert.deepEqual(elsewhere, []);
    assert.deepEqual(errors, []);
    await page.close();
  });
});
