import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

const settled = { redirect: 'manual' } as const;

async function addressOf(trellis: TestTrellis, more = ''): Promise<string> {
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'sheets' },
  });
  const { body, text } = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'u1', display_name: 'Eve <b>', email: 'eve@example.com' } },
  });
  assert.ok(body.data, text);
  const { token } = body.data as { token: string };
  return `${trellis.baseUrl}/oauth/connect/sheets?connect_session_token=${token}${more}`;
}

/** As a browser asks that was led there by a page of the same, another or no site. */
const visit = (url: string, site: string | undefined) =>
  fetch(url, { ...settled, headers: site === undefined ? {} : { 'sec-fetch-site': site } });

describe('a link that leads straight to a provider', () => {
  let trellis: TestTrellis;
  before(async () => {
    trellis = await openTrellis();
  });
  after(() => trellis.close());

  test('redirects at once only from a page of the service, and otherwise first shows its end user', async () => {
    for (const site of ['cross-site', 'same-site', 'none']) {
      const url = await addressOf(trellis);
      const asked = await visit(url, site);
      const text = await asked.text();
      assert.equal(asked.status, 200, `${site}: ${asked.headers.get('location')}`);
      assert.match(text, /Connect Google Sheets/);
      assert.match(text, /Eve &#60;b&#62; \(eve@example\.com\)/);
      assert.match(text, /Continue to Google/);
      assert.equal(asked.headers.get('set-cookie'), null);
      assert.match(asked.headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);
      assert.ok(!text.includes(new URL(url).searchParams.get('connect_session_token') ?? ''));
      // Looking has bound nothing: another browser may begin.
      const begun = await visit(url, 'same-origin');
      assert.equal(begun.status, 302);
      assert.ok(begun.headers.get('location')?.startsWith(trellis.sandbox.url));
    }
  });

  test('goes there at once for a program', async () => {
    assert.equal((await visit(await addressOf(trellis), undefined)).status, 302);
  });

  test('reports invalid parameters before the authorization', async () => {
    const answer = await visit(await addressOf(trellis, '&authorization_params[state]=x'), 'cross-site');
    assert.equal(answer.status, 400);
    assert.match(await answer.text(), /state/);
  });
});

test('with the brand of the official clients a window of the application goes straight to the provider', async () => {
  const trellis = await openTrellis({ TRELLIS_BRAND: 'nango' });
  try {
    assert.equal((await visit(await addressOf(trellis), 'cross-site')).status, 302);
  } finally {
    await trellis.close();
  }
});
