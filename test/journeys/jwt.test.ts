/**
 * The life of connections by signed assertions: the form, the first token, its renewal, refusals and reconnects. The
 * providers are those of `sandbox/profiles/assertions.ts`, with the shipped definitions.
 */
import assert from 'node:assert/strict';
import {
  createHmac,
  createPublicKey,
  createSecretKey,
  generateKeyPairSync,
  hash,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type Assertions, type KnownKey, startAssertions } from '../../sandbox/profiles/assertions.ts';
import { catalogAt } from '../support/assertion-catalog.ts';
import { type Answer, openTrellis, type TestTrellis } from '../support/trellis.ts';

const scopes = 'https://www.googleapis.com/auth/spreadsheets';
let trellis: TestTrellis;
let provider: Awaited<ReturnType<typeof startAssertions>>;
let known: Assertions;
let aheadMs = 0;

before(async () => {
  provider = await startAssertions({ now: () => new Date(Date.now() + aheadMs) });
  known = provider.assertions;
  trellis = await openTrellis(
    { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' },
    { catalog: await catalogAt(provider.origin) },
  );
  await integrate('google-service-account', { integration_config: { scopes } });
  for (const name of [
    'salesforce-jwt',
    'box-jwt',
    'docusign-jwt',
    'snowflake-jwt',
    'app-store-connect',
    'ghost-admin',
  ])
    await integrate(name);
});
after(async () => {
  await trellis?.close();
  await provider?.stop();
});

async function integrate(name: string, more: object = {}): Promise<Answer> {
  const made = await trellis.call('POST', '/integrations', {
    body: { provider: name, unique_key: name, ...more },
  });
  assert.equal(made.status, 200, made.text);
  return made;
}

async function advance(seconds: number): Promise<void> {
  aheadMs += seconds * 1000;
  await trellis.advance(seconds);
}

/** A key pair; the middle of its PEM text must not get out. */
function rsa(modulusLength = 2048): { privateKey: KeyObject; publicKey: KeyObject; pem: string } {
  return watched(generateKeyPairSync('rsa', { modulusLength }));
}
function watched<Pair extends { privateKey: KeyObject; publicKey: KeyObject }>(pair: Pair) {
  const pem = pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const lines = pem.split('\n');
  trellis.watch.made('client_secret', lines[Math.floor(lines.length / 2)]!);
  return { ...pair, pem };
}

/** A Google service account with a key, and its key file. */
function serviceAccount(name: string, more: Partial<KnownKey> = {}) {
  const { publicKey, pem } = rsa();
  const issuer = `${name}@project.iam.gserviceaccount.com`;
  const keyId = randomBytes(8).toString('hex');
  const key: KnownKey = { provider: 'google', issuer, keyId, key: publicKey, ...more };
  known.keys.push(key);
  const file = { type: 'service_account', private_key_id: keyId, private_key: pem, client_email: issuer };
  return { key, file: JSON.stringify(file), pem, issuer, keyId };
}
const forget = (key: KnownKey) => known.keys.splice(known.keys.indexOf(key), 1);

async function openSession(name: string, defaults?: Record<string, string>): Promise<string> {
  const { body, text } = await trellis.call('POST', '/connect/sessions', {
    body: {
      end_user: { id: 'ada' },
      allowed_integrations: [name],
      ...(defaults && { integrations_config_defaults: { [name]: { connection_config: defaults } } }),
    },
  });
  assert.ok(body.data, text);
  return (body.data as { token: string }).token;
}

type Submitted = { body?: Record<string, string>; config?: Record<string, string>; token?: string };
/** Submits the form, as the page does. */
async function submit(name: string, { body = {}, config = {}, token }: Submitted): Promise<Answer> {
  const query = new URLSearchParams({ connect_session_token: token ?? (await openSession(name)) });
  for (const [field, value] of Object.entries(config)) query.set(`params[${field}]`, value);
  return trellis.call('POST', `/auth/jwt/${name}?${query}`, { key: undefined, body });
}
async function connect(name: string, given: Submitted): Promise<string> {
  const made = await submit(name, given);
  assert.equal(made.status, 200, made.text);
  return String(made.body.connectionId);
}

const proxied = (name: string, id: string, path = '/any') =>
  trellis.call('GET', `/proxy${path}`, { headers: { 'connection-id': id, 'provider-config-key': name } });
const read = (name: string, id: string, more = '') =>
  trellis.call('GET', `/connections/${id}?provider_config_key=${name}${more}`);
const health = async (name: string, id: string) =>
  (await trellis.call('GET', `/connections/${id}/health?provider_config_key=${name}`)).body;
const codeOf = ({ body }: Answer) => (body.error as { code: string } | undefined)?.code;
const errorsOf = ({ body }: Answer) =>
  (body.error as { errors?: { message: string; path: string[] }[] }).errors ?? [];

describe('a service account of Google', () => {
  const name = 'google-service-account';

  test('connects by its key file, and its calls have a token', async () => {
    const { file, issuer, keyId, pem } = serviceAccount('sheets');
    const token = await openSession(name);
    const { body } = await trellis.call('GET', '/connect/session/choices', { key: token });
    const [choice] = (body.data as { choices: { form_path: string; fields: Record<string, unknown>[] }[] })
      .choices;
    assert.equal(choice?.form_path, '/auth/jwt/google-service-account');
    assert.deepEqual(
      choice.fields.map((field) => [field.name, field.secret, field.multiline, field.required]),
      [
        ['params[subject]', false, undefined, false],
        ['privateKey', true, true, true],
      ],
    );
    const id = await connect(name, { body: { privateKey: file }, token });
    const { iss, aud, scope, sub, exp = 0, iat = 0 } = known.granted.at(-1)!;
    assert.deepEqual(
      { iss, aud, scope, sub, lifeS: exp - iat },
      { iss: issuer, aud: 'https://oauth2.googleapis.com/token', scope: scopes, sub: undefined, lifeS: 3600 },
    );
    assert.equal((await proxied(name, id)).status, 200);

    const shown = await read(name, id);
    assert.deepEqual(Object.keys(shown.body.credentials as object).sort(), [
      'expires_at',
      'issuerId',
      'privateKeyId',
      'raw',
      'token',
      'type',
    ]);
    const withKey = await read(name, id, '&refresh_token=true');
    assert.partialDeepStrictEqual(withKey.body.credentials, {
      type: 'JWT',
      privateKeyId: keyId,
      privateKey: pem,
    });
  });

  test('acts for a user that it is delegated to, and for no other', async () => {
    const { file } = serviceAccount('delegate', { subjects: ['ada@example.com'] });
    await connect(name, { body: { privateKey: file }, config: { subject: 'ada@example.com' } });
    assert.equal(known.granted.at(-1)?.sub, 'ada@example.com');
    const refused = await submit(name, {
      body: { privateKey: file },
      config: { subject: 'eve@example.com' },
    });
    assert.equal(codeOf(refused), 'connection_test_failed');
    assert.match(refused.text, /refused these credentials \(unauthorized_client\)/);
  });

  test('signs one assertion for twenty calls after its token has expired', async () => {
    const { file, issuer } = serviceAccount('renewed');
    const id = await connect(name, { body: { privateKey: file } });
    await advance(3601);
    const answers = await Promise.all(Array.from({ length: 20 }, () => proxied(name, id)));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    assert.equal(known.granted.filter(({ iss }) => iss === issuer).length, 2);
  });

  test('signs another assertion after a 401 of the API', async () => {
    const { file } = serviceAccount('ended');
    const id = await connect(name, { body: { privateKey: file } });
    known.endTokens('google');
    assert.equal((await proxied(name, id)).status, 200);
  });

  test('whose key was deleted needs its user, and works again with another key', async () => {
    const account = serviceAccount('deleted');
    const id = await connect(name, { body: { privateKey: account.file } });
    forget(account.key);
    await advance(3601);
    assert.equal((await proxied(name, id)).status, 424);
    const { status, cause, evidence, reconnect } = await health(name, id);
    assert.deepEqual(
      [status, cause, evidence],
      ['needs_reauth', 'credentials_refused', { error: 'invalid_grant', http_status: 400 }],
    );
    const { method, path, body } = reconnect as { method: string; path: string; body: object };
    const { body: session } = await trellis.call(method, path, { body });
    const { token } = session.data as { token: string };
    assert.equal(
      codeOf(await submit(name, { body: { privateKey: account.file }, token })),
      'connection_test_failed',
    );
    const renewed = await submit(name, { body: { privateKey: serviceAccount('deleted').file }, token });
    assert.equal(renewed.body.connectionId, id, renewed.text);
    assert.equal((await proxied(name, id)).status, 200);
  });

  test('whose clock is wrong is refused, with the code of Google alone', async () => {
    const { file } = serviceAccount('early');
    aheadMs -= 7_200_000;
    const refused = await submit(name, { body: { privateKey: file } });
    aheadMs += 7_200_000;
    assert.equal(codeOf(refused), 'connection_test_failed');
    assert.match(refused.text, /invalid_grant/);
    assert.doesNotMatch(refused.text, /reasonable timeframe/);
  });

  test('connects twenty times at once', async () => {
    const { file } = serviceAccount('many');
    const ids = await Promise.all(
      Array.from({ length: 20 }, () => connect(name, { body: { privateKey: file } })),
    );
    assert.equal(new Set(ids).size, 20);
    assert.ok(known.mostAtOnce > 1);
  });

  test('is imported with its key, and with its token', async () => {
    const { pem, issuer, keyId } = serviceAccount('imported');
    const given = { type: 'JWT', privateKey: pem, privateKeyId: keyId, issuerId: issuer };
    const post = (id: string, credentials: object) =>
      trellis.call('POST', '/connections', {
        body: { provider_config_key: name, connection_id: id, credentials },
      });
    const made = await post('by-key', given);
    assert.equal(made.status, 201, made.text);
    assert.equal((await proxied(name, 'by-key')).status, 200);
    const { token, expiresAt } = known.issue('google', 600);
    await post('with-token', { ...given, token, expires_at: expiresAt.toISOString() });
    assert.equal(((await read(name, 'with-token')).body.credentials as { token: string }).token, token);
    for (const [credentials, path] of [
      [{ type: 'JWT' }, 'privateKey'],
      [{ ...given, privateKey: '{"type":"service_account"}' }, 'privateKey'],
      [{ ...given, other: 'x' }, undefined],
    ] as const) {
      const refused = await post('refused', credentials);
      assert.equal(codeOf(refused), 'invalid_body', refused.text);
      if (path !== undefined) assert.deepEqual(errorsOf(refused)[0]?.path, ['credentials', path]);
    }
  });
});

describe('a private key', () => {
  const submitKey = (privateKey: string) =>
    submit('salesforce-jwt', {
      body: { privateKey, issuerId: '3MVG9' },
      config: { my_domain: 'acme', username: 'ada@acme.com', login_host: 'login' },
    });

  test('is accepted as PKCS#8, as PKCS#1, and without its line breaks', async () => {
    const { privateKey, publicKey, pem } = rsa();
    known.keys.push({ provider: 'salesforce', issuer: '3MVG9', key: publicKey, subjects: ['ada@acme.com'] });
    const pkcs1 = privateKey.export({ type: 'pkcs1', format: 'pem' }).toString();
    for (const text of [
      pem,
      pkcs1,
      pem.replaceAll('\n', ''),
      pem.replaceAll('\n', '\\n'),
      pem.replaceAll('\n', '\r\n'),
    ])
      assert.equal((await submitKey(text)).status, 200);
  });

  test('of another kind is refused with what is wrong, and without the key', async () => {
    const { privateKey, publicKey, pem } = rsa();
    const encrypted = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'x' } as const;
    const ofOpenSsl = { type: 'pkcs1', format: 'pem', cipher: 'aes-128-cbc', passphrase: 'x' } as const;
    const refused: [text: string, why: RegExp][] = [
      [rsa(1024).pem, /at least 2048 bits; it has 1024/],
      [watched(generateKeyPairSync('ec', { namedCurve: 'prime256v1' })).pem, /must be an RSA key/],
      [privateKey.export(encrypted).toString(), /is encrypted/],
      [privateKey.export(ofOpenSsl).toString(), /is encrypted/],
      [publicKey.export({ type: 'spki', format: 'pem' }).toString(), /is a public key/],
      ['-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----', /is a certificate/],
      [pem.replaceAll('PRIVATE KEY', 'OPENSSH PRIVATE KEY'), /OpenSSH/],
      [pem.slice(0, 800), /is incomplete/],
      [pem.replace(/^(.*\n)(.*\n)/, '$1'), /is damaged/],
      ['not a key', /must be a private key in PEM/],
      ['{"private_key": 1}', /not a key file/],
    ];
    for (const [text, why] of refused) {
      const answer = await submitKey(text);
      assert.equal(codeOf(answer), 'invalid_body', String(why));
      const [fault] = errorsOf(answer);
      assert.deepEqual(fault?.path, ['privateKey']);
      assert.match(fault.message, why);
    }
  });
});

