// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
// Slow: it makes ten thousand definitions.
/**
 * Definitions and settings made at random, most of them hostile: no definition that is accepted sends a secret of the operator
 * to a host that a connection chose. `hostile.test.ts` does the same for the values of the definitions that ship.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { readAccount } from '../../server/auth-modes/account.ts';
import { authModes, type Credentials } from '../../server/auth-modes/modes.ts';
import {
  apiBase,
  placeCredentials,
  signedHeaders,
  verificationRequest,
} from '../../server/auth-modes/place.ts';
import { revokeToken } from '../../server/auth-modes/revocation.ts';
import type { LiveConnection } from '../../server/connections/store/reader.ts';
import { AppError } from '../../server/errors.ts';
import type { Fetch } from '../../server/outbound/outbound.ts';
import { definitionSchema, type ProviderDefinition } from '../../server/providers/definition.ts';
import { TemplateError } from '../../server/providers/template.ts';
import { openChannel, renewChannel, stopChannel } from '../../server/webhooks/channels/channel-request.ts';
import { now, redirectUri } from './walk.ts';

const schema = definitionSchema(authModes);
const secretSetting = 'setting-of-the-operator';
const channelToken = 'token-of-the-channel';
const privateKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({
  type: 'pkcs8',
  format: 'pem',
}) as string;
/** In the form of AWS, with which the mode AWS_ROLE signs. */
const accessKey = (kind: 'AKIA' | 'ASIA', name: string) => kind + name.repeat(2);
const clientId = accessKey('AKIA', 'OPERATOR');
const sharedSecret = 'secret-of-the-client';

const oneOf = fc.constantFrom;
/** Parts of hosts and paths, of which a connection can choose some. */
const hosts = oneOf(
  'api.acme.example',
  '${connectionConfig.label}.api.acme.example',
  'acme-${connectionConfig.label}.api.example.com',
  '${connectionConfig.label}acme.example.com',
  '${connectionConfig.label}',
  'api.acme.example.${connectionConfig.label}',
  'api.${connectionConfig.label}.example',
  '${integrationConfig.tenant}.api.acme.example',
  '${integrationConfig.tenant}',
  '${connectionConfig.label}.${integrationConfig.tenant}',
  '${credentials.key}.api.acme.example',
  'user@${connectionConfig.label}.api.acme.example',
  '${connectionConfig.label}:443',
  'api.acme.example:${connectionConfig.label}',
);
const paths = oneOf(
  '',
  '/v1',
  '/${connectionConfig.label}/v1',
  '/v1?at=${connectionConfig.label}',
  '//x',
  '/..',
  '#x',
);
const addresses = fc.oneof(
  // Otherwise few definitions with several addresses are accepted.
  {
    weight: 20,
    arbitrary: oneOf('https://api.acme.example/v1', 'https://${connectionConfig.label}.api.acme.example'),
  },
  {
    weight: 8,
    arbitrary: fc
      .tuple(oneOf('https://', 'https://', 'https://', 'http://'), hosts, paths)
      .map((parts) => parts.join('')),
  },
  {
    weight: 1,
    arbitrary: oneOf(
      '${connectionConfig.whole}',
      '${connectionConfig.whole}/v1',
      '${connectionConfig.whole}.acme.example',
    ),
  },
  { weight: 2, arbitrary: oneOf('${integrationConfig.whole}', '${integrationConfig.whole}/token') },
);
const texts = oneOf(
  'plain',
  '${connectionConfig.label}',
  '${integrationConfig.setting}',
  '${integrationConfig.tenant}',
  '${credentials.key}',
  '${credentials.apiKey}',
  '${credentials.accessToken}',
);
const patterns = oneOf('[a-z0-9-]+', '[a-z0-9.-]+', '[^/]+', '.+', '[a-z0-9-]+(?:\\.[a-z0-9-]+)*', undefined);
const field = (more: object) => ({ title: 'Field', description: 'A field.', required: false, ...more });

const sections = fc.record({
  mode: oneOf(...authModes.keys()),
  authMethod: oneOf('client_secret_post', 'client_secret_basic', 'private_key_jwt'),
  pattern: patterns,
  base: addresses,
  authorization: addresses,
  token: addresses,
  other: addresses,
  text: texts,
  where: oneOf('header', 'query'),
  hasChannels: fc.boolean(),
});
type Sections = typeof sections extends fc.Arbitrary<infer T> ? T : never;

