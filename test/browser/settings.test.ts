// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { exported, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { password, type TestPerson } from '../support/person.ts';
import { connect, type TestTrellis } from '../support/trellis.ts';

/** What an owner sets, tab by tab; what a viewer is not offered, and is refused. */
describe('settings in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let trellis: TestTrellis;
  let page: Page;
  let owner: TestPerson;

  before(async () => {
    dashboard = await openDashboard();
    trellis = dashboard.trellis;
    ({ page, person: owner } = await dashboard.openAs('owner'));
    await page.goto(`${trellis.baseUrl}/app/dev/settings?tab=keys`);
  });
  after(() => dashboard?.close());
  const tab = (name: string) => page.getByRole('tab', { name }).click();
  const press = (name: string | RegExp) => page.getByRole('button', { name, exact: true }).click();
  const dialog = () => page.getByRole('dialog');
  /** By the menu of a row. */
  const choose = async (row: string, act: string) => {
    await page.getByRole('button', { name: `Actions for ${row}`, exact: true }).click();
    await page.getByRole('menuitem', { name: act }).click();
  };
  /** By its text: buttons of a row carry its name, too. */
  const cell = (text: string) => page.getByRole('cell').filter({ hasText: text });
  /** Returns once the service applies the new name: it caches a user's rights for a second. */
  const rename = async ({ from, to }: { from: string; to: string }) => {
    await trellis.db.query('update environment set name = $2 where name = $1', [from, to]);
    while ((await owner.call('GET', '/integrations', { environment: to })).status !== 200);
  };
  let secret: string;

  test('a dialog opens with the focus on its first field, and gives it back to the button that opened it', async () => {
    await press('Create a key');
    await dialog().getByRole('textbox', { name: 'Name' }).and(page.locator(':focus')).waitFor();
    await page.keyboard.press('Escape');
    await dialog().waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Create a key' }).and(page.locator(':focus')).waitFor();
  });

  test('a key is made with chosen scopes, and its secret is shown once', async () => {
    await press('Create a key');
    await page.getByRole('textbox', { name: 'Name' }).fill('billing');
    await press('Create key');
    await page.getByText('Choose at least one scope.').waitFor();
    await dialog().getByText('Scopes', { exact: true }).and(page.locator(':focus')).waitFor();
    await picture(page, 'settings-key-no-scope');
    const preset = async (name: string) => {
      await page.getByRole('combobox', { name: 'Preset' }).click();
      await page.getByRole('option', { name }).click();
    };
    const scopes = () => page.locator('input[type=checkbox]:checked').count();
    await preset('Deploy from CI');
    await page.getByText('You cannot grant functions:deploy').waitFor();
    await page.getByText('--scopes functions:read,functions:deploy').waitFor();
    assert.equal(await scopes(), 1);
    await picture(page, 'settings-key-preset');
    await preset('Application backend');
    await page.getByText('You cannot grant').waitFor({ state: 'detached' });
    assert.equal(await scopes(), 10);
    await preset('Read-only');
    assert.equal(await page.getByRole('checkbox', { name: 'records:read' }).isChecked(), true);
    assert.equal(await page.getByRole('checkbox', { name: 'records:write' }).isChecked(), false);
    await press('None');
    assert.equal(await scopes(), 0);
    await page.getByRole('checkbox', { name: 'proxy:read' }).check();
    await page.getByRole('checkbox', { name: 'integrations:read' }).check();
    await press('Add a rule');
    await page.getByRole('textbox', { name: 'Rule 1: path' }).fill('/v4/spreadsheets/**');
    await press('90 days');
    await picture(page, 'settings-key-create');
    await press('Create key');
    const shown = page.getByTestId('secret');
    await shown.waitFor();
    secret = (await shown.textContent()) ?? '';
    trellis.watch.made('key', secret);
    await picture(page, 'settings-key-secret');
    await press("I've saved the key");
    await page.getByRole('row').filter({ hasText: 'billing' }).getByText('one proxy rule').waitFor();
  });

  test('the key does what its scopes say, and nothing else', async () => {
    assert.equal((await trellis.call('GET', '/integrations', { key: secret })).status, 200);
    assert.equal((await trellis.call('GET', '/connections', { key: secret })).status, 403);
    assert.equal((await trellis.call('POST', '/integrations', { key: secret, body: {} })).status, 403);
  });

  test('a key that replaces another one is made', async () => {
    await press('Create a key');
    await page.getByRole('textbox', { name: 'Name' }).fill('reports');
    await page.getByRole('checkbox', { name: 'activity:read' }).check();
    await page.getByRole('combobox', { name: 'Replaces' }).click();
    await page.getByRole('option', { name: /^billing/ }).click();
    await press('Create key');
    await page.getByText('A key that replaces another key needs records:read or records:write.').waitFor();
    await page.getByRole('checkbox', { name: 'records:read' }).check();
    await page.getByRole('checkbox', { name: 'activity:read' }).uncheck();
    await picture(page, 'settings-key-replace');
    await press('Create key');
    const shown = page.getByTestId('secret');
    await shown.waitFor();
    trellis.watch.made('key', (await shown.textContent()) ?? '');
    await press("I've saved the key");
    const [row] = await trellis.db.query<{ isReplaced: boolean }>(
      `select young.first_key_id = old.id as "isReplaced"
       from api_key as young
       join api_key as old on old.name = 'billing'
       where young.name = 'reports'`,
      [],
    );
    assert.equal(row?.isReplaced, true);

    await press('Create a key');
    await page.getByRole('textbox', { name: 'Name' }).fill('reports');
    await page.getByRole('checkbox', { name: 'records:read' }).check();
    await page.getByRole('combobox', { name: 'Replaces' }).click();
    await page.getByRole('option', { name: /^billing/ }).click();
    dashboard.expectComplaint(/400/);
    await press('Create key');
    // Below the choice, not as a fault of the whole form.
    await dialog()
      .getByText(/^This key is a key that key \d+ has replaced: name that key\.$/)
      .waitFor();
    await picture(page, 'settings-key-replaced');
    assert.equal(await dialog().getByText('invalid_body').count(), 0);
    await press('Cancel');
    await press('Discard changes');
    await dialog().waitFor({ state: 'detached' });
  });

  test('its scopes are changed, and with the next use they count', async () => {
    await choose('billing', 'Edit');
    await press('Cancel');
    await dialog().waitFor({ state: 'detached' });
    await page
      .getByRole('button', { name: 'Actions for billing', exact: true })
      .and(page.locator(':focus'))
      .waitFor();
    await choose('billing', 'Edit');
    await page.getByRole('checkbox', { name: 'connections:read' }).check();
    await press('Save');
    await dialog().waitFor({ state: 'detached' });
    assert.equal((await trellis.call('GET', '/connections', { key: secret })).status, 200);
    await picture(page, 'settings-keys');
  });

  test('it is revoked after a question, and refused at once', async () => {
    await choose('billing', 'Revoke');
    await page.getByText('are permanently rejected by all nodes within a second').waitFor();
    await picture(page, 'settings-key-revoke');
    await press('Revoke key');
    await page.getByRole('row').filter({ hasText: 'billing' }).waitFor({ state: 'detached' });
    assert.equal((await trellis.call('GET', '/integrations', { key: secret })).status, 401);
  });

  test('a variable is set and never read here, while a key reads it', async () => {
    await tab('Variables');
    await page.getByText('No variable yet').waitFor();
    await picture(page, 'settings-variables-empty');
    await press('Add a variable');
    await page.getByRole('textbox', { name: 'Name' }).fill('API_BASE');
    await page.getByRole('textbox', { name: 'Value' }).fill('https://api.example.com');
    await picture(page, 'settings-variable');
    await press('Save');
    await cell('API_BASE').waitFor();
    await press('Add a variable');
    await page.getByRole('textbox', { name: 'Name' }).fill('MODE');
    await page.getByRole('textbox', { name: 'Value' }).fill('fast');
    await press('Save');
    await cell('MODE').waitFor();
    assert.equal(await page.getByText('https://api.example.com').count(), 0);
    await picture(page, 'settings-variables');
    const read = await trellis.call('GET', '/environment-variables');
    assert.deepEqual(JSON.parse(read.text), [
      { name: 'API_BASE', value: 'https://api.example.com' },
      { name: 'MODE', value: 'fast' },
    ]);
    await press('Remove MODE');
    await press('Remove');
    await cell('MODE').waitFor({ state: 'detached' });
  });

  test('the connect page gets a name and colours, seen before they are saved', async () => {
    await tab('Connect page');
    await page.getByRole('textbox', { name: 'Name of your application' }).fill('Ledger');
    await page.getByRole('textbox', { name: 'Color in light mode' }).fill('#ffdd00');
    // Left in the same moment, which nobody can, the field takes back what was typed.
    await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
    await page.keyboard.press('Tab');
    await page.getByTestId('preview').getByText('Ledger', { exact: true }).waitFor();
    const field = (label: string) =>
      page.getByLabel(label, { exact: true }).and(page.locator('input, textarea'));
    await field('Font').fill('Inter');
    await field('Corners').fill('3');
    await field('Schemes of deep links').fill('ledger');
    await page.keyboard.press('Enter');
    await field('Own text').fill('{app} needs {provider}.');
    await page.getByTestId('preview').getByText('Ledger needs Google Sheets.').waitFor();
    await press('Save');
    await page.getByText('Low contrast', { exact: true }).waitFor();
    const { body } = await trellis.call('GET', '/environment/settings');
    const { app_name, colors, font, radius, return_schemes, texts } = (
      body.data as { connect: Record<string, unknown> }
    ).connect;
    assert.deepEqual(
      { app_name, colors, font, radius, return_schemes, texts },
      {
        app_name: 'Ledger',
        font: 'Inter',
        radius: 3,
        return_schemes: ['ledger'],
        colors: {
          light: { primary: '#ffdd00', background: '#ffffff', text: '#16191d' },
          dark: { primary: '#8fb0ff', background: '#1a1b1e', text: '#eceff2' },
        },
        texts: { en: { intro: '{app} needs {provider}.' } },
      },
    );
    await picture(page, 'settings-connect-page');
  });

  test("the audit log shows the actor's name for each change, and its filter is in the URL", async () => {
    await tab('Audit log');
    const row = page.getByRole('row').filter({ hasText: 'key.revoked' });
    await row.getByText('The owner').waitFor();
    await picture(page, 'settings-audit');
    await page.getByRole('textbox', { name: 'Action' }).fill('key.created');
    await row.waitFor({ state: 'detached' });
    assert.match(page.url(), /action=key.created/);
    await page.getByRole('textbox', { name: 'Actor' }).fill('the owner');
    await page.waitForURL(/actor=the/);
    await page.getByRole('row').filter({ hasText: 'key.created' }).first().waitFor();
    await page.getByRole('textbox', { name: 'Actor' }).fill('nobody of this name');
    await page.getByText('No match').waitFor();
    await page.getByRole('textbox', { name: 'Actor' }).fill('');
    await page.getByRole('textbox', { name: 'Action' }).fill('nothing.so');
    await page.getByText('No match').waitFor();
    await page.getByText('People and environments').click();
    await page.getByRole('textbox', { name: 'Action' }).fill('');
    await page.getByText('user.signed_in').first().waitFor();
    await picture(page, 'settings-audit-installation');
    const { name, text } = await exported(page, 'CSV');
    assert.equal(name, 'audit.csv');
    assert.match(text, /^position,created_at,actor,action,target,details\r\n/);
    assert.match(text, /,user\.signed_in,/);
    assert.doesNotMatch(text, /,key\.created,/);
  });

  test('an environment is made, renamed and deleted, but not while it has connections', async () => {
    await tab('Environments');
    await press('Create an environment');
    await page.getByRole('textbox', { name: 'Name' }).fill('Not A Name');
    await press('Create environment');
    await page.getByText('Up to 64 lowercase letters').waitFor();
    await page.getByRole('textbox', { name: 'Name' }).fill('staging');
    await press('Create environment');
    await cell('staging').waitFor();
    await choose('staging', 'Rename');
    await page.getByRole('textbox', { name: 'Name' }).fill('qa');
    await press('Rename environment');
    await cell('qa').waitFor();
    await picture(page, 'settings-environments');
    const made = await owner.call('POST', '/integrations', {
      environment: 'qa',
      body: {
        provider: 'unauthenticated',
        unique_key: 'open',
        integration_config: { base_url: 'https://api.example.com' },
      },
    });
    assert.equal(made.status, 200, made.text);
    await choose('qa', 'Delete');
    await dialog().getByText('1 integration').waitFor();
    await picture(page, 'settings-environment-delete');
    await press('Delete permanently');
    await cell('qa').waitFor({ state: 'detached' });
    assert.equal(await page.getByRole('button', { name: 'Actions for dev' }).count(), 0);
  });

  test('an environment with connections shows what prevents its deletion', async () => {
    await connect(trellis);
    // No page asks for an environment while its name changes.
    await page.goto('about:blank');
    await rename({ from: 'dev', to: 'busy' });
    await page.goto(`${trellis.baseUrl}/app/busy/settings?tab=environments`);
    await choose('busy', 'Delete');
    await page.getByText('1 connection must be deleted first').waitFor();
    assert.ok(await page.getByRole('button', { name: 'Delete permanently' }).isDisabled());
    await picture(page, 'settings-environment-in-use');
    await page.goto('about:blank');
    await rename({ from: 'busy', to: 'dev' });
  });

  test('the audit log names the connect session in which an account was connected', async () => {
    await page.goto(`${trellis.baseUrl}/app/dev/settings?tab=audit&action=connection.created`);
    await page.getByRole('button', { name: 'Connect session 1' }).click();
    await page.waitForURL(/actor=session/);
    await page.getByRole('row').filter({ hasText: 'connection.created' }).waitFor();
    await page.goto(`${trellis.baseUrl}/app/dev/settings?tab=people`);
  });

  test('an invitation link that is opened in another window makes a viewer', async () => {
    await press('Invite a user');
    await page.getByRole('textbox', { name: 'E-mail' }).fill('grace@example.com');
    await picture(page, 'settings-invite');
    await page.keyboard.press('Enter');
    const link = (await page.getByTestId('link').textContent()) ?? '';
    await picture(page, 'settings-invite-link');
    await press('Done');
    await cell('grace@example.com').waitFor();
    const guest = await dashboard.openAsNobody();
    await guest.page.goto(link);
    await guest.page.getByText('As viewer in dev').waitFor();
    await guest.page.getByRole('textbox', { name: 'Name' }).fill('Grace Hopper');
    await guest.page.getByRole('textbox', { name: 'Password' }).fill(password);
    await guest.page.getByRole('button', { name: 'Create account' }).click();
    await guest.page.waitForURL('**/app/dev/home');
    await guest.page.goto(`${trellis.baseUrl}/app/dev/settings`);
    await guest.page.getByRole('tab', { name: 'Your account' }).waitFor();
    assert.deepEqual(await guest.page.getByRole('tab').allTextContents(), [
      'Your account',
      'Variables',
      'Connect page',
      'Audit log',
    ]);
    await guest.context.close();
    await cell('Grace Hopper').waitFor();
  });

  test('a role is changed, a reset link is made, and a user is removed', async () => {
    await choose('Grace Hopper', 'Change the role');
    await dialog().getByRole('radio', { name: 'Developer' }).check();
    await dialog().getByRole('checkbox', { name: 'prod' }).check();
    await picture(page, 'settings-role');
    await press('Save');
    const row = page.getByRole('row').filter({ hasText: 'Grace Hopper' });
    await row.getByText('in dev, prod').waitFor();
    await choose('Grace Hopper', 'Create a reset link');
    assert.match((await page.getByTestId('link').textContent()) ?? '', /\/reset-password#/);
    await press('Done');
    await picture(page, 'settings-people');
    await choose('Grace Hopper', 'Remove');
    await dialog().getByText('is signed out everywhere').waitFor();
    await press('Remove');
    await row.waitFor({ state: 'detached' });
  });

  test('the last owner cannot remove themselves, and sees the reason', async () => {
    await choose('The owner', 'Remove');
    dashboard.expectComplaint(/409/);
    await press('Remove');
    await page.getByText('last_owner').waitFor();
    await press('Cancel');
  });

  test('an unavailable service is reported, and its data are shown as soon as it answers', async () => {
    await page.route('**/users', (route) => route.abort());
    dashboard.expectComplaint(/ERR_FAILED/);
    await page.goto(`${trellis.baseUrl}/app/dev/settings?tab=people`);
    await page.getByRole('button', { name: 'Try again' }).waitFor();
    await picture(page, 'settings-error');
    await page.unroute('**/users');
    await cell('The owner').waitFor();
  });

  test('a viewer sees no tab of owners, changes nothing there, and is refused by the API', async () => {
    const { page: seen, person } = await dashboard.openAs('viewer');
    await seen.goto(`${trellis.baseUrl}/app/dev/settings?tab=people`);
    await seen.getByRole('tab', { name: 'Your account', selected: true }).waitFor();
    assert.equal(await seen.getByRole('tab', { name: /Keys|Environments|People/ }).count(), 0);
    await seen.getByRole('tab', { name: 'Variables' }).click();
    await seen.getByRole('cell', { name: 'API_BASE' }).waitFor();
    assert.equal(await seen.getByRole('button', { name: /API_BASE|Add a variable/ }).count(), 0);
    await seen.getByRole('tab', { name: 'Connect page' }).click();
    await seen.getByText('Only developers of this environment can change this.').waitFor();
    await picture(seen, 'settings-connect-page-viewer');
    const name = { name: 'mine' };
    for (const [method, path, body] of [
      ['POST', '/environment/api-keys', { ...name, scopes: ['records:read'] }],
      ['PATCH', '/environment/api-keys/1', name],
      ['DELETE', '/environment/api-keys/1', undefined],
      ['PUT', '/environment-variables', { variables: [] }],
      ['PATCH', '/environment/settings', { connect: { app_name: 'Mine' } }],
      ['GET', '/environments', undefined],
      ['POST', '/environments', name],
      ['PATCH', '/environments/dev', name],
      ['DELETE', '/environments/dev', undefined],
      ['GET', '/users', undefined],
      ['PATCH', '/users/somebody', { role: 'owner' }],
      ['DELETE', '/users/somebody', undefined],
      ['POST', '/users/somebody/password-reset', undefined],
      ['POST', '/users/invitations', { role: 'owner' }],
      ['DELETE', '/users/invitations/1', undefined],
      ['GET', '/audit?scope=installation', undefined],
    ] as const) {
      const answered = await person.call(method, path, {
        environment: 'dev',
        ...(body !== undefined && { body }),
      });
      assert.equal(answered.status, 403, `${method} ${path}: ${answered.text}`);
    }
  });
});
