import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { type Bench, startBench } from './testing.ts';

let bench: Bench;
let id: string;
before(async () => {
  bench = await startBench();
  id = await bench.spreadsheet([
    ['a', 1],
    ['b', 2],
  ]);
});
after(() => bench.close());

const book = (rest = '') => `/v4/spreadsheets/${id}${rest}`;

/** A request byte for byte as written: no client normalises the path or adds headers. */
function raw(
  method: string,
  path: string,
  headers: Record<string, string>,
): Promise<{ status: number; headers: Record<string, unknown>; body: Buffer }> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(bench.origin);
    const sent = request({ hostname, port, method, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) }),
      );
    });
    sent.on('error', reject).end();
  });
}

test('an unknown path or verb is a page, never JSON and never 405', async () => {
  for (const [method, path] of [
    ['GET', '/v4/nothing'],
    ['DELETE', book()],
    ['POST', book('/values/A1')],
    ['GET', book(':unknown')],
  ] as const) {
    const answer = await bench.call(method, path);
    assert.equal(answer.status, 404, path);
    assert.equal(answer.headers.get('content-type'), 'text/html; charset=UTF-8');
  }
  // A range may hold colons, so here the verb is part of it.
  assert.equal((await bench.call('GET', book('/values/A1:append'))).status, 400);
  const page = await raw('GET', '/v4/<script>', {});
  assert.ok(!page.body.includes('<script>'));
});

test('a broken percent-encoding is a bad request', async () => {
  assert.equal((await raw('GET', book('/values/%zz'), { authorization: 'Bearer ann' })).status, 400);
});

test('no token and a bad token get different errors, as at Google', async () => {
  const missing = await bench.call('GET', book(), { token: '' });
  assert.equal(missing.status, 401);
  assert.equal(missing.headers.get('www-authenticate'), 'Bearer realm="https://accounts.google.com/"');
  assert.equal(missing.json.error.details[0].reason, 'CREDENTIALS_MISSING');
  const invalid = await bench.call('GET', book(), { token: 'wrong' });
  assert.equal(invalid.status, 401);
  assert.deepEqual(invalid.json, {
    error: {
      code: 401,
      message:
        'Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid ' +
        'authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.',
      status: 'UNAUTHENTICATED',
    },
  });
  assert.equal(
    invalid.headers.get('www-authenticate'),
    'Bearer realm="https://accounts.google.com/", error="invalid_token"',
  );
});

test('the token is checked before the request, the request before the scope, the scope before the file', async () => {
  const path = '/v4/spreadsheets/none/values/A1?bad=1';
  assert.equal((await bench.call('GET', path, { token: 'wrong' })).status, 401);
  assert.equal((await bench.call('GET', path, { token: 'ann-identity' })).status, 400);
  const noScope = await bench.call('GET', '/v4/spreadsheets/none/values/A1', { token: 'ann-identity' });
  assert.equal(noScope.status, 403);
  assert.equal((await bench.call('GET', '/v4/spreadsheets/none/values/A1')).status, 404);
});

test('a missing scope is reported with the method and all sufficient scopes', async () => {
  const answer = await bench.call('GET', book('/values/A1'), { token: 'ann-identity' });
  assert.equal(answer.message, 'Request had insufficient authentication scopes.');
  assert.deepEqual(answer.json.error.details, [
    {
      '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
      reason: 'ACCESS_TOKEN_SCOPE_INSUFFICIENT',
      domain: 'googleapis.com',
      metadata: {
        service: 'sheets.googleapis.com',
        method: 'google.apps.sheets.v4.SpreadsheetsService.GetValues',
      },
    },
  ]);
  const challenge = answer.headers.get('www-authenticate') ?? '';
  assert.match(challenge, /error="insufficient_scope", scope="https.*spreadsheets\.readonly"$/);
});

test('read scopes allow only get, values.get and values.batchGet', async () => {
  const token = 'ann-reads';
  for (const path of ['', '/values/A1', '/values:batchGet?ranges=A1']) {
    assert.equal((await bench.call('GET', book(path), { token })).status, 200, path);
  }
  for (const path of [
    ':getByDataFilter',
    '/values:batchGetByDataFilter',
    '/developerMetadata:search',
    '/values/A1:clear',
  ]) {
    assert.equal((await bench.call('POST', book(path), { token, body: {} })).status, 403, path);
  }
});

test("another account's file is forbidden, an unknown one is not found", async () => {
  const other = await bench.call('GET', book(), { token: 'bob' });
  assert.deepEqual([other.status, other.message], [403, 'The caller does not have permission']);
  const unknown = await bench.call('GET', '/v4/spreadsheets/nothing');
  assert.deepEqual([unknown.status, unknown.message], [404, 'Requested entity was not found.']);
  assert.equal((await bench.call('GET', '/v4/spreadsheets/..%2F..%2Fetc%2Fpasswd')).status, 404);
});

