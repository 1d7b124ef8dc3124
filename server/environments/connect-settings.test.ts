import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { contrastOf } from './connect-settings.ts';
import { textKeys } from './connect-texts.ts';

let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

const asItIs = {
  app_name: null,
  logo: null,
  theme: 'system',
  colors: {
    light: { primary: '#2454d6', background: '#ffffff', text: '#16191d' },
    dark: { primary: '#8fb0ff', background: '#1a1b1e', text: '#eceff2' },
  },
  language: null,
  font: null,
  radius: 8,
  texts: {},
  return_schemes: [] as string[],
};
const patch = (connect: unknown) => trellis.call('PATCH', '/environment/settings', { body: { connect } });
const dataOf = (answer: { body: Record<string, unknown> }) =>
  answer.body.data as { connect: typeof asItIs; connect_warnings: Record<string, unknown>[] };
const base64 = (bytes: Buffer) => bytes.toString('base64');
const png = (bytes: number) => {
  const file = Buffer.alloc(bytes);
  Buffer.from('89504e470d0a1a0a', 'hex').copy(file);
  return `data:image/png;base64,${base64(file)}`;
};

test('without settings the page has its default look, and the defaults can be read', async () => {
  const { connect, connect_warnings: warnings } = dataOf(await trellis.call('GET', '/environment/settings'));
  assert.deepEqual([connect, warnings], [asItIs, []]);
});

test('missing fields are kept, null restores the default, and a response may be sent back', async () => {
  const svg = `data:image/svg+xml;base64,${base64(Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'))}`;
  const set = await patch({
    app_name: ' Example ',
    logo: svg,
    theme: 'dark',
    colors: { light: { primary: '#AA0000', background: '#FFF8F0' }, dark: { text: '#ffffff' } },
    language: 'ja',
    font: 'Source Sans 3',
    radius: 0,
    texts: { de: { intro: ' {app} braucht Ihr Konto bei {provider}. ' }, ar: { close: 'أغلق' } },
    return_schemes: ['MyApp', 'com.example.app'],
  });
  assert.equal(set.status, 200, set.text);
  const wanted = {
    app_name: 'Example',
    logo: svg,
    theme: 'dark',
    language: 'ja',
    colors: {
      light: { primary: '#aa0000', background: '#fff8f0', text: '#16191d' },
      dark: { primary: '#8fb0ff', background: '#1a1b1e', text: '#ffffff' },
    },
    font: 'Source Sans 3',
    radius: 0,
    return_schemes: ['myapp', 'com.example.app'],
    texts: { de: { intro: '{app} braucht Ihr Konto bei {provider}.' }, ar: { close: 'أغلق' } },
  };
  assert.deepEqual(dataOf(set).connect, wanted);
  assert.deepEqual(dataOf(await patch(dataOf(set).connect)).connect, wanted);
  const some = await patch({
    logo: png(64 * 1024),
    colors: { light: null, dark: { primary: '#ffffff', text: null } },
    texts: { de: { intro: null, close: 'Zu' }, fr: { close: 'Fermer' } },
  });
  assert.deepEqual(dataOf(some).connect, {
    ...wanted,
    logo: png(64 * 1024),
    colors: { ...asItIs.colors, dark: { ...asItIs.colors.dark, primary: '#ffffff' } },
    texts: { de: { close: 'Zu' }, fr: { close: 'Fermer' }, ar: { close: 'أغلق' } },
  });
  const none = await patch({
    app_name: null,
    logo: null,
    theme: null,
    colors: { dark: null },
    language: null,
    font: null,
    radius: null,
    texts: null,
    return_schemes: null,
  });
  assert.deepEqual(dataOf(none).connect, asItIs);
  const other = await trellis.call('GET', '/environment/settings', { key: trellis.keys.prod });
  assert.deepEqual(dataOf(other).connect, asItIs);
});

