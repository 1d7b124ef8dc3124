import assert from 'node:assert/strict';
import test from 'node:test';
import { type Bench, openBench } from '../testing.ts';

async function ticketOf(bench: Bench): Promise<string> {
  const page = await (await fetch(`${bench.sandbox.url}/`)).text();
  return /name="ticket" value="([^"]+)"/.exec(page)?.[1] ?? '';
}

function post(
  bench: Bench,
  fields: Record<string, string>,
  headers: Record<string, string> = {},
): Promise<Response> {
  const body = new URLSearchParams(fields);
  return fetch(`${bench.sandbox.url}/`, { method: 'POST', body, headers, redirect: 'manual' });
}

test('each form has the effect of its control route and returns to its section', async (t) => {
  const bench = await openBench(t);
  await bench.connect();
  const { spreadsheetId } = await bench.control<{ spreadsheetId: string }>('POST /spreadsheets', {
    account: 'ada@example.com',
    title: 'Numbers',
    rows: [['id'], ['a']],
  });
  const ticket = await ticketOf(bench);
  const act = async (fields: Record<string, string>) => {
    const response = await post(bench, { ticket, ...fields });
    assert.equal(response.status, 303, `${fields.act}: ${await response.text()}`);
    return response.headers.get('location');
  };
  const account = 'ada@example.com';
  const forms: [Record<string, string>, string][] = [
    [{ act: 'advance', hours: '1' }, '/#clock'],
    [{ act: 'fault', case: 'token_503', account, client_id: '', times: '3', delay_ms: '' }, '/#faults'],
    [{ act: 'add_account', email: 'alan@example.com', name: '', hosted_domain: '' }, '/#accounts'],
    [{ act: 'standing', account, standing: 'restricted' }, '/#accounts'],
    [{ act: 'session', account, hours: '2' }, '/#accounts'],
    [{ act: 'password', account }, '/#accounts'],
    [
      {
        act: 'project',
        project_number: '100000000001',
        publishing: 'testing',
        audience: 'external',
        domain: '',
        test_users: 'ada@example.com, grace@example.com',
      },
      '/#apps',
    ],
    [{ act: 'revoke', account, project_number: '100000000001' }, '/#grants'],
    [{ act: 'damage', spreadsheet_id: spreadsheetId, damage: 'header_renamed' }, '/#spreadsheets'],
    [{ act: 'purge', account: 'grace@example.com' }, '/#accounts'],
  ];
  for (const [fields, location] of forms) assert.equal(await act(fields), location);

  assert.equal((await bench.control<{ offset_s: number }>('GET /clock')).offset_s, 3600);
  const { accounts } = await bench.control<{ accounts: Record<string, unknown>[] }>('GET /accounts');
  assert.deepEqual(
    accounts.map(({ email, standing, session_s: session }) => [email, standing, session]),
    [
      ['ada@example.com', 'restricted', 7200],
      ['alan@example.com', 'active', undefined],
    ],
  );
  const { projects } = await bench.control<{ projects: Record<string, unknown>[] }>('GET /projects');
  assert.deepEqual(projects[0]?.test_users, ['ada@example.com', 'grace@example.com']);
  assert.deepEqual(await bench.control('GET /grants'), { grants: [] });
  type InForce = { faults: { id: string; case: string; account: string; times_left: number }[] };
  const { faults } = await bench.control<InForce>('GET /faults');
  assert.deepEqual([faults[0]?.case, faults[0]?.account, faults[0]?.times_left], ['token_503', account, 3]);
  await act({ act: 'clear', id: faults[0]!.id });
  assert.equal((await bench.control<InForce>('GET /faults')).faults.length, 0);
});

test('a form from another site does nothing', async (t) => {
  const bench = await openBench(t);
  const ticket = await ticketOf(bench);
  const { url } = bench.sandbox;
  const fields = { act: 'advance', hours: '1' };
  const attempts: [Record<string, string>, Record<string, string>][] = [
    [fields, {}],
    [{ ...fields, ticket: 'x' }, {}],
    [{ ...fields, ticket }, { origin: 'https://evil.example' }],
    [{ ...fields, ticket }, { origin: 'null' }],
    [{ ...fields, ticket }, { origin: `${url}0` }],
    [{ ...fields, ticket }, { 'sec-fetch-site': 'cross-site' }],
    [
      { ...fields, ticket },
      { 'sec-fetch-site': 'same-site', origin: url },
    ],
  ];
  for (const [body, headers] of attempts) {
    const response = await post(bench, body, headers);
    assert.equal(response.status, 400);
    assert.match(await response.text(), /not sent by this page/);
  }
  assert.equal((await bench.control<{ offset_s: number }>('GET /clock')).offset_s, 0);
  const own = await post(bench, { ...fields, ticket }, { origin: url, 'sec-fetch-site': 'same-origin' });
  assert.equal(own.status, 303);
});

