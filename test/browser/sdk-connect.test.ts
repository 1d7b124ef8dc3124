// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { openApplication } from '../support/application-page.ts';
import { skipBrowser, waitUntilTrue } from '../support/browser.ts';
import {
  closeWindow,
  consent,
  deny,
  openConnectPages,
  popupBy,
  type TestConnectPages,
} from '../support/connect-pages.ts';
import { picture } from '../support/dashboard.ts';

type Outcome = {
  made?: { connectionId: string; integration: string; missingScopes: string[] };
  code?: string;
  reason?: string;
  message?: string;
};

/** An application of another origin whose page connects accounts with `@trellis-run/client/connect` and `/react`. */
describe('connecting with the client for browsers', { skip: skipBrowser }, () => {
  let application: Awaited<ReturnType<typeof openApplication>>;
  let stranger: Awaited<ReturnType<typeof openApplication>>;
  let pages: TestConnectPages;
  let page: Page;
  let context: BrowserContext;
  before(async () => {
    application = await openApplication(script);
    stranger = await openApplication(script);
    pages = await openConnectPages({ TRELLIS_CONNECT_FRAME_ANCESTORS: application.origin });
    ({ page, context } = await pages.openAsNobody());
    pages.expectComplaint(/oauth\/callback.* 400/);
    pages.expectComplaint(/status of 401/);
  });
  after(async () => {
    await pages?.close();
    application?.close();
    stranger?.close();
  });

  const tokenOf = async (more: Record<string, unknown> = {}) =>
    (await pages.link({ end_user: { id: 'ada' }, allowed_integrations: ['google-sheet'], ...more })).token;
  /** Clicks a button that begins; what comes of it is in `outcome`. */
  const click = async (token: string, more: Record<string, unknown> = {}, at = application.origin) => {
    if (!page.url().startsWith(`${at}/`)) await page.goto(`${at}/`);
    const options = JSON.stringify({ url: pages.trellis.baseUrl, ...more });
    await page.evaluate(`begin(${options}, ${JSON.stringify(token)})`);
    await page.getByRole('button', { name: 'Connect' }).click();
  };
  const open = (token: string, more?: Record<string, unknown>) => popupBy(context, () => click(token, more));
  const outcome = async () => (await page.evaluate('outcome')) as Outcome;
  const failures = async () => (await page.evaluate('failures')) as string[];
  const goOn = (popup: Page) => popup.getByRole('button', { name: /^Continue to/ }).click();
  const closed = (popup: Page) => (popup.isClosed() ? undefined : popup.waitForEvent('close'));

  test('a window opens in the click, before there is a token, and closes when the account is connected', async () => {
    await page.goto(application.origin);
    const popup = await open(await tokenOf(), { delayMs: 300 });
    await goOn(popup);
    await consent(popup);
    const { made } = await outcome();
    const [newest] = await pages.connections();
    assert.deepEqual(made, {
      connectionId: newest?.connection_id,
      integration: 'google-sheet',
      missingScopes: [],
    });
    await closed(popup);
  });

  test('a refusal is reported while the user may still try again, and again when the window is closed', async () => {
    const popup = await open(await tokenOf());
    await goOn(popup);
    await deny(popup);
    await popup.getByRole('heading', { name: 'Access was denied' }).waitFor();
    await waitUntilTrue(page, 'failures.length === 1');
    await popup.getByRole('button', { name: 'Try again' }).click();
    await goOn(popup);
    await consent(popup);
    assert.equal((await outcome()).made?.integration, 'google-sheet');
    assert.deepEqual(await failures(), ['denied']);

    const other = await open(await tokenOf());
    await goOn(other);
    await deny(other);
    await other.getByRole('heading', { name: 'Access was denied' }).waitFor();
    await other.close();
    assert.deepEqual(await outcome(), {
      code: 'denied',
      reason: 'access_denied',
      message: 'Access was denied.',
    });
  });

  test('a closed window is reported: at once, and at the provider', async () => {
    await closeWindow(await open(await tokenOf()));
    assert.equal((await outcome()).code, 'window_closed');
    const popup = await open(await tokenOf());
    await goOn(popup);
    await popup.getByText('ada@example.com').first().waitFor();
    await closeWindow(popup);
    assert.equal((await outcome()).code, 'window_closed');
  });

  test('a closed window is also reported while a token or the service is missing', async () => {
    await page.goto(application.origin);
    await (await open('', { delayMs: 600_000 })).close();
    assert.equal((await outcome()).code, 'window_closed');

    let isHeld = false;
    const hangs = (isAgain: () => boolean) =>
      context.route(/\/connect\/session\/progress/, (route) => {
        if (!route.request().frame().url().startsWith(application.origin)) return route.continue();
        if (isHeld && !isAgain()) return route.continue();
        isHeld = true;
        return undefined;
      });
    try {
      await hangs(() => false);
      const popup = await open(await tokenOf());
      await goOn(popup);
      assert.ok(isHeld);
      await closeWindow(popup);
      assert.equal((await outcome()).code, 'window_closed');
      await context.unrouteAll({ behavior: 'ignoreErrors' });

      await hangs(() => true);
      const other = await open(await tokenOf());
      await goOn(other);
      await page.evaluate('const late = setTimeout; window.setTimeout = (run, ms) => late(run, ms / 50)');
      await closeWindow(other);
      assert.deepEqual((({ code, reason }) => ({ code, reason }))(await outcome()), {
        code: 'failed',
        reason: 'unreachable',
      });
    } finally {
      await context.unrouteAll({ behavior: 'ignoreErrors' });
      await page.goto(application.origin);
    }
  });

  test('a window that the provider isolates does not count as closed', async () => {
    // The way to the provider leads over a page that may not be tied to one of another origin.
    await context.route(/\/oauth\/connect\//, async (route) => {
      const response = await route.fetch({ maxRedirects: 0 });
      const { location = '', ...headers } = response.headers();
      const over = `${application.origin}/cut?to=${encodeURIComponent(location)}`;
      await route.fulfill({ response, headers: { ...headers, location: over } });
    });
    try {
      await page.goto(application.origin);
      // The person is in the other window.
      await page.evaluate('document.hasFocus = () => false');
      const popup = await open(await tokenOf());
      await goOn(popup);
      await popup.getByText('ada@example.com').first().waitFor();
      await waitUntilTrue(page, 'popup.closed');
      assert.equal(await page.evaluate('isOver'), false);
      await consent(popup);
      assert.equal((await outcome()).made?.integration, 'google-sheet');
      await popup.close();

      // Who has something left to decide in a window that looks closed is done when they are back here.
      const undecided = await open(await tokenOf());
      await goOn(undecided);
      await consent(undecided, { untick: true });
      await undecided.getByRole('heading', { name: /some permissions are missing/ }).waitFor();
      const asked = () => page.waitForResponse(/\/connect\/session\/progress/);
      await asked();
      await asked();
      assert.equal(await page.evaluate('isOver'), false);
      // And stay for a while, which takes no time here.
      await page.evaluate('Date.now = ((at) => () => (at += 4_000))(Date.now())');
      await page.evaluate('document.hasFocus = () => true; dispatchEvent(new Event("focus"))');
      assert.equal((await outcome()).made?.missingScopes.length, 1);
      await undecided.close();
      await page.goto(application.origin);
    } finally {
      await context.unrouteAll();
    }
  });

  test('missing scopes are reported once the user continues without them', async () => {
    const popup = await open(await tokenOf());
    await goOn(popup);
    await consent(popup, { untick: true });
    await popup.getByRole('heading', { name: /some permissions are missing/ }).waitFor();
    assert.equal(await page.evaluate('isOver'), false);
    await popup.getByRole('button', { name: 'Continue without it' }).click();
    const { made } = await outcome();
    assert.deepEqual(made?.missingScopes, ['https://www.googleapis.com/auth/spreadsheets']);
    await closed(popup);
  });

  test('a blocked window, an unknown token, a missing token and an abort are distinguished', async () => {
    await page.goto(application.origin);
    await page.evaluate('window.realOpen = window.open; window.open = () => null');
    await click(await tokenOf());
    assert.equal((await outcome()).code, 'popup_blocked');
    await page.evaluate('window.open = window.realOpen');
    for (const [more, code] of [
      [{ fails: true }, 'no session for you'],
      [{ aborts: true }, 'the person went elsewhere'],
    ] as const) {
      const popup = await open(await tokenOf(), more);
      assert.equal((await outcome()).message, code);
      await closed(popup);
    }
    const popup = await open(`trellis_connect_session_${'0'.repeat(64)}`);
    assert.equal((await outcome()).code, 'invalid_token');
    await closed(popup);
  });

  test('a form is filled in in the window, too', async () => {
    const { token } = await pages.link({ end_user: { id: 'ada' } });
    const popup = await open(token, { integration: 'key', lang: 'de', theme: 'dark' });
    await popup.getByRole('textbox', { name: 'API key' }).fill('a-key-of-a-user');
    await popup.getByRole('button', { name: 'Verbinden', exact: true }).click();
    assert.equal((await outcome()).made?.integration, 'key');
  });

  test('a frame within the page connects, and closes', async () => {
    await click(await tokenOf(), { mode: 'frame' });
    const frame = page.frameLocator('iframe');
    await frame.getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
    const popup = await popupBy(context, () => frame.getByRole('button', { name: /^Continue to/ }).click());
    await consent(popup);
    const { made } = await outcome();
    assert.equal(made?.connectionId, (await pages.connections())[0]?.connection_id);
    assert.equal(await page.locator('iframe').count(), 0);

    await click(await tokenOf(), { mode: 'frame', within: true });
    await page.locator('#place iframe').waitFor();
    await deny(await popupBy(context, () => frame.getByRole('button', { name: /^Continue to/ }).click()));
    await waitUntilTrue(page, 'failures.length === 1');
    await frame.getByRole('button', { name: 'Close' }).click();
    assert.equal((await outcome()).code, 'denied');
    await click(await tokenOf(), { mode: 'frame' });
    await frame.getByRole('button', { name: 'Close' }).click();
    assert.equal((await outcome()).code, 'window_closed');
    await click('', { mode: 'frame', fails: true });
    assert.equal((await outcome()).message, 'no session for you');
    assert.equal(await page.locator('iframe').count(), 0);
  });

  test('a frame over the page is a dialog: it holds the focus, and Esc closes it', async () => {
    const focused = () => page.evaluate('document.activeElement.tagName');
    await click(await tokenOf(), { mode: 'frame' });
    await page.frameLocator('iframe').getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
    assert.equal(await page.getByRole('dialog', { name: 'Connect' }).count(), 1);
    assert.equal(await focused(), 'IFRAME');
    for (let times = 0; times < 8; times += 1) {
      await page.keyboard.press('Tab');
      assert.notEqual(await focused(), 'BUTTON', 'the page behind the dialog has no focus');
    }
    await page.frameLocator('iframe').getByRole('button', { name: 'Close' }).focus();
    await page.keyboard.press('Escape');
    assert.equal((await outcome()).code, 'window_closed');
    assert.equal(await focused(), 'BUTTON', 'the button that opened it');

    await context.route(/\/connect\/\?/, () => undefined);
    await click(await tokenOf(), { mode: 'frame' });
    await page.keyboard.press('Escape');
    assert.equal((await outcome()).code, 'window_closed', 'also before the page of the frame has loaded');
    await context.unrouteAll({ behavior: 'ignoreErrors' });
  });

  test('a frame in a page that the service does not allow is reported', async () => {
    pages.expectComplaint(/frame-ancestors/);
    await page.goto(stranger.origin);
    await page.evaluate('const late = setTimeout; window.setTimeout = (run, ms) => late(run, ms / 30)');
    await click(await tokenOf(), { mode: 'frame' }, stranger.origin);
    assert.equal((await outcome()).code, 'frame_blocked');
    assert.equal(await page.locator('iframe').count(), 0);
    await click('', { mode: 'frame', fails: true }, stranger.origin);
    assert.equal((await outcome()).message, 'no session for you', 'at once, whether or not the frame loads');
  });

  test('a redirect leads to the connect page and back, with the result', async () => {
    const back = { return_url: `${application.origin}/?back` };
    const leave = async () => {
      await page.goto(application.origin);
      await click(await tokenOf(back), { mode: 'redirect' });
      await page.getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
      assert.ok(!page.url().includes('session_token'));
    };
    await leave();
    await picture(page, 'connect-return');
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.setViewportSize({ width: 600, height: 900 });
    await goOn(page);
    let isHeld = false;
    await context.route(/\/connect\/session\/progress/, (route) => {
      if (isHeld || route.request().frame().url() !== back.return_url) return route.continue();
      isHeld = true;
      return undefined;
    });
    const asked = page.waitForRequest(
      (request) => request.frame().url() === back.return_url && /progress/.test(request.url()),
    );
    await consent(page);
    await page.waitForURL(back.return_url);
    await asked;
    // Held until it is loaded again: taking the route away lets the request go.
    await page.reload();
    assert.equal((await outcome()).made?.connectionId, (await pages.connections())[0]?.connection_id);
    await context.unrouteAll({ behavior: 'ignoreErrors' });
    await page.reload();
    assert.deepEqual(await outcome(), {}, 'once');
    for (const text of ['{', 'null', '{"url":"https://trellis.example.com"}']) {
      await page.evaluate(`sessionStorage.setItem('trellis-client:connect', ${JSON.stringify(text)})`);
      await page.reload();
      assert.deepEqual([await outcome(), await page.evaluate('sessionStorage.length')], [{}, 0], text);
    }

    await leave();
    await goOn(page);
    await deny(page);
    await page.getByRole('link', { name: 'Back to the application' }).click();
    await page.waitForURL(back.return_url);
    assert.equal((await outcome()).code, 'denied');

    await leave();
    await page.getByRole('link', { name: 'Back to the application' }).click();
    await page.waitForURL(back.return_url);
    assert.equal((await outcome()).code, 'abandoned');
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test('the React hook reports the progress, also in StrictMode', async () => {
    const status = page.locator('output');
    const button = page.getByRole('button', { name: 'Connect with React' });
    const render = async (token: string, more: Record<string, unknown> = {}) => {
      await page.goto(application.origin);
      const options = JSON.stringify({ url: pages.trellis.baseUrl, ...more });
      await page.evaluate(`renderHook(${options}, ${JSON.stringify(token)})`);
    };
    await render(await tokenOf());
    const popup = await popupBy(context, () => button.click());
    await status.getByText('connecting').waitFor();
    const before = context.pages().length;
    await button.click();
    assert.equal(context.pages().length, before, 'a second click opens no second window');
    await goOn(popup);
    await consent(popup);
    const [newest] = await (async () => {
      await status.getByText('connected ').waitFor();
      return pages.connections();
    })();
    assert.equal(await status.textContent(), `connected ${newest?.connection_id}`);

    await render(await tokenOf());
    const refused = await popupBy(context, () => button.click());
    await closeWindow(refused);
    await status.getByText('failed window_closed').waitFor();
    const cancelled = await popupBy(context, () => button.click());
    await page.getByRole('button', { name: 'Cancel' }).click();
    await status.getByText('idle').waitFor();
    await closed(cancelled);
    const other = await popupBy(context, () => button.click());
    await status.getByText('connecting').waitFor();
    await page.evaluate("showHook('hidden')");
    await closed(other);
    await page.evaluate("showHook('visible')");
    await status.getByText('idle').waitFor();
    const taken = await popupBy(context, () => button.click());
    await page.evaluate('unmountHook()');
    await closed(taken);

    const back = { return_url: `${application.origin}/?react` };
    await render(await tokenOf(back), { mode: 'redirect' });
    await page.setViewportSize({ width: 600, height: 900 });
    await button.click();
    await goOn(page);
    const { promise: isSeen, resolve: answer } = Promise.withResolvers<void>();
    await context.route(/\/connect\/session\/progress/, async (route) => {
      if (route.request().frame().url() === back.return_url) await isSeen;
      await route.continue();
    });
    await consent(page);
    await page.waitForURL(back.return_url);
    await status.getByText('connecting').waitFor();
    // The hook is unmounted when the answer arrives: the answer is kept for the next mount.
    await page.evaluate('unmountHook()');
    answer();
    // Noted by the browser once the answer is whole.
    await waitUntilTrue(
      page,
      "performance.getEntriesByType('resource').some(({ name }) => name.includes('/connect/session/progress'))",
    );
    await page.evaluate('new Promise((resolve) => setTimeout(resolve, 50))');
    await page.evaluate("renderHook({ mode: 'redirect', url: '' }, '')");
    await status.getByText('connected ').waitFor();
    assert.equal(await page.evaluate('sessionStorage.length'), 0, 'once');
    await context.unrouteAll();
    const told = await status.textContent();
    await page.evaluate("showHook('hidden')");
    await status.waitFor({ state: 'hidden' });
    await page.evaluate("showHook('visible')");
    await status.waitFor();
    await page.evaluate('new Promise((resolve) => setTimeout(resolve, 50))');
    assert.equal(await status.textContent(), told, 'it stays told where it is shown again');
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test('of several flows on a page the redirected one reports the result', async () => {
    await page.setViewportSize({ width: 600, height: 900 });
    const there = async (search: string) => {
      const link = { return_url: `${application.origin}/?${search}` };
      await page.goto(application.origin);
      const options = JSON.stringify({ url: pages.trellis.baseUrl, mode: 'redirect' });
      await page.evaluate(`renderHooks(${options}, ${JSON.stringify(await tokenOf(link))})`);
      await page.getByRole('button', { name: 'Connect with React' }).nth(1).click();
      await goOn(page);
      await consent(page);
      await page.waitForURL(link.return_url);
    };
    await there('hooks');
    const outputs = page.locator('output');
    await outputs.nth(1).getByText('connected ').waitFor();
    const told = await outputs.allTextContents();
    assert.deepEqual(
      told.map((text) => text.split(' ')[0]),
      ['idle', 'connected', 'idle'],
    );

    await there('none');
    assert.deepEqual(await page.evaluate("finish({ id: 'google-drive' })"), {});
    const { made } = (await page.evaluate("finish({ id: 'google-sheet' })")) as Outcome;
    assert.equal(made?.connectionId, (await pages.connections())[0]?.connection_id);
    assert.deepEqual(await page.evaluate('finish()'), {}, 'once');
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test('an expired session is reported', async () => {
    await page.goto(application.origin);
    const popup = await open(await tokenOf());
    await popup.getByRole('button', { name: /^Continue to/ }).waitFor();
    await pages.trellis.advance(31 * 60);
    assert.equal((await outcome()).code, 'session_expired');
    await closed(popup);
  });
});

const script = `
  import { Activity, createElement as h, StrictMode } from 'react';
  import { createRoot } from 'react-dom/client';
  import { connect, finishConnect, isConnectError } from '../../sdk/connect/index.ts';
  import { useConnect } from '../../sdk/react/index.ts';

  const told = (error) => isConnectError(error)
    ? { code: error.code, reason: error.reason, message: error.message }
    : { message: error.message };
  const open = window.open.bind(window);
  window.open = (...given) => (window.popup = open(...given));
  window.begin = ({ delayMs = 0, fails, aborts, within, ...options }, token) => {
    window.failures = [];
    window.isOver = false;
    document.querySelector('button').onclick = () => {
      const stop = new AbortController();
      if (aborts) setTimeout(() => stop.abort(new Error('the person went elsewhere')), 300);
      const getToken = async () => {
        await new Promise((resolve) => setTimeout(resolve, delayMs));
        if (fails) throw new Error('no session for you');
        return token;
      };
      window.outcome = connect({
        ...options,
        token: getToken,
        signal: stop.signal,
        container: within && document.getElementById('place'),
        onFailure: ({ code }) => failures.push(code),
      })
        .then((made) => ({ made }), told)
        .finally(() => { window.isOver = true; });
    };
  };
  window.finish = (who) => finishConnect(who).then((made) => (made === undefined ? {} : { made }), told);
  if (location.search === '?back') window.outcome = finish();

  function App({ options, token }) {
    const { connect, cancel, status, connection, error } = useConnect({ ...options, getToken: () => token });
    return h('section', null,
      h('button', { onClick: connect }, 'Connect with React'),
      h('button', { onClick: cancel }, 'Cancel'),
      h('output', null, [status, connection?.connectionId ?? error?.code].filter(Boolean).join(' ')));
  }
  let root;
  window.renderHook = (options, token) => {
    root = createRoot(document.getElementById('place'));
    window.showHook = (mode) =>
      root.render(h(StrictMode, null, h(Activity, { mode }, h(App, { options, token }))));
    showHook('visible');
  };
  window.unmountHook = () => root.unmount();
  if (location.search === '?react') renderHook({ mode: 'redirect', url: '' }, '');
  window.renderHooks = (options, token) => {
    const who = [{ integration: 'google-drive' }, { integration: 'google-sheet' }, { integration: 'google-sheet', id: 'more' }];
    const apps = who.map((one, key) => h(App, { key, options: { ...options, ...one }, token }));
    createRoot(document.getElementById('place')).render(h(StrictMode, null, apps));
  };
  if (location.search === '?hooks') renderHooks({ mode: 'redirect', url: '' }, '');
`;
