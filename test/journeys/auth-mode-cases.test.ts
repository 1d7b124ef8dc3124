// biome-ignore-all lint/suspicious/noTemplateCurlyInString: definitions have such templates
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { authModes } from '../../server/auth-modes/modes.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/**
 * For each auth mode, the test that shows each case of its life. The first tests are the cases of the modes whose credentials
 * are entered and never exchanged; the last test fails if a mode lacks a case.
 */

const here = 'auth-mode-cases.test.ts';
const cases = ['connect', 'refresh', 'refusal', 'revocation', 'wrong settings'] as const;
type Case = (typeof cases)[number];
/** The file and the title of the test. */
type Shown = Partial<Record<Case, readonly [file: string, title: string]>>;

const titles = {
  connect: 'connects by its form, and its calls reach the API',
  refusal: 'is refused with wrong credentials, and nothing is made',
  revocation:
    'whose credentials were revoked gets the refusal of the provider, and works again with new ones',
  'wrong settings': 'of an integration with a wrong address is refused with its reason',
};
const ofTitles: Shown = {
  connect: [here, titles.connect],
  refusal: [here, titles.refusal],
  revocation: [here, titles.revocation],
  'wrong settings': [here, titles['wrong settings']],
};
const shown: Record<string, Shown> = {
  OAUTH2: {
    connect: ['credentials.test.ts', 'a connection carries account, scopes and expiry'],
    refresh: ['credentials.test.ts', 'two hundred calls at expiry share one refresh, and all succeed'],
    refusal: ['failure-steps.test.ts', '1: a user who declines leaves the connection unchanged'],
    revocation: [
      'credentials.test.ts',
      'an outage of six hours changes no connection, and one revocation is reported once',
    ],
    'wrong settings': [
      'credentials.test.ts',
      'a wrong client secret is a fault of the integration and leaves the connection alone',
    ],
  },
  OAUTH1: {
    connect: ['oauth1.test.ts', 'an account is connected on the page of the provider, and known by its ID'],
    refresh: ['oauth1.test.ts', 'a 401 for one call alone ends nothing'],
    refusal: ['oauth1.test.ts', 'the user refuses'],
    revocation: [
      'oauth1.test.ts',
      'a token that its user has revoked is noticed by the next call, and the connection is connected again',
    ],
    'wrong settings': [
      'oauth1.test.ts',
      'the client is refused: the user reads that the application is at fault, and a session can be tried again',
    ],
  },
  OAUTH2_CC: {
    connect: ['client-credentials.test.ts', 'a form makes the connection, and calls go out with its token'],
    refresh: [
      'client-credentials.test.ts',
      'twenty calls on two nodes after the token has expired request one new token',
    ],
    refusal: [
      'client-credentials.test.ts',
      'of a client alone fetches its token, and of one that is refused makes nothing',
    ],
    revocation: [
      'client-credentials.test.ts',
      'a refused client affects only its connection, which is reported once, with a link to the form',
    ],
    'wrong settings': [
      'client-credentials.test.ts',
      "the integration's client, refused, kills no connection, and is tried until it is accepted again",
    ],
  },
  TWO_STEP: {
    connect: ['two-step.test.ts', "the page has the definition's fields, and the form makes the connection"],
    refresh: [
      'two-step.test.ts',
      'twenty calls on two nodes after the token has expired request one new token',
    ],
    refusal: ['two-step.test.ts', 'values that do not fit, other fields and a wrong password make nothing'],
    revocation: [
      'two-step.test.ts',
      'an outage delays, a refused login needs the user, and the form revives the connection',
    ],
    'wrong settings': [
      'two-step.test.ts',
      'the connect form reports a wrong address of the integration, and no secret',
    ],
  },
  JWT: {
    connect: ['jwt.test.ts', 'connects by its key file, and its calls have a token'],
    refresh: ['jwt.test.ts', 'signs one assertion for twenty calls after its token has expired'],
    refusal: ['jwt.test.ts', 'of another kind is refused with what is wrong, and without the key'],
    revocation: ['jwt.test.ts', 'whose key was deleted needs its user, and works again with another key'],
    'wrong settings': [
      'jwt.test.ts',
      "whose app's key was deleted is a fault of the integration, and of no connection",
    ],
  },
  API_KEY: ofTitles,
  BASIC: ofTitles,
  AWS_SIGV4: ofTitles,
  AWS_ROLE: {
    ...ofTitles,
    refresh: ['aws-role.test.ts', 'after the end of a session the next call has another one'],
  },
  NONE: { connect: ofTitles.connect!, 'wrong settings': ofTitles['wrong settings']! },
};

