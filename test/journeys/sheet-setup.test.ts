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

type Trip = { integration?: string; account?: string; allow?: string[]; cookie?: string };

/** Connects an account; what the browser has to show for the session from then on. */
async function travel(
  token: string,
  { integration = 'google-sheet', account = 'ada@example.com', allow, cookie: shown }: Trip = {},
): Promise<string> {
  const url = `${trellis.baseUrl}/oauth/connect/${integration}?connect_session_token=${token}`;
  const begun = await visit(trellis, url, shown);
  const set = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
  const cookie = [...(shown ? [shown] : []), ...set].join('; ');
  const { redirect } = await trellis.control('POST', 'authorize', {
    url: begun.headers.get('location'),
    account,
    ...(allow && { allow }),
  });
  assert.equal((await visit(trellis, String(redirect), cookie)).status, 200);
  return cookie;
}

async function makeSheet(account = 'ada@example.com'): Promise<string> {
  const rows = [
    ['Code', 'City'],
    ['7', 'Oslo'],
    ['8', 'Rome'],
  ];
  const body = { account, title: 'Cities', sheet: 'All', rows };
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

test('a session with this step chooses a sheet of its connection, once, and its rows are records', async () => {
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
  const reported = await own.call('GET', '/setup');
  assert.deepEqual(
    [reported.body.data, reported.headers.get('cache-control')],
    [
      {
        kind: 'sheet',
        provider_config_key: 'google-sheet',
        connection_id,
        account: 'ada@example.com',
        integration_id: 'google-sheet',
      },
      'no-store',
    ],
  );
  const spreadsheetId = await makeSheet();
  const listed = await own.call('POST', '/setup/spreadsheets', {});
  assert.deepEqual(
    listed.body.data,
    { available: false, spreadsheets: [], next_page_token: null, nextPageToken: null },
    listed.text,
  );
  const link = `https://docs.google.com/spreadsheets/d/${spreadsheetId}/edit#gid=0`;
  const described = await own.call('POST', '/setup/describe', { spreadsheet: link });
  assert.deepEqual(described.body.data, {
    spreadsheet_id: spreadsheetId,
    spreadsheetId,
    title: 'Cities',
    sheet_id: 0,
    sheetId: 0,
    tabs: [{ sheet_id: 0, sheetId: 0, title: 'All', kind: 'grid', hidden: false }],
  });
  const preview = await own.call('POST', '/setup/preview', { spreadsheet: link });
  const { suggested_key_column: suggested, rows } = preview.body.data as Record<string, unknown>;
  assert.deepEqual(
    [suggested, rows],
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

  const choice = {
    spreadsheet_id: spreadsheetId,
    sheet_id: 0,
    key_column: 'Code',
    title: 'Cities',
    tab: 'All',
  };
  const twice = await Promise.all([own.call('PUT', '/setup', choice), own.call('PUT', '/setup', choice)]);
  assert.deepEqual(twice.map(({ status }) => status).sort(), [200, 401]);
  assert.deepEqual(await recordsOf(connection_id), ['7', '8']);
  const { body } = await trellis.call(
    'GET',
    `/connections/${connection_id}?provider_config_key=google-sheet`,
  );
  assert.deepEqual((body.metadata as { sheets: object }).sheets, {
    base: {
      spreadsheetId,
      sheetId: 0,
      keyColumn: 'Code',
      title: 'Cities',
      tab: 'All',
      headerRow: 1,
      identity: 'key',
    },
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
      integration_id: 'google-sheet',
      connection_id,
      setup: 'sheet',
    });
  const other = await makeSheet();
  const again = await renew();
  await travel(again);
  await of(again).call('GET', '/setup');
  // The older spellings.
  const second = await of(again).call('PUT', '/setup', { spreadsheetId: other, sheetId: 0 });
  assert.equal((second.body.data as { variant: string }).variant, 'sheet-2', second.text);
  assert.equal((await recordsOf(connection_id, { variant: 'sheet-2' })).length, 2);
  const third = await renew();
  await travel(third);
  const otherwise = await of(third).call('PUT', '/setup', { ...choice, key_column: 'City' });
  assert.equal((otherwise.body.data as { variant: string }).variant, 'base', otherwise.text);
  for (let ids = ['7']; ids[0] === '7'; ids = await recordsOf(connection_id)) await pause(20);
  assert.deepEqual(await recordsOf(connection_id), ['Oslo', 'Rome']);
});

test('a session without this step, an expired one, or an invalid one reads nothing of the account', async () => {
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
      provider: 'unauthenticated',
      unique_key: 'open',
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
    key: weak,
    body: { end_user: { id: 'ada' }, setup: 'sheet' },
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
  await travel(token, { integration: 'own-actions' });
  const asked = await of(token).call('POST', '/setup/describe', { spreadsheet: 'x' });
  assert.deepEqual(refusalOf(asked), [409, 'function_exists']);
});

type Progress = { setup: string | null; connection: { connection_id: string; missing_scopes: object[] } };
const progressOf = async (token: string) =>
  (await of(token).call('GET', '/progress')).body.data as unknown as Progress;

/** A session with a set-up that is open, and the connection that it made. */
async function openSetUp(): Promise<{ token: string; id: string }> {
  const token = await newSession({ setup: 'sheet' });
  await travel(token);
  assert.equal((await of(token).call('GET', '/setup')).status, 200);
  return { token, id: (await progressOf(token)).connection.connection_id };
}

async function putGraceInPlace(id: string): Promise<void> {
  const token = await sessionFor('/connect/sessions/reconnect', {
    integration_id: 'google-sheet',
    connection_id: id,
    require_same_account: false,
  });
  await travel(token, { account: 'grace@example.com' });
}

/** Neither shown nor changed by what the session may ask. */
async function assertOver(token: string): Promise<void> {
  const spreadsheet = await makeSheet('grace@example.com');
  for (const [method, path, given] of [
    ['GET', '/setup', undefined],
    ['POST', '/setup/preview', { spreadsheet }],
    ['PUT', '/setup', { spreadsheetId: spreadsheet, sheetId: 0 }],
  ] as const) {
    assert.deepEqual(refusalOf(await of(token).call(method, path, given)), gone, path);
  }
  const { setup, connection } = await progressOf(token);
  assert.deepEqual([setup, connection.missing_scopes], [null, []]);
}

test('what another account has put in place of it is not of the session that made the connection', async () => {
  const { token, id } = await openSetUp();
  await putGraceInPlace(id);
  await assertOver(token);
});

test('a connection that was deleted and imported again under its ID does not belong to the session that made it', async () => {
  const { token, id } = await openSetUp();
  const asGrace = await newSession({});
  await travel(asGrace, { account: 'grace@example.com' });
  const pathOf = (connectionId: string) => `/connections/${connectionId}?provider_config_key=google-sheet`;
  const { connection } = await progressOf(asGrace);
  const hers = await trellis.call('GET', `${pathOf(connection.connection_id)}&refresh_token=true`);
  const { type, access_token, refresh_token } = hers.body.credentials as Record<string, string>;
  assert.equal((await trellis.call('DELETE', pathOf(id))).status, 200);
  const { status } = await of(token).call('GET', '/setup');
  assert.equal(status, 400);
  const imported = await trellis.call('POST', '/connections', {
    body: {
      provider_config_key: 'google-sheet',
      connection_id: id,
      credentials: { type, access_token, refresh_token },
    },
  });
  assert.equal(imported.status, 201, imported.text);
  await assertOver(token);
});

test('a request during a replacement of the account is refused', async () => {
  const { token, id } = await openSetUp();
  const spreadsheet = await makeSheet();
  assert.equal((await of(token).call('POST', '/setup/preview', { spreadsheet })).status, 200);
  await trellis.control('POST', 'faults', { case: 'api_slow', delay_ms: 2_000, times: 1 });
  const asked = of(token).call('POST', '/setup/preview', { spreadsheet });
  await putGraceInPlace(id);
  assert.deepEqual(refusalOf(await asked), gone);
});

test('a choice that waits for a renewal is not stored in the renewed connection', async () => {
  const { token, id } = await openSetUp();
  const choice = { spreadsheetId: await makeSheet(), sheetId: 0 };
  const { answer } = await trellis.db.transaction(async (tx) => {
    await tx.query('select from connection where connection_id = $1 for update', [id]);
    const asked = of(token).call('PUT', '/setup', choice);
    const waiting =
      "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while ((await trellis.db.query(waiting)).length === 0) await pause(10);
    await tx.query(
      "update connection set granted_at = granted_at + interval '1 ms' where connection_id = $1",
      [id],
    );
    return { answer: asked };
  });
  assert.deepEqual(refusalOf(await answer), gone);
  const { body } = await trellis.call('GET', `/connections/${id}?provider_config_key=google-sheet`);
  assert.deepEqual(body.metadata, {});
});

test('a set-up is open on another node as soon as a renewal is saved, and where a node before this one saved it', async () => {
  const { token: first, id } = await openSetUp();
  const other = await trellis.serveAnother();
  try {
    const setUpThere = (token: string) => other.call('GET', '/connect/session/setup', { key: token });
    assert.equal((await setUpThere(first)).status, 200);
    const token = await sessionFor('/connect/sessions/reconnect', {
      integration_id: 'google-sheet',
      connection_id: id,
      setup: 'sheet',
    });
    await travel(token);
    assert.equal((await setUpThere(token)).status, 200);
    assert.deepEqual(refusalOf(await of(first).call('GET', '/setup')), gone);
    await trellis.db.query("update connect_session set outcome = outcome - 'grant'");
    assert.equal((await of(token).call('GET', '/setup')).status, 200);
    assert.equal((await progressOf(token)).setup, 'sheet');
    await putGraceInPlace(id);
    await trellis.db.query("update connect_session set outcome = outcome - 'grant'");
    assert.deepEqual(refusalOf(await of(token).call('GET', '/setup')), gone);
  } finally {
    await other.close();
  }
});

test('a choice is kept when the session is reopened for missing scopes', async () => {
  const drive = 'https://www.googleapis.com/auth/drive.readonly';
  const scopes = ['openid', 'email', 'https://www.googleapis.com/auth/spreadsheets', drive];
  const made = await trellis.call('POST', '/integrations', {
    body: {
      provider: 'google-sheet',
      unique_key: 'with-drive',
      credentials: { type: 'TEST', scopes: scopes.join(',') },
    },
  });
  assert.equal(made.status, 200, made.text);
  const token = await newSession({ setup: 'sheet', allowed_integrations: ['with-drive'] });
  const trip = { integration: 'with-drive' };
  const cookie = await travel(token, { ...trip, allow: scopes.filter((scope) => scope !== drive) });
  await of(token).call('GET', '/setup');
  const choice = { spreadsheetId: await makeSheet(), sheetId: 0 };
  assert.equal((await of(token).call('PUT', '/setup', choice)).status, 200);
  assert.equal((await of(token).call('POST', '/rest')).status, 204);
  await travel(token, { ...trip, cookie });
  const { setup, connection } = await progressOf(token);
  assert.deepEqual([setup, connection.missing_scopes], [null, []]);
  assert.deepEqual(refusalOf(await of(token).call('POST', '/setup/spreadsheets', {})), gone);
  assert.deepEqual(refusalOf(await of(token).call('PUT', '/setup', choice)), gone);
});

test('only a holder of its token can end a session with an open set-up', async () => {
  const { token } = await openSetUp();
  const end = (key?: string) => trellis.call('DELETE', '/connect/session', { key });
  assert.deepEqual(refusalOf(await end(trellis.keys.dev)), [401, 'invalid_connect_session_token_format']);
  assert.equal((await end(token)).status, 204);
  for (const path of ['/setup', '/progress'])
    assert.deepEqual(refusalOf(await of(token).call('GET', path)), gone);
  assert.deepEqual(refusalOf(await end(token)), gone);
  const audited = await trellis.call('GET', '/audit?action=connect_session.ended');
  const [{ actor, target }] = audited.body.entries as [{ actor: string; target: string }];
  assert.equal(actor, target);
});