describe('an installation of a GitHub App', () => {
  const name = 'github-app-installation';
  let app: KnownKey;
  let pem: string;
  const client = (secret: string) => ({
    credentials: { type: 'OAUTH2', client_id: 'Iv23li', client_secret: secret },
  });
  const installed = async (id: string, more: Record<string, string> = {}) =>
    connect(name, { token: await openSession(name, { installation_id: id, ...more }) });

  before(async () => {
    const pair = rsa();
    pem = pair.pem;
    app = {
      provider: 'github',
      issuer: 'Iv23li',
      key: pair.publicKey,
      subjects: ['11', '12', '13'],
      suspended: [],
    };
    known.keys.push(app);
  });

  test("needs the app's private key as the client secret of the integration", async () => {
    for (const [secret, why] of [
      ['0123456789abcdef', /must be a private key/],
      [rsa(1024).pem, /at least 2048 bits/],
    ] as const) {
      const refused = await trellis.call('POST', '/integrations', {
        body: { provider: name, unique_key: name, ...client(secret) },
      });
      assert.equal(codeOf(refused), 'invalid_body');
      assert.deepEqual(errorsOf(refused)[0]?.path, ['credentials', 'client_secret']);
      assert.match(errorsOf(refused)[0]!.message, why);
    }
    await integrate(name, client(pem));
  });

  test('connects without a field to fill in, and its token lives for an hour', async () => {
    const token = await openSession(name, { installation_id: '11' });
    const { body } = await trellis.call('GET', '/connect/session/choices', { key: token });
    assert.deepEqual((body.data as { choices: { fields: unknown[] }[] }).choices[0]?.fields, []);
    const id = await connect(name, { token });
    const { iss, exp = 0, iat = 0 } = known.granted.at(-1)!;
    assert.deepEqual([iss, exp - iat], ['Iv23li', 600]);
    assert.equal((await proxied(name, id)).status, 200);
    const { credentials } = (await read(name, id)).body as { credentials: { expires_at: string } };
    const lifeMs = Date.parse(credentials.expires_at) - (Date.now() + aheadMs);
    assert.ok(lifeMs > 3_500_000 && lifeMs <= 3_600_000);
    await advance(3601);
    assert.equal((await proxied(name, id)).status, 200);
  });

  test('opens the repositories and permissions that the application chose', async () => {
    await installed('11', { repositories: 'website, handbook', permissions: 'contents:read,issues:write' });
    assert.deepEqual(known.wanted.at(-1), {
      repositories: ['website', 'handbook'],
      permissions: { contents: 'read', issues: 'write' },
    });
    await installed('11');
    assert.deepEqual(known.wanted.at(-1), {});
  });

  test('is chosen by the application, never by the end user', async () => {
    const before = known.granted.length;
    const forged = await submit(name, { config: { installation_id: '12' } });
    assert.equal(codeOf(forged), 'invalid_query_params', forged.text);
    assert.match(forged.text, /must be set by the application/);
    const swapped = await submit(name, {
      token: await openSession(name, { installation_id: '11' }),
      config: { installation_id: '12' },
    });
    assert.equal(codeOf(swapped), 'invalid_query_params');
    assert.equal(codeOf(await submit(name, {})), 'invalid_query_params');
    assert.equal(known.granted.length, before);
  });

  test('that was removed needs its user', async () => {
    const id = await installed('12');
    app.subjects = ['11', '13'];
    await advance(3601);
    assert.equal(codeOf(await proxied(name, id)), 'connection_needs_reauth');
    const { status, cause, evidence } = await health(name, id);
    assert.deepEqual(
      [status, cause, evidence],
      ['needs_reauth', 'grant_dead', { error: 'Not Found', http_status: 404 }],
    );
    assert.equal((await proxied(name, await installed('11'))).status, 200);
  });

  test('that is suspended is blocked, and works again when it is not', async () => {
    const id = await installed('13');
    app.suspended = ['13'];
    await advance(3601);
    assert.equal(codeOf(await proxied(name, id)), 'connection_blocked');
    assert.equal((await health(name, id)).status, 'blocked');
    app.suspended = [];
    const revived = await trellis.call('POST', `/connections/${id}/refresh?provider_config_key=${name}`);
    assert.deepEqual([revived.status, revived.body.status], [200, 'active'], revived.text);
  });

  test('follows the webhooks of its suspension and removal, in whatever order they come', async () => {
    const secret = randomBytes(16).toString('hex');
    const set = await trellis.call('PATCH', `/integrations/${name}`, { body: { webhook_secret: secret } });
    assert.equal(set.status, 200, set.text);
    app.subjects = ['11', '13', '14'];
    const [id, other] = [await installed('14'), await installed('13')];
    const tell = async (action: string, key = secret) => {
      const body = JSON.stringify({ action, installation: { id: 14, account: { id: 7 } } });
      const headers = {
        'content-type': 'application/json',
        'x-github-event': 'installation',
        'x-hub-signature-256': `sha256=${createHmac('sha256', key).update(body).digest('hex')}`,
      };
      const sent = await fetch(`${trellis.baseUrl}/webhook/dev/${name}`, { method: 'POST', headers, body });
      await sent.body?.cancel();
      return sent.status;
    };
    const until = async (status: string) => {
      for (let left = 250; (await health(name, id)).status !== status; left--) {
        assert.ok(left > 0, `it is not ${status}`);
        await pause(20);
      }
    };
    app.suspended = ['14'];
    assert.equal(await tell('suspend', 'forged'), 401);
    assert.equal((await health(name, id)).status, 'active');
    assert.equal(await tell('suspend'), 200);
    await until('blocked');
    app.suspended = [];
    assert.equal(await tell('unsuspend'), 200);
    await until('active');
    // The provider decides, and not a webhook that came late.
    const before = known.granted.length;
    assert.equal(await tell('suspend'), 200);
    for (let left = 250; known.granted.length === before; left--) {
      assert.ok(left > 0, 'the credentials were not renewed');
      await pause(20);
    }
    assert.equal((await health(name, id)).status, 'active');
    app.subjects = ['11', '13'];
    assert.deepEqual(
      await Promise.all(Array.from({ length: 20 }, () => tell('deleted'))),
      Array(20).fill(200),
    );
    await until('needs_reauth');
    const { cause } = await health(name, id);
    assert.equal(cause, 'grant_dead');
    assert.equal((await health(name, other)).status, 'active', 'of another installation');
  });

  test("whose app's key was deleted is a fault of the integration, and of no connection", async () => {
    const id = await installed('11');
    const other = rsa();
    app.key = other.publicKey;
    await advance(3601);
    assert.equal(codeOf(await proxied(name, id)), 'integration_misconfigured');
    assert.equal((await health(name, id)).status, 'active');
    const changed = await trellis.call('PATCH', `/integrations/${name}`, { body: client(other.pem) });
    assert.equal(changed.status, 200, changed.text);
    assert.equal((await proxied(name, id)).status, 200);
  });
});

