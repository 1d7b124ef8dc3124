import assert from 'node:assert/strict';
import { test } from 'node:test';
import { codeOf } from '../call-code.ts';
import { googleDrive } from './google-drive.ts';
import { googleSheet } from './google-sheet.ts';
import {
  emptyForm,
  type Form,
  flawOf,
  formOf,
  formOfSearch,
  isSecret,
  placeholdersIn,
  requestOf,
  searchOfForm,
  suggestionOf,
} from './request.ts';
import { callOf, clientOf } from './snippets.ts';

const form = (more: Partial<Form>): Form => ({ ...emptyForm, ...more });
const place = { baseUrl: 'http://localhost:3003', integration: 'google-sheet', connection: 'ada' };

test('placeholders are encoded, and what was written beside them stays', () => {
  const fields = { id: 'a b/c', range: "'Sheet 1'!A1:B2" };
  const { target } = requestOf(form({ path: '/v4/{id}/values/{range}:append?a=1%2F2', fields }));
  assert.equal(target, "/v4/a%20b%2Fc/values/'Sheet%201'!A1%3AB2:append?a=1%2F2");
});

test('parameters without a value are left out, repeated ones stay', () => {
  const query = [
    { name: 'ranges', value: 'A1' },
    { name: 'ranges', value: 'B&2' },
    { name: 'fields', value: '' },
    { name: '', value: 'x' },
  ];
  assert.equal(requestOf(form({ path: '/v4', query })).target, '/v4?ranges=A1&ranges=B%262');
  assert.equal(requestOf(form({ path: '/v4?a=1', query })).target, '/v4?a=1&ranges=A1&ranges=B%262');
});

test('a pasted spreadsheet URL is converted to its ID', () => {
  const path = '/v4/spreadsheets/{spreadsheetId}';
  const fields = { spreadsheetId: ' https://docs.google.com/spreadsheets/d/1Ab-c_D/edit#gid=0 ' };
  assert.equal(requestOf(form({ path, fields })).target, '/v4/spreadsheets/1Ab-c_D');
});

test('a body is JSON unless a header has another type, and a GET has none', () => {
  assert.deepEqual(requestOf(form({ method: 'POST', path: '/a', body: '{}' })).headers, [
    ['Content-Type', 'application/json'],
  ]);
  assert.equal(requestOf(form({ path: '/a', body: '{}' })).body, undefined);
  const broken = form({ method: 'POST', path: '/a', body: '{' });
  assert.match(flawOf(broken) ?? '', /^The body is no JSON: /);
  const headers = [{ name: 'content-type', value: 'text/csv' }];
  assert.equal(flawOf({ ...broken, headers }), undefined);
});

test('a request that cannot be sent is reported before sending', () => {
  assert.match(flawOf(form({ path: 'v4' })) ?? '', /slash/);
  assert.equal(flawOf(form({ path: '/{a}/{b}/{a}', fields: { b: ' ' } })), 'Fill in a and b.');
  assert.match(flawOf(form({ path: '/', headers: [{ name: 'a b', value: '1' }] })) ?? '', /no name/);
  assert.match(flawOf(form({ path: '/', headers: [{ name: 'a', value: '✓' }] })) ?? '', /no header/);
  assert.deepEqual(placeholdersIn('/{a}/{b}:x/{a}'), ['a', 'b']);
});

test('what is named like a secret gets neither into the address nor into copied code', () => {
  const secrets = [
    'Authorization',
    'x-api-key',
    'trellis-proxy-X-Api-Key',
    'access_token',
    'key',
    'sig',
    'X-Session',
  ];
  for (const name of secrets) assert.ok(isSecret(name), name);
  for (const name of ['pageToken', 'Retries', 'fields', 'monkey', 'Idempotency-Key', 'signal', 'author']) {
    assert.ok(!isSecret(name), name);
  }
  const given = form({
    path: '/v4?key=hunter2&a=1',
    headers: [{ name: 'X-Api-Key', value: 'hunter2' }],
    query: [{ name: 'access_token', value: 'hunter2' }],
    method: 'POST',
    body: '{"a": [{"client_secret": "hunter2", "author": "Ada"}]}',
  });
  const told = searchOfForm(given);
  assert.ok(!JSON.stringify(told).includes('hunter2'), JSON.stringify(told));
  assert.equal(told.path, '/v4?key=&a=1');
  assert.equal(told.body, undefined);
  for (const [language, code] of Object.entries(codeOf))
    assert.ok(!code(callOf(given, place)).includes('hunter2'), language);
});

test('an address brings back the form that it was made of, but for the body', () => {
  const given = form({
    method: 'PUT',
    path: '/v4/{id}',
    fields: { id: '7' },
    query: [{ name: 'fields', value: '*' }],
    headers: [{ name: 'Retries', value: '2' }],
    body: '{"a": 1}',
  });
  assert.deepEqual(formOfSearch(searchOfForm(given)), { ...given, body: '' });
});

test('each suggestion can be sent once its fields are filled in, and is found again', () => {
  for (const api of [googleSheet, googleDrive]) {
    for (const suggestion of api.calls) {
      const names = placeholdersIn(suggestion.path);
      assert.deepEqual(Object.keys(suggestion.fields ?? {}), names, suggestion.id);
      const made = formOf(suggestion, form({ fields: Object.fromEntries(names.map((name) => [name, 'x'])) }));
      assert.equal(flawOf(made), undefined, suggestion.id);
      assert.equal(suggestionOf(made, api)?.id, suggestion.id);
      assert.ok(clientOf(made, place, api)?.includes(`.${suggestion.client}(`), suggestion.id);
    }
  }
});
