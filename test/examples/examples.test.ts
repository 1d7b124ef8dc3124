// The examples, as somebody runs them who goes by their READMEs: see newcomer.ts.
// Slow: it starts services and a browser.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { BrowserContext, Page } from 'playwright-core';
import { root } from '../docs/blocks.ts';
import { skipBrowser } from '../support/browser.ts';
import { consent, popupBy } from '../support/connect-pages.ts';
import { picture } from '../support/dashboard.ts';
import { type Application, openApplication } from './application.ts';
import { type Newcomer, openNewcomer } from './newcomer.ts';
import { readmeOf } from './terminal.ts';

let newcomer: Newcomer;
before(async () => {
  newcomer = await openNewcomer();
});
after(() => newcomer?.close());

const payloads = async () => {
  const [row] = await newcomer.db.query<{ count: string }>('select count(*) from payload');
  return Number(row?.count);
};
const until = async (what: string, isSo: () => Promise<boolean>) => {
  for (let left = 400; left > 0; left -= 1) {
    if (await isSo()) return;
    await pause(50);
  }
  assert.fail(`it never came to it that ${what}`);
};

describe('the script', () => {
  test('does what its README shows', async () => {
    const { commands, outputs } = readmeOf('script');
    assert.equal(commands.length, 2, 'one terminal for Trellis, one for the script');
    const terminal = newcomer.type(commands[1]!);
    const [, link] = await terminal.printed(/^open (\S+)$/m);
    await newcomer.follow(link!);
    assert.equal(await terminal.ended, 0, terminal.output());
    const shown = terminal
      .output()
      .replaceAll(newcomer.service.baseUrl, 'http://localhost:3003')
      .replace(/(session_token=\w+session_)\w+/, '$1...');
    assert.equal(shown, outputs[0]);
    assert.equal(await payloads(), 0);
  });

  test('says what is missing where it has no key', async () => {
    const script = readmeOf('script')
      .commands[1]!.split('\n')
      .at(-2)!
      .replace(/^\S+=\S+ \S+\) /, '');
    const terminal = newcomer.type(`cd examples/script\n${script}`);
    assert.equal(await terminal.ended, 1);
    assert.match(terminal.output(), /key: missing/);
  });

  test('is as short as it says', async () => {
    const text = await readFile(join(root, 'examples/script/follow.mjs'), 'utf8');
    assert.ok(text.split('\n').filter((line) => line.trim() !== '').length <= 40);
  });
});