describe('an assertion that is the token', () => {
  const issuerId = '57246542-96fe-1a63-e053-0824d011072a';
  /** A new key: the provider's entry for the key, and the values that a user enters. */
  const keys: Record<string, { lifeS: number; make: () => { key: KnownKey; given: Submitted } }> = {
    'app-store-connect': {
      lifeS: 1200,
      make: () => {
        const { publicKey, pem } = watched(generateKeyPairSync('ec', { namedCurve: 'prime256v1' }));
        return {
          key: { provider: 'apple', issuer: issuerId, keyId: '2X9R4HXF34', key: publicKey },
          given: { body: { privateKey: pem, privateKeyId: '2X9R4HXF34', issuerId } },
        };
      },
    },
    'ghost-admin': {
      lifeS: 300,
      make: () => {
        const [keyId, secret] = [randomBytes(12).toString('hex'), randomBytes(32)];
        trellis.watch.made('client_secret', secret.toString('hex'));
        return {
          key: { provider: 'ghost', keyId, key: createSecretKey(secret) },
          given: { body: { privateKey: `${keyId}:${secret.toString('hex')}` }, config: { site: 'acme' } },
        };
      },
    },
    'snowflake-jwt': {
      lifeS: 3600,
      make: () => {
        const { publicKey, privateKey, pem } = rsa();
        const der = createPublicKey(privateKey).export({ type: 'spki', format: 'der' });
        const digest = hash('sha256', der, 'base64');
        return {
          key: { provider: 'snowflake', issuer: `MYORG-ACME.REPORTING.SHA256:${digest}`, key: publicKey },
          given: { body: { privateKey: pem }, config: { account: 'MYORG-ACME', user: 'REPORTING' } },
        };
      },
    },
  };

  for (const [name, { lifeS, make }] of Object.entries(keys)) {
    test(`opens ${name}, is signed again before it expires, and ends with its key`, async () => {
      const { key, given } = make();
      known.keys.push(key);
      const id = await connect(name, given);
      assert.equal((await proxied(name, id)).status, 200);
      const tokenOf = async () => ((await read(name, id)).body.credentials as { token: string }).token;
      const first = await tokenOf();
      assert.equal(await tokenOf(), first);
      await advance(lifeS + 1);
      assert.equal((await proxied(name, id)).status, 200);
      assert.notEqual(await tokenOf(), first);
      forget(key);
      assert.equal(codeOf(await proxied(name, id)), 'connection_needs_reauth');
      const { status, cause, evidence } = await health(name, id);
      assert.deepEqual(
        [status, cause, evidence],
        ['needs_reauth', 'credentials_refused', { error: 'invalid_token', http_status: 401 }],
      );
      assert.equal(codeOf(await submit(name, given)), 'connection_test_failed');
    });
  }

  test('needs a key of its algorithm', async () => {
    for (const [name, body, why] of [
      [
        'app-store-connect',
        { privateKey: rsa().pem, privateKeyId: '2X9R4HXF34', issuerId },
        /EC key on the curve prime256v1/,
      ],
      ['ghost-admin', { privateKey: 'abcd:ef01' }, /at least 32 bytes/],
      ['snowflake-jwt', { privateKey: 'MYKEY' }, /must be a private key in PEM/],
    ] as const) {
      const refused = await submit(name, { ...keys[name]!.make().given, body });
      assert.equal(codeOf(refused), 'invalid_body', refused.text);
      assert.match(errorsOf(refused)[0]!.message, why);
    }
  });
});