test('a color that is hard to read is taken, and warned of', async () => {
  const { connect_warnings: warnings } = dataOf(
    await patch({ colors: { light: { primary: '#ffff00' }, dark: { primary: '#111111' } } }),
  );
  assert.deepEqual(
    warnings.map(({ path, contrast, needed }) => ({ path, contrast, needed })),
    [
      { path: ['colors', 'light', 'primary'], contrast: 1.07, needed: 4.5 },
      { path: ['colors', 'dark', 'primary'], contrast: 1.09, needed: 4.5 },
    ],
  );
  const { connect_warnings: others } = dataOf(
    await patch({
      colors: {
        light: { primary: null, text: '#dddddd' },
        dark: { primary: '#8fb0ff', background: '#000000' },
      },
    }),
  );
  assert.deepEqual(
    others.map(({ path }) => path),
    [['colors', 'light', 'text']],
  );
  await patch({ colors: { light: null, dark: null } });
});

test('the known texts are those of the page, with the placeholders that they have there', async () => {
  // The program that checks types knows no React, whose types the files of texts lead to.
  const textsIn = async (language: string) =>
    (await import(`../../web/connect/texts/${language}.ts`))[language] as Record<string, string>;
  const en = await textsIn('en');
  const placeholdersOf = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!);
  assert.deepEqual(Object.keys(textKeys).sort(), Object.keys(en).sort());
  for (const language of ['en', 'de', 'fr', 'es', 'ja', 'ar']) {
    for (const [key, text] of Object.entries(await textsIn(language)))
      for (const name of placeholdersOf(text))
        assert.ok(textKeys[key]?.includes(name), `${language} ${key}: ${name}`);
  }
  for (const [key, text] of Object.entries(en))
    assert.deepEqual(
      textKeys[key]?.filter((name) => name !== 'app'),
      [...new Set(placeholdersOf(text))].filter((name) => name !== 'app'),
      key,
    );
});

test('texts of 32 KB fit, and no more', async () => {
  // A field named like a secret counts as one in the search of all answers.
  const keys = Object.keys(textKeys).filter((key) => !/password|secret|apiKey/.test(key));
  const texts = Object.fromEntries(keys.slice(0, 60).map((key) => [key, 'x'.repeat(500)]));
  assert.equal((await patch({ texts: { en: texts } })).status, 200);
  const more = await patch({ texts: { de: texts } });
  assert.equal(more.status, 400);
  assert.match(more.text, /32 KB/);
  assert.deepEqual(dataOf(await patch({ texts: null })).connect.texts, {});
});

test('the contrast of two colors is that of WCAG', () => {
  // What WebAIM's contrast checker says.
  assert.equal(contrastOf('#000000', '#ffffff'), 21);
  assert.equal(contrastOf('#ffffff', '#ffffff'), 1);
  assert.equal(contrastOf('#777777', '#ffffff').toFixed(2), '4.48');
  assert.equal(contrastOf('#2454d6', '#ffffff') > 4.5, true);
});

