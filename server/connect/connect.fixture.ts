// A service with the connect routes alone, on a real database, the real sandbox and a small API, over sockets.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo, BlockList, createServer as createSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { startSandbox } from '../../sandbox/main.ts';
import { openCookieJar } from '../../test/support/cookie-jar.ts';
import { openTestDatabase } from '../../test/support/database.ts';
import { openSecretWatch, type SecretWatch } from '../../test/support/secret-watch.ts';
import { watchedVault } from '../../test/support/secret-watch-server.ts';
import { noActivity } from '../activity/writer.ts';
import { authModes } from '../auth-modes/modes.ts';
import { brandNames } from '../brand.ts';
import { readMasterKeys } from '../config/config.ts';
import { createConnectionReader } from '../connections/store/reader.ts';
import { createKeyReader } from '../environments/key-reader.ts';
import { createKey } from '../environments/keys.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { createHttp } from '../http/server.ts';
import { createIntegration, type IntegrationChange } from '../integrations/store.ts';
import { createOutbound } from '../outbound/outbound.ts';
import { loadCatalog } from '../providers/catalog.ts';
import { providerRoutes } from '../providers/routes.ts';
import { openVault } from '../vault.ts';
import { connectRoutes } from './routes.ts';
import { createSessionReader } from './sessions.ts';
import { sweepConnect } from './sweep.ts';

export const sheetsScope = 'https://www.googleapis.com/auth/spreadsheets';
const providersDirectory = join(import.meta.dirname, '../../providers');

/** A provider with user name and password whose address each connection brings. */
const ownHost = `
display_name: Own Host
categories: [other]
docs: https://example.com
logo: private-api-key.svg
auth_mode: BASIC
connection_config:
  base_url:
    title: Address
    description: Where your server is.
    format: uri
    example: https://erp.example.com
  region:
    title: Region
    description: Only for servers in more than one.
    required: false
    max_length: 10
api:
  base_url: \${connectionConfig.base_url}
verification:
  path: /basic
`;

export type ConnectBench = Awaited<ReturnType<typeof openConnectBench>>;

