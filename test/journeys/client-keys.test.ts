// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createPublicKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { standard } from '../../sandbox/profiles/profile.ts';
import { startProfile } from '../../sandbox/profiles/provider.ts';
import { clientKeyFault } from '../../server/auth-modes/client-key.ts';
import type { ProviderDefinition } from '../../server/providers/definition.ts';
import { makeCertificate } from '../support/certificate.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** OAuth clients that authenticate by a private key (RFC 7523) or a certificate (RFC 8705), from the form to the revocation. */
const endpoints = {
  authorization: 'https://auth.example/authorize',
  token: 'https://auth.example/token',
  refresh: 'https://auth.example/token',
  revocation: 'https://auth.example/revoke',
  api: 'https://api.example/v1',
};
const pem = (key: { export(options: object): string | Buffer }) =>
  key.export({ type: 'pkcs8', format: 'pem' }).toString();
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });

let trellis: TestTrellis;
let directory: string;
let client: { secret: string; other: string; fingerprint: string };
const defaultAuthorities = getCACertificates('default');
before(async () => {
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' });
  directory = await mkdtemp(join(tmpdir(), 'trellis-client-keys-'));
  const certificate = async (name: string, ...more: string[]) => {
    const at = (end: string) => join(directory, `${name}.${end}`);
    const key = [
      '-newkey',
      'rsa:2048',
      '-noenc',
      '-keyout',
      at('key'),
      '-out',
      at('pem'),
      '-subj',
      `/CN=${name}`,
    ];
    execFileSync('openssl', ['req', '-x509', ...key, ...more], { stdio: 'pipe' });
    return { key: await readFile(at('key'), 'utf8'), cert: await readFile(at('pem'), 'utf8') };
  };
  const own = await certificate('client', '-days', '2');
  const other = await certificate('other', '-days', '2');
  client = {
    secret: own.key + own.cert,
    other: other.key + own.cert,
    fingerprint: new X509Certificate(own.cert).fingerprint256,
  };
  trellis.watch.made('client_secret', own.key);
});
after(async () => {
  setDefaultCACertificates(defaultAuthorities);
  await trellis.close();
  await rm(directory, { recursive: true });
});

const profileClient = () => ({
  id: 'client-1',
  secret: 'unused',
  redirectUri: `${trellis.baseUrl}/oauth/callback`,
});
const definition = (origin: string, auth: string, more = '') => `display_name: Bank
categories: [finance]
docs: https://bank.example/docs
auth_mode: OAUTH2
authorization: { url: ${origin}/auth.example/authorize }
token:
  url: ${origin}/auth.example/token
  auth_method: ${auth}
${more}revocation: { url: ${origin}/auth.example/revoke, unit: token }
integration_config:
  key_id: { title: Key ID, description: The ID of the key at the provider., required: false }
api: { base_url: ${origin}/api.example/v1 }
`;
async function done(method: string, path: string, body?: object) {
  const answer = await trellis.call(method, path, body === undefined ? {} : { body });
  assert.ok(answer.status < 300, answer.text);
  return (answer.body.data ?? answer.body) as Record<string, unknown>;
}
const integrate = (provider: string, client_secret: string) =>
  trellis.call('POST', '/integrations', {
    body: {
      provider,
      unique_key: provider,
      integration_config: { key_id: 'key-7' },
      credentials: { type: 'OAUTH2', client_id: 'client-1', client_secret },
    },
  });
const faultOf = ({ body }: Awaited<ReturnType<typeof integrate>>) =>
  (body.error as { errors: { path: string[]; message: string }[] }).errors[0]!;

/** Connects an account; returns the status of the callback, and the ID of the connection if there is one. */
async function connect(key: string): Promise<{ status: number; id: string | undefined }> {
  const { token } = await done('POST', '/connect/sessions', {
    end_user: { id: 'ada' },
    allowed_integrations: [key],
  });
  const begun = await fetch(`${trellis.baseUrl}/oauth/connect/${key}?connect_session_token=${token}`, {
    redirect: 'manual',
  });
  const agreed = await fetch(begun.headers.get('location') ?? '', { redirect: 'manual' });
  const cookie = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
  const landed = await fetch(agreed.headers.get('location') ?? '', {
    headers: { cookie: cookie.join('; ') },
  });
  await landed.body?.cancel();
  const { connections } = (await trellis.call('GET', `/connections?integrationId=${key}`)).body as {
    connections: { connection_id: string }[];
  };
  return { status: landed.status, id: connections[0]?.connection_id };
}
const refresh = (key: string, id: string) =>
  trellis.call('POST', `/connections/${id}/refresh?provider_config_key=${key}`);
