// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import type { BrowserContext, Page } from 'playwright-core';
import { webDirectory } from '../../server/web-build.ts';
import { skipBrowser } from '../support/browser.ts';
import { surroundings } from '../support/command.ts';
import {
  closeWindow,
  consent,
  deny,
  openConnectPages,
  popupBy,
  type TestConnectPages,
} from '../support/connect-pages.ts';

type Seen = { type: string; detail: Record<string, unknown> };

/** An application of another origin with a strict policy, whose page is plain HTML with `<trellis-connect>`. */
describe('the element of /connect.js', { skip: skipBrowser }, () => {
  let pages: TestConnectPages;
  let page: Page;
  let context: BrowserContext;
  let application: Server;
  let origin: string;
  /** The element of the next page. */
  let element: string;
  /** The response to a request of a token. */
  let respond: () => Promise<{ status?: number; type?: string; body: string }>;
  let requested: { method: string | undefined; cookie: string | undefined }[] = [];

  before(async () => {
    application = createServer(async ({ url, method, headers }, response) => {
      if (url === '/token') {
        requested.push({ method, cookie: headers.cookie });
        const { status = 200, type = 'application/json', body } = await respond();
        response.writeHead(status, { 'content-type': type }).end(body);
        return;
      }
      if (url !== '/') {
        response.writeHead(404).end();
        return;
      }
      const service = pages.trellis.baseUrl;
      const policy = [
        "default-src 'none'",
        `script-src ${service}/connect.js 'nonce-page'`,
        `connect-src 'self' ${service}`,
        `frame-src ${service}`,
        'img-src data:',
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
        "base-uri 'none'",
      ];
      response.writeHead(200, {
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy': policy.join('; '),
        'set-cookie': 'signed-in=ada; HttpOnly; SameSite=Lax',
      });
      response.end(`<!doctype html><html lang="en"><title>Application</title><link rel="icon" href="data:,">
<script src="${service}/connect.js" async></script><main><h1>An application</h1>${element}<output></output></main>
<script nonce="page">
  const seen = [];
  const element = document.querySelector('trellis-connect');
  for (const type of ['connect', 'error', 'close']) {
    element.addEventListener(type, ({ detail }) => {
      seen.push({ type, detail });
      document.querySelector('output').textContent += ' ' + type;
    });
    document.addEventListener(type, () => seen.push({ type: 'bubbled ' + type }));
  }
</script></html>`);
    }).listen(0, '127.0.0.1');
    await once(application, 'listening');
    origin = `http://127.0.0.1:${(application.address() as AddressInfo).port}`;
    pages = await openConnectPages({ TRELLIS_CONNECT_FRAME_ANCESTORS: origin });
    ({ page, context } = await pages.openAsNobody());
    pages.expectComplaint(/oauth\/callback.* 400/);
    pages.expectComplaint(
      /Content Security Policy directive 'img-src'|violates .* "default-src 'none'".*icon/i,
    );
  });
  after(async () => {
    application?.close();
    await pages?.close();
  });

  const tokenOf = async () =>
    (await pages.link({ end_user: { id: 'ada' }, allowed_integrations: ['google-sheet', 'key'] })).token;
  const show = async (attributes: string, content = '') => {
    element = `<trellis-connect ${attributes}>${content}</trellis-connect>`;
    requested = [];
    await page.goto(`${origin}/`);
    await page.evaluate("customElements.whenDefined('trellis-connect').then(() => undefined)");
  };
  const button = () => page.locator('trellis-connect').getByRole('button');
  const press = () => popupBy(context, () => button().click());
  const goOn = (popup: Page) => popup.getByRole('button', { name: /^Continue to/ }).click();
  /** The policy of the page does not allow `waitForFunction`. */
  const happened = (type: string) => page.locator('output', { hasText: type }).waitFor({ state: 'attached' });
  const take = async () =>
    (await page.evaluate("document.querySelector('output').textContent = ''; seen.splice(0)")) as Seen[];
  /** The events until the last one. */
  const events = async () => {
    await happened('close');
    return take();
  };
  const types = (seen: Seen[]) =>
    seen.map(({ type, detail }) => [type, detail.code ?? detail.connected ?? '']);

  test('the script is below 15 KB compressed and needs nothing else', async () => {
    const script = await readFile(join(webDirectory, 'client/connect.js'));
    assert.ok(gzipSync(script).length < 15_000, `${gzipSync(script).length} bytes`);
    assert.doesNotMatch(script.toString(), /\b(import|require)\s*[("']/);
  });

  test('on a page with a strict policy, the button connects an account by the keyboard', async () => {
    respond = async () => ({ body: JSON.stringify({ token: await tokenOf() }) });
    await show('token-url="/token" integration="google-sheet" lang="de" label="Tabelle verbinden"');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate('document.activeElement.localName'), 'trellis-connect');
    assert.equal(await button().textContent(), 'Tabelle verbinden');
    const popup = await popupBy(context, () => page.keyboard.press('Enter'));
    await popup.getByRole('button', { name: /^Weiter zu/ }).waitFor();
    assert.equal(await button().getAttribute('aria-busy'), 'true');
    const windows = context.pages().length;
    await page.keyboard.press('Enter');
    assert.equal(context.pages().length, windows, 'a second click opens no second window');
    await popup.getByRole('button', { name: /^Weiter zu/ }).click();
    await consent(popup);
    await happened('close');
    const [newest] = await pages.connections();
    assert.deepEqual(await events(), [
      {
        type: 'connect',
        detail: { connectionId: newest?.connection_id, integration: 'google-sheet', missingScopes: [] },
      },
      { type: 'close', detail: { connected: true } },
    ]);
    assert.deepEqual(requested, [{ method: 'POST', cookie: 'signed-in=ada' }]);
    assert.equal(await button().getAttribute('aria-busy'), null);
  });

  test('the label, the content and the part of the button belong to the page', async () => {
    await show('label="Connect &lt;b&gt;it&lt;/b&gt;" session-token="x"');
    await page.getByRole('button', { name: 'Connect <b>it</b>' }).waitFor();
    await page.evaluate("element.setAttribute('label', 'Again')");
    await page.getByRole('button', { name: 'Again' }).waitFor();
    await page.evaluate(`{
      const sheet = new CSSStyleSheet();
      sheet.replaceSync('trellis-connect::part(button) { background: rgb(1, 2, 3); }');
      document.adoptedStyleSheets = [sheet];
    }`);
    const color = () =>
      page.evaluate("getComputedStyle(element.shadowRoot.querySelector('button')).backgroundColor");
    assert.equal(await color(), 'rgb(1, 2, 3)');
    await show('session-token="x"', '<em>My button</em>');
    await page.getByRole('button', { name: 'My button' }).waitFor();
    assert.equal(await color(), 'rgb(36, 84, 214)');
  });

  test('a refusal is reported while the window is open, and a closed window without an error', async () => {
    await show(`session-token="${await tokenOf()}" integration="google-sheet"`);
    const popup = await press();
    await goOn(popup);
    await deny(popup);
    await happened('error');
    const [refused] = await take();
    const denied = { code: 'denied', reason: 'access_denied', message: 'Access was denied.' };
    assert.deepEqual(refused, { type: 'error', detail: { ...denied, mayRetry: true } });
    await popup.getByRole('button', { name: 'Try again' }).waitFor();
    await closeWindow(popup);
    assert.deepEqual(types(await events()), [
      ['error', 'denied'],
      ['close', false],
    ]);
    await show(`session-token="${await tokenOf()}"`);
    await closeWindow(await press());
    assert.deepEqual(types(await events()), [['close', false]]);
  });

  test('a frame within the page connects', async () => {
    await show(`session-token="${await tokenOf()}" mode="frame" integration="key" theme="dark"`);
    await button().click();
    const frame = page.frameLocator('iframe');
    await frame.getByRole('textbox', { name: 'API key' }).fill('a-key-of-a-user');
    await frame.getByRole('button', { name: 'Connect', exact: true }).click();
    assert.deepEqual(types(await events()), [
      ['connect', ''],
      ['close', true],
    ]);
    assert.equal(await page.locator('iframe').count(), 0);
  });

  test('an element that a framework clones and sets up before its upgrade connects', async () => {
    respond = async () => ({ body: JSON.stringify({ token: await tokenOf() }) });
    await show('session-token="x"');
    // The content of a template belongs to a document without the element's class, as in Vue and Svelte. Attributes and
    // listeners are set one by one, as in Angular and React.
    await page.evaluate(`{
      const { content } = document.createElement('template');
      content.append(content.ownerDocument.createElement('trellis-connect'));
      const made = content.cloneNode(true).firstChild;
      for (const type of ['connect', 'error', 'close'])
        made.addEventListener(type, ({ detail }) => {
          seen.push({ type, detail });
          document.querySelector('output').textContent += ' ' + type;
        });
      for (const [name, value] of Object.entries({ 'token-url': '/token', mode: 'frame', integration: 'key', label: 'Early' }))
        made.setAttribute(name, value);
      if (made.shadowRoot !== null) throw new Error('The element is upgraded already.');
      element.replaceWith(made);
      made.setAttribute('label', 'Late');
    }`);
    await page.getByRole('button', { name: 'Late' }).click();
    const frame = page.frameLocator('iframe');
    await frame.getByRole('textbox', { name: 'API key' }).fill('a-key-of-a-user');
    await frame.getByRole('button', { name: 'Connect', exact: true }).click();
    assert.deepEqual(types(await events()), [
      ['connect', ''],
      ['close', true],
    ]);
  });

  test('a response that has no token is an error, and its text goes nowhere', async () => {
    pages.expectComplaint(/status of (500|404)/);
    for (const [response, reason] of [
      [
        { type: 'text/html', body: '<!doctype html><img src=x onerror=alert(1)>' },
        'the response has no token',
      ],
      [{ body: '{"token":"javascript:alert(1)"}' }, 'the response has no token'],
      [{ body: '{"token":{"toString":1}}' }, 'the response has no token'],
      [{ body: '{"data":null}' }, 'the response has no token'],
      [{ body: '{' }, 'the response has no token'],
      [{ body: '' }, 'the response has no token'],
      [{ status: 500, body: JSON.stringify({ token: await tokenOf() }) }, 'status 500'],
    ] as const) {
      respond = async () => response;
      await show('token-url="/token"');
      const popup = await press();
      const [error, ...others] = await events();
      assert.deepEqual(
        [error?.type, error?.detail.code, error?.detail.reason],
        ['error', 'no_token', reason],
      );
      assert.deepEqual(types(others), [['close', false]]);
      if (!popup.isClosed()) await popup.waitForEvent('close');
    }
  });

  test('hostile attributes run nothing and reach nothing else', async () => {
    const token = await tokenOf();
    for (const [attributes, code] of [
      [`session-token="${token}" base-url="javascript:opener.document.title='owned'//"`, undefined],
      [`session-token="${token}" base-url="data:text/html,x"`, undefined],
      [`session-token="${token}" base-url="not an address"`, undefined],
      [`session-token="${token}" base-url="${pages.trellis.baseUrl}/?x="`, undefined],
      [`token-url="data:text/plain,${token}"`, 'no_token'],
      [`token-url="javascript:alert(1)"`, 'no_token'],
      ['', 'no_token'],
    ] as const) {
      await show(attributes);
      const windows = context.pages().length;
      await button().click();
      const [error, ...others] = await events();
      assert.deepEqual([error?.type, error?.detail.code], ['error', code], attributes);
      assert.deepEqual(types(others), [['close', false]]);
      assert.equal(await page.title(), 'Application', attributes);
      while (context.pages().length > windows) await context.pages().at(-1)!.waitForEvent('close');
    }
    const odd = `x"&amp;session_token=other#&lt;b&gt;`;
    await show(
      `session-token="${token}" integration='${odd}' theme="${'x'.repeat(2000)}" lang="//evil.example"`,
    );
    const popup = await press();
    await popup.getByRole('heading', { name: 'This link is for another account or integration' }).waitFor();
    assert.equal(new URL(popup.url()).origin, pages.trellis.baseUrl);
    await closeWindow(popup);
    assert.deepEqual(types(await events()), [['close', false]]);
  });

  test('messages of other windows change nothing', async () => {
    await show(`session-token="${await tokenOf()}" integration="google-sheet"`);
    const popup = await press();
    await popup.getByRole('button', { name: /^Continue to/ }).waitFor();
    const forged =
      "{ type: 'connect', payload: { providerConfigKey: 'google-sheet', connectionId: 'forged' } }";
    const asked = page.waitForResponse(/\/connect\/session\/progress/);
    await page.evaluate(`window.postMessage(${forged}, '*')`);
    await page.evaluate(
      `window.dispatchEvent(new MessageEvent('message', { data: ${forged}, origin: ${JSON.stringify(pages.trellis.baseUrl)} }))`,
    );
    // Also from the right window: a message only causes a request.
    await popup.evaluate(`window.opener.postMessage(${forged}, '*')`);
    await asked;
    assert.deepEqual(await page.evaluate('seen'), []);
    await goOn(popup);
    await consent(popup);
    const [connected] = await events();
    assert.equal(connected?.type, 'connect');
    assert.equal(connected?.detail.connectionId, (await pages.connections())[0]?.connection_id);
  });

  test('a blocked window is an error, and the next click may try again', async () => {
    await show(`session-token="${await tokenOf()}" integration="key"`);
    await page.evaluate('window.realOpen = window.open; window.open = () => null');
    await button().click();
    assert.deepEqual(types(await events()), [
      ['error', 'popup_blocked'],
      ['close', false],
    ]);
    await page.evaluate('window.open = window.realOpen');
    await closeWindow(await press());
    assert.deepEqual(types(await events()), [['close', false]]);
  });

  test('an element that is removed closes its window without an event, and one that is moved does not', async () => {
    let answer: ((token: string) => void) | undefined;
    const token = await tokenOf();
    respond = () => new Promise((resolve) => (answer = (body) => resolve({ body })));
    await show('token-url="/token"');
    const early = await press();
    const isClosed = early.waitForEvent('close');
    await page.evaluate('element.remove()');
    await isClosed;
    answer?.(token);

    await page.evaluate("document.querySelector('main').append(element)");
    respond = async () => ({ type: 'text/plain', body: token });
    const popup = await press();
    await popup.getByRole('heading', { name: 'What would you like to connect?' }).waitFor();
    await page.evaluate("document.querySelector('h1').before(element)");
    const asked = page.waitForResponse(/\/connect\/session\/progress/);
    await asked;
    assert.ok(!popup.isClosed());
    const closing = popup.waitForEvent('close');
    await page.evaluate('element.remove()');
    await closing;
    assert.deepEqual(await page.evaluate('seen'), []);
  });

  test('a form of the page itself connects by a key, and begins at the provider', async () => {
    await show('session-token="x"');
    pages.expectComplaint(/status of 400/);
    const session = async () => JSON.stringify({ url: `${pages.trellis.baseUrl}/`, token: await tokenOf() });
    await page.evaluate(`var session = ${await session()}; var choices;
      TrellisConnect.listChoices(session).then((found) => (choices = found))`);
    const [sheet, form] = (await page.evaluate(
      "['google-sheet', 'key'].map((key) => choices.choices.find(({ unique_key }) => unique_key === key))",
    )) as { form_path: string | null; fields: { name: string; secret: boolean }[]; scopes: unknown[] }[];
    assert.deepEqual(
      form?.fields.map(({ name, secret }) => ({ name, secret })),
      [{ name: 'apiKey', secret: true }],
    );
    assert.equal(sheet?.form_path, null);
    assert.ok((sheet?.scopes.length ?? 0) > 0);
    const submit = (values: string) =>
      page.evaluate(`TrellisConnect.submitForm(session, {
        choice: choices.choices.find(({ unique_key }) => unique_key === 'key'), values: ${values},
      }).then((connected) => ({ connected }), ({ name, code, status, fields }) => ({ name, code, status, fields }))`);
    const refused = (await submit('{}')) as { name: string; status: number; fields: { path: string }[] };
    assert.deepEqual(
      [refused.name, refused.status, refused.fields[0]?.path],
      ['ConnectCallError', 400, 'apiKey'],
    );
    const { connected } = (await submit("{ apiKey: 'a-key-of-a-user' }")) as { connected: object };
    const [byKey] = await pages.connections();
    assert.deepEqual(connected, {
      connectionId: byKey?.connection_id,
      integration: 'key',
      missingScopes: [],
    });

    // Of the click on a button of the page.
    await page.evaluate(`session = ${await session()}; var failures = [];
      document.querySelector('h1').onclick = () => {
        var outcome = TrellisConnect.authorize(session, {
          integration: 'google-sheet', onFailure: ({ code }) => failures.push(code),
        });
        window.outcome = outcome.then((connected) => ({ connected }), ({ code }) => ({ code }));
      };`);
    const start = () => popupBy(context, () => page.getByRole('heading').click());
    const popup = await start();
    await popup.getByText('The application asks for access').waitFor();
    await popup.getByRole('link', { name: /^Continue to/ }).click();
    await consent(popup);
    const made = (await page.evaluate('outcome')) as { connected: { connectionId: string } };
    assert.equal(made.connected.connectionId, (await pages.connections())[0]?.connection_id);
    await page.evaluate(`session = ${await session()}`);
    await closeWindow(await start());
    assert.deepEqual(await page.evaluate('outcome'), { code: 'window_closed' });
    for (const url of ['javascript:alert(1)', 'data:text/html,x', 'file:///etc/passwd']) {
      const call = `TrellisConnect.authorize({ url: '${url}', token: 'x' }, { integration: 'key' })`;
      assert.equal(await page.evaluate(`${call}.catch(({ name }) => name)`), 'TypeError');
    }
  });

  test('npm installs the package of the service into an empty folder', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'trellis-npm-'));
    try {
      await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'app', version: '1.0.0' }));
      const run = promisify(execFile);
      const address = `${pages.trellis.baseUrl}/sdk/trellis-client.tgz`;
      // Asks no registry about the optional peer dependency.
      const options = ['--legacy-peer-deps', '--no-audit', '--no-fund', '--cache', join(folder, 'cache')];
      const install = ['install', ...options, address];
      await run('npm', install, { cwd: folder, env: surroundings });
      const program = `
        import { Trellis } from '@trellis-run/client';
        import { connect } from '@trellis-run/client/connect';
        import { TrellisConnectElement } from '@trellis-run/client/element';
        console.log(typeof Trellis, typeof connect, typeof TrellisConnectElement);`;
      await writeFile(join(folder, 'main.mjs'), program);
      const { stdout } = await run(process.execPath, ['main.mjs'], { cwd: folder });
      assert.equal(stdout.trim(), 'function function function');
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
