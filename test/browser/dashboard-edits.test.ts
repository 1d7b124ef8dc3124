// What is changed in the dashboard is what was meant, and nothing beside it.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser, waitUntilTrue } from '../support/browser.ts';
import { deny, popupBy } from '../support/connect-pages.ts';
import {
  assertAccessible,
  holdCalls,
  openDashboard,
  picture,
  type TestDashboard,
} from '../support/dashboard.ts';
import { type OidcIssuer, startOidcIssuer } from '../support/oidc-issuer.ts';
import type { TestPerson } from '../support/person.ts';

describe('changes in the dashboard', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let owner: TestPerson;
  let issuer: OidcIssuer;

  before(async () => {
    issuer = await startOidcIssuer();
    dashboard = await openDashboard({
      TRELLIS_OIDC_ISSUER: issuer.url,
      TRELLIS_OIDC_NAME: 'Example',
      TRELLIS_OIDC_CLIENT_ID: issuer.clientId,
      TRELLIS_OIDC_CLIENT_SECRET: issuer.clientSecret,
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
    });
    dashboard.expectComplaint(
      /status of (401|50[03])|ERR_FAILED|ERR_INTERNET_DISCONNECTED|dynamically imported module|status of 404/,
    );
    ({ page, person: owner } = await dashboard.openAs('owner'));
    await stored('POST', '/integrations', {
      provider: 'private-api-key',
      unique_key: 'key',
      integration_config: { base_url: 'https://api.example.com' },
    });
    for (const id of ['alice', 'bob']) {
      const credentials = { type: 'API_KEY', apiKey: `a-key-of-${id}-1234567890` };
      const tags = { of: id };
      await stored('POST', '/connections', {
        provider_config_key: 'key',
        connection_id: id,
        credentials,
        tags,
      });
      const metadata = { kept_for: id };
      await stored('POST', '/connections/metadata', {
        provider_config_key: 'key',
        connection_id: id,
        metadata,
      });
    }
    for (const model of ['One', 'Two']) await save(model);
  });
  after(async () => {
    await issuer?.close();
    await dashboard?.close();
  });

  const open = (path: string) => page.goto(`${dashboard.trellis.baseUrl}/app/dev${path}`);
  const press = (name: string) => page.getByRole('button', { name, exact: true }).click();
  const headers = { 'connection-id': 'alice', 'provider-config-key': 'key' };
  async function stored(method: string, path: string, body?: object): Promise<Record<string, unknown>> {
    const answer = await dashboard.trellis.call(method, path, body === undefined ? {} : { body });
    assert.ok(answer.status < 300, answer.text);
    return answer.body;
  }
  const save = (model: string) =>
    dashboard.trellis.call('POST', '/records', {
      headers,
      body: { model, records: [{ id: '1' }, { id: '2' }] },
    });
  const palette = async (words: string, label = words) => {
    await page.keyboard.press('Control+k');
    await page.getByPlaceholder('Pages, connections, functions…').fill(words);
    await page
      .getByRole('button', { name: new RegExp(`^${label}`) })
      .first()
      .click();
    await page.getByRole('heading', { level: 1, name: label }).waitFor();
  };

  test('unsaved edits of one connection are not shown on the next one', async () => {
    await open('/connections/key/bob?tab=settings');
    await page.getByText('"kept_for": "bob"').waitFor();
    await palette('alice');
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.getByText('"kept_for": "alice"').waitFor();
    await press('Edit');
    await press('Edit tags');
    await palette('bob');
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.getByText('"kept_for": "bob"').waitFor();
    await page.getByText('of: bob').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Save' }).count(), 0);
  });

  test('a user whose edit would replace that of another user sees this, and can discard it', async () => {
    await open('/connections/key/bob?tab=settings');
    await page.getByText('"kept_for": "bob"').waitFor();
    await press('Edit');
    await page.getByLabel('Metadata as JSON').fill('{"mine": 1}');
    await press('Edit tags');
    const of = { provider_config_key: 'key', connection_id: 'bob' };
    await stored('POST', '/connections/metadata', { ...of, metadata: { theirs: 2 } });
    await page.getByText('The metadata changed after you opened this form').waitFor();
    await assertAccessible(page);
    await picture(page, 'edit-changed-meanwhile');
    assert.equal(await page.getByText('The tags changed after you opened this form').count(), 0);
    assert.equal(await page.getByLabel('Metadata as JSON').inputValue(), '{"mine": 1}');
    await press('Discard my changes');
    await page.getByText('"theirs": 2').waitFor();
    await stored('POST', '/connections/metadata', { ...of, metadata: { kept_for: 'bob' } });

    await open('/integrations/of/key?tab=settings');
    await page.getByLabel('Display name').fill('Mine');
    await stored('PATCH', '/integrations/key', { display_name: 'Theirs' });
    await page.getByText('The integration changed after you opened this form').waitFor();
    assert.equal(await page.getByLabel('Display name').inputValue(), 'Mine');
    await press('Discard my changes');
    await page.getByRole('heading', { level: 1, name: 'Theirs' }).waitFor();
    assert.equal(await page.getByLabel('Display name').inputValue(), 'Theirs');
    // Without input, the form shows the change.
    await stored('PATCH', '/integrations/key', { display_name: 'Key' });
    await page.getByRole('heading', { level: 1, name: 'Key' }).waitFor();
    assert.equal(await page.getByLabel('Display name').inputValue(), 'Key');
  });

  test('a save that would replace an unseen change of another tab shows it first', async () => {
    const connect = async (change: object) =>
      (
        (await stored('PATCH', '/environment/settings', { connect: change })).data as {
          connect: { app_name: string };
        }
      ).connect.app_name;
    await open('/settings?tab=connect-page');
    const name = page.getByLabel('Name of your application');
    await name.fill('Mine');
    await connect({ app_name: 'Theirs' });
    await press('Save');
    await page.getByText('The brand changed after you opened this form').waitFor();
    assert.equal(await connect({}), 'Theirs');
    await press('Discard my changes');
    await waitUntilTrue(page, "document.querySelector('main input').value === 'Theirs'");
    await name.fill('Mine');
    await press('Save');
    await page.getByText('Saved. New connect pages use this brand.').waitFor();
    assert.equal(await connect({}), 'Mine');
    await connect({ app_name: null });
  });

  test('a refusal at the consent page is shown on Getting started, with the link to connect again', async () => {
    dashboard.expectComplaint(/oauth\/callback.*status of 400/);
    await page.goto(`${dashboard.trellis.baseUrl}/app/prod/getting-started`);
    const connect = await popupBy(page.context(), () => press('Start with the sandbox'));
    await deny(
      await popupBy(page.context(), () =>
        connect.getByRole('button', { name: /^Continue to Google/ }).click(),
      ),
    );
    await page.getByText('Access was declined at the provider.').waitFor();
    await page.getByRole('link', { name: 'Open the connect link' }).waitFor();
    assert.equal(await page.getByText('Waiting for the account').count(), 0);
    await picture(page, 'getting-started-refused');
    await connect.close();
  });

  test('while the service cannot be reached a bar says so, the input is kept, and the data come back', async () => {
    const bar = page.getByText('The service does not respond. Your input is kept');
    await open('/connections/key/alice?tab=settings');
    await press('Edit');
    await page.getByLabel('Metadata as JSON').fill('{"typed": 1}');
    assert.equal(await bar.count(), 0);
    await page.route('**/*', (route) => route.abort());
    await bar.waitFor();
    await picture(page, 'service-unreachable');
    await page.unroute('**/*');
    await bar.waitFor({ state: 'detached' });
    assert.equal(await page.getByLabel('Metadata as JSON').inputValue(), '{"typed": 1}');
    await page.context().setOffline(true);
    await bar.waitFor();
    await page.context().setOffline(false);
    await bar.waitFor({ state: 'detached' });
    await press('Save');
    await page.getByText('"typed": 1').waitFor();
    await stored('POST', '/connections/metadata', {
      provider_config_key: 'key',
      connection_id: 'alice',
      metadata: { kept_for: 'alice' },
    });
  });

  test('before the style sheet is loaded the frame of the page is painted, and then gives way to the page', async () => {
    const release = await holdCalls(page, '**/*.css');
    await page.goto(`${dashboard.trellis.baseUrl}/app/dev/connections`, { waitUntil: 'commit' });
    const isPainted = "performance.getEntriesByName('first-paint').length > 0";
    await waitUntilTrue(page, isPainted);
    assert.equal(await page.locator('.shell').isVisible(), true);
    await release();
    await page.getByText('1 to 2 of 2').waitFor();
    assert.equal(await page.locator('.shell').isVisible(), false);
  });

  test('the first rows of a list are shown before the code of the dashboard is loaded', async () => {
    for (const [path, row] of [
      ['connections', 'alice'],
      ['activity', 'records.save'],
      ['home', 'active'],
    ] as const) {
      const release = await holdCalls(page, '**/assets/*.js');
      await page.goto(`${dashboard.trellis.baseUrl}/app/dev/${path}`, { waitUntil: 'commit' });
      await page.locator('.shell-rows li', { hasText: row }).first().waitFor();
      assert.equal(await page.getByRole('main').count(), 0);
      await release();
      await page.getByRole('main').getByRole('heading', { level: 1 }).waitFor();
      assert.equal(await page.locator('.shell').isVisible(), false);
    }
  });

  test('the Back button while the code is loaded shows no rows of the former environment', async () => {
    const { baseUrl } = dashboard.trellis;
    const rowsIn = (environment: string) => `${baseUrl}/app/${environment}/connections`;
    await page.goto(rowsIn('prod'));
    // An earlier test may have added an integration there.
    await page.getByText(/^(Add an integration first|No connection yet)$/).waitFor();
    await page.getByRole('button', { name: 'Environment: prod' }).click();
    await page.getByRole('menuitem', { name: 'dev' }).click();
    await page.waitForURL(rowsIn('dev'));
    const release = await holdCalls(page, '**/assets/*.js');
    await page.reload({ waitUntil: 'commit' });
    await page.locator('.shell-rows li', { hasText: 'alice' }).waitFor();
    await page.goBack({ waitUntil: 'commit' });
    await page.waitForURL(rowsIn('prod'), { waitUntil: 'commit' });
    await release();
    const main = page.getByRole('main');
    await main
      .getByText(/^(alice|Add an integration first|No connection yet)$/)
      .first()
      .waitFor();
    assert.equal(await main.getByText('alice').count(), 0);
  });

  test('lists are compressed for the dashboard, and not for keys', async () => {
    const of = { provider_config_key: 'key', connection_id: 'alice' };
    await stored('POST', '/connections/metadata', { ...of, metadata: { long: 'x'.repeat(2_000) } });
    const [response] = await Promise.all([
      page.waitForResponse((one) => one.url().includes('/connections?')),
      open('/connections'),
    ]);
    assert.equal(response.headers()['content-encoding'], 'gzip');
    assert.match(String(response.headers().vary), /accept-encoding/i);
    const { headers: ofKey } = await dashboard.trellis.call('GET', '/connections');
    assert.equal(ofKey.get('content-encoding'), null);
    await stored('POST', '/connections/metadata', { ...of, metadata: { kept_for: 'alice' } });
  });

  test('settings of one dataset are not shown as those of another, and saving one changes no other', async () => {
    const change = { mass_delete: { share: 0.123456, number: 7 }, ignore_fields: ['of_two'] };
    const path = '/records/datasets';
    const set = await dashboard.trellis.call('PATCH', path, { headers, body: { model: 'Two', ...change } });
    assert.equal(set.status, 200, set.text);
    await open('/records/of/key/alice/One?tab=settings');
    await page.getByRole('switch').waitFor();
    await open('/records/of/key/alice/Two?tab=settings');
    await page.getByText('of_two').waitFor();
    await page.getByRole('switch').click({ force: true });
    await press('Save');
    await page.getByText('The settings are saved.').waitFor();
    const { body } = await dashboard.trellis.call('GET', path, { headers });
    const two = (body.datasets as Record<string, unknown>[]).find(({ model }) => model === 'Two');
    assert.deepEqual([two?.keep_previous, two?.mass_delete], [true, change.mass_delete]);
    await palette('alice', 'One');
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.getByRole('switch').waitFor();
    assert.equal(await page.getByText('of_two').count(), 0);
  });

  test('a search that is typed slowly keeps the focus, and loses no letter', async () => {
    await open('/connections');
    await page.getByText('1 to 2 of 2').waitFor();
    const field = page.getByLabel('Search connections');
    await field.focus();
    for (const at of [1, 2, 3]) {
      await page.keyboard.type('ali'.charAt(at - 1));
      await page.waitForURL(new RegExp(`search=${'ali'.slice(0, at)}$`));
    }
    assert.equal(await field.inputValue(), 'ali');
    assert.ok(await field.evaluate((input) => input === input.ownerDocument.activeElement));
    await page.getByText('1 to 1 of 1').waitFor();
    await field.fill('nobody');
    await press('Show all');
    await page.getByText('1 to 2 of 2').waitFor();
    assert.equal(await field.inputValue(), '');
  });

  test('two who add variables at the same time keep both', async () => {
    const other = await dashboard.openAs('owner');
    await stored('PUT', '/environment-variables', { variables: [{ name: 'FIRST', value: '1' }] });
    const both = [page, other.page];
    for (const one of both) {
      await one.goto(`${dashboard.trellis.baseUrl}/app/dev/settings?tab=variables`);
      await one.getByRole('cell', { name: 'FIRST', exact: true }).waitFor();
    }
    for (const [index, one] of both.entries()) {
      await one.getByRole('button', { name: 'Add a variable' }).click();
      await one.getByRole('textbox', { name: 'Name' }).fill(`OF_${index}`);
      await one.getByRole('textbox', { name: 'Value' }).fill(String(index));
      await one.getByRole('button', { name: 'Save' }).click();
      await one.getByRole('cell', { name: `OF_${index}`, exact: true }).waitFor();
    }
    const { text } = await dashboard.trellis.call('GET', '/environment-variables');
    assert.deepEqual(
      (JSON.parse(text) as { name: string }[]).map(({ name }) => name),
      ['FIRST', 'OF_0', 'OF_1'],
    );
    await other.context.close();
  });

  test('a key loses no scope unasked: one that may do more than the user is narrowed by a click, or left', async () => {
    const scopes = ['*'];
    const { data } = await stored('POST', '/environment/api-keys', { name: 'wide', scopes });
    const wide = data as { id: number; secret: string };
    dashboard.trellis.watch.made('key', wide.secret);
    await open('/settings?tab=keys');
    await page.getByRole('button', { name: 'Actions for wide', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Edit' }).click();
    await page.getByText('This key has scopes that you cannot grant').waitFor();
    await page.getByRole('textbox', { name: 'Name' }).fill('renamed');
    const submit = page.getByRole('button', { name: 'Save' });
    assert.equal(await submit.isDisabled(), true);
    await press('Reduce to my scopes');
    await page.getByRole('checkbox', { name: 'records:read' }).waitFor();
    await submit.click();
    await page.getByRole('cell').filter({ hasText: 'renamed' }).waitFor();
    const listed = (await stored('GET', '/environment/api-keys')).data as { id: number; scopes: string[] }[];
    const narrowed = listed.find(({ id }) => id === wide.id)?.scopes ?? [];
    assert.ok(narrowed.includes('records:read') && !narrowed.includes('*'));
  });

  test('a change of a key sends only changed fields, so that its expiry is kept to the second', async () => {
    const ends = new Date(Math.floor(Date.now() / 60_000) * 60_000 + 90_000_000 + 17_000).toISOString();
    const { data } = await stored('POST', '/environment/api-keys', {
      name: 'ending',
      scopes: ['records:read'],
      expires_at: ends,
    });
    const { id, secret } = data as { id: number; secret: string };
    dashboard.trellis.watch.made('key', secret);
    await open('/settings?tab=keys');
    await page.getByRole('button', { name: 'Actions for ending', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Edit' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill('ending later');
    await press('Save');
    await page.getByRole('cell').filter({ hasText: 'ending later' }).waitFor();
    const listed = (await stored('GET', '/environment/api-keys')).data as {
      id: number;
      expires_at: string;
    }[];
    assert.equal(listed.find((key) => key.id === id)?.expires_at, ends);
  });

  test('a deletion is possible only after its extent is loaded', async () => {
    await page.route('**/records/datasets*', (route) => route.fulfill({ status: 503, body: '' }));
    await open('/connections/key/alice?tab=settings');
    await press('Delete');
    await page.getByRole('dialog').getByRole('button', { name: 'Try again' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Delete permanently' }).isDisabled(), true);
    await page.unroute('**/records/datasets*');
    await page.getByRole('dialog').getByRole('button', { name: 'Try again' }).click();
    await page.getByText('4 cached records in 2 datasets').waitFor();
    await press('Cancel');
  });

  test('ten thousand integrations are drawn in parts, and found by a search', async () => {
    await dashboard.trellis.db.query(
      `insert into integration (environment_id, key, provider, display_name, integration_config, proxy_rules)
       select environment_id, 'many-' || n, provider, 'Many ' || n, integration_config, proxy_rules
       from integration, generate_series(1, 10000) as n
       where key = 'key'`,
    );
    await open('/integrations');
    await page.getByText('1 to 60 of 10,001').waitFor();
    assert.equal(await page.locator('main a.fill-link').count(), 60);
    await page.getByLabel('Search integrations').fill('many-4711');
    await page.getByText('1 to 60 of 10,001').waitFor({ state: 'detached' });
    assert.equal(await page.locator('main a.fill-link').count(), 1);
    await page.keyboard.press('Control+k');
    await page.getByPlaceholder('Pages, connections, functions…').fill('many-4');
    await page
      .getByRole('button', { name: /many-4/ })
      .first()
      .waitFor();
    assert.equal(await page.getByRole('dialog').getByRole('button', { name: /many-/ }).count(), 8);
    await page.keyboard.press('Escape');
  });

  test('a page whose code an upgrade removed is reloaded, once', async () => {
    await open('/connections');
    await page.getByText('1 to 2 of 2').waitFor();
    let refused = 0;
    let loads = 0;
    page.on('load', () => {
      loads += 1;
    });
    await page.route('**/assets/ActivityPage-*', (route) => {
      refused += 1;
      return refused === 1 ? route.fulfill({ status: 404, body: '' }) : route.continue();
    });
    await page.getByRole('link', { name: 'Activity' }).click();
    await page.getByRole('heading', { level: 1, name: 'Activity' }).waitFor();
    assert.deepEqual([refused, loads], [2, 1]);
    await page.unroute('**/assets/ActivityPage-*');
  });

  test('a user who is invited by email sets no password if there is an OpenID provider', async () => {
    const email = 'grace@example.com';
    const body = { role: 'viewer', environments: ['dev'], email };
    const invited = await owner.call('POST', '/users/invitations', { body });
    const { page: guest, context } = await dashboard.openAsNobody();
    issuer.next = { sub: 'grace', email, email_verified: true, name: 'Grace Hopper' };
    await guest.goto((invited.body.data as { link: string }).link);
    await guest.getByText(`Sign in as ${email}`).waitFor();
    await assertAccessible(guest);
    await guest.getByRole('button', { name: 'Continue with Example' }).click();
    await guest.getByRole('heading', { level: 1, name: 'Home' }).waitFor();
    await guest.getByRole('button', { name: 'Your account' }).click();
    await guest.getByRole('menu').getByText('Grace Hopper').waitFor();
    await context.close();
  });

  test('a user without an environment sees this, and can sign out', async () => {
    const { data } = (await owner.call('GET', '/users')).body as { data: { id: string; email: string }[] };
    const grace = data.find(({ email }) => email === 'grace@example.com');
    const only = { role: 'viewer', environments: ['passing'] };
    for (const [method, path, body] of [
      ['POST', '/environments', { name: 'passing' }],
      ['PATCH', `/users/${grace?.id}`, only],
      ['DELETE', '/environments/passing', undefined],
    ] as const) {
      const answer = await owner.call(method, path, { body });
      assert.ok(answer.status < 300, answer.text);
    }
    const { page: guest, context } = await dashboard.openAsNobody();
    issuer.next = { sub: 'grace', email: grace?.email, email_verified: true, name: 'Grace Hopper' };
    await guest.goto(`${dashboard.trellis.baseUrl}/app`);
    await guest.getByRole('button', { name: 'Sign in with Example' }).click();
    await guest.getByRole('heading', { level: 1, name: 'You have no environment' }).waitFor();
    await picture(guest, 'no-environment');
    await guest.getByRole('button', { name: 'Sign out' }).click();
    await guest.getByRole('heading', { level: 1, name: 'Sign in to Trellis' }).waitFor();
    await context.close();
  });

  test('a failed sign-out is reported, and shows no sign-in page', async () => {
    await open('/connections');
    await page.route('**/api/auth/sign-out', (route) => route.fulfill({ status: 500, body: '' }));
    await press('Your account');
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByText('You are still signed in').waitFor();
    assert.doesNotMatch(page.url(), /sign-in/);
    await page.unroute('**/api/auth/sign-out');
  });
});
