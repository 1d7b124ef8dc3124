import { createSecretKey, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Sandbox, startSandbox } from '../../sandbox/main.ts';
import { createApp } from '../../server/app/app.ts';
import { loadConfig } from '../../server/config/config.ts';
import type { Db } from '../../server/db/pool.ts';
import { createKey } from '../../server/environments/keys.ts';
import { type Environment, ensureEnvironment } from '../../server/environments/store.ts';
import type { App } from '../../server/http/server.ts';
import type { Job } from '../../server/jobs/jobs.ts';
import { createLog } from '../../server/log.ts';
import { createOutbound } from '../../server/outbound/outbound.ts';
import type { Catalog } from '../../server/providers/catalog.ts';
import { openVault } from '../../server/vault.ts';
import { shippedCatalog } from './catalog.ts';
import { openTestDatabase } from './database.ts';
import { freePort } from './ports.ts';
import { openSecretWatch, type SecretWatch } from './secret-watch.ts';
import { watchedVault, watchServer } from './secret-watch-server.ts';

export type Answer = { status: number; headers: Headers; text: string; body: Record<string, unknown> };
export type CallOptions = { key?: string | undefined; headers?: Record<string, string>; body?: unknown };

/** The whole service in this process, over real sockets, on a database and a sandbox of its own. */
export type TestTrellis = {
  baseUrl: string;
  app: App;
  db: Db;
  sandbox: Sandbox;
  /** Receives the requests and responses that do not use `call`. */
  watch: SecretWatch;
  /** Secret keys with all scopes. */
  keys: { dev: string; prod: string };
  /** A key of `dev` with these scopes alone. */
  keyWith(...scopes: string[]): Promise<string>;
  /** Calls the service with the key of `dev` unless another, or `undefined` for none, is given. */
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  /** Another service on the same database, with the sandbox off. */
  serveWithoutSandbox(): Promise<Pick<TestTrellis, 'baseUrl' | 'call' | 'close'>>;
  /** Another node: a service on the same database and sandbox. `settings` are its own, beside those of the first. */
  serveAnother(
    settings?: Record<string, string>,
  ): Promise<Pick<TestTrellis, 'baseUrl' | 'call' | 'close'> & { listensAt: string }>;
  /** Calls a control route of the sandbox and answers the body. */
  control(method: string, route: string, body?: unknown): Promise<Record<string, unknown>>;
  /** Moves the clocks of the service and of the sandbox. Expiries of what was connected before come nearer. */
  advance(seconds: number): Promise<void>;
  /** Runs a job as it is run each minute. */
  runJob(name: string): Promise<void>;
  /** Fails where a secret got out: see `secret-watch.ts`. */
  close(): Promise<void>;
};

/** What it takes to do at a service, wherever it runs, what an application and its users do. */
export type Caller = Pick<TestTrellis, 'baseUrl' | 'call' | 'control' | 'watch'>;