function contentOf({
  mode,
  authMethod,
  pattern,
  base,
  authorization,
  token,
  other,
  text,
  where,
  hasChannels,
}: Sections) {
  const isOAuth = mode === 'OAUTH2' || mode === 'OAUTH1';
  const hasToken = isOAuth || mode === 'OAUTH2_CC' || mode === 'JWT';
  return {
    display_name: 'Acme',
    categories: ['other'],
    docs: 'https://acme.example/docs',
    logo: 'acme.svg',
    auth_mode: mode,
    connection_config: {
      label: field(pattern === undefined ? {} : { pattern }),
      whole: field({ format: 'uri' }),
    },
    integration_config: {
      tenant: field({ pattern: '[a-z0-9-]+(?:\\.[a-z0-9-]+)*' }),
      whole: field({ format: 'uri' }),
      setting: field({ secret: true }),
    },
    credentials: mode === 'JWT' ? {} : { key: field({ secret: true }) },
    api: { base_url: base, headers: { 'X-Setting': text } },
    ...(isOAuth && { authorization: { url: authorization } }),
    ...(mode === 'OAUTH1' && { oauth1: { request_url: other } }),
    ...(hasToken && {
      token: {
        url: token,
        ...(mode !== 'OAUTH1' &&
          mode !== 'JWT' && {
            auth_method: authMethod,
            params: text.startsWith('${credentials') ? {} : { audience: text },
            ...(authMethod === 'private_key_jwt' && { client_assertion: { algorithm: 'ES256' } }),
          }),
      },
    }),
    ...(mode === 'OAUTH2' && {
      refresh: { url: other },
      revocation: { url: other, unit: 'token' },
      userinfo: { url: other },
    }),
    ...(mode === 'JWT' && {
      assertion: { use: 'grant', algorithm: 'ES256', claims: { iss: clientId, aud: 'acme' }, life_s: 300 },
    }),
    ...(mode === 'TWO_STEP' && {
      login: {
        url: token,
        headers: { 'X-Setting': text },
        json: { key: '${credentials.key}', text },
        answer: { token: 'token' },
      },
    }),
    ...(mode === 'AWS_SIGV4' && { signature: { service: 's3', region: 'eu-1' } }),
    ...(mode === 'AWS_ROLE' && {
      signature: {
        service: 's3',
        region: 'eu-1',
        assume_role: { url: token, role_arn: '${connectionConfig.label}' },
      },
    }),
    ...(mode === 'API_KEY' && { placement: [{ in: where, name: 'key', value: text }] }),
    ...(mode !== 'NONE' && { verification: { path: '/me', base_url: other } }),
    ...(hasChannels && {
      webhook: { proof: { scheme: 'token', key: 'webhook_secret', header: 'X-Token' } },
      channels: {
        base_url: other,
        account: { path: '/hooks/{id}', life_s: 3600, lookup: { path: '/me', fields: { user: 'id' } } },
        body: { url: '{address}', secret: '{token}', text, label: '${connectionConfig.label}' },
        renewal: { method: 'POST', path: '/hooks/{resource}', body: { text } },
        stop: { path: '/hooks/{resource}', body: { text } },
        kind: 'acme.changed',
      },
    }),
  };
}

const evil = ['evil.example', '169.254.169.254', 'localhost', '127.0.0.1', '[::1]'];
/** What a connection fills in, to reach a host of its own. */
const labels = oneOf(
  ...evil,
  'evil.example/',
  'evil.example#',
  'evil.example?',
  'evil.example\\',
  'evil.example:443/',
  'x@evil.example',
  'evil.example%2f',
  'evil.example\u0000',
  'evil.example。',
  'ｅvil.example/',
  'evil.example\r\nX: y',
  '.',
  '..',
  '{token}',
  '${integrationConfig.setting}',
  'acme',
  'evil-example',
);
const wholes = oneOf(
  'https://evil.example',
  'https://evil.example/x',
  'https://u:p@evil.example',
  'http://169.254.169.254',
  'acme',
);
const settings = fc.record({ label: labels, whole: wholes });

const credentialsOf: Record<string, object> = {
  OAUTH2: { access_token: 'access-token', refresh_token: 'refresh-token', raw: {} },
  OAUTH1: { oauth_token: 'access-token', oauth_token_secret: 'token-secret', raw: {} },
  OAUTH2_CC: { raw: {} },
  API_KEY: { apiKey: 'key-of-the-connection' },
  BASIC: { username: 'ada', password: 'password-of-the-connection' },
  TWO_STEP: { key: 'key-of-the-connection' },
  JWT: {},
  AWS_SIGV4: { access_key_id: accessKey('AKIA', 'CONNECTS'), secret_access_key: 'secret-of-the-connection' },
  AWS_ROLE: {
    session: {
      access_key_id: accessKey('ASIA', 'SESSIONS'),
      secret_access_key: 'secret',
      session_token: 'token',
    },
  },
  NONE: {},
};

