// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BrowserContext, Frame, Page } from 'playwright-core';
import { openApplication } from '../support/application-page.ts';
import { skipBrowser } from '../support/browser.ts';
import {
  closeWindow,
  consent,
  deny,
  openConnectPages,
  popupBy,
  type TestConnectPages,
} from '../support/connect-pages.ts';
import { picture } from '../support/dashboard.ts';

/** The connect page around which an application of another site stands, with the official client for browsers. */
describe('the connect page and an application of another site', { skip: skipBrowser }, () => {
  let application: Awaited<ReturnType<typeof openApplication>>;
  let stranger: Awaited<ReturnType<typeof openApplication>>;
  let pages: TestConnectPages;
  let page: Page;
  let context: BrowserContext;
  before(async () => {
    application = await openApplication();
    stranger = await openApplication();
    pages = await openConnectPages({ TRELLIS_CONNECT_FRAME_ANCESTORS: application.origin });
    ({ page, context } = await pages.openAsNobody());
    // The callback's own page, where a trip made no connection.
    pages.expectComplaint(/oauth\/callback.* 400/);
    // The same page tells what came of it to a window of the service alone; here an application's has opened it.
    pages.expectComplaint(/target origin provided .* does not match/);
    // As browsers do that let no page within another one keep anything.
    const browser = await context.newCDPSession(page);
    await browser.send('Network.enable');
    await browser.send('Network.setCookieControls', { enableThirdPartyCookieRestriction: true });
  });
  after(async () => {
    application?.close();
    stranger?.close();
    await pages?.close();
  });

  const sheets = () => pages.link({ end_user: { id: 'ada' }, allowed_integrations: ['google-sheet'] });
  /** Opens the frame as an application does; what it hears is kept in `heard`. */
  const openFrame = async (token: string, more: Record<string, unknown> = {}): Promise<Frame> => {
    const given = { ...more, baseURL: `${pages.trellis.baseUrl}/connect`, apiURL: pages.trellis.baseUrl };
    await page.goto(application.origin);
    await page.evaluate(`
      window.heard = [];
      window.connectUI = new Nango({ host: ${JSON.stringify(pages.trellis.baseUrl)}, connectSessionToken: 'none' })
        .openConnectUI({ ...${JSON.stringify(given)}, sessionToken: ${JSON.stringify(token)}, onEvent: (event) => heard.push(event) });
    `);
    const element = await page.waitForSelector('#connect-ui');
    // The client gives its frame no name.
    await page.evaluate("document.getElementById('connect-ui').title = 'Connect'");
    const frame = await element.contentFrame();
    assert.ok(frame);
    return frame;
  };
  const heard = async () => (await page.evaluate('heard')) as { type: string; payload?: unknown }[];
  const begin = (frame: Frame) =>
    popupBy(context, () => frame.getByRole('button', { name: /^Continue to/ }).click());

  test('the official client opens the frame, passes the token, and gets the connection', async () => {
    const frame = await openFrame((await sheets()).token);
    await frame.getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
    assert.ok(!frame.url().includes('session_token'));
    await frame.evaluate("document.cookie = 'probe=1; SameSite=None; Secure'");
    assert.equal(await frame.evaluate('document.cookie'), '', 'cookies are kept from the frame');
    await picture(page, 'connect-frame');
    await page.setViewportSize({ width: 1280, height: 900 });
    await consent(await begin(frame));
    await frame.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    const [made] = await pages.connections();
    assert.deepEqual(await heard(), [
      { type: 'ready' },
      {
        type: 'connect',
        payload: { providerConfigKey: 'google-sheet', connectionId: made?.connection_id },
      },
    ]);
    await frame.getByRole('button', { name: 'Finish' }).click();
    await page.waitForSelector('#connect-ui', { state: 'detached' });
    assert.equal((await heard()).at(-1)?.type, 'close');
  });

  test('a refusal and a closed window are reported as errors, and closing removes the frame', async () => {
    const frame = await openFrame((await sheets()).token, { detectClosedAuthWindow: true, lang: 'de' });
    const go = frame.getByRole('button', { name: 'Weiter zu Google Sheets' });
    await deny(await popupBy(context, () => go.click()));
    await frame.getByRole('heading', { name: 'Der Zugriff wurde verweigert' }).waitFor();
    const [error] = (await heard()).filter(({ type }) => type === 'error');
    assert.equal((error?.payload as { errorType: string } | undefined)?.errorType, 'callback_err');
    await frame.getByRole('button', { name: 'Erneut versuchen' }).click();
    await closeWindow(await popupBy(context, () => go.click()));
    await frame.getByRole('heading', { name: 'Das Pop-up-Fenster ist geschlossen' }).waitFor();
    assert.deepEqual((await heard()).at(-1)?.payload, {
      errorType: 'window_closed',
      errorMessage: 'The window was closed.',
    });
    await frame.getByRole('button', { name: 'Schließen' }).click();
    await page.waitForSelector('#connect-ui', { state: 'detached' });
  });

  test('closing with missing scopes reports the connection first', async () => {
    const frame = await openFrame((await sheets()).token);
    await consent(await begin(frame), { untick: true });
    await frame.getByRole('heading', { name: /some permissions are missing/ }).waitFor();
    assert.deepEqual(
      (await heard()).map(({ type }) => type),
      ['ready'],
    );
    await frame.getByRole('button', { name: 'Close' }).click();
    await page.waitForSelector('#connect-ui', { state: 'detached' });
    assert.deepEqual(
      (await heard()).map(({ type }) => type),
      ['ready', 'connect', 'close'],
    );
  });

  test('a sheet is chosen before the application gets the completion', async () => {
    const rows = [
      ['Code', 'City'],
      ['7', 'Oslo'],
    ];
    const body = { account: 'ada@example.com', title: 'Cities', sheet: 'All', rows };
    const { spreadsheetId } = await pages.trellis.control('POST', 'spreadsheets', body);
    const ofSheets = { end_user: { id: 'ada' }, allowed_integrations: ['google-sheet'], setup: 'sheet' };
    const frame = await openFrame((await pages.link(ofSheets)).token);
    await consent(await begin(frame));
    await frame.getByRole('heading', { name: 'Choose a sheet' }).waitFor();
    await frame.getByLabel('Link of the spreadsheet').fill(String(spreadsheetId));
    await frame.getByRole('button', { name: 'Open the spreadsheet' }).click();
    await frame.getByRole('cell', { name: 'Oslo' }).waitFor();
    assert.deepEqual(
      (await heard()).map(({ type }) => type),
      ['ready'],
    );
    await picture(page, 'connect-frame-sheet');
    await page.setViewportSize({ width: 1280, height: 900 });
    await frame.getByRole('button', { name: 'Use this sheet' }).click();
    await frame.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
    assert.equal((await heard()).at(-1)?.type, 'connect');
    await frame.getByRole('button', { name: 'Finish' }).click();
    await page.waitForSelector('#connect-ui', { state: 'detached' });
  });

  test('a new token in the same frame begins from the beginning', async () => {
    const frame = await openFrame((await sheets()).token);
    await deny(await begin(frame));
    await frame.getByRole('heading', { name: 'Access was denied' }).waitFor();
    const { token } = await pages.link({ end_user: { id: 'bob' }, allowed_integrations: ['key'] });
    await page.evaluate(`connectUI.setSessionToken(${JSON.stringify(token)})`);
    await frame.getByRole('heading', { name: 'Connect Private API (API key)' }).waitFor();
    assert.equal(await frame.getByText(/access was denied/).count(), 0);
  });

  test('where the window is blocked a link opens it', async () => {
    const frame = await openFrame((await sheets()).token);
    await frame.getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
    await frame.evaluate('window.open = () => null');
    await frame.getByRole('button', { name: /^Continue to/ }).click();
    await frame.getByRole('heading', { name: 'Your browser blocked the window' }).waitFor();
    await picture(page, 'connect-blocked');
    await page.setViewportSize({ width: 1280, height: 900 });
    const opened = await popupBy(context, () =>
      frame.getByRole('link', { name: 'Open Google Sheets' }).click(),
    );
    await consent(opened);
    await frame.getByRole('heading', { name: 'Google Sheets is connected' }).waitFor();
  });

  test('where a window is blocked outside a frame the tab itself goes, and comes back', async () => {
    const { page: tab } = await pages.openAsNobody();
    await tab.addInitScript('window.open = () => null');
    await tab.goto(`${(await pages.link({ end_user: { id: 'ada' } })).url}&theme=dark`);
    await tab.getByLabel('Language').selectOption('Français');
    await tab.getByRole('button', { name: 'Google Sheets' }).click();
    const go = tab.getByRole('button', { name: /^Continuer vers/ });
    await go.click();
    await deny(tab);
    // As it was left: language, theme and what was chosen.
    await tab.getByRole('heading', { name: 'L’accès a été refusé' }).waitFor();
    const query = 'theme=dark&lang=fr&integration=google-sheet';
    assert.equal(tab.url(), `${pages.trellis.baseUrl}/connect/?${query}`);
    assert.equal(await tab.evaluate('document.documentElement.dataset.mantineColorScheme'), 'dark');
    await tab.getByRole('button', { name: 'Réessayer' }).click();
    await go.click();
    await consent(tab);
    await tab.getByRole('heading', { name: 'Google Sheets est connecté' }).waitFor();
    await tab.close();
  });

  test('a page that was not named may not show it in a frame', async () => {
    pages.expectComplaint(/frame-ancestors/);
    const { page: other } = await pages.openAsNobody();
    await other.goto(stranger.origin);
    await other.evaluate(`
      const frame = document.createElement('iframe');
      frame.src = ${JSON.stringify(`${pages.trellis.baseUrl}/connect/`)};
      document.body.append(frame);
      new Promise((resolve) => frame.addEventListener('load', resolve));
    `);
    assert.ok(other.frames().every((frame) => !frame.url().startsWith(pages.trellis.baseUrl)));
    await other.close();
  });

  test('auth() of the official client ends with the connection, or with what went wrong', async () => {
    const auth = async (act: (popup: Page) => Promise<void>) => {
      const { token } = await sheets();
      await page.goto(application.origin);
      const popup = await popupBy(context, () =>
        page.evaluate(`
          window.ended = new Nango({ host: ${JSON.stringify(pages.trellis.baseUrl)}, connectSessionToken: ${JSON.stringify(token)} })
            .auth('google-sheet')
            .catch(({ message, type }) => ({ message, type }));
          undefined
        `),
      );
      await popup.getByRole('link', { name: /^Continue to Google/ }).click();
      await act(popup);
      return page.evaluate('ended');
    };
    const made = await auth(consent);
    const [newest] = await pages.connections();
    assert.deepEqual(made, {
      providerConfigKey: 'google-sheet',
      connectionId: newest?.connection_id,
      isPending: false,
    });
    assert.deepEqual(await auth(deny), {
      type: 'callback_err',
      message: 'Google Sheets reports that access was denied. No account was connected. (access_denied)',
    });
  });
});