test('drive.file covers only files that its client created', async () => {
  assert.equal((await bench.call('GET', book(), { token: 'ann-files' })).status, 404);
  const made = await bench.call('POST', '/v4/spreadsheets', { token: 'ann-files', body: {} });
  assert.equal(made.status, 200);
  const again = await bench.call('GET', `/v4/spreadsheets/${made.json.spreadsheetId}`, {
    token: 'ann-files',
  });
  assert.equal(again.status, 200);
});

test('answers have the headers of Google', async () => {
  const { headers } = await bench.call('GET', book());
  assert.equal(headers.get('content-type'), 'application/json; charset=UTF-8');
  assert.match(headers.get('vary') ?? '', /^Origin, X-Origin, Referer/);
  assert.equal(headers.get('server'), 'ESF');
  assert.equal(headers.get('cache-control'), 'private');
  assert.equal(headers.get('x-content-type-options'), 'nosniff');
});

test('an answer is compressed only when both headers say gzip', async () => {
  const authorization = 'Bearer ann';
  const plain = await raw('GET', book(), { authorization, 'accept-encoding': 'gzip' });
  assert.equal(plain.headers['content-encoding'], undefined);
  const zipped = await raw('GET', book(), {
    authorization,
    'accept-encoding': 'gzip',
    'user-agent': 'x (gzip)',
  });
  assert.equal(zipped.headers['content-encoding'], 'gzip');
  assert.deepEqual(JSON.parse(gunzipSync(zipped.body).toString()), JSON.parse(plain.body.toString()));
});

test('prettyPrint=false answers on one line', async () => {
  assert.match((await bench.call('GET', book('/values/A1'))).text, /^\{\n {2}"range"/);
  assert.doesNotMatch((await bench.call('GET', book('/values/A1?prettyPrint=false&$.xgafv=2'))).text, /\n/);
});

test('paths are taken as real clients send them', async () => {
  await bench.call('POST', book(':batchUpdate'), {
    body: { requests: [{ addSheet: { properties: { title: 'Q1/2024 data' } } }] },
  });
  const authorization = 'Bearer ann';
  const routes: [method: string, path: string, route: string][] = [
    ['GET', book('/'), 'GET /v4/spreadsheets/{spreadsheetId}'],
    [
      'GET',
      book('/values/%27Q1%2F2024%20data%27%21A1%3AB2'),
      'GET /v4/spreadsheets/{spreadsheetId}/values/{range}',
    ],
    ['GET', book("/values/'Sheet1'!A1"), 'GET /v4/spreadsheets/{spreadsheetId}/values/{range}'],
    ['POST', book("/values/'Sheet1'!Z9:clear"), 'POST /v4/spreadsheets/{spreadsheetId}/values/{range}:clear'],
    [
      'POST',
      book('/values/Sheet1%21Y1%3AZ2:clear'),
      'POST /v4/spreadsheets/{spreadsheetId}/values/{range}:clear',
    ],
    ['POST', book('/:getByDataFilter'), 'POST /v4/spreadsheets/{spreadsheetId}:getByDataFilter'],
    [
      'GET',
      book('/values:batchGet?ranges=A1&ranges=B2'),
      'GET /v4/spreadsheets/{spreadsheetId}/values:batchGet',
    ],
  ];
  for (const [method, path, route] of routes) {
    const answer = await raw(method, path, { authorization });
    assert.equal(answer.status, 200, `${path}: ${answer.body}`);
    assert.equal(answer.headers['x-route'], route);
  }
});

test('what the sandbox cannot do is refused by name, before anything is done', async () => {
  const answer = await bench.call('POST', book(':batchUpdate'), {
    body: { requests: [{ addSheet: { properties: { title: 'never' } } }, { addChart: { chart: {} } }] },
  });
  assert.equal(answer.status, 501);
  assert.match(answer.message, /requests\[1\]\.addChart.*'addChart'/);
  const { json } = await bench.call('GET', book());
  assert.ok(
    !json.sheets.some((sheet: { properties: { title: string } }) => sheet.properties.title === 'never'),
  );
});

test('fields picks a part of any answer and names what does not exist', async () => {
  const picked = await bench.call('GET', book('?fields=properties.title,sheets(properties(title,index))'));
  assert.deepEqual(Object.keys(picked.json), ['properties', 'sheets']);
  assert.deepEqual(picked.json.properties, { title: 'Book' });
  assert.deepEqual(picked.json.sheets[0], { properties: { title: 'Sheet1', index: 0 } });
  const values = await bench.call('GET', book('/values/A1:B2?fields=values'));
  assert.deepEqual(values.json, {
    values: [
      ['a', '1'],
      ['b', '2'],
    ],
  });
  const bad = await bench.call('GET', book('?fields=sheets.sheetProperties'));
  assert.deepEqual(bad.json.error, {
    code: 400,
    message: 'Request contains an invalid argument.',
    status: 'INVALID_ARGUMENT',
    details: [
      {
        '@type': 'type.googleapis.com/google.rpc.BadRequest',
        fieldViolations: [
          {
            field: 'sheets.sheetProperties',
            description:
              "Error expanding 'fields' parameter. Cannot find matching fields for path 'sheets.sheetProperties'.",
          },
        ],
      },
    ],
  });
});
