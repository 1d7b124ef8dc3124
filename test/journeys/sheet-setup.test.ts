import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';
import { type Answer, openTrellis, type TestTrellis, visit } from '../support/trellis.ts';

/** An end user chooses a sheet with the token of the session that made the connection, and with nothing else. */
let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'google-sheet' },
  });
});
after(() => trellis.close());

const of = (token: string) => ({
  call: (method: string, path: string, body?: object): Promise<Answer> =>
    trellis.call(method, `/connect/session${path}`, { key: token, ...(body && { body }) }),
});
const sessionFor = async (path: string, body: object): Promise<string> => {
  const { body: made, status, text } = await trellis.call('POST', path, { body });
  assert.equal(status, 201, text);
  return (made.data as { token: string }).token;
};
const newSession = (more: object) =>
  sessionFor('/connect/sessions', {
    end_user: { id: 'ada' },
    allowed_integrations: ['google-sheet'],
    ...more,
  });

async function travel(token: string, integration = 'google-sheet'): Promise<void> {
  const url = `${trellis.baseUrl}/oauth/connect/${integration}?connect_session_token=${token}`;
  const begun = await visit(trellis, url);
  const cookie = begun.headers
    .getSetCookie()
    .map((line) => line.split(';', 1)[0])
    .join('; ');
  const { redirect } = await trellis.control('POST', 'authorize', {
    url: begun.headers.get('location'),
    account: 'ada@example.com',
  });
  assert.equal((await visit(trellis, String(redirect), cookie)).status, 200);
}

async function makeSheet(): Promise<string> {
  const rows = [
    ['Code', 'City'],
    ['7', 'Oslo'],
    ['8', 'Rome'],
  ];
  const body = { account: 'ada@example.com', title: 'Cities', sheet: 'All', rows };
  return String((await trellis.control('POST', 'spreadsheets', body)).spreadsheetId);
}

async function recordsOf(connectionId: string, { variant = 'base', count = 2 } = {}): Promise<string[]> {
  const headers = { 'connection-id': connectionId, 'provider-config-key': 'google-sheet' };
  for (;;) {
    const { body } = await trellis.call('GET', `/records?model=Row&variant=${variant}`, { headers });
    const records = body.records as { id: string }[];
    if (records.length === count) return records.map(({ id }) => id);
    await pause(50);
  }
}

const refusalOf = ({ status, body }: Answer) => [status, (body.error as { code: string }).code];
const gone = [401, 'unknown_connect_session_token'];

test('the session that asks for it chooses a sheet of its connection, once, and its rows are records', async () => {
  const token = await newSession({ setup: 'sheet' });
  const own = of(token);
  assert.deepEqual(refusalOf(await own.call('GET', '/setup')), gone, 'nothing is connected yet');
  await travel(token);
  const progress = (await own.call('GET', '/progress')).body.data as {
    setup: string;
    connection: { connection_id: string };
  };
  const { connection_id } = progress.connection;
  assert.equal(progress.setup, 'sheet');
  const told = await own.call('GET', '/setup');
  assert.deepEqual(
    [told.body.data, told.headers.get('cache-control')],
    [
      { kind: 'sheet', provider_config_key: 'google-sheet', connection_id, account: 'ada@example.com' },
      'no-store',
    ],
  );
  const spreadsheetId = await makeSheet();
  const listed = await own.call('POST', '/setup/spreadsheets', {});
  assert.deepEqual(
    listed.body.data,
    { available: false, spreadsheets: [], nextPageToken: null },
    listed.text,
  );
  const link = `https://docs.google.com/spreadsheets/d/${spreadsheetId}/edit#gid=0`;
  const described = await own.call('POST', '/setup/describe', { spreadsheet: link });
  assert.deepEqual(described.body.data, {
    ...{ spreadsheetId, title: 'Cities', sheetId: 0 },
    tabs: [{ sheetId: 0, title: 'All', kind: 'grid', hidden: false }],
  });
  const preview = await own.call('POST', '/setup/preview', { spreadsheet: link });
  const { suggestedKeyColumn, rows } = preview.body.data as Record<string, unknown>;
  assert.deepEqual(
    [suggestedKeyColumn, rows],
    [
      'Code',
      [
        { Code: '7', City: 'Oslo' },
        { Code: '8', City: 'Rome' },
      ],
    ],
  );
  const wrong = await own.call('POST', '/setup/describe', { spreadsheet: 'my cities' });
  assert.deepEqual(refusalOf(wrong), [422, 'setup_refused']);
  assert.deepEqual((wrong.body.error as { payload: object }).payload, { type: 'invalid_link' });

  const choice = { spreadsheetId, sheetId: 0, keyColumn: 'Code', title: 'Cities', tab: 'All' };
  const twice = await Promise.all([own.call('PUT', '/setup', choice), own.call('PUT', '/setup', choice)]);
  assert.deepEqual(twice.map(({ status }) => status).sort(), [200, 401]);
  assert.deepEqual(await recordsOf(connection_id), ['7', '8']);
  const { body } = await trellis.call(
    'GET',
    `/connections/${connection_id}?provider_config_key=google-sheet`,
  );
  assert.deepEqual((body.metadata as { sheets: object }).sheets, {
    base: { ...choice, headerRow: 1, identity: 'key' },
  });
  const audited = await trellis.call('GET', '/audit?action=connect_session.sheet_chosen');
  assert.equal((audited.body.entries as object[] | undefined)?.length, 1, audited.text);

  // What is chosen is chosen: the token reads nothing of the account any more.
  for (const [method, path, given] of [
    ['GET', '/setup', undefined],
    ['POST', '/setup/spreadsheets', {}],
    ['POST', '/setup/describe', { spreadsheet: link }],
    ['POST', '/setup/preview', { spreadsheet: link }],
  ] as const) {
    assert.deepEqual(refusalOf(await own.call(method, path, given)), gone, path);
  }

  // A renewal may choose another one, which gets a name of its own, or the same one in another way.
  const renew = () =>
    sessionFor('/connect/sessions/reconnect', {
      ...{ integration_id: 'google-sheet', connection_id, setup: 'sheet' },
    });
  const other = await makeSheet();
  const again = await renew();
  await travel(again);
  await of(again).call('GET', '/setup');
  const second = await of(again).call('PUT', '/setup', { spreadsheetId: other, sheetId: 0 });
  assert.equal((second.body.data as { variant: string }).variant, 'sheet-2', second.text);
  assert.equal((await recordsOf(connection_id, { variant: 'sheet-2' })).length, 2);
  const third = await renew();
  await travel(third);
  const otherwise = await of(third).call('PUT', '/setup', { ...choice, keyColumn: 'City' });
  assert.equal((otherwise.body.data as { variant: string }).variant, 'base', otherwise.text);
  for (let ids = ['7']; ids[0] === '7'; ids = await recordsOf(connection_id)) await pause(20);
  assert.deepEqual(await recordsOf(connection_id), ['Oslo', 'Rome']);
});

