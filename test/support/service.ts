import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const root = join(import.meta.dirname, '../..');

/** A service that runs as a process of its own, the way `npm start` runs it. */
export type RunningService = {
  baseUrl: string;
  sandboxUrl: string;
  /** The key of `dev`. */
  secretKey: string;
  dataDir: string;
  pid: number;
  /** All lines it printed before it was ready. */
  greeting: string[];
  /** Calls our interface with the key of `dev`; the body of a 2xx, else an error that shows it. */
  call(
    method: string,
    path: string,
    options?: { headers?: Record<string, string>; body?: unknown },
  ): Promise<unknown>;
  /** Calls a control route of the sandbox: `sandbox('POST', 'accounts', {...})`. */
  sandbox(method: string, route: string, body?: unknown): Promise<unknown>;
  /** SIGTERM; resolves with the exit code. A temporary data dir is removed unless `keepData`. */
  stop(options?: { keepData?: boolean }): Promise<number | null>;
};

/** Starts the service on free ports, on a new temporary data dir unless one is given. */
export async function startRunningService(
  options: { dataDir?: string; env?: Record<string, string> } = {},
): Promise<RunningService> {
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'trellis-run-')));
  const child = spawn(process.execPath, [join(root, 'server/cli/main.ts'), 'start'], {
    cwd: root,
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      PORT: '0',
      DATA_DIR: dataDir,
      LOG_LEVEL: 'warn',
      ...options.env,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit') as Promise<[number | null]>;
  const greeting: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    greeting.push(line);
    if (line.startsWith('ready ')) break;
  }
  child.stdout.resume();
  const baseUrl = greeting.at(-1)?.replace('ready ', '');
  if (!baseUrl?.startsWith('http')) throw new Error(`the service did not start:\n${greeting.join('\n')}`);
  const sandboxUrl =
    greeting.map((line) => /^ +sandbox +(\S+?)\/?(?: |$)/.exec(line)?.[1]).find(Boolean) ?? '';
  const secretKey = (await readFile(join(dataDir, 'dev.key'), 'utf8')).trim();
  const send = async (url: string, init: RequestInit) => {
    const response = await fetch(url, init);
    const text = await response.text();
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
    greeting,
    call: (method, path, { headers = {}, body } = {}) =>
      send(baseUrl + path, {
        method,
        headers: { authorization: `Bearer ${secretKey}`, ...jsonType(body), ...headers },
        ...json(body),
      }),
    sandbox: (method, route, body) =>
      send(`${sandboxUrl}/_sandbox/${route}`, { method, headers: jsonType(body), ...json(body) }),
    async stop({ keepData = options.dataDir !== undefined } = {}) {
      child.kill('SIGTERM');
      const [code] = await exited;
      if (!keepData) await rm(dataDir, { recursive: true, force: true });
      return code;
    },
  };
}
