// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates of definitions
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { decodeJwt, decodeProtectedHeader } from 'jose';
import { shippedCatalog } from '../../test/support/catalog.ts';
import { loadCatalog } from '../providers/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { type JwtCredentials, jwt } from './jwt.ts';
import { authModes } from './modes.ts';
import { type Answer, json, now, provider, type Token, text } from './token-endpoint.fixture.ts';

const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
const own: JwtCredentials = { type: 'JWT', privateKey: pem, privateKeyId: 'k1', issuerId: 'app', raw: {} };
const ofIntegration: JwtCredentials = { type: 'JWT', raw: {} };
const granted = { access_token: 'at', token_type: 'Bearer', expires_in: 600 };

type Assertion = NonNullable<ProviderDefinition['assertion']>;
const assertion: Assertion = {
  use: 'grant',
  algorithm: 'RS256',
  secret: 'text',
  header: { kid: '${credentials.privateKeyId}' },
  claims: { iss: '${credentials.issuerId}', sub: '${connectionConfig.user}', aud: 'https://a.example' },
  life_s: 300,
  issued_s_ago: 30,
  body: {},
};

async function ask(
  t: TestContext,
  answer: Answer,
  {
    credentials = own,
    config = {},
    clientSecret = pem,
  }: {
    credentials?: JwtCredentials;
    config?: Record<string, string>;
    clientSecret?: string;
  } = {},
) {
  const { context, calls } = await provider(t, answer);
  const token = { ...(context.definition.token as Token), errors: {} };
  const outcome = await jwt.renewal.request({
    ...context,
    definition: { ...context.definition, token, assertion },
    client: { clientId: 'Iv1', clientSecret, scopes: [] },
    values: { connectionConfig: config },
    credentials,
    secret: '',
  });
  assert.ok(!JSON.stringify(outcome).includes(pem.slice(100, 140)));
  return { outcome, calls };
}

describe('an assertion', () => {
  test('has the claims of the definition, without those that have no value', async (t) => {
    const { outcome, calls } = await ask(t, json(granted));
    const { grant_type, assertion: signed = '', ...others } = calls[0]!.form;
    assert.equal(grant_type, 'urn:ietf:params:oauth:grant-type:jwt-bearer');
    assert.deepEqual(others, {});
    assert.equal(calls[0]?.headers.authorization, undefined);
    assert.deepEqual(decodeProtectedHeader(signed), { typ: 'JWT', kid: 'k1', alg: 'RS256' });
    const iat = now.getTime() / 1000 - 30;
    assert.deepEqual(decodeJwt(signed), { iss: 'app', aud: 'https://a.example', iat, exp: iat + 300 });
    assert.ok(outcome.ok);
    const after = jwt.renewal.after(outcome.tokens, { previous: own, secret: '' });
    const expires_at = new Date(now.getTime() + 600_000).toISOString();
    assert.deepEqual(after, { ...own, token: 'at', expires_at, raw: granted });
    const shown = JSON.stringify(jwt.toWire(after));
    assert.ok(!shown.includes('PRIVATE'));
  });

  test("is signed by the integration's key for its client ID, if the connection has none", async (t) => {
    const { calls } = await ask(t, json(granted), { credentials: ofIntegration, config: { user: 'ada' } });
    const signed = calls[0]!.form.assertion ?? '';
    assert.partialDeepStrictEqual(decodeJwt(signed), { iss: 'Iv1', sub: 'ada' });
    assert.deepEqual(decodeProtectedHeader(signed), { typ: 'JWT', alg: 'RS256' });
  });

  test('that the answer repeats is not shown', async (t) => {
    const { outcome } = await ask(t, (response, { form }) =>
      json({ error: 'invalid_grant', error_description: `bad: ${form.assertion}` }, 400)(
        response,
        {} as never,
      ),
    );
    assert.deepEqual(outcome, {
      ok: false,
      fault: { kind: 'dead_grant', error: 'invalid_grant', httpStatus: 400 },
    });
  });

  test('is not sent if the key of the integration is none', async (t) => {
    const { outcome, calls } = await ask(t, json(granted), { credentials: ofIntegration, clientSecret: 'x' });
    assert.equal(calls.length, 0);
    assert.deepEqual(outcome, {
      ok: false,
      fault: { kind: 'client_misconfigured', error: 'invalid_key', isOfClient: true },
    });
  });
});

