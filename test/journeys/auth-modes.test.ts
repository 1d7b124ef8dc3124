// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { z } from 'zod';
import type { AuthMode } from '../../server/auth-modes/mode.ts';
import { authModes, type Credentials } from '../../server/auth-modes/modes.ts';
import { type Catalog, loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, type TestDashboard } from '../support/dashboard.ts';
import { readDocument } from '../support/openapi.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** A mode that does not ship: an account number and a PIN, in one header. */
type PinCredentials = { readonly type: 'PIN'; readonly account: string; readonly pin: string };
const pinMode: AuthMode<PinCredentials> = {
  name: 'PIN',
  client: 'none',
  ownCredentialsOnly: true,
  form: {
    path: '/api-auth/pin',
    operationId: 'connectByPin',
    summary: 'Connect with a PIN',
    example: { account: '4711', pin: '0000' },
    fields: {
      account: { secret: false, required: true, title: 'Account number' },
      pin: { secret: true, required: true, title: 'PIN' },
    },
  },
  importSchema: z.strictObject({
    type: z.literal('PIN'),
    account: z.string().regex(/^\d+$/, 'must be digits'),
    pin: z.string().min(4),
  }),
  placeholders: ['account', 'pin'],
  templateValues: ({ account, pin }) => ({ account, pin }),
  placement: [{ in: 'header', name: 'X-Pin', value: '${credentials.account}/${credentials.pin}' }],
  definitionFaults: ({ verification }) =>
    verification === undefined ? [[['verification'], 'a PIN provider needs it']] : [],
  toWire: ({ type, account, pin }) => ({ type, account, pin }),
};

const definition = (more: string) => `display_name: Pin Bank
categories: [other]
docs: https://example.com/docs
auth_mode: PIN
logo: private-api-key.svg
integration_config:
  base_url: { title: Base, description: Base address., format: uri }
api: { base_url: "\${integrationConfig.base_url}" }
${more}`;

/** Accepts one PIN, and returns the header that it got. */
const bank = createServer(({ headers }, response) => {
  response.statusCode = headers['x-pin'] === '4711/2580' ? 200 : 401;
  response.end(JSON.stringify({ pin: headers['x-pin'] }));
});
let directory: string;
let catalog: Catalog;

before(async () => {
  authModes.set('PIN', pinMode as unknown as AuthMode<Credentials>);
  await once(bank.listen(0, '127.0.0.1'), 'listening');
  directory = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, directory, { recursive: true });
  await writeFile(join(directory, 'pin-bank.yaml'), definition('verification: { path: /me }\n'));
  catalog = loadCatalog(directory, authModes);
});
after(async () => {
  authModes.delete('PIN');
  bank.closeAllConnections();
  bank.close();
  await rm(directory, { recursive: true });
});

const integration = () => ({
  unique_key: 'bank',
  provider: 'pin-bank',
  integration_config: { base_url: `http://127.0.0.1:${(bank.address() as AddressInfo).port}` },
});
const reach = { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' };

async function openSession({ call }: TestTrellis) {
  const { body } = await call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['bank'] },
  });
  return body.data as { token: string; connect_link: string };
}

test('a definition is checked by the rules of its mode', async () => {
  const lacking = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  try {
    await writeFile(join(lacking, 'pin-bank.yaml'), definition(''));
    assert.throws(() => loadCatalog(lacking, authModes), /verification: a PIN provider needs it/);
    const others = new Map([...authModes].filter(([name]) => name !== 'PIN'));
    assert.throws(() => loadCatalog(lacking, others), /auth_mode: /);
  } finally {
    await rm(lacking, { recursive: true });
  }
});