type Entered = {
  form: string;
  definition: string;
  /** The body of the form; `key` is what the provider knows. */
  body: (key: string) => Record<string, string>;
  /** The key of a request. */
  keyOf: (headers: IncomingHttpHeaders) => string | undefined;
  refusedWith: number;
};
const awsKey = (key: string) => ({ access_key_id: key, secret_access_key: `secret-of-${key}` });
const awsKeyOf = ({ authorization = '' }: IncomingHttpHeaders) =>
  /Credential=(\w+)\//.exec(authorization)?.[1];
const entered = {
  API_KEY: {
    form: '/api-auth/api-key',
    definition: 'placement: [{ in: header, name: X-Key, value: "${credentials.apiKey}" }]',
    body: (apiKey) => ({ apiKey }),
    keyOf: (headers) => String(headers['x-key']),
    refusedWith: 401,
  },
  BASIC: {
    form: '/api-auth/basic',
    definition: '',
    body: (password) => ({ username: 'ada', password }),
    keyOf: ({ authorization = '' }) => Buffer.from(authorization.slice(6), 'base64').toString().split(':')[1],
    refusedWith: 401,
  },
  AWS_SIGV4: {
    form: '/auth/aws-sigv4',
    definition: 'signature: { service: sqs, region: eu-1 }',
    body: awsKey,
    keyOf: awsKeyOf,
    refusedWith: 403,
  },
  AWS_ROLE: {
    form: '/auth/aws-role',
    definition: `signature:
  service: sqs
  region: eu-1
  assume_role: { url: BASE/sts, role_arn: "arn:aws:iam::123456789012:role/app" }`,
    body: awsKey,
    keyOf: awsKeyOf,
    refusedWith: 403,
  },
} satisfies Record<string, Entered>;
type Mode = keyof typeof entered | 'NONE';

let trellis: TestTrellis;
/** The keys that the provider accepts. */
const accepted = new Set<string>();
let made = 0;
const newKey = () => `AKIA${String(++made).padStart(16, '0')}`;
const provider = createServer(({ url = '', headers }, response) => {
  const [, mode = ''] = url.split('/') as [string, Mode?];
  const { keyOf, refusedWith } =
    mode === 'NONE' ? { keyOf: () => 'none', refusedWith: 0 } : entered[mode as keyof typeof entered];
  const key = keyOf(headers) ?? '';
  response.statusCode = mode === 'NONE' || accepted.has(key) ? 200 : refusedWith;
  const expiration = new Date(Date.now() + 3600_000).toISOString();
  response.end(
    url.endsWith('/sts') && response.statusCode === 200
      ? `<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>${key}</AccessKeyId><SecretAccessKey>secret-of-the-session</SecretAccessKey><SessionToken>token-of-the-session</SessionToken><Expiration>${expiration}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`
      : url.endsWith('/sts')
        ? '<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>'
        : '{}',
  );
});

before(async () => {
  provider.listen(0, '127.0.0.1');
  await once(provider, 'listening');
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' });
});
after(async () => {
  await trellis?.close();
  provider.closeAllConnections();
  provider.close();
});

const errorOf = ({ body }: { body: Record<string, unknown> }) =>
  body.error as { code: string; message: string };
async function ok(answer: ReturnType<TestTrellis['call']>): Promise<Record<string, unknown>> {
  const { status, text, body } = await answer;
  assert.ok(status < 300, text);
  return (body.data ?? body) as Record<string, unknown>;
}

