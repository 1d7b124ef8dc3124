import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomUUID, X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { getCACertificates, setDefaultCACertificates, type TLSSocket } from 'node:tls';
import { makeCertificate } from '../support/certificate.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/**
 * Connections with a certificate of their own, at a provider that demands one for each TLS connection and accepts a token
 * only with the certificate for which it was issued (RFC 8705 §3).
 */
type Certified = { pem: string; key: string; cert: string; fingerprint: string };
const key = 'own-mtls';
const client = { client_id: 'client-1', client_secret: randomUUID() };
const defaultAuthorities = getCACertificates('default');
let trellis: TestTrellis;
let directory: string;
let server: Server;
let origin: string;
let own: Certified;
let other: Certified;
let unknown: Certified;
let seen: { path: string; fingerprint: string; socket: TLSSocket }[] = [];
const tokens = new Map<string, string>();
let failures = 0;

before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'trellis-connection-certificates-'));
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' });
  [own, other, unknown] = [certified('own'), certified('other'), certified('unknown')];
  trellis.watch.made('client_secret', client.client_secret);
  for (const { key: text } of [own, other, unknown])
    for (const line of text.split('\n').slice(1, -2)) trellis.watch.made('signing_key', line);
  const ofServer = makeCertificate(directory, { names: [], addresses: ['127.0.0.1'] });
  setDefaultCACertificates([...defaultAuthorities, ofServer.ca]);
  const { key: serverKey, cert } = ofServer;
  const ca = [own.cert, other.cert];
  server = createServer({ key: serverKey, cert, ca, requestCert: true, rejectUnauthorized: true }, answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await done('POST', '/providers', { name: key, definition: definition() });
  await done('POST', '/integrations', { provider: key, unique_key: key });
});
after(async () => {
  setDefaultCACertificates(defaultAuthorities);
  await trellis.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(directory, { recursive: true });
});
beforeEach(() => {
  seen = [];
});

/** A key and a certificate that it signs itself; `days`: from now to its last day, which may be over. */
function certified(name: string, days = 2): Certified {
  const at = (end: string) => join(directory, `${name}.${end}`);
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' });
  const request = ['-newkey', 'rsa:2048', '-noenc', '-keyout', at('key'), '-subj', `/CN=${name}`];
  openssl('req', ...request, '-out', at('csr'));
  const signed = ['-signkey', at('key'), '-days', String(days), '-out', at('pem')];
  openssl('x509', '-req', '-in', at('csr'), ...signed);
  const [text, cert] = [readFileSync(at('key'), 'utf8'), readFileSync(at('pem'), 'utf8')];
  return { pem: text + cert, key: text, cert, fingerprint: new X509Certificate(cert).fingerprint256 };
}

async function answer(request: IncomingMessage, response: ServerResponse) {
  const socket = request.socket as TLSSocket;
  const path = request.url ?? '';
  const fingerprint = socket.getPeerCertificate().fingerprint256 ?? '';
  seen.push({ path, fingerprint, socket });
  const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>)).toString();
  const reply = (status: number, json: object, headers = {}) =>
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(json));
  if (path === '/token') {
    const form = new URLSearchParams(body);
    const isClient = form.get('client_secret') === client.client_secret;
    if (!isClient) return reply(401, { error: 'invalid_client' });
    const token = randomUUID();
    tokens.set(token, fingerprint);
    return reply(200, { access_token: token, token_type: 'Bearer', expires_in: 3600 });
  }
  if (tokens.get(request.headers.authorization?.slice('Bearer '.length) ?? '') !== fingerprint)
    return reply(401, { error: 'invalid_token' });
  if (path === '/v1/moved') return reply(302, {}, { location: '/v1/me' });
  if (path === '/v1/flaky' && failures++ === 0) return reply(503, {});
  return reply(200, { fingerprint });
}

function definition(more = '') {
  return `display_name: Payroll
categories: [hr]
docs: https://payroll.example/docs
auth_mode: OAUTH2_CC
credentials:
  client_id: { title: Client ID, description: The ID. }
  client_secret: { title: Client secret, description: The secret., secret: true }
  client_certificate:
    { title: Certificate, description: With its key., secret: true, multiline: true, max_length: 16384 }
token: { url: ${origin}/token }
api: { base_url: ${origin}/v1, redirects: same_origin }
verification: { path: /me }
${more}`;
}

async function done(method: string, path: string, body?: object) {
  const given = await trellis.call(method, path, body === undefined ? {} : { body });
  assert.ok(given.status < 300, given.text);
  return given.body;
}
const create = (certificate: string | undefined, connection_id?: string) =>
  trellis.call('POST', '/connections', {
    body: {
      provider_config_key: key,
      ...(connection_id && { connection_id }),
      credentials: {
        type: 'OAUTH2_CC',
        ...client,
        ...(certificate !== undefined && { client_certificate: certificate }),
      },
    },
  });
