// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { holdCalls, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { password } from '../support/person.ts';
import { connect } from '../support/trellis.ts';

/** A form with input that is not saved asks before it is closed, and before its page or the tab is left. */
describe('unsaved input in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let connectionId: string;

  before(async () => {
    dashboard = await openDashboard();
    ({ connectionId } = await connect(dashboard.trellis));
    const made = await dashboard.trellis.call('POST', '/providers', {
      body: { name: 'own-crm', definition: 'extends: private-api-key\ndisplay_name: Our CRM\n' },
    });
    assert.equal(made.status, 200, made.text);
    ({ page } = await dashboard.openAs('owner'));
  });
  after(() => dashboard?.close());
  const open = async (path: string) => void (await page.goto(`${dashboard.trellis.baseUrl}/app/dev${path}`));
  const press = (name: string) => page.getByRole('button', { name, exact: true }).click();
  const question = () => page.getByRole('dialog', { name: 'Discard unsaved changes?' });
  const focused = (name: string, role: 'button' | 'textbox' | 'link' = 'button') =>
    page.getByRole(role, { name, exact: true }).and(page.locator(':focus')).waitFor();

  const isNotAsked = async () => assert.equal(await question().count(), 0);

  const dialogs = [
    ['a key', '/settings?tab=keys', 'Create a key', 'Name'],
    ['an invitation', '/settings?tab=people', 'Invite a user', 'E-mail'],
    ['an endpoint', '/events?tab=endpoints', 'Add an endpoint', 'Description'],
    ['an environment', '/settings?tab=environments', 'Create an environment', 'Name'],
    ['a variable', '/settings?tab=variables', 'Add a variable', 'Value'],
    ['a provider', '/integrations/new?define=own-crm', undefined, 'Definition'],
    ['a new integration', '/integrations/new?provider=private-api-key', undefined, 'Integration ID'],
  ] as const;
  for (const [what, path, opener, field] of dialogs) {
    test(`the dialog of ${what} asks only after something was typed`, async () => {
      await open(path);
      const dialog = () => page.getByRole('dialog').filter({ hasNot: page.getByText('not saved') });
      const input = () => dialog().getByRole('textbox', { name: field, exact: true });
      if (opener !== undefined) {
        await press(opener);
        await input().waitFor();
        await page.keyboard.press('Escape');
        await dialog().waitFor({ state: 'detached' });
        await focused(opener);
        await press(opener);
      }
      const before = await input().inputValue();
      await input().focus();
      await page.keyboard.press('End');
      await page.keyboard.type('typed');
      await page.keyboard.press('Escape');
      await focused('Keep editing');
      if (what === 'an endpoint') await picture(page, 'unsaved-dialog');
      // Escape keeps the input, and the focus returns to the field.
      await page.keyboard.press('Escape');
      await question().waitFor({ state: 'detached' });
      await focused(field, 'textbox');
      assert.notEqual(await input().inputValue(), before);
      await dialog().getByRole('button', { name: 'Cancel' }).click();
      await focused('Keep editing');
      await page.keyboard.press('Tab');
      await focused('Discard changes');
      await page.keyboard.press('Enter');
      await question().waitFor({ state: 'detached' });
      await dialog().waitFor({ state: 'detached' });
      if (opener !== undefined) await focused(opener);
    });
  }

  test('a dialog without a form of its own asks, until its fields are gone', async () => {
    await open('/connections');
    await press('Connect an account');
    const endUser = page.getByRole('textbox', { name: 'End user', exact: true });
    await endUser.fill('ada');
    await page.keyboard.press('Escape');
    await press('Keep editing');
    assert.equal(await endUser.inputValue(), 'ada');
    await press('Create a link');
    await endUser.waitFor({ state: 'detached' });
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await isNotAsked();
  });

  test('the focus returns to the field after each question', async () => {
    await open('/settings?tab=keys');
    await press('Create a key');
    await page.getByRole('textbox', { name: 'Name', exact: true }).fill('billing');
    for (const keep of ['Enter', 'Escape', 'Enter', 'click', 'click'] as const) {
      await page.keyboard.press('Escape');
      await focused('Keep editing');
      if (keep === 'click') await press('Keep editing');
      else await page.keyboard.press(keep);
      await question().waitFor({ state: 'detached' });
      await focused('Name', 'textbox');
    }
  });

  const choices = [
    ['a scope', () => page.getByRole('checkbox', { name: 'records:read' }).check()],
    [
      'a preset',
      async () => {
        await page.getByRole('combobox', { name: 'Preset' }).click();
        await page.getByRole('option').first().click();
      },
    ],
  ] as const;
  for (const [what, choose] of choices) {
    test(`a dialog in which ${what} was chosen asks`, async () => {
      await open('/settings?tab=keys');
      await press('Create a key');
      await choose();
      await page.keyboard.press('Escape');
      await focused('Keep editing');
      await press('Discard changes');
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    });
  }

  test('the kind of a form that is not filled in is no unsaved input', async () => {
    await open('/events?tab=endpoints');
    await press('Add an endpoint');
    await page.getByRole('radio', { name: 'Slack' }).check();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await open('/integrations/new?define=new');
    await page.getByRole('combobox', { name: 'Example' }).click();
    await page.getByRole('option', { name: 'API key' }).click();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  });

  test('a choice that takes effect at once is no unsaved input', async () => {
    await page.keyboard.press('?');
    const isOn = page.getByRole('switch', { name: 'Single-key shortcuts' });
    await isOn.uncheck();
    await isOn.check();
    await isOn.uncheck();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await isNotAsked();
  });

  test('a dialog asks while another change is being saved', async () => {
    await open('/settings?tab=environments');
    const release = await holdCalls(page, '**/environments');
    await press('Create an environment');
    await page.getByRole('textbox', { name: 'Name' }).fill('later');
    await page.keyboard.press('Enter');
    await page.locator('button[data-loading]').waitFor();
    await page.keyboard.press('Escape');
    await press('Discard changes');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('tab', { name: 'Keys' }).click();
    await press('Create a key');
    await page.getByRole('textbox', { name: 'Name', exact: true }).fill('billing');
    await page.keyboard.press('Escape');
    await press('Keep editing');
    await question().waitFor({ state: 'detached' });
    await focused('Name', 'textbox');
    await release();
    await page.keyboard.press('Escape');
    await press('Discard changes');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  });

  test('input that is typed and removed again is closed without a question', async () => {
    await open('/settings?tab=environments');
    await press('Create an environment');
    await page.getByRole('textbox', { name: 'Name' }).fill('staging');
    await page.getByRole('textbox', { name: 'Name' }).fill('');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await isNotAsked();
  });

  test('a saved dialog closes without a question', async () => {
    await press('Create an environment');
    await page.getByRole('textbox', { name: 'Name' }).fill('staging');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('cell', { name: 'staging', exact: true }).waitFor();
    await isNotAsked();
  });

  const forms = [
    ['an integration', '/integrations/of/google-sheet?tab=settings', undefined, 'Display name'],
    ['the brand', '/settings?tab=connect-page', undefined, 'Name of your application'],
    ['the addresses of official clients', '/events?tab=addresses', undefined, 'webhook_url'],
    ['the tags of a connection', 'settings of the connection', 'Edit tags', 'Name of tag 1'],
    ['the metadata of a connection', 'settings of the connection', 'Edit', 'Metadata as JSON'],
  ] as const;
  for (const [what, path, opener, field] of forms) {
    test(`${what} is left only after a question`, async () => {
      await open(path.startsWith('/') ? path : `/connections/google-sheet/${connectionId}?tab=settings`);
      if (opener !== undefined) await press(opener);
      const input = page.getByRole('textbox', { name: field, exact: true });
      await input.waitFor();
      const link = page.getByRole('link', { name: 'Home', exact: true });
      await input.focus();
      await page.keyboard.press('End');
      await page.keyboard.type(' ');
      await page.keyboard.type('typed');
      const { href } = new URL(page.url());
      await link.focus();
      await page.keyboard.press('Enter');
      await focused('Keep editing');
      if (what === 'an integration') await picture(page, 'unsaved-page');
      await page.keyboard.press('Enter');
      await question().waitFor({ state: 'detached' });
      assert.equal(page.url(), href);
      await focused('Home', 'link');
      assert.match(await input.inputValue(), /typed/);
      // The tab is not closed or reloaded unasked either.
      const asked = page.waitForEvent('dialog');
      await page.evaluate('void setTimeout(() => location.reload())');
      const dialog = await asked;
      assert.equal(dialog.type(), 'beforeunload');
      await dialog.dismiss();
      assert.match(await input.inputValue(), /typed/);
      await link.click();
      await page.getByRole('button', { name: 'Discard changes' }).click();
      await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
      await question().waitFor({ state: 'detached' });
    });
  }

  test('the Back button asks, and a page that is saved is left without a question', async () => {
    await open('/integrations');
    await page.locator('main .fill-link').first().click();
    await page.getByRole('tab', { name: 'Settings' }).click();
    const name = page.getByRole('textbox', { name: 'Display name', exact: true });
    await name.fill('Our sheets');
    // Nothing has the focus to which it could return.
    await name.blur();
    await page.goBack();
    await focused('Keep editing');
    await press('Keep editing');
    await question().waitFor({ state: 'detached' });
    await page.locator('main:focus').waitFor();
    await press('Save');
    await page.getByText('Saved. The secret is stored encrypted.').waitFor();
    await page.goBack();
    await page.getByRole('tab', { name: 'Overview', selected: true }).waitFor();
    await isNotAsked();
  });

  test('input that is being saved is not lost unasked, and a save that succeeds answers the question', async () => {
    dashboard.expectComplaint(/status of 400/);
    await open('/events?tab=addresses');
    const address = page.getByRole('textbox', { name: 'webhook_url', exact: true });
    const home = page.getByRole('link', { name: 'Home', exact: true });
    const saveAndLeave = async (typed: string) => {
      await address.fill(typed);
      const release = await holdCalls(page, '**/environment/settings*');
      await press('Save');
      await page.locator('button[data-loading]').waitFor();
      await home.click();
      await focused('Keep editing');
      return release;
    };
    const release = await saveAndLeave('not an address');
    const asked = page.waitForEvent('dialog');
    await page.evaluate('void setTimeout(() => location.reload())');
    const closing = await asked;
    assert.equal(closing.type(), 'beforeunload');
    await closing.dismiss();
    await release();
    await page.locator('main [role=alert]').waitFor();
    await press('Keep editing');
    await question().waitFor({ state: 'detached' });
    assert.equal(await address.inputValue(), 'not an address');
    const releaseNext = await saveAndLeave('https://app.example.com/hooks');
    await releaseNext();
    await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
    await question().waitFor({ state: 'detached' });
    await page.goBack();
    await address.waitFor();
    assert.equal(await address.inputValue(), 'https://app.example.com/hooks');
  });

  test('a dialog whose save succeeds closes with the question about it', async () => {
    await open('/settings?tab=environments');
    const release = await holdCalls(page, '**/environments');
    await press('Create an environment');
    await page.getByRole('textbox', { name: 'Name' }).fill('slow');
    await page.keyboard.press('Enter');
    await page.locator('button[data-loading]').waitFor();
    await page.keyboard.press('Escape');
    await focused('Keep editing');
    await release();
    await question().waitFor({ state: 'detached' });
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('cell', { name: 'slow', exact: true }).waitFor();
  });

  test('a save that fails after its dialog was closed is shown, and leads back', async () => {
    dashboard.expectComplaint(/status of 409/);
    await open('/settings?tab=environments');
    const release = await holdCalls(page, '**/environments');
    await press('Create an environment');
    await page.getByRole('textbox', { name: 'Name' }).fill('dev');
    await page.keyboard.press('Enter');
    await page.locator('button[data-loading]').waitFor();
    await page.keyboard.press('Escape');
    await press('Discard changes');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Home', exact: true }).click();
    await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
    await release();
    const notice = page.getByRole('alert').filter({ hasText: 'Not saved: Create an environment' });
    await notice.waitFor();
    await picture(page, 'failed-change');
    await notice.getByRole('button', { name: 'Back to Settings' }).click();
    await page.waitForURL(/\/settings\?tab=environments$/);
    // The reason can still be read, until the user closes the notice.
    await notice.getByText(/already|exists/).waitFor();
    await notice.getByRole('button', { name: 'Close' }).click();
    await notice.waitFor({ state: 'detached' });
  });

  test('a deletion that succeeds after its page was left does not lead away from another page', async () => {
    const { connectionId: own } = await connect(dashboard.trellis, { account: 'grace@example.com' });
    await open(`/connections/google-sheet/${own}?tab=settings`);
    await press('Delete');
    await page.getByText('This permanently deletes:').waitFor();
    const release = await holdCalls(page, `**/connections/${own}*`);
    await press('Delete permanently');
    await page.locator('button[data-loading]').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Home', exact: true }).click();
    await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
    const deleted = page.waitForResponse((response) => response.request().method() === 'DELETE');
    // After the deletion the page fetches its counts again, and would have navigated before.
    const counted = deleted.then(() => page.waitForRequest(/\/connections\?/));
    await release();
    assert.equal((await deleted).status(), 200);
    await counted;
    assert.match(page.url(), /\/home$/);
    await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
  });

  test('a save that fails after its page was left is not shown after a sign-out', async () => {
    dashboard.expectComplaint(/ERR_CONNECTION_RESET|ERR_FAILED/);
    const calls = '**/integrations/google-sheet*';
    const saveAndLeave = async () => {
      const asked = Promise.withResolvers<void>();
      const answer = Promise.withResolvers<void>();
      await page.route(calls, async (route) => {
        if (route.request().method() !== 'PATCH') return route.continue();
        asked.resolve();
        await answer.promise;
        return route.abort('connectionreset');
      });
      await page.getByRole('textbox', { name: 'Display name', exact: true }).fill('Not saved');
      await press('Save');
      await asked.promise;
      await page.getByRole('link', { name: 'Home', exact: true }).click();
      await press('Discard changes');
      await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
      return async () => {
        const failed = page.waitForEvent('requestfailed');
        answer.resolve();
        await failed;
        await page.unroute(calls);
      };
    };
    const notice = page.getByRole('alert').filter({ hasText: /Not saved: .+, Settings/ });
    await open('/integrations/of/google-sheet?tab=settings');
    const fail = await saveAndLeave();
    await fail();
    await notice.getByRole('button', { name: /^Back to/ }).click();
    const failLater = await saveAndLeave();
    await notice.waitFor();
    await press('Your account');
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByRole('textbox', { name: 'E-mail' }).fill('owner@example.com');
    await notice.waitFor({ state: 'detached' });
    await failLater();
    await page.getByRole('textbox', { name: 'Password' }).fill(password);
    await press('Sign in');
    await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
    assert.equal(await notice.count(), 0);
  });

  test('a sign-out asks while the session can still save the input', async () => {
    const signOut = async () => {
      await press('Your account');
      await page.getByRole('menuitem', { name: 'Sign out' }).click();
    };
    await open('/integrations/of/google-sheet?tab=settings');
    await page.getByRole('textbox', { name: 'Display name', exact: true }).fill('Sheets of the team');
    await signOut();
    await focused('Keep editing');
    await press('Keep editing');
    await question().waitFor({ state: 'detached' });
    await press('Save');
    await page.getByText('Saved. The secret is stored encrypted.').waitFor();
    await page.getByRole('textbox', { name: 'Display name', exact: true }).fill('Another name');
    await signOut();
    await press('Discard changes');
    await page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
    await isNotAsked();
  });
});
