// The examples on a clean clone, by the commands of their READMEs as they stand there, with the Node that the machine has:
// `npm ci`, the client packed, `npm install` from the registry. What they do is tested in test/examples/.

import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { root } from '../docs/blocks.ts';
import { killTerminal, readmeOf, type Terminal, terminalOf } from '../examples/terminal.ts';
import { freePort } from '../support/ports.ts';

const run = promisify(execFile);
const minutes = 60_000;

let home: string;
let clone: string;
const terminals: ChildProcess[] = [];
let trellis: Terminal;
let url: string;
let sandbox: string;

/** As in a terminal of this machine: without what npm, or this test's own command, has put there of this clone. */
const surroundings = {
  ...Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(npm_|INIT_CWD|NODE_TEST_CONTEXT|TRELLIS_)/.test(name)),
  ),
  PATH: (process.env.PATH ?? '')
    .split(delimiter)
    .filter((directory) => !directory.startsWith(root))
    .join(delimiter),
};

before(
  async () => {
    home = await mkdtemp(join(tmpdir(), 'trellis-clone-'));
    clone = join(home, 'trellis');
    await copyClone();
  },
  { timeout: 2 * minutes },
);
after(async () => {
  await trellis?.interrupt();
  for (const child of terminals)
    if (child.exitCode === null && child.signalCode === null) killTerminal(child, 'SIGKILL');
  await rm(home, { recursive: true, force: true });
});

/** What a commit of everything here would hold. */
async function copyClone(): Promise<void> {
  const list = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate'];
  const { stdout } = await run('git', list, { cwd: root, maxBuffer: 1e8 });
  for (const file of stdout.split('\0').filter(Boolean)) {
    await mkdir(dirname(join(clone, file)), { recursive: true });
    await cp(join(root, file), join(clone, file)).catch((error: NodeJS.ErrnoException) => {
      // It is deleted here, and not yet in a commit.
      if (error.code !== 'ENOENT') throw error;
    });
  }
}

function type(commands: string, env: Record<string, string>): Terminal {
  const text = commands.replaceAll('http://localhost:3003', url).replaceAll('http://localhost:3004', sandbox);
  const child = spawn('bash', ['--noprofile', '--norc', '-e', '-c', text], {
    cwd: clone,
    env: { ...surroundings, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  terminals.push(child);
  return terminalOf(child);
}

async function follow(token: string): Promise<void> {
  const begin = `${url}/oauth/connect/google-sheet?connect_session_token=${token}`;
  const begun = await fetch(begin, { redirect: 'manual' });
  const cookies = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
  const answer = await fetch(`${sandbox}/_sandbox/authorize`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ url: begun.headers.get('location'), account: 'ada@example.com' }),
  });
  const { redirect, ...refused } = (await answer.json()) as { redirect?: string };
  assert.ok(redirect, JSON.stringify({ begun: begun.status, ...refused }));
  const landed = await fetch(redirect, { headers: { cookie: cookies.join('; ') } });
  assert.equal(landed.status, 200, await landed.text());
}

const json = { 'content-type': 'application/json' };

test('Trellis starts by the commands of the READMEs', { timeout: 20 * minutes }, async () => {
  const [start = ''] = readmeOf('app').commands;
  const [port, sandboxPort] = [await freePort(), await freePort()];
  url = `http://localhost:${port}`;
  sandbox = `http://localhost:${sandboxPort}`;
  trellis = type(start, { PORT: String(port), SANDBOX_PORT: String(sandboxPort) });
  await trellis.printed(/^ready (\S+)$/m, 20 * minutes);
});

test('the script does what its README shows', { timeout: 5 * minutes }, async () => {
  const { commands, outputs } = readmeOf('script');
  const terminal = type(commands[1]!, { TRELLIS_URL: url });
  const [, token] = await terminal.printed(/^open \S+session_token=(\S+)$/m, 4 * minutes);
  await follow(token!);
  assert.equal(await terminal.ended, 0, terminal.output());
  const shown = terminal.output().replaceAll(url, 'http://localhost:3003');
  // npm has spoken before.
  assert.ok(shown.replace(/(session_token=\w+session_)\w+/, '$1...').endsWith(`\n${outputs[0]}`), shown);
});

test('the application serves its page and takes rows over', { timeout: 5 * minutes }, async () => {
  const [, sheet = '', start = ''] = readmeOf('app').commands;
  const made = type(sheet, {});
  assert.equal(await made.ended, 0, made.output());
  const [, spreadsheetId] = /"spreadsheetId": ?"([^"]+)"/.exec(made.output()) ?? [];
  const app = type(start, { TRELLIS_URL: url, PORT: '0' });
  const [, at] = await app.printed(/^ready (\S+)$/m, 4 * minutes);
  for (const path of ['/', '/page.js', '/page.css', '/trellis-client/index.js'])
    assert.equal((await fetch(at + path)).status, 200, path);
  const signedIn = await fetch(`${at}/sign-in`, {
    method: 'POST',
    headers: json,
    body: JSON.stringify({ name: 'Ada' }),
  });
  const cookie = signedIn.headers.getSetCookie()[0]!.split(';', 1)[0]!;
  const session = await fetch(`${at}/session?person=Ada`, { method: 'POST', headers: { cookie } });
  const { token } = (await session.json()) as { token: string };
  await follow(token);
  const of = { authorization: `Bearer ${token}`, ...json };
  const setup = await fetch(`${url}/connect/session/setup`, { headers: of });
  assert.equal(setup.status, 200, await setup.text());
  const choice = {
    spreadsheet_id: spreadsheetId,
    sheet_id: 0,
    header_row: 1,
    key_column: 'Order',
    title: 'Orders',
    tab: '2026',
  };
  const chosen = await fetch(`${url}/connect/session/setup`, {
    method: 'PUT',
    headers: of,
    body: JSON.stringify(choice),
  });
  assert.equal(chosen.status, 200, await chosen.text());
  const live = await fetch(`${at}/live?person=Ada`, {
    headers: { cookie },
    signal: AbortSignal.timeout(minutes),
  });
  let heard = '';
  for await (const chunk of live.body!.pipeThrough(new TextDecoderStream())) {
    heard += chunk;
    if (['A-1001', 'A-1002', 'A-1003'].every((order) => heard.includes(order))) break;
  }
  // What npm and bash make of it is theirs.
  await app.interrupt();
});