/** Runs each request that the definition describes, and returns those that were sent. */
async function requestsOf(
  definition: ProviderDefinition,
  { label, whole }: { label: string; whole: string },
) {
  const sent: { url: string; text: string }[] = [];
  const fetch: Fetch = async (url, init) => {
    sent.push({ url, text: JSON.stringify([init?.headers, init?.body]) });
    return new Response('{"id":"user","token":"t"}', { headers: { 'content-type': 'application/json' } });
  };
  const values = {
    connectionConfig: { label, whole },
    integrationConfig: {
      tenant: 'tenant.acme.example',
      whole: 'https://operator.example',
      setting: secretSetting,
    },
  };
  const usesKey = definition.token?.auth_method === 'private_key_jwt' || definition.auth_mode === 'JWT';
  const client = { clientId, clientSecret: usesKey ? privateKey : sharedSecret, scopes: [] };
  const mode = authModes.get(definition.auth_mode)!;
  const credentials = { type: definition.auth_mode, ...credentialsOf[definition.auth_mode] } as Credentials;
  const context = { definition, values, client, now, fetch };
  const placed = { definition, credentials, values, client };
  const integration = { provider: definition, integrationConfig: values.integrationConfig };
  const { channels: rules } = definition;
  const call = rules && {
    credentials,
    rules,
    fetch,
    signal: AbortSignal.timeout(5_000),
    connection: { connectionConfig: values.connectionConfig, integration } as unknown as LiveConnection,
  };
  const channel = { id: 'channel-1', target: '', expiresAt: new Date(now.getTime() + 60_000), now };
  const api = async (url: string, { headers, query, signer }: ReturnType<typeof placeCredentials>) => {
    const all = await signedHeaders({ method: 'GET', url, headers, signer });
    sent.push({ url, text: JSON.stringify([all, query]) });
  };
  const ways: (() => Promise<unknown> | undefined)[] = [
    async () => {
      const begun = await mode.authorization?.begin({ ...context, redirectUri });
      if (!begun?.ok) return;
      sent.push({ url: begun.url, text: begun.url });
      const callbackParams = new URLSearchParams({
        code: 'code',
        state: begun.state,
        oauth_token: 't',
        oauth_verifier: 'v',
      });
      await mode.authorization?.finish({
        ...context,
        callbackParams,
        redirectUri,
        expectedState: begun.state,
        kept: begun.kept,
      });
    },
    () => mode.renewal?.request({ ...context, credentials, secret: 'refresh-token' }),
    () => (definition.revocation ? revokeToken({ ...context, token: 'token' }) : undefined),
    () =>
      definition.userinfo ? readAccount({ ...context, tokens: { accessToken: 'access-token' } }) : undefined,
    async () => api(`${apiBase(placed)}/me`, placeCredentials(placed)),
    async () => {
      const request = verificationRequest(placed);
      if (request !== undefined) await api(request.url, request);
    },
    () =>
      call && openChannel(call, { ...channel, token: channelToken, address: 'https://hooks.acme.example/x' }),
    () => call && renewChannel(call, { ...channel, resourceId: 'r1', renewal: call.rules.renewal! }),
    () => call && stopChannel(call, { ...channel, resourceId: 'r1' }),
  ];
  for (const way of ways) {
    try {
      await way();
    } catch (error) {
      if (!(error instanceof TemplateError || error instanceof AppError)) throw error;
    }
  }
  return sent;
}

const basicAuth = Buffer.from(`${clientId}:${sharedSecret}`).toString('base64');
/** What only the operator has, and what is signed with it. The token of a channel belongs to its connection. */
const secrets = [secretSetting, sharedSecret, basicAuth, 'client_assertion=', 'assertion=', clientId];

const isChosen = (url: string) => {
  const { hostname } = new URL(url);
  return evil.some(
    (host) => hostname === host || hostname.endsWith(`.${host}`) || hostname.endsWith(`-${host}`),
  );
};

test('no definition sends a secret of the operator to a host that a connection chose', async () => {
  const counts = new Map<string, number>();
  let accepted = 0;
  const property = fc.asyncProperty(sections, settings, async (given, filled) => {
    const parsed = schema.safeParse(contentOf(given));
    if (!parsed.success) return;
    accepted += 1;
    const definition = { ...parsed.data, name: 'own-acme' } as ProviderDefinition;
    for (const { url, text } of await requestsOf(definition, filled)) {
      counts.set(given.mode, (counts.get(given.mode) ?? 0) + 1);
      assert.ok(!text.includes(`label\\":\\"${channelToken}`), 'a value with a placeholder is not filled');
      if (!isChosen(url)) continue;
      const leak = secrets.find(
        (secret) => text.includes(secret) || decodeURIComponent(url).includes(secret),
      );
      assert.equal(leak, undefined, `${given.mode}: ${leak} to ${url}`);
    }
  });
  await fc.assert(property, { numRuns: 10_000 });
  assert.ok(accepted > 500, `${accepted} definitions were accepted`);
  for (const mode of authModes.keys())
    assert.ok((counts.get(mode) ?? 0) > 20, `${mode}: ${counts.get(mode)} requests`);
});