test('a session that does not ask for it, has expired, or is no session reads nothing of the account', async () => {
  const plain = await newSession({});
  await travel(plain);
  assert.equal(((await of(plain).call('GET', '/progress')).body.data as { setup: null }).setup, null);
  assert.deepEqual(refusalOf(await of(plain).call('GET', '/setup')), gone);
  const key = await trellis.call('GET', '/connect/session/setup');
  assert.deepEqual(refusalOf(key), [401, 'invalid_connect_session_token_format']);
  const late = await newSession({ setup: 'sheet' });
  await travel(late);
  await trellis.advance(31 * 60);
  const choice = { spreadsheetId: 'x'.repeat(30), sheetId: 0 };
  assert.deepEqual(refusalOf(await of(late).call('POST', '/setup/describe', { spreadsheet: 'x' })), gone);
  assert.deepEqual(refusalOf(await of(late).call('PUT', '/setup', choice)), gone);
  const { status } = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, setup: 'everything' },
  });
  assert.equal(status, 400);
  // Another provider has no sheets to choose.
  await trellis.call('POST', '/integrations', {
    body: {
      ...{ provider: 'unauthenticated', unique_key: 'open' },
      integration_config: { base_url: trellis.sandbox.url },
    },
  });
  const other = await newSession({ setup: 'sheet', allowed_integrations: ['open'] });
  const path = `/auth/unauthenticated/open?connect_session_token=${other}`;
  const connected = await trellis.call('POST', path, { key: undefined, body: {} });
  assert.equal(connected.status, 200, connected.text);
  assert.equal(((await of(other).call('GET', '/progress')).body.data as { setup: null }).setup, null);
  assert.deepEqual(refusalOf(await of(other).call('GET', '/setup')), gone);
  const weak = await trellis.keyWith('connections:write');
  const refused = await trellis.call('POST', '/connect/sessions', {
    ...{ key: weak, body: { end_user: { id: 'ada' }, setup: 'sheet' } },
  });
  assert.deepEqual(refusalOf(refused), [403, 'forbidden'], refused.text);
});

test('an action of the operator that has the name of one that ships is not for end users', async () => {
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'own-actions' },
  });
  const config = flowConfig({ name: 'describe-spreadsheet', type: 'action', code: actionCode() });
  const deployed = await trellis.call('POST', '/sync/deploy', {
    body: deployBody([{ ...config, providerConfigKey: 'own-actions' }], { deployMode: 'single' }),
  });
  assert.equal(deployed.status, 200, deployed.text);
  const token = await newSession({ setup: 'sheet', allowed_integrations: ['own-actions'] });
  await travel(token, 'own-actions');
  const asked = await of(token).call('POST', '/setup/describe', { spreadsheet: 'x' });
  assert.deepEqual(refusalOf(asked), [409, 'function_exists']);
});