/** Starts it on free ports; `env` adds settings to the defaults. */
export async function openTrellis(
  env: Record<string, string> = {},
  { catalog = shippedCatalog }: { catalog?: Catalog } = {},
): Promise<TestTrellis> {
  const dataDir = await mkdtemp(join(tmpdir(), 'trellis-test-data-'));
  const { db, drop } = await openTestDatabase();
  const watch = openSecretWatch();
  const masterKey = randomBytes(32);
  const vault = watchedVault(openVault([{ id: 'test', key: createSecretKey(masterKey) }]), watch);
  const dev = (await ensureEnvironment(db, { name: 'dev', vault })).environment;
  const prod = (await ensureEnvironment(db, { name: 'prod', vault })).environment;
  const scopesOf = new Map<string, readonly string[]>();
  const keyIn = async (environment: Environment, scopes: string[]) => {
    const { secret } = await createKey(db, { environment, name: 'test', scopes });
    watch.made('key', secret);
    scopesOf.set(secret, scopes);
    return secret;
  };
  const keyWith = (...scopes: string[]) => keyIn(dev, scopes);
  const keys = {
    dev: await keyWith('*'),
    prod: await keyIn(prod, ['*']),
  };
  const sandbox = await startSandbox({ port: 0, dataDir: join(dataDir, 'sandbox') });
  watch.made('client_secret', sandbox.client.clientSecret);

  let aheadMs = 0;
  const jobs = new Map<string, Job<Record<string, never>>>();

  async function serve(settings: Record<string, string>, { isSandboxOn = true } = {}) {
    const port = await freePort();
    // A machine that is busy with other tests turns no call away.
    const own = { PORT: String(port), DATA_DIR: dataDir, TRELLIS_OVERLOAD_DELAY_MS: 'off' };
    const config = loadConfig({ ...own, ...settings }, false);
    const { outboundAllow: allow, baseUrl } = config;
    const outbound = createOutbound({ allow, ...(isSandboxOn && { sandbox: { origin: sandbox.url } }) });
    const app = await createApp({
      config,
      log: createLog({ level: 'trace', format: 'json' }, watch.log),
      db,
      vault,
      catalog,
      outbound: { ...outbound, fetchFor: watch.watched(outbound.fetchFor) },
      afterConnectionDeleted: () => {},
      everyMinute: async (job) => void jobs.set(job.name, job),
      now: () => new Date(Date.now() + aheadMs),
      testClient: isSandboxOn ? { ...sandbox.client, url: sandbox.url } : undefined,
    });
    watchServer(app.server, { watch, scopesOf });
    await app.listen({ host: config.host, port: config.port });
    const close = async () => {
      await app.close();
      await outbound.close();
    };
    const listensAt = `http://127.0.0.1:${config.port}`;
    return { app, baseUrl, listensAt, call: callerOf({ baseUrl, ownKey: keys.dev, scopesOf, watch }), close };
  }

  const control: TestTrellis['control'] = async (method, route, body) => {
    const answer = await send(`${sandbox.url}/_sandbox/${route}`, {
      method,
      ...(body !== undefined && {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    });
    if (answer.status >= 400) throw new Error(`${method} ${route}: ${answer.status} ${answer.text}`);
    return answer.body;
  };

  const served = await serve(env);
  return {
    ...served,
    db,
    sandbox,
    watch,
    keys,
    keyWith,
    serveWithoutSandbox: () => serve(env, { isSandboxOn: false }),
    serveAnother: (settings = {}) => serve({ ...env, ...settings }),
    control,
    async advance(seconds) {
      aheadMs += seconds * 1000;
      await control('POST', 'clock', { advance_s: seconds });
    },
    async runJob(name) {
      const job = jobs.get(name);
      if (job === undefined) throw new Error(`there is no job ${name}`);
      await job.run({}, new AbortController().signal);
    },
    async close() {
      await served.close();
      await sandbox.close();
      await watch.readDatabase(db);
      await drop();
      await rm(dataDir, { recursive: true, force: true });
      watch.assertClean();
    },
  };
}

/** Calls a service that runs somewhere else, with a key of all scopes. */
export function callerAt({
  baseUrl,
  key,
  watch,
}: {
  baseUrl: string;
  key: string;
  watch: SecretWatch;
}): Omit<Caller, 'control'> {
  return {
    baseUrl,
    watch,
    call: callerOf({ baseUrl, ownKey: key, scopesOf: new Map([[key, ['*']]]), watch }),
  };
}

function callerOf({
  baseUrl,
  ownKey,
  scopesOf,
  watch,
}: {
  baseUrl: string;
  ownKey: string;
  /** Keys that are made by calls are added. */
  scopesOf: Map<string, readonly string[]>;
  watch: SecretWatch;
}): TestTrellis['call'] {
  return async (method, path, options = {}) => {
    const key = 'key' in options ? options.key : ownKey;
    const answer = await send(baseUrl + path, {
      method,
      headers: {
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
        ...(options.body !== undefined && { 'content-type': 'application/json' }),
        ...options.headers,
      },
      ...(options.body !== undefined && {
        body: typeof options.body === 'string' ? options.body : JSON.stringify(options.body),
      }),
    });
    const scopes = scopesOf.get(key ?? '') ?? [];
    if (method === 'POST' && path === '/environment/api-keys' && answer.status === 201) {
      const made = answer.body.data as { secret: string; scopes: string[] };
      scopesOf.set(made.secret, made.scopes);
    }
    watch.answered(`${method} ${path}`, { ...answer, sent: options.body, scopes });
    return answer;
  };
}

/** Integration, session, consent: the connection of an account, made the way a user makes it. */
export async function connect(
  trellis: Caller,
  given: { integration?: string; provider?: string; account?: string; allow?: string[] } = {},
): Promise<{ connectionId: string; integration: string; headers: Record<string, string> }> {
  const { integration = 'google-sheet', provider = 'google-sheet', account = 'ada@example.com' } = given;
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider, unique_key: integration },
  });
  const before = await connectionIds(trellis, integration);
  const session = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: [integration] },
  });
  const { token } = session.body.data as { token: string };
  const begun = await visit(
    trellis,
    `${trellis.baseUrl}/oauth/connect/${integration}?connect_session_token=${token}`,
  );
  const cookie = begun.headers
    .getSetCookie()
    .map((line) => line.split(';', 1)[0])
    .join('; ');
  const { redirect } = await trellis.control('POST', 'authorize', {
    url: begun.headers.get('location'),
    account,
    ...(given.allow && { allow: given.allow }),
  });
  const landed = await visit(trellis, String(redirect), cookie);
  if (landed.status !== 200) throw new Error(`callback: ${landed.status} ${landed.text}`);
  const connectionId = (await connectionIds(trellis, integration)).find((id) => !before.includes(id));
  if (connectionId === undefined) throw new Error('no connection was made');
  return {
    connectionId,
    integration,
    headers: { 'connection-id': connectionId, 'provider-config-key': integration },
  };
}

/** What a browser gets at an address of the service; a redirect is not followed. */
export async function visit(
  { watch }: Pick<TestTrellis, 'watch'>,
  url: string,
  cookie?: string,
): Promise<Answer> {
  const answer = await send(url, cookie ? { headers: { cookie } } : {});
  const { pathname, search } = new URL(url);
  watch.answered(`GET ${pathname}${search}`, answer);
  return answer;
}

async function connectionIds(trellis: Caller, integration: string): Promise<string[]> {
  const { body } = await trellis.call('GET', `/connections?integrationId=${encodeURIComponent(integration)}`);
  return (body.connections as { connection_id: string }[]).map(({ connection_id }) => connection_id);
}

async function send(url: string, init: RequestInit): Promise<Answer> {
  const response = await fetch(url, { redirect: 'manual', ...init });
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.startsWith('application/json') && text !== '';
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: isJson ? (JSON.parse(text) as Record<string, unknown>) : {},
  };
}
