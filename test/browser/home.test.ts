// The first page of an operator: what does not work, and the way to it.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { bucketOf } from '../../server/activity/tally.ts';
import { skipBrowser } from '../support/browser.ts';
import { holdCalls, openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { connect, type TestTrellis } from '../support/trellis.ts';

describe('the home page', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let trellis: TestTrellis;
  let page: Page;

  before(async () => {
    dashboard = await openDashboard();
    ({ trellis } = dashboard);
    ({ page } = await dashboard.openAs('viewer'));
  });
  after(() => dashboard?.close());

  const open = (path = '') => page.goto(`${trellis.baseUrl}/app${path}`);
  const heading = (name: string) => page.getByRole('heading', { name, exact: true }).waitFor();
  const figure = (name: string) => page.getByRole('main').getByRole('link', { name, exact: true });
  const navigation = () => page.getByRole('navigation', { name: 'Pages' });

  test('an environment without connections opens at its first steps', async () => {
    await open();
    await page.waitForURL(/\/dev\/getting-started$/);
    await navigation().getByRole('img', { name: '5 left' }).waitFor();
  });

  test('a step that was done on another page is counted on the next one', async () => {
    await navigation().getByRole('link', { name: 'Integrations' }).click();
    await heading('Integrations');
    await trellis.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-drive', integration_id: 'drive' },
    });
    await navigation().getByRole('link', { name: 'Connections' }).click();
    await navigation().getByRole('img', { name: '4 left' }).waitFor();
    await trellis.call('DELETE', '/integrations/drive');
  });

  test('the steps of a provider without an HTTP API are about its credentials', async () => {
    const { call } = trellis;
    await call('POST', '/integrations', { body: { provider: 'postgres', unique_key: 'warehouse' } });
    const imported = await call('POST', '/connections', {
      body: {
        provider_config_key: 'warehouse',
        connection_id: 'db',
        credentials: { type: 'BASIC', username: 'ada', password: 'password-of-the-database' },
        connection_config: { host: 'db.example.com', database: 'sales' },
      },
    });
    assert.equal(imported.status, 201, imported.text);
    await open('/dev/getting-started');
    await page.getByText('2 of 5', { exact: true }).waitFor();
    await heading('Read the credentials');
    await page.getByText('/connections/db?integration_id=warehouse').first().waitFor();
    await picture(page, 'getting-started-credentials');
    assert.equal((await call('GET', '/connections/db?provider_config_key=warehouse')).status, 200);
    await page.getByText('3 of 5', { exact: true }).waitFor();
    await call('DELETE', '/connections/db?provider_config_key=warehouse');
    await call('DELETE', '/integrations/warehouse');
  });

  test('with a connection the first page is the home page, which names the steps that are left', async () => {
    const { headers, connectionId } = await connect(trellis);
    await connect(trellis, { account: 'grace@example.com' });
    // An application that reads credentials has not called the provider.
    const ofConnection = `/connections/${connectionId}?provider_config_key=google-sheet`;
    while ((await trellis.call('GET', ofConnection)).body.last_used_at === null) await pause(100);
    await open('/dev/getting-started');
    await page.getByText('2 of 5', { exact: true }).waitFor();
    await navigation().getByRole('img', { name: '3 left' }).waitFor();
    for (const path of ['/v4/spreadsheets/none', '/drive/v3/about']) {
      await trellis.call('GET', `/proxy${path}`, { headers });
    }
    assert.equal((await trellis.call('POST', '/proxy/v4/spreadsheets', { headers, body: {} })).status, 200);
    await open();
    await page.waitForURL(/\/dev\/home$/);
    await figure('Active connections: 2').waitFor();
    // The call of another API has shown that the grant lacks its scope.
    const problems = page.getByRole('region', { name: 'Needs attention' });
    await problems.getByRole('link', { name: '1 with missing scopes' }).click();
    await page.getByRole('link', { name: 'ada@example.com' }).waitFor();
    assert.equal(await page.getByRole('link', { name: 'grace@example.com' }).count(), 0);
    await trellis.db.query('update connection set lacks_scopes = false');
    await open('/dev/home');
    await page.getByText('Everything works.').waitFor();
    await page.getByText(/^2 steps of/).waitFor();
    await page.getByText(/left: .*prune records\.$/).waitFor();
    assert.equal(
      await navigation()
        .getByRole('img', { name: /reconnect|failing|errors/ })
        .count(),
      0,
    );
  });

  test('the page names the connections that are not verified, also beside problems', async () => {
    const { db } = trellis;
    await db.query("update connection set is_unverified = true where account_email = 'grace@example.com'");
    await open('/dev/home');
    await page.getByText('Nothing fails.').waitFor();
    assert.equal(await page.getByText('Everything works.').count(), 0);
    await picture(page, 'home-unverified');
    await page.getByRole('link', { name: '1 connection is not verified' }).click();
    await page.getByRole('link', { name: 'grace@example.com' }).waitFor();
    assert.equal(await page.getByRole('link', { name: 'ada@example.com' }).count(), 0);
    await db.query("update connection set lacks_scopes = true where account_email = 'ada@example.com'");
    await open('/dev/home');
    await page.getByRole('link', { name: '1 with missing scopes' }).waitFor();
    await page.getByRole('link', { name: '1 connection is not verified' }).waitFor();
    await db.query('update connection set is_unverified = false, lacks_scopes = false');
    await open('/dev/home');
    await page.getByText('Everything works.').waitFor();
  });

  test('the charts show the proxied calls of a day and of two weeks, and lead to them', async () => {
    const { db } = trellis;
    const before = (durationMs: number) => Array<number>(bucketOf(durationMs)).fill(0);
    await db.query(
      `insert into operation_count
         (environment_id, span_s, begins_at, type, status, integration, target, variant, count, histogram)
       select id, 3600, at, 'proxy', status, 'google-sheet', '', '', count, case
         when status = 'failed' then $1::integer[] || count
         else $2::integer[] || count || $3::integer[] || count / 9
       end
       from environment
       cross join generate_series(
         date_trunc('day', now(), 'UTC') - interval '13 days', now() - interval '1 hour', interval '1 hour'
       ) as at
       cross join unnest(array['success', 'failed']) as status
       cross join lateral (
         select case status
           when 'failed' then extract(day from at)::integer % 3
           else 90 + extract(day from at)::integer * 4 + 8 * abs(12 - extract(hour from at)::integer)
         end as count
       ) as counted
       where name = 'dev'`,
      [before(900), before(120), before(480).slice(bucketOf(120) + 1)],
    );
    await db.query(
      `insert into operation_count
         (environment_id, span_s, begins_at, type, status, integration, target, variant, count, histogram)
       select
         environment_id, 86400, date_trunc('day', begins_at, 'UTC'), type, status, integration, target, variant,
         sum(count), max(histogram)
       from operation_count
       where span_s = 3600 and integration = 'google-sheet' and begins_at < date_trunc('day', now(), 'UTC')
       group by 1, 2, 3, 4, 5, 6, 7, 8`,
    );
    await page.reload();
    const calls = page.getByRole('region', { name: 'Proxied calls' });
    await calls.getByRole('img', { name: /The number of operations/ }).waitFor();
    await calls.getByText('p50 (median)').waitFor();
    await calls.getByText(/^p50 \d+ ms, p95 \d+ ms$/).waitFor();
    const countOf = async () => (await calls.getByRole('link', { name: /calls$/ }).textContent()) ?? '';
    const ofDay = await countOf();
    await calls.getByText('14 days').click();
    await page.waitForURL(/\?span=14/);
    await calls.getByRole('link', { name: ofDay, exact: true }).waitFor({ state: 'detached' });
    await calls.getByRole('img', { name: /The durations p50 \(median\) and p95/ }).waitFor();
    await picture(page, 'home');
    const all = await countOf();
    await calls.getByRole('link', { name: / failed/ }).click();
    await heading('Activity');
    const { searchParams } = new URL(page.url());
    assert.deepEqual([searchParams.get('type'), searchParams.get('status')], ['proxy', 'failed']);
    await page.goBack();
    // Back at the range that was chosen.
    await calls.getByRole('link', { name: all, exact: true }).click();
    await page.getByText(`${all.replace(/ calls$/, '')} operations`).waitFor();
  });

  test('problems are counted on the page and in the navigation, and each number leads to its list', async () => {
    const { db } = trellis;
    await db.query(
      `with bundle as (
         insert into function_bundle (environment_id, digest, code, touched_at)
         select environment_id, '\\x01', '\\x02', now() from integration
         returning id
       ), made as (
         insert into function (environment_id, integration_id, kind, name, origin)
         select environment_id, id, 'sync', 'rows', 'deploy' from integration
         returning id
       )
       insert into function_version (function_id, number, label, bundle_id, definition, deployed_at, deployed_by)
       select made.id, 1, '1.0.0', bundle.id, $1::jsonb, now(), 'key:1' from made cross join bundle`,
      [
        JSON.stringify({
          description: 'Saves rows.',
          scopes: [],
          metadata: null,
          checkpoint: null,
          input: null,
          output: null,
          models: ['Row'],
          models_json_schema: { definitions: { Row: { type: 'object' } } },
          frequency: 'every hour',
          frequency_s: 3600,
          auto_start: false,
          track_deletes: false,
          webhook_subscriptions: [],
        }),
      ],
    );
    await db.query('update function set version_id = (select max(id) from function_version)');
    await db.query(
      `insert into sync (function_id, connection_id, failures)
       select function.id, connection.id, 3 from function cross join connection`,
    );
    await db.query(
      `update connection
       set status = 'needs_reauth',
         fault = '{"cause":"grant_revoked","evidence":{},"since":"2026-01-01T00:00:00Z","next_step":"Reconnect."}'
       where account_email = 'grace@example.com'`,
    );
    await db.query(
      `update integration
       set fault = jsonb_build_object(
         'cause', 'client_refused', 'evidence', '{}'::jsonb, 'since', now(), 'next_step', 'Check the client secret.'
       )`,
    );
    await db.query(
      `insert into endpoint (environment_id, kind, url, failures, failing_since, open_until)
       select id, 'events', 'https://' || name || '.app.example/hook', 7, now() - interval '3 hours', now() + interval '1 hour'
       from environment`,
    );
    await open('/dev/home');
    await figure('Reconnect needed: 1').waitFor();
    for (const name of ['1 with errors', '1 reconnect needed', '2 failing', '1 failing']) {
      await navigation().getByRole('img', { name, exact: true }).waitFor();
    }
    const problems = page.getByRole('region', { name: 'Needs attention' });
    await problems.getByRole('link', { name: 'rows of google-sheet: fails for 2 connections' }).waitFor();
    await problems.getByRole('link', { name: 'dev.app.example: 7 failed attempts' }).waitFor();
    await picture(page, 'home-problems');

    // By the keyboard.
    await figure('Reconnect needed: 1').focus();
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'grace@example.com' }).waitFor();
    assert.equal(await page.getByRole('link', { name: 'ada@example.com' }).count(), 0);
    await page.keyboard.press('g');
    await page.keyboard.press('h');
    await figure('Blocked connections: 0').waitFor();

    // By the mouse.
    await figure('Failing syncs: 2').click();
    await page.getByText('2 in all: 2 failing').waitFor();
    await page.getByRole('link', { name: 'rows of google-sheet' }).first().waitFor();
    await picture(page, 'syncs');
    await page.goBack();
    await figure('Failing endpoints: 1').click();
    await page.getByText('Only endpoints that fail.').waitFor();
    await page.getByRole('article', { name: 'https://dev.app.example/hook' }).waitFor();
    await page.goBack();
    await figure('Integration errors: 1').click();
    await page.getByText('Only integrations with an error.').waitFor();
    await page.getByText('OAuth client rejected').waitFor();
    await page.getByRole('button', { name: 'Show all' }).click();
    await page.waitForURL(/\/integrations$/);
    await open('/dev/home');
    await problems.getByRole('link', { name: 'rows of google-sheet: fails for 2 connections' }).click();
    await page.waitForURL(/\/functions\/of\/google-sheet\/sync\/rows\?tab=syncs&is=failing/);
  });

  test('while figures load the page reserves their space, and a refusal can be tried again', async () => {
    dashboard.expectComplaint(/status of 403/);
    const release = await holdCalls(page, '**/environment/health');
    await open('/dev/home');
    await heading('Home');
    await page.getByRole('status', { name: 'Loading' }).first().waitFor();
    await picture(page, 'home-loading');
    await release();
    await figure('Active connections: 1').waitFor();
    await page.route('**/environment/health', (route) =>
      route.fulfill({
        status: 403,
        headers: { 'content-type': 'application/json', 'x-request-id': 'req-4711' },
        body: '{"error":{"code":"forbidden","message":"The service has refused."}}',
      }),
    );
    await page.reload();
    const alert = page.getByRole('alert').filter({ hasText: 'The service has refused.' });
    await alert.getByText('forbidden · req-4711').waitFor();
    await page.unroute('**/environment/health');
    await alert.getByRole('button', { name: 'Try again' }).click();
    await figure('Active connections: 1').waitFor();
  });
});

test('a proxied call completes its step of Getting started, also without an activity log', {
  skip: skipBrowser,
}, async () => {
  const dashboard = await openDashboard({ TRELLIS_ACTIVITY: 'off' });
  try {
    const { headers } = await connect(dashboard.trellis);
    const { page } = await dashboard.openAs('viewer');
    await page.goto(`${dashboard.trellis.baseUrl}/app/dev/getting-started`);
    await page.getByText('2 of 5', { exact: true }).waitFor();
    await dashboard.trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers });
    await page.getByText('3 of 5', { exact: true }).waitFor();
  } finally {
    await dashboard.close();
  }
});