test('an invalid field is 400 with its path, and changes nothing', async () => {
  for (const [connect, ...at] of [
    [{ app_name: '' }, 'app_name'],
    [{ app_name: '   ' }, 'app_name'],
    [{ app_name: 'x'.repeat(81) }, 'app_name'],
    [{ theme: 'blue' }, 'theme'],
    [{ language: 'xx' }, 'language'],
    [{ colors: { light: { primary: 'red' } } }, 'colors', 'light', 'primary'],
    [{ colors: { light: { primary: '#2454d6; background: url(//evil)' } } }, 'colors', 'light', 'primary'],
    [{ colors: { light: { background: '#000000' } } }, 'colors', 'light', 'background'],
    [{ colors: { dark: { background: '#ffffff' } } }, 'colors', 'dark', 'background'],
    [{ colors: { dark: { text: 'rgb(0,0,0)' } } }, 'colors', 'dark', 'text'],
    ...[
      '',
      'x'.repeat(49),
      'A"; } * { color: red',
      'a, b',
      'url(x)',
      'A\\',
      'A\n',
      ' A',
      "O'Neil",
      'expression(1)',
    ].map((font) => [{ font }, 'font'] as [object, string]),
    ...[-1, 25, 1.5, '8', '8px'].map((radius) => [{ radius }, 'radius'] as [object, string]),
    [{ texts: { xx: {} } }, 'texts'],
    [{ texts: { en: { unknown: 'x' } } }, 'texts', 'en', 'unknown'],
    [{ texts: { en: { constructor: 'x' } } }, 'texts', 'en', 'constructor'],
    [{ texts: { en: { close: '' } } }, 'texts', 'en', 'close'],
    [{ texts: { en: { close: 'x'.repeat(501) } } }, 'texts', 'en', 'close'],
    [{ texts: { en: { close: 'a\u0000b' } } }, 'texts', 'en', 'close'],
    [{ texts: { en: { close: '{provider}' } } }, 'texts', 'en', 'close'],
    [{ texts: { en: { intro: '{app' } } }, 'texts', 'en', 'intro'],
    [{ texts: { en: { intro: '{{app}}' } } }, 'texts', 'en', 'intro'],
    ...[
      'javascript',
      'JavaScript',
      'data',
      'file',
      'http',
      'https',
      'blob',
      'vbscript',
      'about',
      'intent',
      'view-source',
      'ms-settings',
      'search-ms',
      'chrome-extension',
      'moz-extension',
      'filesystem',
      '',
      'myapp:',
      'my app',
      '1app',
      'my/app',
      'x'.repeat(65),
      'my\napp',
    ].map((scheme) => [{ return_schemes: [scheme] }, 'return_schemes', '0'] as [object, string, string]),
    [{ return_schemes: Array.from({ length: 11 }, (_, at) => `app${at}`) }, 'return_schemes'],
    [{ logo: 'https://example.com/logo.png' }, 'logo'],
    [{ logo: 'data:text/html;base64,PGI+' }, 'logo'],
    [{ logo: 'data:constructor;base64,AAAA' }, 'logo'],
    [{ logo: `data:image/png;base64,${base64(Buffer.from('<svg>'))}` }, 'logo'],
    [{ logo: png(64 * 1024 + 1) }, 'logo'],
    [{ more: 1 }],
  ] as [object, ...string[]][]) {
    const answer = await patch(connect);
    assert.equal(answer.status, 400, answer.text);
    const { errors } = (answer.body as { error: { errors: { path: string[] }[] } }).error;
    assert.deepEqual(errors[0]?.path, ['connect', ...at], answer.text);
  }
  const now = dataOf(await trellis.call('GET', '/environment/settings'));
  assert.deepEqual(now.connect, asItIs);
});

test('the session has the look of the page, in the form of official pages', async () => {
  const made = await trellis.call('POST', '/connect/sessions', { body: { tags: {} } });
  const { token } = (made.body as { data: { token: string } }).data;
  const look = async () => {
    const { body } = await trellis.call('GET', '/connect/session', { key: token });
    return (body as { data: { connectUISettings: unknown } }).data.connectUISettings;
  };
  const theme = { light: { primary: '#2454d6' }, dark: { primary: '#8fb0ff' } };
  assert.deepEqual(await look(), {
    showWatermark: false,
    defaultTheme: 'system',
    theme,
    appName: null,
    logo: null,
    language: null,
  });
  await patch({
    app_name: 'Example',
    theme: 'light',
    language: 'de',
    colors: { dark: { primary: '#abcdef' } },
  });
  assert.deepEqual(await look(), {
    showWatermark: false,
    defaultTheme: 'light',
    theme: { ...theme, dark: { primary: '#abcdef' } },
    appName: 'Example',
    logo: null,
    language: 'de',
  });
});