async function connected(certificate: string): Promise<string> {
  const made = await create(certificate);
  assert.equal(made.status, 201, made.text);
  return String(made.body.connection_id);
}
async function session(): Promise<string> {
  const { data } = await done('POST', '/connect/sessions', {
    end_user: { id: 'ada' },
    allowed_integrations: [key],
  });
  return (data as { token: string }).token;
}
const submit = (token: string, certificate: string) =>
  trellis.call('POST', `/oauth2/auth/${key}?connect_session_token=${token}`, {
    key: undefined,
    body: { ...client, client_certificate: certificate },
  });
const proxied = (id: string, path = '/me', more = {}) =>
  trellis.call('GET', `/proxy${path}`, {
    headers: { 'provider-config-key': key, 'connection-id': id, ...more },
  });
const refresh = (id: string) => trellis.call('POST', `/connections/${id}/refresh?provider_config_key=${key}`);
const errorOf = ({ body }: { body: Record<string, unknown> }) =>
  body.error as { code: string; message: string; errors?: { path: string[]; message: string }[] };

test('a connection presents its certificate for its token, its verification, its calls and its refresh', async () => {
  const id = await connected(own.pem);
  assert.deepEqual((await proxied(id)).body, { fingerprint: own.fingerprint });
  assert.equal((await refresh(id)).status, 200);
  assert.deepEqual((await proxied(id)).body, { fingerprint: own.fingerprint });
  assert.deepEqual(
    seen.map(({ path, fingerprint }) => [path, fingerprint === own.fingerprint]),
    ['/token', '/v1/me', '/v1/me', '/token', '/v1/me'].map((path) => [path, true]),
  );
});

test('a redirect, a retry and the call after a 401 present the same certificate', async () => {
  const id = await connected(own.pem);
  failures = 0;
  assert.deepEqual((await proxied(id, '/moved')).body, { fingerprint: own.fingerprint });
  assert.deepEqual((await proxied(id, '/flaky', { retries: '1' })).body, { fingerprint: own.fingerprint });
  tokens.clear();
  assert.deepEqual((await proxied(id)).body, { fingerprint: own.fingerprint });
  assert.deepEqual(new Set(seen.map(({ fingerprint }) => fingerprint)), new Set([own.fingerprint]));
});

test('forty calls at once of two connections never share a TLS connection', async () => {
  const [first, second] = [await connected(own.pem), await connected(other.pem)];
  seen = [];
  const answers = await Promise.all(
    Array.from({ length: 40 }, async (_, at) => {
      const { fingerprint } = at % 2 === 0 ? own : other;
      const { status, body } = await proxied(at % 2 === 0 ? first : second);
      return status === 200 && body.fingerprint === fingerprint;
    }),
  );
  assert.deepEqual(new Set(answers), new Set([true]));
  const socketsOf = ({ fingerprint }: Certified) =>
    new Set(seen.filter((call) => call.fingerprint === fingerprint).map(({ socket }) => socket));
  assert.equal(seen.length, 40);
  assert.deepEqual([...socketsOf(own).intersection(socketsOf(other))], []);
  seen = [];
  for (const _ of [1, 2, 3]) await proxied(first);
  assert.equal(socketsOf(own).size, 1, 'later calls use the open connection');
});

test('a connection without a certificate does not get the open TLS connection of one that has it', async () => {
  const id = await connected(own.pem);
  await proxied(id);
  await done('POST', '/providers', {
    name: 'own-plain',
    definition: `display_name: Plain
categories: [hr]
docs: https://payroll.example/docs
auth_mode: API_KEY
placement: [{ in: header, name: Authorization, value: "Bearer \${credentials.apiKey}" }]
api: { base_url: ${origin}/v1 }
`,
  });
  await done('POST', '/integrations', { provider: 'own-plain', unique_key: 'own-plain' });
  const { connection_id: plain } = await done('POST', '/connections', {
    provider_config_key: 'own-plain',
    credentials: { type: 'API_KEY', apiKey: [...tokens.keys()].at(-1) },
  });
  seen = [];
  const refused = await proxied(String(plain), '/me', { 'provider-config-key': 'own-plain' });
  assert.deepEqual([refused.status, seen], [502, []], refused.text);
});

test('the next calls of a connection present the certificate that replaced the previous one', async () => {
  const id = await connected(own.pem);
  await proxied(id);
  const replaced = await create(other.pem, id);
  assert.ok(replaced.status < 300, replaced.text);
  seen = [];
  const answers = await Promise.all(Array.from({ length: 20 }, () => proxied(id)));
  assert.deepEqual(new Set(answers.map(({ body }) => body.fingerprint)), new Set([other.fingerprint]));
  assert.deepEqual(new Set(seen.map(({ fingerprint }) => fingerprint)), new Set([other.fingerprint]));
});