describe('an assertion that is a grant', () => {
  test('of Salesforce returns a token without an expiry, and Trellis renews the token', async () => {
    const { publicKey, pem } = rsa();
    known.keys.push({ provider: 'salesforce', issuer: '3MVGx', key: publicKey, subjects: ['bob@acme.com'] });
    const config = { my_domain: 'acme', username: 'bob@acme.com', login_host: 'login' };
    const id = await connect('salesforce-jwt', { body: { privateKey: pem, issuerId: '3MVGx' }, config });
    assert.equal((await proxied('salesforce-jwt', id)).status, 200);
    await advance(7201);
    assert.equal((await proxied('salesforce-jwt', id)).status, 200);
    const refused = await submit('salesforce-jwt', {
      body: { privateKey: pem, issuerId: '3MVGx' },
      config: { ...config, login_host: 'test' },
    });
    assert.equal(codeOf(refused), 'connection_test_failed', 'the audience is that of sandboxes');
  });

  test('of Box has the client secret and the encrypted key of its file', async () => {
    const { privateKey, publicKey } = rsa();
    const encrypted = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'ghi345' } as const;
    const appAuth = {
      publicKeyID: 'abcd1234',
      privateKey: privateKey.export(encrypted).toString(),
      passphrase: 'ghi345',
    };
    const file = {
      boxAppSettings: { clientID: 'abc123', clientSecret: 'def234-of-the-client', appAuth },
      enterpriseID: '1234567',
    };
    trellis.watch.made('client_secret', 'def234-of-the-client');
    known.keys.push({
      provider: 'box',
      issuer: 'abc123',
      keyId: 'abcd1234',
      key: publicKey,
      subjects: ['1234567'],
      clientSecret: 'def234-of-the-client',
    });
    const given = { body: { privateKey: JSON.stringify(file) }, config: { enterprise_id: '1234567' } };
    const id = await connect('box-jwt', given);
    assert.equal((await proxied('box-jwt', id)).status, 200);
    appAuth.passphrase = 'wrong';
    const refused = await submit('box-jwt', { ...given, body: { privateKey: JSON.stringify(file) } });
    assert.match(errorsOf(refused)[0]!.message, /is encrypted/);
    // A million rounds of PBKDF2 would block the process.
    const der = Buffer.from(appAuth.privateKey.replaceAll(/-----[^-]+-----|\s/g, ''), 'base64');
    const rounds = der.indexOf(Buffer.from('02020800', 'hex'));
    assert.ok(rounds > 0, 'OpenSSL writes 2,048 rounds');
    const slow = Buffer.concat([
      der.subarray(0, rounds),
      Buffer.from('02047fffffff', 'hex'),
      der.subarray(rounds + 4),
    ]);
    appAuth.passphrase = 'ghi345';
    appAuth.privateKey = appAuth.privateKey.replace(/(-\n)[^-]+/, `$1${slow.toString('base64')}\n`);
    const blocked = await submit('box-jwt', { ...given, body: { privateKey: JSON.stringify(file) } });
    assert.match(errorsOf(blocked)[0]!.message, /is encrypted/);
  });

  test('of Docusign needs the consent of its user', async () => {
    const { publicKey, pem } = rsa();
    const user = '464f7988-0000-4000-8000-781ee556ab7a';
    const issuerId = '2da1cb14-0000-4000-8000-5b7b40829e79';
    const key: KnownKey = { provider: 'docusign', issuer: issuerId, key: publicKey, subjects: [user] };
    known.keys.push(key);
    const given = { body: { privateKey: pem, issuerId }, config: { server: 'na4', user_id: user } };
    const id = await connect('docusign-jwt', given);
    assert.equal((await proxied('docusign-jwt', id)).status, 200);
    key.subjects = [];
    await advance(3601);
    assert.equal(codeOf(await proxied('docusign-jwt', id)), 'connection_needs_reauth');
    assert.equal((await health('docusign-jwt', id)).cause, 'credentials_refused');
  });
});

