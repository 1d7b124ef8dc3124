// Slow: it drives Chromium.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { openConnectPages, type TestConnectPages } from '../support/connect-pages.ts';
import { picture } from '../support/dashboard.ts';

/** What is filled in, the languages, the look, and links that lead nowhere any more. */
describe('forms and texts of the connect page', { skip: skipBrowser }, () => {
  let pages: TestConnectPages;
  let page: Page;
  before(async () => {
    pages = await openConnectPages();
    const opened = await pages.openAsNobody();
    page = opened.page;
    for (const body of [
      { unique_key: 'bot', provider: 'telegram' },
      {
        unique_key: 'desk',
        provider: 'zendesk',
        credentials: { type: 'OAUTH2', client_id: 'desk', client_secret: 'of desk' },
      },
    ]) {
      const made = await pages.trellis.call('POST', '/integrations', { body });
      assert.equal(made.status, 200, made.text);
    }
  });
  after(() => pages?.close());

  const openFor = async (key: string, query = '') => {
    const { url, token } = await pages.link({ end_user: { id: 'ada' }, allowed_integrations: [key] });
    await page.goto(url + query);
    return token;
  };
  const connect = (at: Page) => at.getByRole('button', { name: 'Connect', exact: true });

  test('an API key has a field with help, is required, and connects', async () => {
    await openFor('key');
    await connect(page).click();
    await page.getByText('This field is required.').waitFor();
    await page.getByRole('textbox', { name: 'API key' }).and(page.locator(':focus')).waitFor();
    await picture(page, 'connect-api-key');
    const field = page.getByRole('textbox', { name: 'API key' });
    assert.equal(await field.getAttribute('type'), 'password');
    await field.fill('a key');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Private API (API key) is connected' }).waitFor();
  });

  test("user name and password are beside the provider's other fields, and invalid fields are marked", async () => {
    pages.expectComplaint(/400/);
    await openFor('own');
    await page.getByRole('textbox', { name: 'Address' }).fill('not an address');
    await page.getByRole('textbox', { name: 'User name' }).fill('ada');
    await page.getByRole('textbox', { name: 'Password' }).fill('right');
    await connect(page).click();
    const reason = page.getByText(/Example: https:\/\/erp\.example\.com$/);
    await reason.waitFor();
    assert.match(String(await reason.textContent()), /^Enter an address that begins with https:/);
    await page.getByRole('textbox', { name: 'Address' }).and(page.locator(':focus')).waitFor();
    await picture(page, 'connect-basic');
    await page.getByRole('textbox', { name: 'Address' }).fill(' https://erp.example.com ');
    await connect(page).click();
    await page.getByRole('heading', { name: 'Own Host is connected' }).waitFor();
  });

  test('the reason of a refused field is in the language of the page, and follows a switch', async () => {
    pages.expectComplaint(/400/);
    await openFor('bot');
    const language = page.getByRole('combobox');
    await page.locator('input[name=apiKey]').fill('no key');
    await connect(page).click();
    await page.getByText(/^The value does not have the expected form\. Example: 123456789:AA/).waitFor();
    for (const [spoken, reason] of [
      ['de', 'Der Wert hat nicht die erwartete Form. Beispiel: 123456789:AA'],
      ['fr', 'La valeur n’a pas la forme attendue. Exemple : 123456789:AA'],
      ['es', 'El valor no tiene la forma esperada. Ejemplo: 123456789:AA'],
      ['ja', '値の形式が正しくありません。 例: 123456789:AA'],
      ['ar', 'القيمة ليست بالصيغة المتوقعة. مثال: \u2068123456789:AA'],
    ] as const) {
      await language.selectOption(spoken);
      await page.getByText(reason).waitFor();
    }
    await picture(page, 'connect-refused-ar');
    await openFor('key', '&lang=de');
    await page.locator('input[name=apiKey]').fill('klucz – ключ');
    await page.getByRole('button', { name: 'Verbinden', exact: true }).click();
    await page.getByText(/^Verwenden Sie nur Buchstaben von A bis Z/).waitFor();
    await page.locator('input[name=apiKey]').fill('x'.repeat(2_000));
    await page.getByRole('button', { name: 'Verbinden', exact: true }).click();
    await page.getByText('Geben Sie höchstens 1024 Zeichen ein.').waitFor();
  });

  for (const [where, viewport] of [
    ['in a window', { width: 1280, height: 800 }],
    ['in the same tab', { width: 390, height: 800 }],
  ] as const) {
    test(`a field that is refused on the way to the provider ${where} has its reason, and its value stays`, async () => {
      pages.expectComplaint(/400/);
      const { page: visitor } = await pages.openAsNobody();
      await visitor.setViewportSize(viewport);
      await visitor.goto((await pages.link({ end_user: { id: 'ada' }, allowed_integrations: ['desk'] })).url);
      const subdomain = visitor.getByRole('textbox', { name: 'Subdomain' });
      await subdomain.fill('acme.zendesk.com');
      await visitor.getByRole('button', { name: 'Continue to Zendesk' }).click();
      await visitor
        .getByText('Only the characters “A–Z a–z 0–9 -” are allowed. Example: acme', { exact: true })
        .waitFor();
      await subdomain.and(visitor.locator(':focus')).waitFor();
      assert.equal(await subdomain.inputValue(), 'acme.zendesk.com');
      await visitor.getByLabel('Language').selectOption('ar');
      await visitor
        .getByText('يُسمح فقط بالأحرف «\u2068A–Z a–z 0–9 -\u2069». مثال: \u2068acme\u2069')
        .waitFor();
      await visitor.close();
    });
  }

  test('what was typed stays while another account is looked at, except for secrets', async () => {
    pages.expectComplaint(/400/);
    const { url } = await pages.link({ end_user: { id: 'ada' }, allowed_integrations: ['own', 'key'] });
    await page.goto(url);
    const choose = () => page.getByRole('button', { name: /^Own Host/ }).click();
    await choose();
    await page.getByRole('textbox', { name: 'Address' }).fill('not an address');
    await page.getByRole('textbox', { name: 'User name' }).fill('ada');
    await page.getByRole('textbox', { name: 'Password' }).fill('right');
    await connect(page).click();
    await page.getByText(/^Enter an address/).waitFor();
    await page.getByRole('button', { name: 'Connect another account' }).click();
    await choose();
    assert.equal(await page.getByRole('textbox', { name: 'Address' }).inputValue(), 'not an address');
    assert.equal(await page.getByRole('textbox', { name: 'User name' }).inputValue(), 'ada');
    assert.equal(await page.getByRole('textbox', { name: 'Password' }).inputValue(), '');
    const stored = await page.evaluate('JSON.stringify([sessionStorage, localStorage, location.href])');
    assert.doesNotMatch(String(stored), /right|not an address/);
  });

  test('a client that the provider refuses is reported as refused, and may be tried again', async () => {
    const client = await pages.trellis.control('POST', 'clients', {
      redirect_uris: ['https://app.example/callback'],
    });
    pages.trellis.watch.made('client_secret', String(client.client_secret));
    await openFor('machine');
    await page.getByRole('textbox', { name: 'Client ID' }).fill(String(client.client_id));
    await page.getByRole('textbox', { name: 'Client secret' }).fill('wrong');
    await connect(page).click();
    await page.getByRole('alert').waitFor();
    await picture(page, 'connect-client-refused');
    await page.getByRole('textbox', { name: 'Client secret' }).fill(String(client.client_secret));
    await connect(page).click();
    await page.getByRole('heading', { name: /is connected/ }).waitFor();
  });

  test('where nothing is needed a click connects', async () => {
    await openFor('open');
    await connect(page).click();
    await page.getByRole('heading', { name: 'Unauthenticated is connected' }).waitFor();
  });

  for (const [language, title, scope] of [
    ['en', 'Connect Google Sheets', 'See the e-mail address of the account.'],
    ['de', 'Google Sheets verbinden', 'Die E-Mail-Adresse des Kontos sehen.'],
    ['fr', 'Connecter Google Sheets', "Voir l'adresse e-mail du compte."],
    ['es', 'Conectar Google Sheets', 'Ver la dirección de correo electrónico de la cuenta.'],
    ['ja', 'Google Sheetsを接続', 'アカウントのメールアドレスを表示します。'],
    ['ar', 'ربط Google Sheets', 'الاطّلاع على عنوان البريد الإلكتروني للحساب.'],
  ] as const) {
    test(`it speaks ${language}, and everything fits`, async () => {
      await openFor('google-sheet', `&lang=${language}`);
      await page.getByRole('heading', { name: title }).waitFor();
      await page.getByText(scope).waitFor();
      const root = await page.evaluate('[document.documentElement.lang, document.documentElement.dir]');
      assert.deepEqual(root, [language, language === 'ar' ? 'rtl' : 'ltr']);
      await picture(page, `connect-language-${language}`);
    });
  }

  test('without a language in the link the page uses that of the environment, then that of the browser', async () => {
    const { page: french } = await pages.openAsNobody();
    await french.addInitScript(
      "Object.defineProperty(navigator, 'languages', { get: () => ['it', 'fr-CA'] })",
    );
    await french.goto((await pages.link()).url);
    await french.getByRole('heading', { name: 'Que souhaitez-vous connecter ?' }).waitFor();
    await french.getByLabel('Langue').selectOption('Español');
    await french.getByRole('heading', { name: '¿Qué desea conectar?' }).waitFor();
    await french.close();
  });

  test('it wears the name, the colors and the theme of the environment', async () => {
    const logo =
      'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
    const changed = await pages.trellis.call('PATCH', '/environment/settings', {
      body: {
        connect: {
          app_name: 'Acme Reports',
          logo,
          language: 'de',
          colors: { light: { primary: '#7a1fa2' }, dark: { primary: '#e0b0ff' } },
        },
      },
    });
    assert.equal(changed.status, 200, changed.text);
    await openFor('google-sheet');
    await page.getByRole('heading', { name: 'Google Sheets verbinden' }).waitFor();
    assert.ok(await page.getByText('Acme Reports').first().isVisible());
    const ground = "getComputedStyle(document.querySelector('form [type=submit]')).backgroundColor";
    assert.equal(await page.evaluate(ground), 'rgb(122, 31, 162)');
    await picture(page, 'connect-branded');
    await pages.trellis.call('PATCH', '/environment/settings', {
      body: {
        connect: {
          font: 'serif',
          radius: 20,
          theme: 'light',
          colors: { light: { primary: '#8a3b12', background: '#fff6ea', text: '#3b2a1a' } },
          texts: { de: { intro: '<b>{app}</b> braucht {provider}.', continueTo: 'Weiter' } },
        },
      },
    });
    await openFor('google-sheet');
    await page.getByText('<b>Acme Reports</b> braucht Google Sheets.').waitFor();
    await page.getByRole('button', { name: 'Weiter', exact: true }).waitFor();
    const style = (selector: string, name: string) =>
      page.evaluate(`getComputedStyle(document.querySelector('${selector}')).${name}`);
    assert.equal(await style('form [type=submit]', 'borderRadius'), '20px');
    assert.match(String(await style('h1', 'fontFamily')), /^serif, /);
    assert.equal(await style('main', 'backgroundColor'), 'rgb(255, 246, 234)');
    assert.equal(await style('h1', 'color'), 'rgb(59, 42, 26)');
    await picture(page, 'connect-own-look');
    await pages.trellis.call('PATCH', '/environment/settings', {
      body: {
        connect: {
          app_name: null,
          logo: null,
          language: null,
          theme: 'dark',
          font: null,
          radius: null,
          texts: null,
        },
      },
    });
    await openFor('google-sheet');
    await page.getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
    assert.equal(await page.evaluate('document.documentElement.dataset.mantineColorScheme'), 'dark');
    await pages.trellis.call('PATCH', '/environment/settings', {
      body: { connect: { theme: null, colors: { light: null, dark: null } } },
    });
  });

  test('a link that is truncated, unknown, used, for another purpose or expired shows its fault', async () => {
    pages.expectComplaint(/401/);
    const open = `${pages.trellis.baseUrl}/connect/`;
    const { context } = await pages.openAsNobody();
    const says = async (url: string, title: string, name: string) => {
      const fresh = await context.newPage();
      await fresh.goto(url);
      await fresh.getByRole('heading', { name: title }).waitFor();
      await picture(fresh, name);
      await fresh.close();
    };
    await says(open, 'This link is incomplete', 'connect-incomplete');
    const { url, token } = await pages.link();
    await says(
      `${open}?session_token=${token.replace(/.$/, (last) => (last === '0' ? '1' : '0'))}`,
      'This link is not valid',
      'connect-unknown',
    );
    await says(
      `${url}&integration=none`,
      'This link is for another account or integration',
      'connect-other-thing',
    );
    const expired = await pages.link();
    await pages.trellis.advance(31 * 60);
    await says(expired.url, 'This link has expired', 'connect-expired');
  });

  test('an unavailable service is reported, and the page continues when the service answers', async () => {
    pages.expectComplaint(/ERR_FAILED|ERR_CONNECTION/);
    await page.route('**/connect/session/**', (route) => route.abort());
    await openFor('google-sheet');
    await page.getByRole('heading', { name: 'The service cannot be reached' }).waitFor();
    await picture(page, 'connect-unreachable');
    await page.unroute('**/connect/session/**');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('heading', { name: 'Connect Google Sheets' }).waitFor();
  });
});