describe('the application', { skip: skipBrowser }, () => {
  let app: Application;
  let context: BrowserContext;
  let page: Page;
  let spreadsheetId: string;
  const [, sheet = ''] = readmeOf('app').commands;

  before(async () => {
    app = await openApplication(newcomer);
    context = await app.open();
    page = await context.newPage();
    await app.start();
  });
  after(() => app?.close());

  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const cell = (name: string) => page.getByRole('cell', { name, exact: true });
  const field = (name: string) => page.getByRole('textbox', { name, exact: true });
  const place = async () => {
    const [made] = await app.connections();
    return { 'connection-id': made!.connection_id, 'provider-config-key': 'google-sheet' };
  };
  /** As somebody else does it, who has the sheet open at Google. */
  const atGoogle = async (method: string, path: string, values: unknown[][]) => {
    const headers = await place();
    const at = `/proxy/v4/spreadsheets/${spreadsheetId}/values/${path}`;
    return newcomer.service.call(method, `${at}?valueInputOption=RAW`, { headers, body: { values } });
  };
  const sync = async () => {
    const at = await place();
    const body = {
      provider_config_key: 'google-sheet',
      connection_id: at['connection-id'],
      syncs: ['rows'],
    };
    await newcomer.service.call('POST', '/sync/trigger', { body });
  };
  test('somebody signs in', async () => {
    await page.goto(app.url());
    await page.getByLabel('Name').waitFor();
    await picture(page, 'example-sign-in');
    await app.signIn(page, 'Ada');
    await button('Connect a sheet').waitFor();
    await picture(page, 'example-start');
  });

  test('they connect a sheet in a window, and see its rows', async () => {
    const made = newcomer.type(sheet);
    assert.equal(await made.ended, 0, made.output());
    [, spreadsheetId = ''] = /"spreadsheetId": ?"([^"]+)"/.exec(made.output()) ?? [];
    assert.notEqual(spreadsheetId, '', made.output());
    await app.chooseSheet(await app.openWindow(page), spreadsheetId);
    await page.getByRole('heading', { name: 'Orders, 2026' }).waitFor();
    await cell('Edsger').waitFor();
    await page.getByText(/^3 rows/).waitFor();
    assert.equal(await page.getByText('ada@example.com').count(), 1);
    await picture(page, 'example-rows');
  });

  test('what changes at Google comes to the open page', async () => {
    await atGoogle('POST', '2026!A1:append', [['A-1004', 'Barbara', 77, true]]);
    await atGoogle('PUT', '2026!B2', [['Grace H.']]);
    await sync();
    await cell('Barbara').waitFor();
    await cell('Grace H.').waitFor();
    assert.equal(await cell('Grace').count(), 0);
  });

  test('rows are added and edited, in the sheet and then on the page', async () => {
    await field('Order').fill('A-1005');
    await field('Customer').fill('Donald');
    await field('Total').fill('12.5');
    await button('Add').click();
    await cell('Donald').waitFor();
    await button('Edit A-1002').click();
    const dialog = page.getByRole('dialog', { name: 'Edit a row' });
    await dialog.getByRole('textbox', { name: 'Paid' }).fill('TRUE');
    await picture(page, 'example-edit');
    await dialog.getByRole('button', { name: 'Save' }).click();
    const row = page.getByRole('row', { name: /A-1002/ });
    await row.getByRole('cell', { name: 'true', exact: true }).waitFor();
    const headers = await place();
    const { values } = (await newcomer.service.call(
      'GET',
      `/proxy/v4/spreadsheets/${spreadsheetId}/values/2026?valueRenderOption=UNFORMATTED_VALUE`,
      { headers },
    )) as { values: unknown[][] };
    assert.deepEqual(values[2], ['A-1002', 'Alan', 12, true]);
    assert.deepEqual(values[5]?.slice(0, 3), ['A-1005', 'Donald', 12.5]);
  });

  test('an edit of what has changed meanwhile is refused, and said', async () => {
    await atGoogle('PUT', '2026!B3', [['Alan M.']]);
    await button('Edit A-1002').click();
    const dialog = page.getByRole('dialog', { name: 'Edit a row' });
    await dialog.getByRole('textbox', { name: 'Customer' }).fill('Alonzo');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page
      .getByRole('alert')
      .getByText(/changed/)
      .waitFor();
    await picture(page, 'example-refused');
    await button('Read it now').click();
    await cell('Alan M.').waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
  });

  test('Trellis holds no payload of what was taken over', async () => {
    await until('all payloads are pruned', async () => (await payloads()) === 0);
    const { datasets } = (await newcomer.service.call('GET', '/records/datasets', {
      headers: await place(),
    })) as { datasets: { model: string; records: number; deleted: number; pruned: number }[] };
    const { records, deleted, pruned } = datasets.find(({ model }) => model === 'Row')!;
    assert.deepEqual([records, pruned], [5, 5 + deleted]);
  });

  test('a sync does not bring back what was pruned', async () => {
    const prunes = async () => {
      const [row] = await newcomer.db.query<{ count: string }>('select sum(count) as count from prune');
      return Number(row?.count);
    };
    const before = await prunes();
    await atGoogle('PUT', '2026!C4', [[1250]]);
    await sync();
    await cell('1250').waitFor();
    await until('the change is pruned', async () => (await payloads()) === 0 && (await prunes()) > before);
    assert.equal(await prunes(), before + 1);
  });

  test('where the sync is reset and its records are removed, the rows that come stand in place of those before', async () => {
    const { 'connection-id': connection_id, 'provider-config-key': provider_config_key } = await place();
    const call = (method: string, path: string, body?: object) =>
      newcomer.service.call(method, path, { body: body && { provider_config_key, connection_id, ...body } });
    type Made = { metadata: { sheets: { base: object } } };
    const at = `/connections/${connection_id}?provider_config_key=${provider_config_key}`;
    const { metadata } = (await call('GET', at)) as Made;
    // Other ids for all rows.
    const base = { ...metadata.sheets.base, identity: 'key', keyColumn: 'Customer' };
    await call('PATCH', '/connections/metadata', { metadata: { sheets: { base } } });
    const opts = { reset: true, emptyCache: true };
    await call('POST', '/sync/trigger', { syncs: ['rows'], opts });
    await page.locator('tr[id="row-Donald"]').waitFor();
    await page.getByText(/^5 rows/).waitFor();
    assert.equal(await cell('Donald').count(), 1);
    await until('all payloads are pruned', async () => (await payloads()) === 0);
  });

  test('another person sees nothing of it', async () => {
    const other = await app.open();
    const theirs = await other.newPage();
    await app.signIn(theirs, 'Grace');
    await theirs.getByRole('button', { name: 'Connect a sheet' }).waitFor();
    const refused = await other.request.patch(`${app.url()}/rows?person=Grace`, {
      data: { id: 'x', values: { Customer: 'Mallory' } },
    });
    assert.equal(refused.status(), 409);
    await other.close();
    // Neither does who has made the cookie up, or has none.
    for (const headers of [{}, { cookie: 'person=Ada' }, { cookie: 'person=Ada.c2lnbmVk' }] as const) {
      const answer = await fetch(`${app.url()}/live`, { headers });
      assert.equal(answer.status, 401);
    }
  });

  test('events that are not signed by Trellis are refused', async () => {
    const [made] = await app.connections();
    const data = { connection_id: made!.connection_id, provider_config_key: 'google-sheet' };
    const body = JSON.stringify({ id: '1', type: 'connection.deleted', data });
    const headers = {
      'content-type': 'application/json',
      'webhook-id': '1',
      'webhook-timestamp': String(Math.floor(Date.now() / 1000)),
      'webhook-signature': `v1,${Buffer.alloc(32).toString('base64')}`,
    };
    const answer = await fetch(`${app.url()}/trellis/events`, { method: 'POST', headers, body });
    assert.equal(answer.status, 401);
    await cell('Donald').waitFor();
  });

  test('access that has ended is said, and reconnecting goes on', async () => {
    await newcomer.service.sandbox('POST', 'revoke', { account: 'ada@example.com' });
    await button('Read it now').click();
    await page.getByText('Action required.').waitFor();
    await cell('Donald').waitFor();
    await picture(page, 'example-reconnect');
    const popup = await popupBy(context, () => button('Reconnect').click());
    await popup.getByRole('button', { name: /^Continue to/ }).click();
    const closed = popup.waitForEvent('close');
    await consent(popup);
    await closed;
    await page.getByText('Action required.').waitFor({ state: 'hidden' });
    assert.equal((await app.connections()).length, 1);
    await atGoogle('PUT', '2026!B4', [['Edsger W.']]);
    await sync();
    await cell('Edsger W.').waitFor();
  });

  test('started again, with a key of the scopes that it needs, it goes on where it stood', async () => {
    assert.equal(await app.terminal().interrupt(), 0, app.terminal().output());
    await atGoogle('PUT', '2026!B5', [['Barbara L.']]);
    await sync();
    const { data: signing } = (await newcomer.service.call('GET', '/environment/webhook-signing-key')) as {
      data: { webhook_signing_key: string };
    };
    const readme = await readFile(join(root, 'examples/app/README.md'), 'utf8');
    const [line = ''] = /^\| `TRELLIS_SECRET_KEY` .*$/m.exec(readme) ?? [];
    const scopes = [...line.matchAll(/`([a-z]+:[a-z]+)`/g)].map(([, scope]) => scope!);
    const { data: key } = (await newcomer.service.call('POST', '/environment/api-keys', {
      body: { name: 'sheetside', scopes },
    })) as { data: { secret: string } };
    await app.start({ TRELLIS_SIGNING_KEY: signing.webhook_signing_key }, app.again(key.secret));
    // The page comes back by itself.
    await cell('Barbara L.').waitFor();
    await until('all payloads are pruned', async () => (await payloads()) === 0);
    await field('Order').fill('A-1006');
    await button('Add').click();
    await cell('A-1006').waitFor();
  });

  test('disconnected, nothing of it is left', async () => {
    await button('Disconnect').click();
    await button('Connect a sheet').waitFor();
    assert.deepEqual(await app.connections(), []);
    await page.reload();
    await button('Connect a sheet').waitFor();
    assert.equal(await app.terminal().interrupt(), 0, app.terminal().output());
  });
});