describe('a hostile value', () => {
  test('stays inside its claim, or is refused', async () => {
    const { file } = serviceAccount('hostile', { subjects: ['a","iss":"admin@example.com'] });
    await connect('google-service-account', {
      body: { privateKey: file },
      config: { subject: 'a","iss":"admin@example.com' },
    });
    const { iss, sub } = known.granted.at(-1)!;
    assert.deepEqual([iss, sub], ['hostile@project.iam.gserviceaccount.com', 'a","iss":"admin@example.com']);
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a template that must not be filled
    const template = '${credentials.privateKeyId}@example.com';
    const refused = await submit('google-service-account', {
      body: { privateKey: file },
      config: { subject: template },
    });
    assert.equal(codeOf(refused), 'connection_test_failed', 'the subject is the text itself');
  });

  test('chooses neither a host nor a path', async () => {
    const { pem } = rsa();
    for (const [name, body, config] of [
      ['snowflake-jwt', { privateKey: pem }, { account: 'EVIL.EXAMPLE', user: 'A' }],
      ['snowflake-jwt', { privateKey: pem }, { account: 'EVIL/', user: 'A' }],
      ['snowflake-jwt', { privateKey: pem }, { account: 'A', user: 'A\nB' }],
      [
        'salesforce-jwt',
        { privateKey: pem, issuerId: 'x' },
        { my_domain: 'evil.example#', username: 'a@b', login_host: 'login' },
      ],
      [
        'salesforce-jwt',
        { privateKey: pem, issuerId: 'x' },
        { my_domain: 'acme', username: 'a@b', login_host: 'evil.example/' },
      ],
      ['ghost-admin', { privateKey: 'ab:cd' }, { site: 'evil.example/' }],
    ] as const) {
      const refused = await submit(name, { body, config });
      assert.match(String(codeOf(refused)), /^invalid_(query_params|body)$/, JSON.stringify(config));
    }
    const session = await trellis.call('POST', '/connect/sessions', {
      body: {
        end_user: { id: 'ada' },
        integrations_config_defaults: {
          'github-app-installation': { connection_config: { installation_id: '../../user' } },
        },
      },
    });
    assert.equal(codeOf(session), 'invalid_body');
  });
});
