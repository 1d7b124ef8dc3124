import assert from 'node:assert/strict';
import test from 'node:test';
import { auth, sheets } from '@googleapis/sheets';
import { openBench, spreadsheets, testRedirectUri } from './testing.ts';

test("Google's own client gets consent, tokens and cells, refreshes automatically and revokes", async (t) => {
  const bench = await openBench(t);
  const { url, client } = bench.sandbox;
  const google = new auth.OAuth2({
    clientId: client.clientId,
    clientSecret: client.clientSecret,
    redirectUri: testRedirectUri,
    endpoints: {
      oauth2AuthBaseUrl: `${url}/o/oauth2/v2/auth`,
      oauth2TokenUrl: `${url}/token`,
      oauth2RevokeUrl: `${url}/revoke`,
      tokenInfoUrl: `${url}/tokeninfo`,
    },
  });
  const authorizationUrl = google.generateAuthUrl({ access_type: 'offline', scope: ['email', spreadsheets] });
  const { redirect } = await bench.control<{ redirect: string }>('POST /authorize', {
    url: authorizationUrl,
    account: 'ada@example.com',
  });
  const { tokens } = await google.getToken(new URL(redirect).searchParams.get('code') ?? '');
  google.setCredentials(tokens);
  const info = await google.getTokenInfo(tokens.access_token ?? '');
  assert.deepEqual([info.email, info.aud], ['ada@example.com', client.clientId]);

  const { spreadsheetId } = await bench.control<{ spreadsheetId: string }>('POST /spreadsheets', {
    account: 'ada@example.com',
    title: 'Fruit',
    sheet: 'Stock',
    csv: 'fruit,count\r\n"apple, red",3\r\n',
  });
  const api = sheets({ version: 'v4', auth: google, rootUrl: url });
  const read = async () =>
    (await api.spreadsheets.values.get({ spreadsheetId, range: 'Stock!A1:B2' })).data.values;
  assert.deepEqual(await read(), [
    ['fruit', 'count'],
    ['apple, red', '3'],
  ]);

  google.setCredentials({ ...tokens, expiry_date: 1 });
  assert.equal((await read())?.length, 2);
  assert.equal((await bench.control<Record<string, number>>('GET /calls'))['POST /token'], 2);

  await google.revokeToken(tokens.refresh_token ?? '');
  await assert.rejects(google.refreshAccessToken(), /invalid_grant/);
});
