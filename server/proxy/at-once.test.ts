/** Most calls find all that they need in the caches, and are sent within the turn in which they come. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { AppError } from '../errors.ts';
import { bytesOf, callHeaders, definitionAt, send, startHttp, startProxy } from './proxy.fixture.ts';

type Settings = Partial<Parameters<typeof startProxy>[0]>;

async function startAtOnce(t: TestContext, settings: Settings = {}) {
  const asked: string[] = [];
  const upstream = await startHttp((request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers.authorization}`);
    response.end('fine');
  });
  const pace = 'at_once' as const;
  const proxy = await startProxy({ definition: definitionAt(upstream.url), pace, ...settings });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  return { proxy, asked };
}

async function ask(url: string, headers: Record<string, string> = {}) {
  const answer = await send(url, { headers }).answer;
  const text = (await bytesOf(answer)).toString();
  return { status: answer.statusCode, marker: answer.headers['x-trellis-error'], text };
}

test('a call whose key, connection and credentials are cached is answered', async (t) => {
  const { proxy, asked } = await startAtOnce(t);
  const answer = await ask(`${proxy.url}/proxy/a?b=1`);
  assert.deepEqual(answer, { status: 200, marker: undefined, text: 'fine' });
  assert.deepEqual(asked, ['GET /a?b=1 Bearer token-1']);
});

for (const [what, path, headers, status, code] of [
  ['a wrong key', '/x', { authorization: 'Bearer another-key-of-another' }, 401, 'unknown_account'],
  ['a header that is none', '/x', { retries: 'many' }, 400, 'invalid_headers'],
  ['another connection', '/x', { 'connection-id': 'bob' }, 400, 'unknown_connection'],
  ['an unsafe path', '/a/..%2fb', {}, 400, 'invalid_proxy_path'],
  ['an override', '/x', { 'base-url-override': 'https://x.example' }, 400, 'base_url_override_not_allowed'],
] as const) {
  test(`${what} is refused in the same way with and without a cache`, async (t) => {
    const { proxy, asked } = await startAtOnce(t);
    const fetched = await startAtOnce(t, { pace: 'fetched' });
    const answers = [];
    for (const { url } of [proxy, fetched.proxy]) {
      const { status, marker } = await ask(`${url}/proxy${path}`, { ...callHeaders, ...headers });
      answers.push([status, marker]);
    }
    assert.deepEqual(answers, [
      [status, code],
      [status, code],
    ]);
    assert.deepEqual([asked, fetched.asked], [[], []]);
  });
}

test('a quota with invalid settings is reported once, and leaves nothing behind', async (t) => {
  const lines: (string | undefined)[] = [];
  const admit = () => {
    throw new AppError('integration_misconfigured', 'No limit has this name.');
  };
  const quota = { admit };
  const activity = { log: ({ errorCode }: { errorCode?: string | undefined }) => void lines.push(errorCode) };
  const definition = definitionAt('https://api.example', {
    quota: {
      service: 'api.example',
      reads: '^GET ',
      limits: [{ name: 'reads', per: 'owner', counts: 'read', window_s: 60, count: 10 }],
    },
    timeouts: { total_ms: 100 },
  });
  const { proxy } = await startAtOnce(t, { definition, quota, activity });
  const { status, marker } = await ask(`${proxy.url}/proxy/x`);
  assert.deepEqual([status, marker], [424, 'integration_misconfigured']);
  await new Promise((resolve) => setTimeout(resolve, 250));
  assert.deepEqual(lines, ['integration_misconfigured']);
});

test('an error that cannot be written ends the connection', async (t) => {
  const lines: (string | undefined)[] = [];
  const admit = () => {
    throw new AppError('quota_exhausted', undefined, { payload: { count: 1n } });
  };
  const activity = { log: ({ errorCode }: { errorCode?: string | undefined }) => void lines.push(errorCode) };
  const definition = definitionAt('https://api.example', {
    error_format: undefined,
    quota: {
      service: 'api.example',
      reads: '^GET ',
      limits: [{ name: 'reads', per: 'owner', counts: 'read', window_s: 60, count: 10 }],
    },
  });
  const { proxy } = await startAtOnce(t, { definition, quota: { admit }, activity });
  await assert.rejects(ask(`${proxy.url}/proxy/x`), { code: 'ECONNRESET' });
  assert.deepEqual(lines, ['quota_exhausted']);
});
