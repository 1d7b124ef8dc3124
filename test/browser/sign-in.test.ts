// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BrowserContext, Page, Route } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { type MailServer, openMailServer } from '../support/mail-server.ts';
import { openPerson, password, totpCode } from '../support/person.ts';
import type { TestTrellis } from '../support/trellis.ts';

/** One's own account, and the ways in and out of it, in this order. */
describe('signing in with a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let mails: MailServer;
  let trellis: TestTrellis;
  let context: BrowserContext;
  let page: Page;
  let secret: string;
  let backupCode: string;
  const email = 'developer@example.com';

  before(async () => {
    mails = await openMailServer();
    dashboard = await openDashboard({ SMTP_URL: mails.url, SMTP_FROM: 'trellis@example.com' });
    trellis = dashboard.trellis;
    ({ page, context } = await dashboard.openAs('developer'));
    await page.goto(`${trellis.baseUrl}/app/dev/settings?tab=account`);
  });
  after(async () => {
    await dashboard?.close();
    await mails?.close();
  });
  const press = (name: string) => page.getByRole('button', { name, exact: true }).click();
  /** Each is good once, and nobody waits here for the next. */
  const code = async () => {
    await trellis.db.query('delete from sign_in_code');
    return totpCode(secret, new Date());
  };
  let addresses = 0;
  /** Limits go by address: each step has one of its own. */
  const fromElsewhere = () => {
    addresses += 1;
    return context.setExtraHTTPHeaders({ 'x-forwarded-for': `198.51.100.${addresses}` });
  };
  const fillSignIn = async (given: string) => {
    await page.getByRole('textbox', { name: 'E-mail' }).fill(email);
    await page.getByRole('textbox', { name: 'Password' }).fill(given);
    await press('Sign in');
  };
  const signOut = async () => {
    await press('Your account');
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in to Trellis' }).waitFor();
  };

  test('a name is changed, and the menu shows it at once', async () => {
    await page.getByRole('textbox', { name: 'Name' }).fill('Mary Jackson');
    await press('Save the name');
    await page.getByText('Saved.').waitFor();
    await press('Your account');
    await page.getByRole('menu').getByText('Mary Jackson').waitFor();
    await page.keyboard.press('Escape');
  });

  test('a second factor is set up by a QR code that is drawn here', async () => {
    await press('Set up');
    await page.getByRole('textbox', { name: 'Your password' }).fill('a wrong password');
    dashboard.expectComplaint(/status of 40[01]/);
    await press('Continue');
    await page.getByText('Wrong password').waitFor();
    await page.getByRole('textbox', { name: 'Your password' }).fill(password);
    await press('Continue');
    await page.getByRole('img', { name: 'QR code for your authenticator' }).waitFor();
    secret = (await page.getByTitle(/^[A-Z2-7]{16,}$/).textContent()) ?? '';
    await picture(page, 'sign-in-two-factor-set-up');
    await page.getByRole('textbox', { name: 'Enter the six digits' }).fill('000000');
    await press('Turn on');
    await page.getByText('Wrong code').waitFor();
    await page.getByRole('textbox', { name: 'Enter the six digits' }).fill(await code());
    await press('Turn on');
    await page.getByText('They are shown only once').waitFor();
    const codes = await page.locator('code').allTextContents();
    backupCode = codes.find((text) => /^[\w]{5}-[\w]{5}$/.test(text)) ?? '';
    assert.notEqual(backupCode, '', codes.join(' '));
    await picture(page, 'sign-in-backup-codes');
    await press("I've saved the codes");
    await page.getByRole('button', { name: 'Turn off' }).waitFor();
  });

  test('signing in requires a code, reports a wrong one, and accepts the right one', async () => {
    await fromElsewhere();
    await signOut();
    await picture(page, 'sign-in');
    await fillSignIn('a wrong password');
    await page.getByText('Wrong e-mail or password').waitFor();
    await picture(page, 'sign-in-refused');
    await fillSignIn(password);
    await page.getByText('Two-factor authentication').waitFor();
    await page.getByRole('textbox', { name: 'Code' }).fill('000000');
    await press('Continue');
    await page.getByText('Wrong code').waitFor();
    await picture(page, 'sign-in-code-refused');
    await page.getByRole('textbox', { name: 'Code' }).fill(await code());
    await press('Continue');
    await page.waitForURL('**/app/dev/**');
  });

  test('a backup code is good once', async () => {
    for (const isGood of [true, false]) {
      await fromElsewhere();
      await signOut();
      await fillSignIn(password);
      await page.getByRole('textbox', { name: 'Code' }).fill(backupCode);
      await press('Continue');
      if (isGood) await page.waitForURL('**/app/dev/**');
    }
    await page.getByText('Wrong backup code').waitFor();
    await page.getByRole('textbox', { name: 'Code' }).fill(await code());
    await press('Continue');
    await page.waitForURL('**/app/dev/**');
  });

  test('a session elsewhere is listed, and ended', async () => {
    await page.goto(`${trellis.baseUrl}/app/dev/settings?tab=account`);
    const other = openPerson(trellis);
    await other.signIn(email, password);
    const verified = await other.auth('POST', '/two-factor/verify-totp', { code: await code() });
    assert.equal(verified.status, 200, verified.text);
    await page.reload();
    await page.getByText('current').waitFor();
    await picture(page, 'sign-in-account');
    await press('End all other sessions');
    await page.getByRole('button', { name: 'End all other sessions' }).waitFor({ state: 'detached' });
    assert.equal((await other.call('GET', '/users/me')).status, 401);
  });

  test('a session that ended elsewhere leads to the sign-in, and back to the same page', async () => {
    await page.goto(`${trellis.baseUrl}/app/dev/events?tab=deliveries&status=dead`);
    await page.getByText('No match').waitFor();
    await trellis.db.query('delete from sign_in_session');
    dashboard.expectComplaint(/401/);
    await page.getByRole('heading', { name: 'Sign in to Trellis' }).waitFor();
    await fromElsewhere();
    await fillSignIn(password);
    await page.getByRole('textbox', { name: 'Code' }).fill(await code());
    await press('Continue');
    await page.getByText('No match').waitFor();
    assert.equal(new URL(page.url()).search, '?tab=deliveries&status=dead');
  });

  /** Refuses the variables as for an ended session, until the page asks who is signed in; returns their tab. */
  const openRefused = async () => {
    await page.goto(`${trellis.baseUrl}/app/dev/settings?tab=account`);
    const tab = page.getByRole('tab', { name: 'Variables' });
    await tab.waitFor();
    const error = { code: 'unauthorized', message: 'Of the former session.' };
    // Not once: the page may abort its first request when it renders again.
    let isAsked = false;
    page.on('request', (request) => {
      isAsked ||= request.url().endsWith('/users/me');
    });
    await page.route('**/environment-variables', (route) =>
      isAsked ? route.continue() : route.fulfill({ status: 401, json: { error } }),
    );
    return tab;
  };

  test('requests that were refused for a replaced session are repeated', async () => {
    dashboard.expectComplaint(/401/);
    const tab = await openRefused();
    const isAsked = page.waitForResponse('**/users/me');
    await tab.click();
    assert.equal((await isAsked).status(), 200);
    await page.getByText('No variable yet').waitFor();
    assert.equal(new URL(page.url()).pathname, '/app/dev/settings');
  });

  test('a session of another user leads to the sign-in', async () => {
    const tab = await openRefused();
    const answerElse = async (route: Route) => {
      const response = await route.fetch();
      const { data } = (await response.json()) as { data: object };
      await route.fulfill({ response, json: { data: { ...data, id: 'somebody-else' } } });
    };
    await page.route('**/users/me', answerElse, { times: 1 });
    await tab.click();
    await page.getByRole('heading', { name: 'Sign in to Trellis' }).waitFor();
  });

  test('the password is changed, and the second factor switched off, with the password', async () => {
    await page.goto(`${trellis.baseUrl}/app/dev/settings?tab=account`);
    await press('Turn off');
    await page.getByRole('textbox', { name: 'Your password' }).fill(password);
    await press('Turn off');
    await page.getByRole('button', { name: 'Set up' }).waitFor();
    await press('Change the password');
    await page.getByRole('textbox', { name: 'Current password' }).fill(password);
    await page.getByRole('textbox', { name: 'New password' }).fill('short');
    await press('Set the password');
    await page.getByText('At least 12 characters').nth(1).waitFor();
    await page.getByRole('textbox', { name: 'New password' }).fill('another good password');
    // The former session has ended, and the response with the next one has not come.
    dashboard.expectComplaint(/401/);
    const error = { code: 'unauthorized', message: 'Of the former session.' };
    const refuse = (route: Route) => route.fulfill({ status: 401, json: { error } });
    const held = Promise.withResolvers<void>();
    await page.route('**/api/auth/change-password', (route) => held.promise.then(() => route.continue()));
    await press('Set the password');
    const isAsked = page.waitForResponse('**/users/me');
    await page.route('**/users/me', refuse, { times: 1 });
    await page.route('**/environment/health', refuse, { times: 1 });
    await isAsked;
    held.resolve();
    await page.getByText('The password is changed.').waitFor();
    await page.unroute('**/api/auth/change-password');
    assert.equal(new URL(page.url()).pathname, '/app/dev/settings');
  });

  test('a forgotten password gets a link by mail, and the page is the same without an account', async () => {
    await fromElsewhere();
    await signOut();
    await page.getByRole('textbox', { name: 'E-mail' }).fill(email);
    await press('Forgot your password?');
    await picture(page, 'sign-in-forgot');
    await press('Send me a link');
    await page.getByText('Check your e-mail').waitFor();
    await picture(page, 'sign-in-forgot-sent');
    while (mails.mails.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    const text = mails.mails[0]!.text.replace(/=\n/g, '').replace(/=3D/g, '=');
    await page.goto(/http\S+#\S+/.exec(text)?.[0] ?? '');
    await page.getByRole('textbox', { name: 'Password' }).fill(password);
    await press('Set the password');
    await page.getByRole('heading', { name: 'Sign in to Trellis' }).waitFor();
    await fillSignIn(password);
    await page.waitForURL('**/app/dev/**');
  });

  test('too many attempts are reported with the time to wait', async () => {
    await fromElsewhere();
    await signOut();
    dashboard.expectComplaint(/429/);
    for (let tries = 0; tries < 6; tries += 1) {
      const answered = page.waitForResponse('**/api/auth/sign-in/email');
      await fillSignIn('a wrong password');
      await answered;
    }
    await page.getByText(/Wait \d+ seconds/).waitFor();
    await picture(page, 'sign-in-too-many');
  });
});
