// The sandbox's page in a real browser: forms without JavaScript, foreign forms, and no sideways scrolling.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { openBench } from '../../sandbox/testing.ts';
import { openBrowser, skipBrowser, type TestBrowser } from '../support/browser.ts';

describe('the page of the sandbox in a browser', { skip: skipBrowser }, () => {
  let browser: TestBrowser;
  before(async () => {
    browser = await openBrowser();
  });
  after(() => browser?.close());

  test('a user sets and clears faults by hand, without JavaScript', async (t) => {
    const bench = await openBench(t);
    const page = await browser.newPage({ javaScriptEnabled: false });
    t.after(() => page.close());
    await page.goto(bench.sandbox.url);
    const faults = page.locator('#faults');
    await faults.getByRole('combobox', { name: 'Fault', exact: true }).selectOption('refresh_revoked');
    await faults.getByRole('combobox', { name: 'Account', exact: true }).selectOption('ada@example.com');
    await page.getByRole('button', { name: 'Switch on' }).click();
    assert.equal(new URL(page.url()).hash, '#faults');
    type InForce = { faults: { case: string; account: string }[] };
    const inForce = async () => (await bench.control<InForce>('GET /faults')).faults;
    assert.deepEqual(
      (await inForce()).map((fault) => [fault.case, fault.account]),
      [['refresh_revoked', 'ada@example.com']],
    );
    await page.getByRole('button', { name: 'Switch off' }).click();
    await page.getByText('No fault is active.').waitFor();
    assert.deepEqual(await inForce(), []);

    await page.getByRole('button', { name: '+ 7 days' }).click();
    await page.getByText('7 days ahead').waitFor();
    await page.getByRole('textbox', { name: 'Address' }).fill('alan@example.com');
    await page.getByRole('button', { name: 'Add account' }).click();
    await page.getByLabel('Status of alan@example.com').selectOption('disabled');
    await page
      .locator('.card', { hasText: 'alan@example.com' })
      .getByRole('button', { name: 'Set', exact: true })
      .click();
    const { accounts } = await bench.control<{ accounts: { standing: string }[] }>('GET /accounts');
    assert.deepEqual(
      accounts.map(({ standing }) => standing),
      ['active', 'active', 'disabled'],
    );
  });

  test('a form that another site posts in the same browser does nothing', async (t) => {
    const bench = await openBench(t);
    const evil = createServer((_request, response) => {
      response.setHeader('content-type', 'text/html');
      response.end(
        `<form method="post" action="${bench.sandbox.url}/"><input name="act" value="advance"><input name="hours" value="1"><button>Win</button></form>`,
      );
    });
    evil.listen(0, '127.0.0.1');
    await once(evil, 'listening');
    t.after(async () => {
      evil.close();
      evil.closeAllConnections();
      await once(evil, 'close');
    });
    const page = await browser.newPage();
    t.after(() => page.close());
    await page.goto(bench.sandbox.url);
    await page.goto(`http://localhost:${(evil.address() as AddressInfo).port}/`);
    await page.getByRole('button', { name: 'Win' }).click();
    await page.getByText('The form was not sent by this page').waitFor();
    assert.equal((await bench.control<{ offset_s: number }>('GET /clock')).offset_s, 0);
  });

  test('the page fits a telephone, empty and full', async (t) => {
    const bench = await openBench(t);
    const page = await browser.newPage({ viewport: { width: 390, height: 844 } });
    t.after(() => page.close());
    const fits = async () => {
      await page.goto(bench.sandbox.url);
      return (await page.evaluate('document.documentElement.scrollWidth')) === 390;
    };
    assert.ok(await fits(), 'empty');
    await bench.connect();
    await bench.control('POST /accounts', {
      email: `${'long'.repeat(20)}@example.com`,
      hosted_domain: 'x'.repeat(150),
    });
    await bench.control('POST /clients', { redirect_uris: ['https://a.example/'], name: 'N'.repeat(200) });
    await bench.control('POST /spreadsheets', {
      account: 'ada@example.com',
      title: 'T'.repeat(200),
      rows: [['a']],
    });
    await bench.control('POST /faults', { case: 'token_503', for_s: 60, every: 20 });
    await bench.control('POST /receivers', { url: `http://localhost:9/${'p'.repeat(500)}` });
    await bench.control('POST /password', { account: 'ada@example.com' });
    assert.ok(await fits(), 'full');
  });
});