async function integrate(mode: Mode, key: string, origin: string): Promise<void> {
  const base = `${origin}/${mode}`;
  const own = mode === 'NONE' ? '' : entered[mode].definition.replace('BASE', base);
  const name = `own-${key.toLowerCase().replaceAll('_', '-')}`;
  const definition = `display_name: Acme
categories: [other]
docs: https://acme.example/docs
auth_mode: ${mode}
api: { base_url: ${base} }
verification: { path: /me }
${own}
`;
  await ok(trellis.call('POST', '/providers', { body: { name, definition } }));
  await ok(trellis.call('POST', '/integrations', { body: { provider: name, unique_key: key } }));
}

async function submit(
  mode: Mode,
  { integration = mode, key, token }: { integration?: string; key: string; token?: string },
) {
  const session =
    token ??
    (
      await ok(
        trellis.call('POST', '/connect/sessions', {
          body: { end_user: { id: 'ada' }, allowed_integrations: [integration] },
        }),
      )
    ).token;
  const [form, body] =
    mode === 'NONE' ? ['/auth/unauthenticated', {}] : [entered[mode].form, entered[mode].body(key)];
  return trellis.call('POST', `${form}/${integration}?connect_session_token=${session}`, {
    key: undefined,
    body,
  });
}
const proxied = (mode: Mode, id: unknown) =>
  trellis.call('GET', '/proxy/x', { headers: { 'provider-config-key': mode, 'connection-id': String(id) } });

for (const mode of [...Object.keys(entered), 'NONE'] as Mode[]) {
  describe(`a connection of ${mode}`, () => {
    let id: unknown;
    const key = newKey();
    before(async () => {
      accepted.add(key);
      const { port } = provider.address() as AddressInfo;
      await integrate(mode, mode, `http://127.0.0.1:${port}`);
    });

    test(titles.connect, async () => {
      ({ connectionId: id } = await ok(submit(mode, { key })));
      assert.equal((await proxied(mode, id)).status, 200);
    });

    test(titles['wrong settings'], async () => {
      const wrong = `${mode}-wrong`;
      await integrate(mode, wrong, 'http://127.0.0.1:1');
      const refused = await submit(mode, { integration: wrong, key });
      assert.deepEqual(
        [refused.status, errorOf(refused).code],
        [400, 'connection_test_failed'],
        refused.text,
      );
      assert.match(errorOf(refused).message, /did not answer|unreachable/);
      assert.ok(!refused.text.includes(`secret-of-${key}`));
    });

    if (mode === 'NONE') return;

    test(titles.refusal, async () => {
      const refused = await submit(mode, { key: newKey() });
      assert.deepEqual(
        [refused.status, errorOf(refused).code],
        [400, 'connection_test_failed'],
        refused.text,
      );
      const { connections } = await ok(trellis.call('GET', `/connections?integrationId=${mode}`));
      assert.equal((connections as unknown[]).length, 1);
    });

    test(titles.revocation, async () => {
      accepted.delete(key);
      const refused = await proxied(mode, id);
      assert.deepEqual([refused.status, refused.text], [entered[mode].refusedWith, '{}']);
      const { token } = await ok(
        trellis.call('POST', '/connect/sessions/reconnect', {
          body: { connection_id: id, integration_id: mode },
        }),
      );
      const other = newKey();
      accepted.add(other);
      const again = await ok(submit(mode, { key: other, token: String(token) }));
      assert.equal(again.connectionId, id);
      assert.equal((await proxied(mode, id)).status, 200);
    });
  });
}

test('each auth mode has a test of each case', async () => {
  assert.deepEqual(Object.keys(shown).sort(), [...authModes.keys()].sort());
  for (const [name, { renewal, placeholders, signer }] of authModes) {
    const hasCredentials = placeholders.length > 0 || signer !== undefined;
    const wanted = cases.filter((one) =>
      one === 'refresh'
        ? renewal !== undefined
        : one === 'connect' || one === 'wrong settings' || hasCredentials,
    );
    assert.deepEqual(Object.keys(shown[name]!).sort(), [...wanted].sort(), name);
    for (const [file, title] of Object.values(shown[name]!)) {
      const text = await readFile(join(import.meta.dirname, file), 'utf8');
      assert.ok(text.includes(title.replaceAll("'", "\\'")) || text.includes(title), `${file}: ${title}`);
    }
  }
});
