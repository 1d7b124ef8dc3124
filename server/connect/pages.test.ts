import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { html } from '../http/html.ts';
import { type ConnectBench, openConnectBench } from './connect.fixture.ts';

let bench: ConnectBench;
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());

const open = (token: string, query = '') =>
  bench.browser().visit(`/connect/?session_token=${encodeURIComponent(token)}${query}`);

test('every value in a page is escaped', () => {
  const value = `<script>"'&`;
  assert.equal(
    html`<a title="${value}">${[html`<b>${value}</b>`]}${false}${undefined}${0}</a>`.text,
    '<a title="&#60;script&#62;&#34;&#39;&#38;"><b>&#60;script&#62;&#34;&#39;&#38;</b>0</a>',
  );
});

test('the connect page names whom it is for and what may be chosen, and binds nothing', async () => {
  const token = await bench.session({
    end_user: { id: 'u1', display_name: '<b>Ada</b>', email: 'ada@example.com' },
    allowed_integrations: ['sheets', 'private'],
  });
  const { status, text, headers } = await open(token);
  assert.equal(status, 200);
  assert.ok(text.includes('&#60;b&#62;Ada&#60;/b&#62;'));
  assert.ok(text.includes('Google Sheets') && text.includes('Private API') && !text.includes('Google Drive'));
  assert.equal(text.match(/class="badge"/g)?.length, 1);
  assert.equal(headers.get('set-cookie'), null);
  assert.equal(headers.get('cache-control'), 'no-store');
  const [row] = await bench.db.query('select browser_hash from connect_session order by id desc limit 1');
  assert.equal(row?.browser_hash, null);
});

test('a page of one integration says what will be asked and leads there', async () => {
  const token = await bench.session({ tags: {}, allowed_integrations: ['sheets'] });
  const { text } = await open(token);
  assert.ok(text.includes('See, edit, create and delete all spreadsheets'));
  assert.ok(text.includes(`${bench.baseUrl}/oauth/connect/sheets?connect_session_token=${token}`));
  assert.ok(text.includes('admin_policy_enforced'));
});

test('a page for a key has a field for it', async () => {
  const { text } = await open(await bench.session(), '&integration=private');
  assert.match(text, /<input name="apiKey" type="password"[^>]* required/);
});

test('scripts and styles run by a nonce that is new each time', async () => {
  const nonceOf = async () => {
    const { headers, text } = await open(await bench.session(), '&integration=sheets');
    const policy = headers.get('content-security-policy') ?? '';
    assert.ok(policy.startsWith("default-src 'none'") && !policy.includes('unsafe-inline'));
    const [, nonce = ''] = /script-src 'nonce-([^']+)'/.exec(policy) ?? [];
    assert.ok(text.includes(`<script nonce="${nonce}">`) && text.includes(`<style nonce="${nonce}">`));
    assert.doesNotMatch(text, / style=| on[a-z]+=/);
    return nonce;
  };
  assert.notEqual(await nonceOf(), await nonceOf());
});

test('behind https the addresses are those of the proxy in front', async () => {
  const secure = await openConnectBench({ publicUrl: 'https://trellis.example.com/base' });
  try {
    const token = await secure.session();
    const answer = await secure.browser().visit(`/oauth/connect/sheets?connect_session_token=${token}`);
    const redirectUri = new URL(answer.location).searchParams.get('redirect_uri');
    assert.equal(redirectUri, 'https://trellis.example.com/base/oauth/callback');
    const page = await secure.browser().visit(`/connect/?session_token=${token}&integration=sheets`);
    assert.ok(page.text.includes('src="/base/providers/logos/google-sheet.svg"'));
  } finally {
    await secure.end();
  }
});

test('a fault of ours is a page that names the request and nothing else', async () => {
  const token = await bench.session();
  await bench.db.query("update integration set provider = 'gone' where key = 'drive'");
  try {
    for (const path of [
      `/connect/?session_token=${token}`,
      `/oauth/connect/drive?connect_session_token=${token}`,
    ]) {
      const { status, text, headers } = await bench.browser().visit(path);
      assert.equal(status, 500);
      assert.ok(text.includes(`request ${headers.get('x-request-id')}`));
      assert.ok(!text.includes('no provider is called'));
    }
  } finally {
    await bench.db.query("update integration set provider = 'google-drive' where key = 'drive'");
  }
});

test('a link that is cut off, unknown, expired, used up or for something else says so', async () => {
  const used = await bench.session();
  await bench.call(`POST /auth/unauthenticated/open?connect_session_token=${used}`);
  const expired = await bench.session();
  await bench.db.query(
    "update connect_session set expires_at = now() - interval '1 s' where used_at is null",
  );
  const narrow = await bench.session({ tags: {}, allowed_integrations: ['open'] });
  for (const [answer, status, words] of [
    [await bench.browser().visit('/connect/'), 400, /not complete/],
    [await open('x'), 400, /not valid/],
    [await open(expired), 400, /has expired/],
    [await open(used), 200, /Unauthenticated is connected/],
    [await open(narrow, '&integration=sheets'), 400, /does not allow/],
    [await bench.browser().visit('/connect/?session_token=a&session_token=b'), 400, /does not fit/],
  ] as const) {
    assert.match(answer.text, words);
    assert.equal(answer.status, status);
  }
});
