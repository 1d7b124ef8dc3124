import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { readMasterKeys } from '../../server/config/config.ts';
import { findEmbedded } from '../../server/db/embedded/embedded.ts';
import { openDb } from '../../server/db/pool.ts';
import { openVault, type Vault } from '../../server/vault.ts';
import { surroundings } from './command.ts';
import { type TestDatabase, urlOf } from './database.ts';
import { openSecretWatch, type SecretWatch } from './secret-watch.ts';
import { watchedVault } from './secret-watch-server.ts';

const root = join(import.meta.dirname, '../..');

/** A service that runs as a process of its own, the way `npm start` runs it. */
export type RunningService = {
  baseUrl: string;
  sandboxUrl: string;
  /** The key of `dev`. */
  secretKey: string;
  dataDir: string;
  pid: number;
  /** Resolves once its process is gone, however it ended. */
  exited: Promise<unknown>;
  /** All lines it printed before it was ready. */
  greeting: string[];
  /** The lines of its log so far. */
  logged: readonly string[];
  /** Calls our interface with the key of `dev`; the body of a 2xx, else an error that shows it. */
  call(
    method: string,
    path: string,
    options?: { headers?: Record<string, string>; body?: unknown },
  ): Promise<unknown>;
  /** Calls a control route of the sandbox: `sandbox('POST', 'accounts', {...})`. */
  sandbox(method: string, route: string, body?: unknown): Promise<unknown>;
  /**
   * SIGTERM; resolves with the exit code. A temporary data dir is removed unless `keepData`. Fails where a secret got
   * into the log or an answer: see `secret-watch.ts`.
   */
  stop(options?: { keepData?: boolean }): Promise<number | null>;
};

/**
 * Starts the service on free ports, on a new temporary data dir unless one is given. `program` is another than this clone's,
 * as one names it in front of `start`; also under `bwrap`.
 */