const codeOf = ({ body }: Awaited<ReturnType<typeof refresh>>) => (body.error as { code: string }).code;

/** The life of a connection once it is made: a call, refreshes, a user who withdraws, a deletion. */
async function live(key: string, provider: Awaited<ReturnType<typeof startProfile>>) {
  const { status, id } = await connect(key);
  assert.equal(status, 200);
  assert.ok(id);
  const call = () =>
    trellis.call('GET', '/proxy/me', { headers: { 'provider-config-key': key, 'connection-id': id } });
  assert.deepEqual((await call()).body, { account: '77' });
  const twice = [await refresh(key, id), await refresh(key, id)];
  assert.deepEqual(
    twice.map(({ status: of }) => of),
    [200, 200],
    twice.map(({ text }) => text).join(),
  );
  assert.equal((await call()).status, 200);
  provider.endGrants();
  const refused = await refresh(key, id);
  assert.deepEqual([refused.status, codeOf(refused)], [424, 'connection_needs_reauth'], refused.text);
  const again = await connect(key);
  const living = again.id ?? '';
  assert.equal((await refresh(key, living)).status, 200);
  await done('DELETE', `/connections/${living}?provider_config_key=${key}`);
}

const audience = 'https://bank.example';

/** A provider that knows a client by its public key, until the test ends. */
async function startBank(t: TestContext) {
  const provider = await startProfile(
    { ...standard, clientAuth: 'private_key_jwt' },
    {
      client: { ...profileClient(), key: { public: rsa.publicKey, id: 'key-7', audience } },
      endpoints,
      now: new Date(),
    },
  );
  t.after(() => provider.stop());
  return provider;
}

test('a client authenticates by assertions that its private key signs, each of them new', async (t) => {
  const provider = await startBank(t);
  const assertion = `  client_assertion: { algorithm: RS256, key_id: "\${integrationConfig.key_id}", audience: ${audience} }\n`;
  await done('POST', '/providers', {
    name: 'own-bank',
    definition: definition(provider.origin, 'private_key_jwt', assertion),
  });
  const made = await integrate('own-bank', pem(rsa.privateKey));
  assert.equal(made.status, 200, made.text);
  await live('own-bank', provider);
});