test('an error of a form is shown on the page, escaped', async (t) => {
  const bench = await openBench(t);
  const ticket = await ticketOf(bench);
  for (const fields of [
    { act: 'advance', hours: '-1' },
    { act: 'fault', case: '<b>' },
    { act: 'constructor' },
    { act: 'password', account: '<script>' },
  ]) {
    const response = await post(bench, { ticket, ...fields });
    const page = await response.text();
    assert.equal(response.status, 400, fields.act);
    assert.match(page, /role="alert"/);
    assert.doesNotMatch(page, /<script>|case: <b>/);
  }
});

test('the entered value stays in its form beside the error, and in no other form', async (t) => {
  const bench = await openBench(t);
  const ticket = await ticketOf(bench);
  const project_number = '100000000001';
  const forms: [Record<string, string>, RegExp][] = [
    [
      { act: 'add_account', email: 'not-an-address', name: '"Alan"', hosted_domain: 'w.example' },
      /name="email" value="not-an-address".*\n.*name="name" value="&(?:#34|quot);Alan&(?:#34|quot);".*\n.*value="w\.example"/,
    ],
    [
      { act: 'project', project_number, audience: 'internal', publishing: 'testing', test_users: 'nobody' },
      /<option value="internal" selected>[\s\S]*<option value="testing" selected>[\s\S]*name="test_users" value="nobody"/,
    ],
    [
      { act: 'fault', case: 'token_503', times: '3', delay_ms: '-1' },
      /<option value="token_503" selected>[\s\S]*<option value="3" selected>[\s\S]*name="delay_ms" value="-1"/,
    ],
    [{ act: 'session', account: 'ada@example.com', hours: '-7' }, /name="hours" value="-7"/],
  ];
  for (const [fields, filled] of forms) {
    const response = await post(bench, { ...fields, ticket });
    assert.equal(response.status, 400);
    const page = await response.text();
    assert.ok(filled.test(page), `what was typed at ${fields.act} is gone`);
    assert.ok((page.match(/value="-7"/g) ?? []).length <= 1, 'one account has been typed at');
  }
});

test('the domain of a project can be cleared by its form', async (t) => {
  const bench = await openBench(t);
  const ticket = await ticketOf(bench);
  const project = {
    act: 'project',
    project_number: '100000000001',
    publishing: 'production',
    test_users: '',
  };
  const save = async (more: Record<string, string>) =>
    (await post(bench, { ticket, ...project, ...more })).status;
  const domain = async () =>
    (await bench.control<{ projects: { domain?: string }[] }>('GET /projects')).projects[0]?.domain;
  assert.equal(await save({ audience: 'internal', domain: 'w.example' }), 303);
  assert.equal(await save({ audience: 'internal', domain: '' }), 400, 'an internal project needs one');
  assert.equal(await domain(), 'w.example');
  assert.equal(await save({ audience: 'external', domain: '' }), 303);
  assert.equal(await domain(), undefined);
});

test('a call with a token that was revoked or ended early is listed under its account', async (t) => {
  const bench = await openBench(t);
  const { access_token } = (await bench.connect()) as { access_token: string };
  const call = async () => {
    const headers = { authorization: `Bearer ${access_token}` };
    const answer = await fetch(`${bench.sandbox.url}/v4/spreadsheets/x`, { headers });
    await answer.body?.cancel();
    return answer.status;
  };
  await bench.control('POST /revoke', { account: 'ada@example.com' });
  assert.equal(await call(), 401);
  const page = await (await fetch(`${bench.sandbox.url}/`)).text();
  assert.match(
    page,
    /401<\/span><\/td><td><code>GET [^<]*spreadsheets[^<]*<\/code><\/td><td>ada@example\.com/,
  );
});

test('the page accepts no form if a control key is set', async (t) => {
  const bench = await openBench(t, { key: 'open-sesame' });
  const response = await post(bench, { act: 'advance', hours: '1' });
  assert.equal(response.status, 401);
  assert.match(await response.text(), /locked/);
});

test('the size of the page has a limit, whatever the sandbox contains', async (t) => {
  const bench = await openBench(t);
  for (let n = 0; n < 120; n += 1) {
    await bench.control('POST /accounts', { email: `person-${n}@example.com` });
    await bench.control('POST /faults', { case: 'api_500' });
    await fetch(`${bench.sandbox.url}/tokeninfo?access_token=x`);
  }
  const page = await (await fetch(`${bench.sandbox.url}/`)).text();
  assert.equal(page.match(/class="card hot"/g)?.length, 50);
  assert.match(page, /72 more are not shown/);
  assert.equal(page.match(/<code>GET \/tokeninfo<\/code>/g)?.length, 25 + 1);
  assert.ok(page.length < 200_000);
  const { calls } = await bench.control<{ calls: unknown[] }>('GET /calls/last');
  assert.equal(calls.length, 100);
});