export async function startRunningService(
  options: {
    dataDir?: string;
    env?: Record<string, string>;
    program?: readonly string[];
    /** The master keys, if the settings have wrapped ones. */
    ring?: string;
  } = {},
): Promise<RunningService> {
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'trellis-run-')));
  // The key of a new data dir is shown once, in the greeting.
  const isKeyNew = !existsSync(join(dataDir, 'dev.key'));
  const [file, ...words] = options.program ?? [process.execPath, join(root, 'server/cli/main.ts')];
  const child = spawn(file!, [...words, 'start'], {
    cwd: root,
    env: {
      ...surroundings,
      PORT: '0',
      DATA_DIR: dataDir,
      LOG_FORMAT: 'json',
      // What a test leaves under way is not waited for.
      TRELLIS_DRAIN_SECONDS: '1',
      // A machine that is busy with other tests turns no call away.
      TRELLIS_OVERLOAD_DELAY_MS: 'off',
      // A benchmark or a tour is not slowed down by what only tests look at.
      LOG_LEVEL: process.env.NODE_TEST_CONTEXT === undefined ? 'warn' : 'trace',
      ...options.env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = once(child, 'exit') as Promise<[number | null]>;
  const watch = openSecretWatch();
  const greeting: string[] = [];
  const logged: string[] = [];
  const ready = Promise.withResolvers<void>();
  let isReady = false;
  const output = createInterface({ input: child.stdout });
  output.on('close', ready.resolve).on('line', (line) => {
    if (line.startsWith('{') || isReady) {
      watch.log.write(line);
      logged.push(line);
    } else greeting.push(line);
    if (!line.startsWith('ready ')) return;
    isReady = true;
    ready.resolve();
  });
  child.stderr.on('data', (chunk: Buffer) => process.stderr.write(chunk));
  createInterface({ input: child.stderr }).on('line', (line) => watch.log.write(line));
  await ready.promise;
  const baseUrl = greeting.at(-1)?.replace('ready ', '');
  if (!baseUrl?.startsWith('http')) throw new Error(`the service did not start:\n${greeting.join('\n')}`);
  const sandboxUrl =
    greeting.map((line) => /^ +sandbox +(\S+?)\/?(?: |$)/.exec(line)?.[1]).find(Boolean) ?? '';
  const secretKey = (await readFile(join(dataDir, 'dev.key'), 'utf8')).trim();
  watch.made('key', secretKey);
  const ring =
    options.ring ??
    options.env?.TRELLIS_ENCRYPTION_KEYS ??
    (await readFile(join(dataDir, 'master.key'), 'utf8'));
  const vault = watchedVault(openVault(readMasterKeys(ring.trim(), []) ?? []), watch);
  for (const line of greeting) watch.log.write(isKeyNew ? line.replace(secretKey, '(the new key)') : line);
  const send = async (url: string, init: RequestInit, sent?: unknown) => {
    const response = await fetch(url, init);
    const text = await response.text();
    if (url.startsWith(`${baseUrl}/`)) {
      const { status, headers } = response;
      const route = `${init.method} ${url.slice(baseUrl.length)}`;
      watch.answered(route, { status, text, headers, sent, scopes: ['*'] });
    }
    if (!response.ok) throw new Error(`${init.method} ${url}: ${response.status} ${text}`);
    return text === '' ? undefined : (JSON.parse(text) as unknown);
  };
  const json = (body: unknown) => (body === undefined ? {} : { body: JSON.stringify(body) });
  const jsonType = (body: unknown): Record<string, string> =>
    body === undefined ? {} : { 'content-type': 'application/json' };
  return {
    baseUrl,
    sandboxUrl,
    secretKey,
    dataDir,
    pid: child.pid!,
    exited,
    greeting,
    logged,
    async call(method, path, { headers = {}, body } = {}) {
      const init = {
        method,
        headers: { authorization: `Bearer ${secretKey}`, ...jsonType(body), ...headers },
        ...json(body),
      };
      return send(baseUrl + path, init, body);
    },
    sandbox: (method, route, body) =>
      send(`${sandboxUrl}/_sandbox/${route}`, { method, headers: jsonType(body), ...json(body) }),
    async stop({ keepData = options.dataDir !== undefined } = {}) {
      watch.madeIn(await sandboxState(dataDir));
      // A benchmark's tables are not looked through.
      if (child.exitCode === null && child.signalCode === null && process.env.NODE_TEST_CONTEXT !== undefined)
        await readDatabase({ url: options.env?.DATABASE_URL, dataDir, vault, watch });
      // It passes no signal on.
      process.kill(basename(file!) === 'bwrap' ? await onlyChild(child.pid!) : child.pid!, 'SIGTERM');
      const [code] = await exited;
      const ofPostgres = await readFile(join(dataDir, 'postgres/postgres.log'), 'utf8').catch(() => '');
      for (const line of ofPostgres.split('\n')) watch.log.write(line);
      watch.assertClean();
      if (!keepData) await rm(dataDir, { recursive: true, force: true });
      return code;
    },
  };
}

/** Settings of a service on this database, with a new master key. A PostgreSQL of its own would take two seconds more. */
export function settingsFor({ target }: TestDatabase) {
  return {
    DATABASE_URL: urlOf(target),
    TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
  };
}

async function onlyChild(pid: number): Promise<number> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return Number(children.trim());
}

/** Looks through the database of a service that runs, also for its data keys. */
async function readDatabase({
  url,
  dataDir,
  vault,
  watch,
}: {
  url: string | undefined;
  dataDir: string;
  vault: Vault;
  watch: SecretWatch;
}): Promise<void> {
  const target = url === undefined ? await findEmbedded(dataDir) : { url };
  if (target === undefined) return;
  const db = openDb(target, { maxConnections: 1 });
  try {
    const keys = await db.query<{ wrapped: Buffer }>(
      'select wrapped from data_key where master_key = any($1)',
      [vault.masterKeys.map(({ id }) => id)],
    );
    for (const { wrapped } of keys) vault.unwrap(wrapped);
    await watch.readDatabase(db);
  } finally {
    await db.end();
  }
}

/** The tokens and client secrets that the sandbox has given, under names that say what they are. */
async function sandboxState(dataDir: string): Promise<unknown> {
  const text = await readFile(join(dataDir, 'sandbox/oauth.json'), 'utf8').catch(() => '{}');
  const state = JSON.parse(text) as Partial<Record<'accessTokens' | 'refreshTokens', { token: string }[]>>;
  return {
    ...state,
    accessTokens: state.accessTokens?.map(({ token }) => ({ access_token: token })),
    refreshTokens: state.refreshTokens?.map(({ token }) => ({ refresh_token: token })),
  };
}