describe('the client credentials grant with a private key', () => {
  const machine = (origin: string) => `display_name: Machine
categories: [finance]
docs: https://bank.example/docs
auth_mode: OAUTH2_CC
token:
  url: ${origin}/auth.example/token
  auth_method: private_key_jwt
  client_assertion: { algorithm: RS256, key_id: key-7, audience: ${audience} }
api: { base_url: ${origin}/api.example/v1 }
`;
  const create = (key: string, credentials: object) =>
    trellis.call('POST', '/connections', {
      body: { provider_config_key: key, credentials: { type: 'OAUTH2_CC', ...credentials } },
    });
  const call = (key: string, id: string) =>
    trellis.call('GET', '/proxy/me', { headers: { 'provider-config-key': key, 'connection-id': id } });

  test('gets tokens for the client of a connection, renews them, and never shows the key', async (t) => {
    const provider = await startBank(t);
    await done('POST', '/providers', { name: 'own-machine', definition: machine(provider.origin) });
    await done('POST', '/integrations', { provider: 'own-machine', unique_key: 'own-machine' });
    const made = await create('own-machine', { client_id: 'client-1', client_secret: pem(rsa.privateKey) });
    assert.equal(made.status, 201, made.text);
    const id = String(made.body.connection_id);
    assert.deepEqual((await call('own-machine', id)).body, { account: '77' });
    // Each assertion is accepted once, so a second token needs a second one.
    assert.equal((await refresh('own-machine', id)).status, 200);
    assert.equal((await refresh('own-machine', id)).status, 200);
    provider.endGrants();
    assert.equal((await call('own-machine', id)).status, 200, 'a token that was withdrawn is replaced');
    const twenty = await Promise.all(Array.from({ length: 20 }, () => refresh('own-machine', id)));
    assert.deepEqual(new Set(twenty.map(({ status }) => status)), new Set([200]));
    const middle = pem(rsa.privateKey).split('\n')[8]!;
    const shown = await trellis.call('GET', `/connections/${id}?provider_config_key=own-machine`, {
      key: await trellis.keyWith('connections:read'),
    });
    assert.ok(shown.status === 200 && !shown.text.includes(middle), shown.text);
    await done('DELETE', `/connections/${id}?provider_config_key=own-machine`);
  });

  test('refuses another key, and a text that is no key, before anything is stored', async (t) => {
    const provider = await startBank(t);
    await done('POST', '/providers', { name: 'own-machine-2', definition: machine(provider.origin) });
    await done('POST', '/integrations', { provider: 'own-machine-2', unique_key: 'own-machine-2' });
    const other = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const small = generateKeyPairSync('rsa', { modulusLength: 1024 });
    for (const [client_secret, code] of [
      [pem(other.privateKey), 'connection_test_failed'],
      ['a-shared-secret', 'invalid_body'],
      [pem(small.privateKey), 'invalid_body'],
      [createPublicKey(rsa.privateKey).export({ type: 'spki', format: 'pem' }).toString(), 'invalid_body'],
    ] as const) {
      const refused = await create('own-machine-2', { client_id: 'client-1', client_secret });
      assert.deepEqual([refused.status, codeOf(refused)], [400, code], refused.text);
      assert.ok(!refused.text.includes('MII'), 'the key is not repeated');
    }
    const { body } = await trellis.call('GET', '/connections?integrationId=own-machine-2');
    assert.deepEqual(body.connections, []);
  });
});

/** A provider that knows a client by its certificate, until the test ends. */
async function startCertifiedBank(t: TestContext) {
  const server = makeCertificate(directory, { names: [], addresses: ['127.0.0.1'] });
  setDefaultCACertificates([...defaultAuthorities, server.ca]);
  const provider = await startProfile(
    { ...standard, clientAuth: 'tls_client_auth' },
    {
      client: { ...profileClient(), fingerprint: client.fingerprint },
      endpoints,
      now: new Date(),
      tls: { key: server.key, cert: server.cert },
    },
  );
  t.after(() => provider.stop());
  return provider;
}

test('a client authenticates by its certificate in the TLS connection', async (t) => {
  const provider = await startCertifiedBank(t);
  await done('POST', '/providers', {
    name: 'own-mtls',
    definition: definition(provider.origin, 'tls_client_auth'),
  });
  const made = await integrate('own-mtls', client.secret);
  assert.equal(made.status, 200, made.text);
  await live('own-mtls', provider);
});

test('a provider that does not know the key refuses the client, which shows at the integration', async (t) => {
  const provider = await startBank(t);
  const assertion = '  client_assertion: { algorithm: RS256, key_id: key-7 }\n';
  await done('POST', '/providers', {
    name: 'own-stranger',
    definition: definition(provider.origin, 'private_key_jwt', assertion),
  });
  const other = generateKeyPairSync('rsa', { modulusLength: 2048 });
  assert.equal((await integrate('own-stranger', pem(other.privateKey))).status, 200);
  const { status, id } = await connect('own-stranger');
  assert.notEqual(status, 200);
  assert.equal(id, undefined);
});