/** `end` closes everything, and fails where a secret got out. `publicUrl` is the BASE_URL where that is not the address it listens at. */
export async function openConnectBench({ publicUrl }: { publicUrl?: string } = {}) {
  const { db, drop } = await openTestDatabase();
  const dataDir = await mkdtemp(join(tmpdir(), 'trellis-connect-'));
  const redirectUris = publicUrl === undefined ? [] : [`${publicUrl}/oauth/callback`];
  const sandbox = await startSandbox({ port: 0, dataDir, redirectUris });
  const api = await startApi();
  const port = await freePort();
  const ownUrl = `http://localhost:${port}`;
  const baseUrl = publicUrl ?? ownUrl;
  const brand = brandNames('trellis');
  const watch = openSecretWatch();
  const ring = readMasterKeys(`k1:${randomBytes(32).toString('base64')}`, []) ?? [];
  const vault = watchedVault(openVault(ring), watch);
  const definitions = join(dataDir, 'providers');
  await cp(providersDirectory, definitions, { recursive: true });
  await writeFile(join(definitions, 'own-host.yaml'), ownHost);
  const catalog = loadCatalog(definitions, authModes);
  const reading = { vault, catalog, testClient: { ...sandbox.client, url: sandbox.url } };
  const allow = new BlockList();
  allow.addSubnet('127.0.0.0', 8, 'ipv4');
  allow.addSubnet('::1', 128, 'ipv6');
  const outbound = createOutbound({ allow: [{ addresses: allow }], sandbox: { origin: sandbox.url } });
  let aheadMs = 0;
  const now = () => new Date(Date.now() + aheadMs);
  const logged: string[] = [];
  watch.made('client_secret', sandbox.client.clientSecret);
  const log = pino(
    { level: 'trace' },
    {
      write(line: string) {
        logged.push(line);
        watch.log.write(line);
      },
    },
  );
  const app = await createHttp({
    config: { brand, trustedProxies: [], baseUrl },
    log,
    authenticate: {
      key: createKeyReader({ db, vault }).key,
      session: createSessionReader({ db, brand, now }),
    },
    isRootAlias: () => false,
  });
  const reader = createConnectionReader({ db, reading });
  const fetchFor = watch.watched(({ isTest }) => outbound.fetchFor({ isTest }));
  providerRoutes(app, { db, catalog, baseUrl, callbackBaseUrl: baseUrl, directories: [definitions] });
  await connectRoutes(app, {
    db,
    reading,
    reader,
    fetchFor,
    brand,
    baseUrl,
    log,
    now,
    callbackBaseUrl: baseUrl,
    activity: noActivity,
    trustedProxies: [],
  });
  await app.listen({ host: 'localhost', port });

  const { environment } = await ensureEnvironment(db, { name: 'dev', vault });
  const scopes = ['connections:write'];
  const { secret } = await createKey(db, { environment, name: 'test', scopes });
  watch.made('key', secret);
  const addIntegration = (key: string, provider: string, change: IntegrationChange = {}) =>
    createIntegration(db, { ...reading, environmentId: environment.id, key, provider, ...change });
  await addIntegration('sheets', 'google-sheet', { isTest: true });
  await addIntegration('drive', 'google-drive', { isTest: true });
  await addIntegration('private', 'private-api-key', {
    integrationConfig: { base_url: api.url, verification_path: '/me' },
  });
  await addIntegration('own', 'own-host');
  await addIntegration('open', 'unauthenticated', { integrationConfig: { base_url: api.url } });

  async function control<T = Record<string, unknown>>(route: string, body: unknown): Promise<T> {
    const [method = '', path = ''] = route.split(' ');
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${sandbox.url}/_sandbox${path}`, {
      method,
      headers,
      body: JSON.stringify(body),
    });
    if (answer.status !== 200) throw new Error(`${route}: ${await answer.text()}`);
    return (await answer.json()) as T;
  }

  return {
    db,
    baseUrl,
    /** Everything that was logged, a line each. */
    logged,
    apiUrl: api.url,
    sandbox,
    /** To be told of secrets that it does not see come up. */
    watch,
    environment,
    reading,
    addIntegration,
    control,
    now,
    /** Moves the clocks of the service and of the sandbox. */
    async advance(seconds: number): Promise<void> {
      aheadMs += seconds * 1000;
      await control('POST /clock', { advance_s: seconds });
    },
    /** What the job does each minute. */
    sweep: () => sweepConnect({ db, vault, log, now }),
    /** Any route with the key of the environment. */
    async call(route: string, body?: unknown, headers: Record<string, string> = {}) {
      const [method = '', path = ''] = route.split(' ');
      const answer = await fetch(ownUrl + path, {
        method,
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...headers },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        redirect: 'manual',
      });
      const text = await answer.text();
      const { status, headers: given } = answer;
      watch.answered(route, { status, text, headers: given, sent: body, scopes });
      return {
        status,
        headers: given,
        // biome-ignore lint/suspicious/noExplicitAny: what came back is for the test to judge
        body: (text.startsWith('{') ? JSON.parse(text) : text) as any,
      };
    },
    /** A session's token. */
    async session(body: Record<string, unknown> = { end_user: { id: 'u1' } }): Promise<string> {
      const { status, body: answer } = await this.call('POST /connect/sessions', body);
      if (status !== 201) throw new Error(JSON.stringify(answer));
      return answer.data.token;
    },
    async reconnectSession(connectionId: string, more: Record<string, unknown> = {}): Promise<string> {
      const body = { connection_id: connectionId, integration_id: 'sheets', ...more };
      const { status, body: answer } = await this.call('POST /connect/sessions/reconnect', body);
      if (status !== 201) throw new Error(JSON.stringify(answer));
      return answer.data.token;
    },
    /** What the connect page asks for before anything begins. */
    async choices(token: string) {
      const authorization = `Bearer ${token}`;
      return (await this.call('GET /connect/session/choices', undefined, { authorization })).body.data;
    },
    /** What it asks for while it waits. */
    async progress(token: string) {
      const authorization = `Bearer ${token}`;
      return (await this.call('GET /connect/session/progress', undefined, { authorization })).body.data;
    },
    browser: () => openBrowser({ baseUrl, ownUrl, watch }),
    /** What the provider would send the browser back to, once the account decided. */
    async consent(
      url: string,
      decision: { account?: string; allow?: string[]; deny?: boolean } = {},
    ): Promise<string> {
      const account = 'ada@example.com';
      return (await control<{ redirect: string }>('POST /authorize', { account, ...decision, url })).redirect;
    },
    connections: () =>
      db.query<{ id: number; connection_id: string; account_id: string; account_email: string }>(
        'select id, connection_id, account_id, account_email from connection order by id',
      ),
    events: async () =>
      (await db.query<{ type: string }>('select type from event order by created_at')).map(
        ({ type }) => type,
      ),
    async end(): Promise<void> {
      await app.close();
      await outbound.close();
      await sandbox.close();
      await api.close();
      await watch.readDatabase(db);
      await drop();
      await rm(dataDir, { recursive: true, force: true });
      watch.assertClean();
    },
  };
}

/** A browser that reaches `baseUrl` at `ownUrl`, and follows no redirect by itself. */
function openBrowser({ baseUrl, ownUrl, watch }: { baseUrl: string; ownUrl: string; watch: SecretWatch }) {
  const jar = openCookieJar();
  const basePath = new URL(baseUrl).pathname.replace(/\/$/, '');
  return {
    jar,
    /** What it shows the service, the oldest first. */
    get secrets() {
      return jar.shownAt(baseUrl).map(({ value }) => value);
    },
    async visit(url: string) {
      const address = new URL(url, baseUrl);
      const path = address.href.slice(address.origin.length);
      const cookie = jar.headerFor(address.href);
      // The proxy in front takes the path of the base address away.
      const answer = await fetch(
        ownUrl + (path.startsWith(`${basePath}/`) ? path.slice(basePath.length) : path),
        {
          redirect: 'manual',
          headers: cookie === '' ? {} : { cookie },
        },
      );
      jar.receive(address.href, answer.headers.getSetCookie());
      const { status, headers } = answer;
      const text = await answer.text();
      watch.answered(`GET ${address.pathname}${address.search}`, { status, text, headers });
      return { status, headers, location: headers.get('location') ?? '', text };
    },
    /** Where `/oauth/connect` sends this browser. */
    async begin(token: string, { key = 'sheets', query = '' } = {}): Promise<string> {
      const { status, location, text } = await this.visit(
        `/oauth/connect/${key}?connect_session_token=${token}${query}`,
      );
      if (status !== 302) throw new Error(`${status} ${text}`);
      return location;
    },
  };
}

/** An API that knows the key `right` and the user `ada` with the password `right`. */
async function startApi() {
  const server = createServer((request, response) => {
    const known: Record<string, string> = {
      '/me': 'Bearer right',
      '/basic': `Basic ${Buffer.from('ada:right').toString('base64')}`,
    };
    const isKnown = request.headers.authorization === known[request.url ?? ''];
    response.writeHead(isKnown ? 200 : 401).end('{}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function freePort(): Promise<number> {
  const socket = createSocket().listen(0, 'localhost');
  await once(socket, 'listening');
  const { port } = socket.address() as AddressInfo;
  socket.close();
  await once(socket, 'close');
  return port;
}
