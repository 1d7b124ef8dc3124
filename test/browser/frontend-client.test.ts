// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import Nango, { ConnectUI } from '@nangohq/frontend';
import type { BrowserContext, Page } from 'playwright-core';
import { innerMethods } from '../clients/nango/inner-methods.ts';
import { openApplication } from '../support/application-page.ts';
import { skipBrowser, waitUntilTrue } from '../support/browser.ts';
import { consent, openConnectPages, popupBy, type TestConnectPages } from '../support/connect-pages.ts';

type Connected = { providerConfigKey: string; connectionId: string; isPending?: boolean };
type Refused = { type: string; message: string };

/** Every method of the published client for browsers, in a page of another site, against a service of its brand. */
describe('the client for browsers, each method', { skip: skipBrowser }, () => {
  let application: Awaited<ReturnType<typeof openApplication>>;
  let pages: TestConnectPages;
  let page: Page;
  let context: BrowserContext;
  const asks: string[] = [];
  before(async () => {
    application = await openApplication();
    const brand = { TRELLIS_BRAND: 'nango', TRELLIS_CONNECT_FRAME_ANCESTORS: application.origin };
    pages = await openConnectPages(brand);
    ({ page, context } = await pages.openAsNobody());
    context.on('request', (request) => {
      if (request.url().includes('code_challenge=')) asks.push(request.url());
    });
    // What is refused, the console says too.
    pages.expectComplaint(/the server responded with a status of 40[0-9]/);
    await page.goto(application.origin);
  });
  after(async () => {
    await pages?.close();
    application?.close();
  });

  /** Where the provider was asked for an authorization last. */
  const lastAsked = () => new URL(asks.at(-1) ?? '').searchParams;
  /** What the call of the client ends with, by a page that has this token. */
  const call = (token: string, text: string, more: object = {}): Promise<Connected | Refused> =>
    page.evaluate(`
      window.nango = new Nango(${JSON.stringify({ host: pages.trellis.baseUrl, connectSessionToken: token, ...more })});
      (async () => nango.${text})().catch(({ message, type }) => ({ message, type }));
    `) as Promise<Connected | Refused>;
  /** The same of a call that opens a window, in which somebody does this. */
  const inWindow = async (
    token: string,
    text: string,
    act: (popup: Page) => Promise<unknown>,
  ): Promise<Connected | Refused> => {
    const popup = await popupBy(context, async () => {
      await page.evaluate(`
        window.nango = new Nango(${JSON.stringify({ host: pages.trellis.baseUrl, connectSessionToken: token })});
        window.ended = nango.${text}.catch(({ message, type }) => ({ message, type }));
        undefined
      `);
    });
    await act(popup);
    return (await page.evaluate('ended')) as Connected | Refused;
  };
  const tokenFor = async (...allowed: string[]) =>
    (await pages.link({ end_user: { id: 'ada' }, allowed_integrations: allowed })).token;
  const reconnectTokenFor = async (integration_id: string, connection_id: string) => {
    const { body, text } = await pages.trellis.call('POST', '/connect/sessions/reconnect', {
      body: { integration_id, connection_id },
    });
    assert.ok(body.data, text);
    return (body.data as { token: string }).token;
  };
  /** What the service keeps of what was made. */
  const kept = async (made: Connected | Refused) => {
    assert.ok('connectionId' in made, JSON.stringify(made));
    const query = `provider_config_key=${made.providerConfigKey}&refresh_token=true`;
    const { body, text } = await pages.trellis.call('GET', `/connections/${made.connectionId}?${query}`);
    assert.equal(body.connection_id, made.connectionId, text);
    return body as {
      credentials: Record<string, unknown>;
      connection_config: Record<string, unknown>;
      scopes: { requested: string[] };
      end_user: { id: string };
    };
  };
  const typeOf = (ended: Connected | Refused) => {
    assert.ok('type' in ended && ended.message.length > 0, JSON.stringify(ended));
    return ended.type;
  };
  const newClient = async () => {
    const client = await pages.trellis.control('POST', 'clients', {
      redirect_uris: [`${pages.trellis.baseUrl}/oauth/callback`],
    });
    pages.trellis.watch.made('client_secret', String(client.client_secret));
    return { id: String(client.client_id), secret: String(client.client_secret) };
  };

  const tests: Record<string, () => Promise<void>> = {
    async auth() {
      const made = await inWindow(await tokenFor('google-sheet'), "auth('google-sheet')", consent);
      assert.deepEqual(made, { ...made, providerConfigKey: 'google-sheet', isPending: false });
      const { credentials, end_user: endUser } = await kept(made);
      assert.deepEqual([credentials.type, endUser.id], ['OAUTH2', 'ada']);

      const token = await tokenFor('google-sheet');
      const wishes =
        "{ user_scope: ['openid', 'email'], authorization_params: { prompt: 'consent', hd: undefined } }";
      const less = await inWindow(token, `auth('google-sheet', ${wishes})`, consent);
      assert.deepEqual((await kept(less)).scopes.requested, ['openid', 'email']);
      const asked = lastAsked();
      assert.deepEqual(
        ['scope', 'prompt', 'hd', 'code_challenge_method'].map((name) => asked.get(name)),
        ['openid email', 'consent', null, 'S256'],
      );
    },

    async reconnect() {
      const before = await inWindow(await tokenFor('google-sheet'), "auth('google-sheet')", consent);
      assert.ok('connectionId' in before);
      const old = (await kept(before)).credentials.access_token;
      const token = await reconnectTokenFor('google-sheet', before.connectionId);
      const again = await inWindow(token, "reconnect('google-sheet')", consent);
      assert.deepEqual(again, before, 'it is the same connection');
      assert.notEqual((await kept(again)).credentials.access_token, old);
      const count = (await pages.connections()).filter(
        ({ connection_id }) => connection_id === before.connectionId,
      );
      assert.equal(count.length, 1);
      // By a form, too.
      const made = await call(
        await tokenFor('key'),
        "auth('key', { credentials: { apiKey: 'the first key' } })",
      );
      assert.ok('connectionId' in made);
      const second = await reconnectTokenFor('key', made.connectionId);
      const renewed = await call(second, "reconnect('key', { credentials: { apiKey: 'the second key' } })");
      assert.deepEqual(renewed, made);
      assert.equal((await kept(renewed)).credentials.apiKey, 'the second key');
      assert.equal(typeOf(await call('', "reconnect('key')")), 'missing_connect_session_token');
    },

    async create() {
      const made = await call(await tokenFor('open'), "create('open')");
      assert.deepEqual((await kept(made)).credentials, {});
      const own = await call(
        await tokenFor('own'),
        "create('own', { params: { base_url: 'https://erp.example.com' } })",
      );
      assert.equal(typeOf(own), 'invalid_auth_mode');
      assert.equal(typeOf(await call('', "create('open')")), 'missing_auth_token');
    },

    async clear() {
      const popup = await popupBy(context, async () => {
        const token = await tokenFor('google-sheet');
        await page.evaluate(`
          window.nango = new Nango(${JSON.stringify({ host: pages.trellis.baseUrl, connectSessionToken: token })});
          nango.auth('google-sheet').catch(() => {});
          undefined
        `);
      });
      await popup.getByText('ada@example.com').first().waitFor();
      const closed = popup.waitForEvent('close');
      await page.evaluate('nango.clear()');
      await closed;
    },

    async openConnectUI() {
      const frame = await openFrame(await tokenFor('key'), { lang: 'de', themeOverride: 'dark' });
      await frame.getByRole('heading', { name: 'Private API (API key) verbinden' }).waitFor();
      assert.equal(await frame.evaluate('document.documentElement.dataset.mantineColorScheme'), 'dark');
      await frame.getByRole('textbox').fill('a key');
      await frame.getByRole('button', { name: 'Verbinden' }).click();
      await frame.getByRole('button', { name: 'Fertig' }).click();
      await page.waitForSelector('#connect-ui', { state: 'detached' });
      const heard = (await page.evaluate('heard')) as { type: string; payload?: Connected }[];
      assert.deepEqual(
        heard.map(({ type }) => type),
        ['ready', 'connect', 'close'],
      );
      assert.equal((await kept(heard[1]!.payload!)).credentials.apiKey, 'a key');
    },

    async setSessionToken() {
      const frame = await openFrame(undefined);
      await waitUntilTrue(page, "heard.some(({ type }) => type === 'ready')");
      assert.equal(await frame.getByRole('heading').filter({ hasText: 'Connect' }).count(), 0);
      await page.evaluate(`connectUI.setSessionToken(${JSON.stringify(await tokenFor('key'))})`);
      await frame.getByRole('heading', { name: 'Connect Private API (API key)' }).waitFor();
    },

    async close() {
      const frame = await openFrame(await tokenFor('key'));
      await frame.getByRole('heading', { name: 'Connect Private API (API key)' }).waitFor();
      await page.evaluate('connectUI.close()');
      assert.equal(await page.locator('#connect-ui').count(), 0);
      assert.equal(await page.evaluate('document.body.style.overflow'), '');
    },

    async open() {
      const token = await tokenFor('key');
      const frame = await openFrame(token);
      await frame.getByRole('heading', { name: 'Connect Private API (API key)' }).waitFor();
      await page.evaluate('connectUI.open()');
      assert.equal(await page.locator('#connect-ui').count(), 1, 'one that is open stays the only one');
      await page.evaluate('connectUI.close(); connectUI.open()');
      const again = page.frameLocator('#connect-ui');
      await again.getByRole('heading', { name: 'Connect Private API (API key)' }).waitFor();
    },
  };

  const openFrame = async (token: string | undefined, more: object = {}) => {
    const given = { ...more, baseURL: `${pages.trellis.baseUrl}/connect`, apiURL: pages.trellis.baseUrl };
    await page.goto(application.origin);
    await page.evaluate(`
      window.heard = [];
      window.connectUI = new Nango({ host: ${JSON.stringify(pages.trellis.baseUrl)} }).openConnectUI({
        ...${JSON.stringify({ ...given, sessionToken: token })},
        onEvent: (event) => heard.push(event),
      });
    `);
    const element = await page.waitForSelector('#connect-ui');
    await page.evaluate("document.getElementById('connect-ui').title = 'Connect'");
    const frame = await element.contentFrame();
    assert.ok(frame);
    return frame;
  };

  test('every public method has a test here, and no other', () => {
    const methods = [Nango, ConnectUI]
      .flatMap(({ prototype }) => Object.getOwnPropertyNames(prototype))
      .filter((name) => name !== 'constructor' && !innerMethods.includes(name));
    assert.deepEqual(Object.keys(tests).sort(), methods.sort());
  });

  for (const [method, run] of Object.entries(tests)) test(method, run);

  test('auth() accepts every form of credentials that a provider of the catalogue requires', async () => {
    const form = async (integration: string, given: object) =>
      call(await tokenFor(integration), `auth('${integration}', ${JSON.stringify(given)})`);
    const byKey = await form('key', { credentials: { apiKey: 'the key' } });
    assert.deepEqual((await kept(byKey)).credentials, { type: 'API_KEY', apiKey: 'the key' });

    const byPassword = await form('own', {
      params: { base_url: 'https://erp.example.com', region: 'north' },
      credentials: { username: 'ada', password: 'the password' },
    });
    const { credentials, connection_config: config } = await kept(byPassword);
    assert.deepEqual(credentials, { type: 'BASIC', username: 'ada', password: 'the password' });
    assert.deepEqual(config, { base_url: 'https://erp.example.com', region: 'north' });

    const { id, secret } = await newClient();
    const byClient = await form('machine', { credentials: { client_id: id, client_secret: secret } });
    const ofClient = (await kept(byClient)).credentials;
    assert.deepEqual([ofClient.type, ofClient.client_id], ['OAUTH2_CC', id]);
    assert.equal(typeof ofClient.token, 'string');

    for (const [integration, given, type] of [
      ['key', { credentials: { apiKey: '' } }, 'invalid_body'],
      ['own', { credentials: { username: 'ada', password: 'x' } }, 'invalid_query_params'],
      ['machine', { credentials: { client_id: id, client_secret: 'wrong' } }, 'connection_test_failed'],
      ['key', { credentials: { username: 'ada', password: 'x' } }, 'invalid_auth_mode'],
      ['google-sheet', { credentials: { apiKey: 'the key' } }, 'invalid_auth_mode'],
    ] as const) {
      assert.equal(typeOf(await form(integration, given)), type);
    }
    const other = await tokenFor('key');
    const notAllowed = await call(other, "auth('open', { credentials: { apiKey: 'the key' } })");
    assert.equal(typeOf(notAllowed), 'integration_not_allowed');
    assert.equal(typeOf(await call(`${other}0`, "create('open')")), 'invalid_connect_session_token_format');
  });

  test('a client of the end user’s own makes the connection, and renews it', async () => {
    const { id, secret } = await newClient();
    const given = { credentials: { oauth_client_id_override: id, oauth_client_secret_override: secret } };
    const made = await inWindow(
      await tokenFor('google-sheet'),
      `auth('google-sheet', ${JSON.stringify(given)})`,
      consent,
    );
    assert.equal(lastAsked().get('client_id'), id);
    const { credentials } = await kept(made);
    assert.ok('connectionId' in made);
    assert.deepEqual(credentials.config_override, { client_id: id, client_secret: secret });
    const refresh = `/connections/${made.connectionId}/refresh?provider_config_key=google-sheet`;
    assert.equal((await pages.trellis.call('POST', refresh)).body.status, 'active');
    const { refreshes } = (await pages.trellis.control('GET', 'refreshes')) as {
      refreshes: { client_id: string; accepted: number }[];
    };
    assert.deepEqual(
      refreshes.filter(({ client_id }) => client_id === id).map(({ accepted }) => accepted),
      [1],
    );
  });

  test('credentials of modes without a provider are refused with an error that the client can read', async () => {
    for (const given of [
      { credentials: { token_id: 'a', token_secret: 'b' } },
      { credentials: { type: 'SIGNATURE', username: 'a', password: 'b' } },
      { credentials: { username: 'a', password: 'b', organization_id: 'c', dev_key: 'd' } },
      { installation: 'outbound', credentials: {} },
    ]) {
      const refused = await call(await tokenFor('key'), `auth('key', ${JSON.stringify(given)})`);
      assert.equal(typeOf(refused), 'not_found', JSON.stringify(given));
    }
    // A key is a text here, of which the client's older form is none.
    const pair = { credentials: { type: 'JWT', privateKey: { id: 'a', secret: 'b' } } };
    const refused = await call(await tokenFor('key'), `auth('key', ${JSON.stringify(pair)})`);
    assert.equal(typeOf(refused), 'invalid_body');
  });

  test('whatever keeps auth() from a connection ends it', async () => {
    const token = await tokenFor('google-sheet');
    const closing = await inWindow(
      token,
      "auth('google-sheet', { detectClosedAuthWindow: true })",
      async (popup) => {
        // One that is gone before the client has looked at it counts as blocked.
        await popup.getByText('ada@example.com').first().waitFor();
        await popup.close();
      },
    );
    assert.equal(typeOf(closing), 'window_closed');
    const shown = (popup: Page) => popup.getByRole('heading').first().waitFor();
    const named = await inWindow(await tokenFor('google-sheet'), "auth('google-sheet', 'my-own-id')", shown);
    assert.equal(typeOf(named), 'invalid_query_params');
    const foreign = await inWindow(await tokenFor('key'), "auth('google-sheet')", shown);
    assert.equal(typeOf(foreign), 'integration_not_allowed');
    const wrong = await inWindow(await tokenFor('key'), "auth('key')", shown);
    assert.equal(typeOf(wrong), 'invalid_auth_mode');
    const many = await inWindow(
      await tokenFor('google-sheet'),
      "auth('google-sheet', { params: { nowhere: 'x' } })",
      shown,
    );
    assert.equal(typeOf(many), 'invalid_query_params');
    const ended = await tokenFor('google-sheet');
    await pages.trellis.call('DELETE', '/connect/session', { key: ended });
    assert.equal(
      typeOf(await inWindow(ended, "auth('google-sheet')", shown)),
      'unknown_connect_session_token',
    );
    for (const popup of context.pages()) if (popup !== page) await popup.close();
  });
});