describe('a certificate is refused', () => {
  test('when it is entered, if it is missing, damaged, expired or of another key', async () => {
    const expired = certified('expired', -1);
    const cases: [string | undefined, RegExp][] = [
      [undefined, /^is required$/],
      ['', /^is required$/],
      [own.cert, /private key/],
      [own.key, /must also have the certificate/],
      [other.key + own.cert, /does not belong to the certificate/],
      [expired.pem, /expired on \d{4}-\d\d-\d\d/],
      ['a-shared-secret', /must also have the certificate/],
    ];
    for (const [pem, message] of cases) {
      const refused = await create(pem);
      const { code, errors = [] } = errorOf(refused);
      assert.deepEqual([refused.status, code], [400, 'invalid_body'], refused.text);
      assert.deepEqual(errors[0]?.path.at(-1), 'client_certificate');
      assert.match(errors[0]?.message ?? '', message);
    }
    assert.deepEqual(seen, []);
  });

  test('when the provider does not know it', async () => {
    const refused = await submit(await session(), unknown.pem);
    assert.deepEqual([refused.status, errorOf(refused).code], [400, 'connection_test_failed'], refused.text);
    assert.deepEqual(seen, []);
  });

  test('by a provider that has no certificates, and with the client of an integration', async () => {
    await done('POST', '/providers', {
      name: 'own-shared',
      definition: definition().replace(/ {2}client_certificate:\n.*\n/, ''),
    });
    await done('POST', '/integrations', { provider: 'own-shared', unique_key: 'own-shared' });
    const refused = await trellis.call('POST', '/connections', {
      body: {
        provider_config_key: 'own-shared',
        credentials: { type: 'OAUTH2_CC', ...client, client_certificate: own.pem },
      },
    });
    assert.match(errorOf(refused).errors?.[0]?.message ?? refused.text, /is not a field of this provider/);
    const shared = await trellis.call('POST', '/integrations', {
      body: { provider: key, unique_key: 'own-2', credentials: { type: 'OAUTH2', ...client } },
    });
    assert.equal(shared.status, 400);
    assert.match(shared.text, /is entered with each connection/);
  });
});

test('the form has a field of several lines for the certificate, and takes a text without line breaks', async () => {
  const token = await session();
  const { body } = await trellis.call('GET', '/connect/session/choices', { key: token });
  const [choice] = (body.data as { choices: { fields: Record<string, unknown>[] }[] }).choices;
  const { name, secret, multiline, required } = choice?.fields.at(-1) ?? {};
  assert.deepEqual([name, secret, multiline, required], ['client_certificate', true, true, true]);
  const refused = await submit(token, other.key + own.cert);
  assert.match(errorOf(refused).errors?.[0]?.message ?? refused.text, /does not belong to the certificate/);
  const made = await submit(token, own.pem.replaceAll('\n', '\\n'));
  assert.equal(made.status, 200, made.text);
  assert.deepEqual((await proxied(String(made.body.connectionId))).body, { fingerprint: own.fingerprint });
});

test('no answer has the certificate or its key, not even with the secrets that renew a token', async () => {
  const id = await connected(own.pem);
  const shown = await trellis.call('GET', `/connections/${id}?provider_config_key=${key}&refresh_token=true`);
  assert.ok(shown.text.includes(client.client_secret) && !shown.text.includes('CERTIFICATE'), shown.text);
});

test('a definition that asks for certificates has what they need', async () => {
  const fault = async (text: string) => {
    const given = await trellis.call('POST', '/providers', { body: { name: 'own-bad', definition: text } });
    assert.equal(given.status, 400, given.text);
    return given.text;
  };
  assert.match(
    await fault(definition().replace(', multiline: true', '')),
    /must be `secret` and `multiline`/,
  );
  assert.match(await fault(definition().replace(/ {2}client_id:.*\n/, '')), /must also have `client_id`/);
  const tls = definition().replace('/token }', '/token, auth_method: tls_client_auth }');
  assert.match(await fault(tls), /must use a shared secret/);
  assert.match(await fault(definition('sandbox: { token: /token }\n')), /test credentials are impossible/);
});

test('a certificate that expires later ends the connection at its next refresh', async () => {
  const id = await connected(own.pem);
  seen = [];
  await trellis.advance(3 * 86_400);
  const refused = await refresh(id);
  assert.deepEqual([refused.status, errorOf(refused).code], [424, 'connection_needs_reauth'], refused.text);
  assert.deepEqual(seen, [], 'nothing is sent');
  const { payload } = refused.body.error as { payload: { cause: string } };
  assert.equal(payload.cause, 'credentials_refused', refused.text);
});
