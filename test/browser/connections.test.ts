// Connections in the dashboard: found among ten thousand, viewed, repaired, changed and deleted.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { exported, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect } from '../support/trellis.ts';

describe('connections in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let connectionId: string;
  let headers: Record<string, string>;

  before(async () => {
    dashboard = await openDashboard();
    // A refresh that is refused, a look at what was just deleted, and a deletion of what is deleted already.
    dashboard.expectComplaint(/424|404|400/);
    ({ page } = await dashboard.openAs('developer'));
    ({ connectionId, headers } = await connect(dashboard.trellis, {
      allow: ['openid', 'email', 'https://www.googleapis.com/auth/spreadsheets'],
    }));
  });
  after(() => dashboard?.close());

  const open = (path: string) => page.goto(`${dashboard.trellis.baseUrl}/app/dev${path}`);
  const health = async () =>
    (await dashboard.trellis.call('GET', `/connections/${connectionId}?provider_config_key=google-sheet`))
      .body as {
      tags: object;
      metadata: object;
      token: { refreshed_at: string; expires_at: string };
      last_used_at: string | null;
    };

  test('one shows its token as a bar, and refreshes it on demand', async () => {
    await dashboard.trellis.advance(1800);
    await open(`/connections/google-sheet/${connectionId}?tab=authorization`);
    await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
    await page.getByRole('progressbar', { name: /percent of its life left/ }).waitFor();
    const before = (await health()).token;
    await page.getByRole('button', { name: 'Refresh now' }).click();
    await page.getByText('The credentials are refreshed.').waitFor();
    assert.ok((await health()).token.expires_at > before.expires_at);
    await picture(page, 'connection-authorization');
  });

  test('its tabs are reached by keyboard, and each has an address', async () => {
    await page.getByRole('tab', { name: 'Authorization' }).focus();
    for (const name of ['Syncs', 'Records', 'Activity', 'Settings', 'Overview']) {
      await page.keyboard.press('ArrowRight');
      await page.getByRole('tab', { name, selected: true }).and(page.locator(':focus')).waitFor();
      const tab = name === 'Overview' ? null : name.toLowerCase();
      await page.waitForURL((url) => url.searchParams.get('tab') === tab);
    }
    await page.goBack();
    await page.getByRole('tab', { name: 'Settings', selected: true }).waitFor();
  });

  test('tags and metadata are edited as a whole', async () => {
    await page.getByRole('button', { name: 'Edit tags' }).click();
    await page.getByRole('tab', { name: 'Settings', selected: true }).waitFor();
    const count = await page.getByLabel(/Name of tag/).count();
    if (count > 1 || (await page.getByLabel('Name of tag 1').inputValue()) !== '')
      await page.getByRole('button', { name: 'Add a tag' }).click();
    const last = await page.getByLabel(/Name of tag/).count();
    await page.getByLabel(`Name of tag ${last}`).fill('Plan');
    await page.getByLabel(`Value of tag ${last}`).fill('team');
    await picture(page, 'connection-edit-tags');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('plan: team').waitFor();
    assert.equal((await health()).tags['plan' as never], 'team');
    await page.getByRole('button', { name: 'Edit', exact: true }).click();
    await page.getByLabel('Metadata as JSON').fill('{"plan": ');
    await page.getByText('Enter a JSON object.').waitFor();
    await page.getByLabel('Metadata as JSON').fill('{"plan": "team"}');
    await page.getByRole('button', { name: 'Save' }).click();
    // Not what is being typed, which holds the same words.
    await page.locator('pre', { hasText: '"plan": "team"' }).waitFor();
    assert.deepEqual((await health()).metadata, { plan: 'team' });
  });

  test('the page of a connection shows its activity and its records', async () => {
    await dashboard.trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers });
    await dashboard.trellis.call('POST', '/records', {
      headers,
      body: {
        model: 'City',
        records: [
          { id: 7, city: 'Oslo' },
          { id: 8, city: 'Rome' },
        ],
      },
    });
    // The address of the former page of its datasets.
    await open(`/records/of/google-sheet/${connectionId}`);
    await page.waitForURL(/\/connections\/google-sheet\/.*tab=records/);
    await page.getByRole('cell', { name: /City/ }).first().waitFor();
    await picture(page, 'connection-records');
    await page.getByRole('tab', { name: 'Activity' }).click();
    await page
      .getByRole('link', { name: /proxy|spreadsheets/ })
      .first()
      .waitFor();
    await picture(page, 'connection-activity');
  });

  test('its timeline has what happened in one list, filtered by kind', async () => {
    await open(`/connections/google-sheet/${connectionId}`);
    const timeline = page.getByRole('list', { name: 'Timeline' });
    const entries = () => timeline.getByRole('listitem').allInnerTexts();
    await timeline.getByText('Token refreshed').waitFor();
    const [failed = '', refreshed = '', ...oldest] = await entries();
    assert.match(failed, /^Call failed\s+404 · GET \/v4\/spreadsheets\/none/);
    assert.match(refreshed, /^Token refreshed\s/);
    // Its event is shown only among events.
    assert.deepEqual(
      oldest.map((text) => text.split(/\s/)[0]),
      ['Connected'],
    );
    await picture(page, 'connection-used');
    await page.getByRole('combobox', { name: 'Kind' }).click();
    await page.getByRole('option', { name: 'Failures' }).click();
    await page.waitForURL(/kind=failures/);
    await timeline.getByText('Token refreshed').waitFor({ state: 'detached' });
    assert.equal((await entries()).length, 1);
    await page.reload();
    await timeline.getByText('404 · GET').waitFor();
    await timeline.getByRole('link', { name: 'Call failed' }).click();
    await page.getByRole('dialog', { name: 'Operation' }).waitFor();
    await page.goBack();
    await page.goto(page.url().replace('kind=failures', 'kind=events'));
    await timeline.getByRole('link', { name: 'Connection created' }).click();
    await page.waitForURL(/\/events\?tab=feed&type=connection.created/);
    await page.goBack();
  });

  test('its call as code is in the language that was last chosen on any page', async () => {
    await open(`/connections/google-sheet/${connectionId}`);
    const dialog = page.getByRole('dialog', { name: 'Call from your code' });
    await page.getByRole('button', { name: 'Code' }).click();
    await dialog.getByText('curl -g').waitFor();
    await dialog.getByLabel('Language').selectOption('Python');
    await dialog.getByText('/proxy/v4/spreadsheets/').waitFor();
    await picture(page, 'connection-code');
    await open('/integrations/of/google-sheet');
    await page.getByRole('button', { name: 'Code' }).click();
    await dialog.getByText('import urllib.request').waitFor();
    await dialog.getByText('/connect/sessions').waitFor();
  });

  test('its page leads to the playground, with the connection chosen', async () => {
    await open(`/connections/google-sheet/${connectionId}`);
    await page.getByRole('link', { name: 'Try a call' }).click();
    await page.getByRole('button', { name: "Read the first sheet's values" }).waitFor();
  });

  test('connect links are listed with their state, and an open one can be revoked', async () => {
    await dashboard.trellis.call('POST', '/connect/sessions', {
      body: { end_user: { id: 'eve', email: 'eve@example.com' } },
    });
    await open('/connections');
    await page.getByRole('link', { name: 'Connect links' }).click();
    const row = page.getByRole('row').filter({ hasText: 'eve@example.com' });
    await row.getByText('Open', { exact: true }).waitFor();
    await page.getByRole('row').filter({ hasText: 'View connection' }).getByText('Used').waitFor();
    await picture(page, 'connect-links');
    await row.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('The link is revoked.').waitFor();
    await row.waitFor({ state: 'detached' });
    await open(`/connections/google-sheet/${connectionId}`);
  });

  test('a connection that needs its user shows the cause, the next step and a link to copy', async () => {
    await dashboard.trellis.control('POST', 'faults', { case: 'refresh_revoked' });
    await page.getByRole('button', { name: 'Refresh now' }).click();
    await page.getByText('Not refreshed').waitFor();
    await page.getByText('Ask the user to connect again.').first().waitFor();
    await page.getByText('Reconnect needed').first().waitFor();
    await page.getByRole('button', { name: 'Check again' }).click();
    await page.getByText('Still rejected').waitFor();
    await page.getByRole('tab', { name: 'Authorization' }).click();
    await page.getByText('The token cannot be refreshed. Reconnect the account.').waitFor();
    await page.getByRole('button', { name: 'Reconnect' }).click();
    await page.getByText('The connection keeps its ID').waitFor();
    await page.getByRole('button', { name: 'Copy the link' }).click();
    const link = String(await page.evaluate('navigator.clipboard.readText()'));
    assert.match(link, /^http.*session_token=/);
    const mail = new URL(
      String(await page.getByRole('link', { name: 'E-mail this link' }).getAttribute('href')),
    );
    assert.equal(decodeURIComponent(mail.pathname), 'ada@example.com');
    assert.ok(mail.searchParams.get('body')?.includes(link));
    await picture(page, 'connection-reconnect');
    assert.equal(await page.getByRole('link', { name: 'Open' }).getAttribute('href'), link);
    await page.getByRole('button', { name: 'Done' }).click();
    await dashboard.trellis.control('DELETE', 'faults');
    await picture(page, 'connection-dead');
  });

  test('ten thousand connections are paged, filtered and searched by the service, with the filters in the URL', async () => {
    await dashboard.trellis.db.query(
      `insert into connection (environment_id, integration_id, connection_id, data_key, status, account_id, account_email,
         end_user, tags, created_at)
       select environment_id, integration_id, 'c' || n, gen_random_uuid(),
         case when n % 1000 = 7 then 'blocked' else 'active' end, 'account-' || n,
         'person' || n || '@example.com',
         jsonb_build_object('id', 'user-' || n),
         case when n <= 3 then '{"size":"large"}'::jsonb else '{}'::jsonb end, now() - n * interval '1 minute'
       from connection, generate_series(1, 9999) as n
       where connection_id = $1`,
      [connectionId],
    );
    await open('/connections');
    await page.getByText('1 to 50 of 10,000').waitFor();
    await picture(page, 'connections-many');
    assert.equal(await page.locator('tbody tr').count(), 50);
    await page.getByRole('button', { name: 'next page' }).click();
    await page.getByText('51 to 100 of 10,000').waitFor();
    await page.getByRole('button', { name: 'page 200' }).click();
    await page.getByText('9,951 to 10,000 of 10,000').waitFor();
    await page.getByText('person9999@example.com').waitFor();
    assert.match(page.url(), /page=199/);
    await page.reload();
    await page.getByText('person9999@example.com').waitFor();
    await page.getByLabel('Search connections').fill('user-4711');
    await page.getByText('1 to 1 of 1').waitFor();
    assert.match(page.url(), /search=user-4711/);
    assert.doesNotMatch(page.url(), /page=/);
    await page.getByLabel('Search connections').fill('');
    await page.getByRole('combobox', { name: 'Status' }).click();
    await page.getByRole('option', { name: 'Blocked' }).click();
    await page.getByText('1 to 10 of 10').waitFor();
    assert.match(page.url(), /status=blocked/);
    await page.getByRole('combobox', { name: 'Order' }).click();
    await page.getByRole('option', { name: 'Last used first' }).click();
    await page.waitForURL(/sort=last_used/);
    await page.getByLabel('Search connections').fill('nobody at all');
    await page.getByText('No match').waitFor();
    await page.getByRole('button', { name: 'Show all' }).click();
    await page.getByText('1 to 50 of 10,000').waitFor();
    await page.getByRole('textbox', { name: 'Tag' }).fill('size');
    await page.getByText('Write a tag as name=value.').waitFor();
    await page.getByRole('textbox', { name: 'Tag' }).fill('size = large');
    await page.getByText('1 to 3 of 3').waitFor();
    await page.getByRole('textbox', { name: 'Tag' }).fill('');
    await dashboard.trellis.db.query(
      `update connection set is_unverified = true where connection_id in ('c4', 'c5')`,
    );
    await page.getByRole('combobox', { name: 'Status' }).click();
    await page.getByRole('option', { name: 'Unverified' }).click();
    await page.getByText('1 to 2 of 2').waitFor();
    await page
      .getByRole('row', { name: /person4@example.com/ })
      .getByRole('cell', { name: 'Unverified', exact: true })
      .waitFor();
    assert.match(page.url(), /status=unverified/);
    await picture(page, 'connections-unverified');
    await page.getByRole('combobox', { name: 'Status' }).click();
    await page.getByRole('option', { name: 'Unverified' }).click();
    await page.getByRole('textbox', { name: 'Tag' }).fill('size = large');
    await page.getByText('1 to 3 of 3').waitFor();
    const some = await exported(page, 'NDJSON');
    assert.equal(some.name, 'connections.ndjson');
    assert.match(some.text, /"count":3\}/);
    await page.getByRole('textbox', { name: 'Tag' }).fill('');
    await page.getByText('1 to 50 of 10,000').waitFor();
    const { text } = await exported(page, 'CSV');
    assert.equal(text.split('\r\n').length, 10_002);
  });

  test('selected connections get reconnect links, have their syncs retried and are deleted together', async () => {
    const { trellis } = dashboard;
    const accounts = ['grace@example.com', 'linus@example.com', 'reader@example.com'];
    const made: string[] = [];
    for (const account of accounts) {
      await trellis.control('POST', 'accounts', { email: account }).catch(() => {});
      made.push((await connect(trellis, { account })).connectionId);
    }
    const select = async (...names: string[]) => {
      for (const name of names) await page.getByRole('checkbox', { name: `Select ${name}` }).check();
      await page.getByText(`${names.length} selected`).waitFor();
    };
    const close = () => page.getByRole('button', { name: 'Close', exact: true }).last().click();
    await open('/connections');
    await select(...accounts);
    await picture(page, 'connections-selected');
    await page.getByRole('button', { name: 'Create reconnect links' }).click();
    await page.getByRole('button', { name: 'Create links for 3 connections' }).click();
    await page.getByText('3 links created.').waitFor();
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('button', { name: 'Copy 3 links' }).click();
    const links = String(await page.evaluate('navigator.clipboard.readText()')).split('\n');
    assert.equal(links.length, 3);
    for (const link of links) assert.match(link, /^[a-z]+@example\.com http.*session_token=/);
    await picture(page, 'connections-links');
    await close();
    await page.getByText('3 selected').waitFor({ state: 'detached' });

    await select('linus@example.com');
    await page.getByRole('button', { name: 'Retry failed syncs' }).click();
    await page.getByRole('button', { name: 'Retry syncs of 1 connection' }).click();
    await page.getByText('0 syncs queued.').waitFor();
    await close();

    await page.getByRole('checkbox', { name: 'Select all connections of this page' }).check();
    await page.getByText('50 selected').waitFor();
    await page.getByRole('checkbox', { name: 'Select all connections of this page' }).uncheck();
    await select(...accounts);
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('heading', { name: 'Delete 3 connections?' }).waitFor();
    await picture(page, 'connections-delete');
    // Another user deletes one meanwhile.
    const other = `/connections/${made[1]}?provider_config_key=google-sheet`;
    assert.equal((await trellis.call('DELETE', other)).status, 200);
    await page.getByRole('button', { name: 'Delete 3 connections permanently' }).click();
    await page.getByText('2 connections deleted.').waitFor();
    await page.getByText('1 connection failed').waitFor();
    await page.getByText(/linus@example\.com: /).waitFor();
    await picture(page, 'connections-deleted');
    await close();
    await page.getByText('1 to 50 of 10,000').waitFor();
    for (const account of accounts)
      assert.equal(await page.getByRole('checkbox', { name: `Select ${account}` }).count(), 0);
  });

  test('a viewer sees it, and is offered nothing to change', async () => {
    const { page: viewer, person } = await dashboard.openAs('viewer');
    await viewer.goto(`${dashboard.trellis.baseUrl}/app/dev/connections`);
    await viewer.getByText('ada@example.com').waitFor();
    await viewer.getByText('for ada', { exact: true }).waitFor();
    assert.equal(await viewer.getByRole('checkbox').count(), 0);
    assert.equal(await viewer.getByRole('button', { name: 'Connect an account' }).count(), 0);
    await viewer.getByText('ada@example.com').click();
    await viewer.getByRole('heading', { name: 'ada@example.com' }).waitFor();
    await viewer.getByRole('tab', { name: 'Settings' }).click();
    await viewer.getByRole('heading', { name: 'Tags' }).waitFor();
    for (const name of ['Refresh now', 'Reconnect', 'Edit', 'Edit tags', 'Delete']) {
      assert.equal(await viewer.getByRole('button', { name, exact: true }).count(), 0, name);
    }
    const refused = await person.call(
      'POST',
      `/connections/${connectionId}/refresh?provider_config_key=google-sheet`,
      { environment: 'dev' },
    );
    assert.equal(refused.status, 403);
  });

  test('a deletion names what it deletes, and deletes it', async () => {
    await open(`/connections/google-sheet/${connectionId}?tab=settings`);
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByText('2 cached records in 1 dataset').waitFor();
    await picture(page, 'connection-delete');
    await page.getByRole('button', { name: 'Delete permanently' }).click();
    await page.getByText('1 to 50 of 9,999').waitFor();
    const { status } = await dashboard.trellis.call(
      'GET',
      `/connections/${connectionId}?provider_config_key=google-sheet`,
    );
    assert.ok(status >= 400);
  });

  test('a connection to a database shows what is true without an HTTP API', async () => {
    const { call } = dashboard.trellis;
    const body = { provider: 'postgres', unique_key: 'warehouse' };
    assert.equal((await call('POST', '/integrations', { body })).status, 200);
    const imported = await call('POST', '/connections', {
      body: {
        provider_config_key: 'warehouse',
        connection_id: 'db',
        credentials: { type: 'BASIC', username: 'ada', password: 'password-of-the-database' },
        connection_config: { host: 'db.example.com', port: '5433', database: 'sales' },
      },
    });
    assert.equal(imported.status, 201, imported.text);
    await open('/connections/warehouse/db');
    await page.getByText('PostgreSQL has no HTTP API, so Trellis cannot verify them.').waitFor();
    await picture(page, 'connection-unverified');
    assert.equal(await page.getByRole('button', { name: 'Refresh now' }).count(), 0);
    assert.equal(await page.getByRole('link', { name: 'Try a call' }).count(), 0);
    await page.getByRole('button', { name: 'Code', exact: true }).click();
    await page.getByText('Read the credentials').waitFor();
    await page.getByText('/connections/db?integration_id=warehouse').first().waitFor();
    assert.equal(await page.getByText('/proxy/').count(), 0);
  });

  test('the playground offers no connection without an HTTP API, and says why', async () => {
    await connect(dashboard.trellis);
    const imported = await dashboard.trellis.call('POST', '/connections', {
      body: {
        provider_config_key: 'warehouse',
        connection_id: 'newest',
        credentials: { type: 'BASIC', username: 'ada', password: 'password-of-the-database' },
        connection_config: { host: 'db.example.com', database: 'sales' },
      },
    });
    assert.equal(imported.status, 201, imported.text);
    await open('/playground');
    const connection = page.getByRole('combobox', { name: 'Connection' });
    await page.getByText('No response yet').waitFor();
    assert.match(await connection.inputValue(), / · google-sheet$/);
    await connection.click();
    const option = page.getByRole('option').filter({ hasText: 'newest' });
    await option.getByText('warehouse · has no HTTP API').waitFor();
    assert.equal(await option.getAttribute('data-combobox-disabled'), 'true');
    await open('/playground?integration=warehouse&connection=newest');
    await page.getByText('PostgreSQL has no HTTP API').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Send' }).count(), 0);
    await picture(page, 'playground-no-api');
    await page.getByRole('link', { name: 'its page' }).click();
    await page.waitForURL(/\/connections\/warehouse\/newest/);
  });
});