describe('a mode that is only in the list of modes', () => {
  let trellis: TestTrellis;
  before(async () => {
    trellis = await openTrellis(reach, { catalog });
    const made = await trellis.call('POST', '/integrations', { body: integration() });
    assert.equal(made.status, 200, made.text);
  });
  after(() => trellis.close());

  test('has its route, its body and its name in the OpenAPI document', async () => {
    const { paths } = await readDocument(trellis);
    const { operationId, requestBody } = paths['/api-auth/pin/{key}']!.post!;
    assert.equal(operationId, 'connectByPin');
    assert.partialDeepStrictEqual(requestBody!.content['application/json']!.schema, {
      properties: { account: { type: 'string' }, pin: { type: 'string' } },
      required: ['account', 'pin'],
      additionalProperties: false,
    });
    assert.match(JSON.stringify(paths['/connect/session/choices']), /"enum":\[[^\]]*"NONE","PIN"\]/);
  });

  test('is in the catalogue, takes no client, and has its fields on the connect page', async () => {
    const { body } = await trellis.call('GET', '/providers/pin-bank');
    assert.partialDeepStrictEqual(body.data, { auth_mode: 'PIN', oauth_client: 'none' });
    const refused = await trellis.call('POST', '/integrations', {
      body: { ...integration(), unique_key: 'other', credentials: { type: 'TEST' } },
    });
    assert.equal(refused.status, 400, refused.text);
    const { token } = await openSession(trellis);
    const choices = await trellis.call('GET', '/connect/session/choices', { key: token });
    const [choice] = (choices.body.data as { choices: Record<string, unknown>[] }).choices;
    assert.partialDeepStrictEqual(choice, { auth_mode: 'PIN', form_path: '/api-auth/pin/bank' });
    const fields = choice!.fields as { name: string; title: string; secret: boolean }[];
    assert.deepEqual(
      fields.map(({ name, title, secret }) => [name, title, secret]),
      [
        ['account', 'Account number', false],
        ['pin', 'PIN', true],
      ],
    );
  });

  test('connects by its form, is shown, and is put on calls', async () => {
    const { token } = await openSession(trellis);
    const submit = (body: object) =>
      trellis.call('POST', `/api-auth/pin/bank?connect_session_token=${token}`, { key: undefined, body });
    const errorOf = ({ body }: Awaited<ReturnType<typeof submit>>) => (body.error as { code: string }).code;
    assert.equal(errorOf(await submit({ account: '4711', pin: '9999' })), 'connection_test_failed');
    assert.equal(errorOf(await submit({ account: 'ada', pin: '2580' })), 'invalid_body');
    assert.equal(errorOf(await submit({ account: '4711' })), 'invalid_body');
    const { status, body, text } = await submit({ account: '4711', pin: '2580' });
    assert.equal(status, 200, text);
    const connectionId = String(body.connectionId);
    const shown = await trellis.call('GET', `/connections/${connectionId}?provider_config_key=bank`);
    assert.deepEqual(shown.body.credentials, { type: 'PIN', account: '4711', pin: '2580' });
    const proxied = await trellis.call('GET', '/proxy/me', {
      headers: { 'provider-config-key': 'bank', 'connection-id': connectionId },
    });
    assert.deepEqual([proxied.status, proxied.text], [200, '{"pin":"4711/2580"}']);
  });

  test('is imported, with its own type alone', async () => {
    const place = { provider_config_key: 'bank', connection_id: 'imported' };
    const credentials = { type: 'PIN', account: '4711', pin: '2580' };
    const wrong = await trellis.call('POST', '/connections', {
      body: { ...place, credentials: { type: 'API_KEY', apiKey: 'k' } },
    });
    assert.match(wrong.text, /requires credentials of type PIN/);
    const made = await trellis.call('POST', '/connections', { body: { ...place, credentials } });
    assert.equal(made.status, 201, made.text);
  });
});

describe('the connect page of a mode that is only in the list of modes', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  before(async () => {
    dashboard = await openDashboard(reach, { catalog });
    await dashboard.trellis.call('POST', '/integrations', { body: integration() });
  });
  after(() => dashboard?.close());

  test('shows its form and connects by it', async () => {
    const { page } = await dashboard.openAsNobody();
    await page.goto((await openSession(dashboard.trellis)).connect_link);
    await page.getByRole('textbox', { name: 'Account number' }).fill('4711');
    const pin = page.getByRole('textbox', { name: 'PIN' });
    assert.equal(await pin.getAttribute('type'), 'password');
    await pin.fill('2580');
    await page.getByRole('button', { name: 'Connect', exact: true }).click();
    await page.getByRole('heading', { name: 'Pin Bank is connected' }).waitFor();
  });
});