test('a definition with a revocation is refused, because the request would contain the private key', () => {
  const catalog = shippedCatalog;
  const { revocation } = catalog.find('google-sheet')!;
  assert.ok(revocation !== undefined);
  const definition = catalog.find('google-service-account')!;
  assert.deepEqual(jwt.definitionFaults?.(definition), []);
  const [fault] = jwt.definitionFaults?.({ ...definition, revocation }) ?? [];
  assert.deepEqual(fault?.[0], ['revocation']);
});

describe('an error of the provider about an assertion', () => {
  const said = [
    [400, 'invalid_grant', 'dead_grant', 'dead_grant'],
    [401, 'invalid_client', 'dead_grant', 'client_misconfigured'],
    [401, 'unauthorized_client', 'dead_grant', 'client_misconfigured'],
    [401, 'whatever', 'dead_grant', 'client_misconfigured'],
    [400, 'invalid_scope', 'client_misconfigured', 'client_misconfigured'],
    [403, 'whatever', 'protocol', 'protocol'],
    [429, 'invalid_grant', 'transient', 'transient'],
    [503, 'invalid_grant', 'transient', 'transient'],
  ] as const;
  for (const [status, error, ofOwn, ofAll] of said) {
    test(`${status} ${error} is ${ofOwn} of an own key, ${ofAll} of the integration's`, async (t) => {
      for (const [credentials, kind] of [
        [own, ofOwn],
        [ofIntegration, ofAll],
      ] as const) {
        const { outcome } = await ask(t, json({ error }, status), { credentials });
        assert.equal(outcome.ok ? 'granted' : outcome.fault.kind, kind);
      }
    });
  }

  test('that is a page proves nothing', async (t) => {
    const { outcome } = await ask(t, text('<html>', 'text/html', 401));
    assert.equal(outcome.ok ? 'granted' : outcome.fault.kind, 'transient');
  });
});

test('a definition is checked by the rules of the mode', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  const base =
    'display_name: A\ncategories: [other]\ndocs: https://a.example\nauth_mode: JWT\napi: { base_url: https://a.example }\n';
  const whole = 'assertion: { use: grant, algorithm: RS256, claims: { iss: a }, life_s: 60 }\n';
  const token = 'token: { url: https://a.example/token }\n';
  try {
    for (const [more, fault] of [
      [token, /assertion: a JWT provider needs it/],
      [whole, /token: a JWT provider has it unless/],
      [whole.replace('grant', 'direct') + token, /token: a JWT provider has it unless/],
      [`${whole}${token}sandbox: { token: /token }\n`, /sandbox: the sandbox takes no assertions/],
      [
        `${whole}${token}credentials: { pin: { title: PIN, description: x } }\n`,
        /credentials.pin: a JWT provider has only/,
      ],
      [whole.replace('iss: a', 'exp: "1"') + token, /assertion.claims: sets a member that follows/],
      [
        whole.replace('iss: a', 'iss: "${connectionConfig.x}"') + token,
        /connectionConfig.x is not a declared field/,
      ],
      [whole.replace('RS256', 'none') + token, /assertion.algorithm/],
      [
        `${whole}token: { url: "https://\${connectionConfig.h}/token" }\nconnection_config: { h: { title: H, description: h, pattern: "[a-z]+" } }\n`,
        /would choose the whole host/,
      ],
    ] as const) {
      await writeFile(join(directory, 'a.yaml'), base + more);
      assert.throws(() => loadCatalog(directory, authModes), fault);
    }
    await writeFile(join(directory, 'a.yaml'), base + whole + token);
    assert.equal(loadCatalog(directory, authModes).get('a').assertion?.use, 'grant');
  } finally {
    await rm(directory, { recursive: true });
  }
});