test('a key that the definition does not take is refused when it is entered, and never shown', async () => {
  const at = 'https://bank.example';
  const assertion = '  client_assertion: { algorithm: RS256 }\n';
  await done('POST', '/providers', {
    name: 'own-entry',
    definition: definition(at, 'private_key_jwt', assertion),
  });
  await done('POST', '/providers', { name: 'own-entry-tls', definition: definition(at, 'tls_client_auth') });
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const small = generateKeyPairSync('rsa', { modulusLength: 1024 });
  const publicPem = createPublicKey(rsa.privateKey).export({ type: 'spki', format: 'pem' }).toString();
  const cases: [string, string, RegExp][] = [
    ['own-entry', 'a-shared-secret', /must be a private key in PEM/],
    ['own-entry', publicPem, /is a public key/],
    ['own-entry', pem(ec.privateKey), /must be an RSA key/],
    ['own-entry', pem(small.privateKey), /at least 2048 bits; it has 1024/],
    ['own-entry', pem(rsa.privateKey).slice(0, 300), /is incomplete/],
    ['own-entry', client.other, /does not belong to the certificate/],
    ['own-entry-tls', pem(rsa.privateKey), /must also have the certificate/],
    ['own-entry-tls', client.other, /does not belong to the certificate/],
    ['own-entry-tls', client.secret.replace(/(CERTIFICATE-----\n.{10})/, '$1!!'), /damaged|must also/],
    ['own-entry-tls', client.secret.slice(client.secret.indexOf('-----BEGIN CERT')), /private key/],
  ];
  for (const [provider, secret, message] of cases) {
    const refused = await integrate(provider, secret);
    assert.equal(refused.status, 400, `${message} ${refused.text}`);
    const { path, message: text } = faultOf(refused);
    assert.deepEqual(path, ['credentials', 'client_secret']);
    assert.match(text, message);
    assert.ok(!refused.text.includes('BEGIN') || !refused.text.includes('MII'), 'the key is not repeated');
  }
  // The line breaks may have been replaced.
  assert.equal(
    (await integrate('own-entry', pem(rsa.privateKey).trim().replaceAll('\n', '\\n'))).status,
    200,
  );
  assert.equal((await integrate('own-entry-tls', client.secret.replaceAll('\n', '\\n'))).status, 200);
});

test('a certificate is refused when it is entered after its last day, or before its first', () => {
  const rules = { token: { auth_method: 'tls_client_auth' } as NonNullable<ProviderDefinition['token']> };
  const at = (days: number) => clientKeyFault(client.secret, rules, new Date(Date.now() + days * 86_400_000));
  assert.match(at(3) ?? '', /^has a certificate that expired on \d{4}-\d\d-\d\d$/);
  assert.match(at(-1) ?? '', /^has a certificate that is valid from \d{4}-\d\d-\d\d$/);
  assert.equal(at(1), undefined);
});

test('a definition with a key has what it needs, and no test credentials', async () => {
  const at = 'https://bank.example';
  const fault = async (text: string) => {
    const answer = await trellis.call('POST', '/providers', { body: { name: 'own-bad', definition: text } });
    assert.equal(answer.status, 400, answer.text);
    return answer.text;
  };
  assert.match(await fault(definition(at, 'private_key_jwt')), /token\.client_assertion: .*needs it/);
  const assertion = '  client_assertion: { algorithm: RS256 }\n';
  assert.match(await fault(definition(at, 'client_secret_post', assertion)), /belongs to/);
  const sandboxed = 'sandbox: { authorization: /authorize, token: /token }\n';
  assert.match(
    await fault(definition(at, 'private_key_jwt', assertion) + sandboxed),
    /test credentials are impossible/,
  );
  const leaking = '  client_assertion: { key_id: "${credentials.accessToken}" }\n';
  assert.match(await fault(definition(at, 'private_key_jwt', leaking)), /a credential is not allowed/);
});

test('a certificate that expires later stops the refreshes, and the integration shows it', async (t) => {
  const provider = await startCertifiedBank(t);
  await done('POST', '/providers', {
    name: 'own-expiring',
    definition: definition(provider.origin, 'tls_client_auth'),
  });
  assert.equal((await integrate('own-expiring', client.secret)).status, 200);
  const { id = '' } = await connect('own-expiring');
  assert.equal((await refresh('own-expiring', id)).status, 200);
  await trellis.advance(3 * 86_400);
  const refused = await refresh('own-expiring', id);
  assert.equal(refused.status, 424, refused.text);
  const shown = await done('GET', '/integrations/own-expiring');
  assert.match(JSON.stringify(shown), /client_refused/);
});
