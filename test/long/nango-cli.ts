// The official command line from npm, in a project of functions, with a service behind a proxy that records the requests.

import { type ExecFileException, execFile } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { surroundings } from '../support/command.ts';

type End = { code: number; output: string };
/** A request as it came by. */
export type Passed = { method: string; path: string; headers: IncomingHttpHeaders; fields: string[] };

export type CommandLine = {
  /** The project's folder. */
  project: string;
  /** Runs `nango` with these words in the project, without a terminal; `env` adds to its settings. */
  run(words: string[], env?: Record<string, string>): Promise<End>;
  /** Writes a file of the project. */
  write(path: string, text: string): Promise<void>;
  read(path: string): Promise<string>;
  remove(path: string): Promise<void>;
  /** What was sent since it was asked last. */
  passed(): Passed[];
  close(): Promise<void>;
};

/** Installs this version; its scripts are not run. Its traffic goes to the service at `baseUrl`. */
export async function openCommandLine({
  version,
  baseUrl,
  keys,
}: {
  version: string;
  baseUrl: string;
  keys: { dev: string; prod: string };
}): Promise<CommandLine> {
  const home = await mkdtemp(join(tmpdir(), 'trellis-nango-cli-'));
  const installed = join(home, 'installed');
  const project = join(home, 'project');
  await mkdir(installed);
  await mkdir(project);
  await writeFile(join(installed, 'package.json'), JSON.stringify({ name: 'installed', private: true }));
  const npm = [
    'install',
    '--ignore-scripts',
    '--prefer-offline',
    '--no-audit',
    '--no-fund',
    `nango@${version}`,
  ];
  // With the caller's settings for npm's registry.
  const install = await runFile('npm', npm, { cwd: installed, env: process.env });
  if (install.code !== 0) {
    await rm(home, { recursive: true, force: true });
    throw new Error(`nango ${version} was not installed:\n${install.output}`);
  }
  const program = join(installed, 'node_modules/nango/dist/index.js');
  const proxy = await openProxy(baseUrl);
  const env = {
    HOME: home,
    NANGO_HOSTPORT: proxy.url,
    NANGO_SECRET_KEY_DEV: keys.dev,
    NANGO_SECRET_KEY_PROD: keys.prod,
    NANGO_CLI_UPGRADE_MODE: 'ignore',
    NANGO_DEPLOY_AUTO_CONFIRM: 'true',
  };
  const quietly = ['--no-interactive', '--no-dependency-update'];
  const run: CommandLine['run'] = ([command = '', ...words], more = {}) =>
    runFile(process.execPath, [program, command, ...words, ...(command === '--help' ? [] : quietly)], {
      cwd: project,
      env: { ...surroundings, ...env, ...more },
    });
  const made = await run(['init', '.', '--copy']);
  if (made.code !== 0) throw new Error(made.output);
  await symlink(join(installed, 'node_modules'), join(project, 'node_modules'));
  return {
    project,
    run,
    passed: proxy.passed,
    async write(path, text) {
      await mkdir(dirname(join(project, path)), { recursive: true });
      await writeFile(join(project, path), text);
    },
    read: (path) => readFile(join(project, path), 'utf8'),
    remove: (path) => rm(join(project, path)),
    async close() {
      proxy.server.closeAllConnections();
      proxy.server.close();
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** Copies a folder of functions into the project. */
export function copyFunctions(from: string, to: string): Promise<void> {
  return cp(from, to, { recursive: true });
}

/** Forwards all requests to the service unchanged, and records them. */
async function openProxy(baseUrl: string): Promise<{ server: Server; url: string; passed: () => Passed[] }> {
  let seen: Passed[] = [];
  const { hostname, port } = new URL(baseUrl);
  const server = createServer(async (incoming, outgoing) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const { method = '', url = '', headers } = incoming;
    const isJson = headers['content-type']?.includes('json') && body.length > 0;
    const fields = isJson ? Object.keys(JSON.parse(body.toString()) as object) : [];
    seen.push({ method, path: url, headers, fields });
    const onward = request({ hostname, port, method, path: url, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    onward.on('error', () => outgoing.destroy());
    onward.end(body);
  }).listen(0, 'localhost');
  await once(server, 'listening');
  return {
    server,
    url: `http://localhost:${(server.address() as AddressInfo).port}`,
    passed() {
      const since = seen;
      seen = [];
      return since;
    },
  };
}

function runFile(
  file: string,
  words: string[],
  given: { cwd: string; env: Record<string, string | undefined> },
): Promise<End> {
  return new Promise((resolve, reject) => {
    const options = { ...given, maxBuffer: 64 * 1024 * 1024, timeout: 300_000 };
    execFile(file, words, options, (error: ExecFileException | null, stdout, stderr) => {
      const code = error === null ? 0 : error.code;
      if (typeof code === 'number') resolve({ code, output: `${stdout}${stderr}` });
      else reject(error as Error);
    });
  });
}
