// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/**
 * A token in the path of each call, as at Telegram: no log, table, error or header of a response has it. The watch of the
 * service fails the test if it finds the token anywhere.
 */
const token = '123456789:AAFakeTokenOfABotThatIsOnlyInThisTest';
const bots = createServer(({ url = '' }, response) => {
  const [, given = '', method = ''] = /^\/bot([^/]*)\/([^?]*)/.exec(decodeURIComponent(url)) ?? [];
  const answer = (status: number, body: object, headers: Record<string, string> = {}) =>
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
  if (given !== token) return answer(401, { ok: false, error_code: 401, description: 'Unauthorized' });
  if (method === 'broken') return response.destroy();
  if (method === 'limited') return answer(429, { ok: false, error_code: 429 });
  if (method === 'denied') return answer(403, { ok: false, error_code: 403 });
  const locations: Record<string, string> = {
    plain: `/bot${token}/next`,
    encoded: `${origin()}/bot${encodeURIComponent(token)}/next`,
    twice: `/bot${encodeURIComponent(encodeURIComponent(token))}/next`,
    lower: `/bot${token.replace(':', '%3a')}/next`,
    relative: 'next',
  };
  const location = locations[method];
  if (location !== undefined)
    return answer(302, {}, { location, link: `<${origin()}/bot${token}/next?page=2>; rel="next"` });
  return answer(200, { ok: true, result: { method } });
});
const origin = () => `http://127.0.0.1:${(bots.address() as AddressInfo).port}`;
let trellis: TestTrellis;
let directory: string;
let connectionId: string;

before(async () => {
  await once(bots.listen(0, '127.0.0.1'), 'listening');
  directory = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, directory, { recursive: true });
  await writeFile(
    join(directory, 'bots.yaml'),
    `extends: telegram
logo: private-api-key.svg
integration_config:
  base_url: { title: Base, description: Base address., format: uri }
api: { base_url: "\${integrationConfig.base_url}/bot\${credentials.apiKey}" }
`,
  );
  const catalog = loadCatalog(directory, authModes);
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' }, { catalog });
  trellis.watch.made('password', token);
  trellis.watch.made('password', encodeURIComponent(token));
  const made = await trellis.call('POST', '/integrations', {
    body: { provider: 'bots', unique_key: 'bots', integration_config: { base_url: origin() } },
  });
  assert.equal(made.status, 200, made.text);
});
after(async () => {
  await trellis.close();
  bots.closeAllConnections();
  bots.close();
  await rm(directory, { recursive: true });
});

async function submit(apiKey: string) {
  const { body } = await trellis.call('POST', '/connect/sessions', { body: { end_user: { id: 'ada' } } });
  const { token: session } = body.data as { token: string };
  return trellis.call('POST', `/api-auth/api-key/bots?connect_session_token=${session}`, {
    key: undefined,
    body: { apiKey },
  });
}
const proxied = (path: string) =>
  trellis.call('GET', `/proxy${path}`, {
    headers: { 'provider-config-key': 'bots', 'connection-id': connectionId },
  });

test('a token is verified, and one that would change the path is refused', async () => {
  for (const wrong of ['123:a/../../other', '1:a?x=', '1:a#', '..', '1:a%2f', '1:a\\b', token.slice(0, -1)]) {
    const refused = await submit(wrong);
    assert.equal(refused.status, 400, refused.text);
  }
  const made = await submit(token);
  assert.equal(made.status, 200, made.text);
  connectionId = String(made.body.connectionId);
  const { body } = await proxied('/sendMessage?chat_id=1');
  assert.deepEqual(body, { ok: true, result: { method: 'sendMessage' } });
});

test('addresses in a response lose the token, however they spell it', async () => {
  for (const method of ['plain', 'encoded', 'twice', 'lower', 'relative']) {
    const { status, headers } = await proxied(`/${method}`);
    assert.equal(status, 302);
    const location = headers.get('location') ?? '';
    assert.ok(location === '' || location === `${origin()}/next`, location);
    assert.equal(headers.get('link'), `<${origin()}/next?page=2>; rel="next"`);
  }
});

test('errors, and paths that leave the bot, do not tell it either', async () => {
  const statuses = [];
  for (const path of ['/broken', '/limited', '/denied', '/a%2f..%2fgetMe', '//evil.example/x']) {
    const { status, text } = await proxied(path);
    statuses.push(status);
    assert.ok(!text.includes(token.slice(10)));
  }
  assert.deepEqual(statuses, [502, 429, 403, 400, 400]);
  const { text } = await trellis.call('GET', '/operations?limit=50');
  assert.ok(!text.includes(token.slice(10)));
});
