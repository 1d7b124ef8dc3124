// Slow: it starts and kills services.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rename, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { isAlive } from '../../server/is-alive.ts';
import { surroundings } from '../support/command.ts';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';
import { functionProcessesOf, processesBeneath } from '../support/processes.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const cli = (args: string[], env: Record<string, string>) =>
  run(process.execPath, [join(root, 'server/cli/main.ts'), ...args], {
    cwd: root,
    env: { ...surroundings, ...env },
  });

let dataDir: string;
let service: RunningService;
before(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'trellis-start-'));
  service = await startRunningService({ dataDir, env: { SANDBOX_KEY: 'not-for-children' } });
});
after(async () => {
  await service.stop();
  await rm(dataDir, { recursive: true, force: true });
});

const curlLines = () => service.greeting.filter((line) => line.startsWith('curl '));

test('the greeting names dashboard, sandbox and key, and ends with ready', () => {
  const text = service.greeting.join('\n');
  assert.ok(text.includes(service.secretKey));
  assert.ok(text.includes(service.sandboxUrl) && service.sandboxUrl.startsWith('http'));
  assert.equal(service.greeting.at(-1), `ready ${service.baseUrl}`);
});

test('the keys are readable by their owner alone', async () => {
  for (const file of ['dev.key', 'master.key']) {
    assert.equal((await stat(join(dataDir, file))).mode & 0o777, 0o600, file);
  }
});

test('there is no process of customer code before one is needed', {
  skip: process.platform !== 'linux' && 'Linux alone tells which processes there are',
}, async () => {
  assert.deepEqual(await functionProcessesOf(service.pid), []);
  await service.call('POST', '/integrations', {
    body: {
      unique_key: 'functions',
      provider: 'unauthenticated',
      integration_config: { base_url: 'https://a.invalid' },
    },
  });
  const code = flowConfig({ name: 'double', code: actionCode(), integration: 'functions' });
  await service.call('POST', '/sync/deploy', { body: deployBody([code]) });
  // A deploy returns the code's description of itself, which takes a process.
  assert.notDeepEqual(await functionProcessesOf(service.pid), []);
});

test('no process that the service starts has a secret of its environment, or reads the compile cache', {
  skip: process.platform !== 'linux' && 'Linux alone shows the environment of a process',
}, async () => {
  const own = await readFile(`/proc/${service.pid}/environ`, 'utf8');
  assert.ok(own.includes('SANDBOX_KEY=not-for-children'));
  const programs = new Set<string>();
  for (const pid of await processesBeneath(service.pid)) {
    const [program = ''] = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
    const environment = (await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '')).split('\0');
    // A backend of PostgreSQL writes its title over what it had from its parent, which is looked at.
    if (environment.length <= 1 || program.startsWith('postgres: ')) continue;
    programs.add(basename(program));
    const names = environment.map((variable) => variable.split('=')[0]!).filter((name) => name !== '');
    const allowed = /^(PATH|PWD|OLDPWD|SHLVL|_|LC_\w+|TZ|LD_LIBRARY_PATH|PG\w+|NODE_DISABLE_COMPILE_CACHE)$/;
    assert.deepEqual(
      names.filter((name) => !allowed.test(name)),
      [],
      program,
    );
    assert.ok(environment.includes('NODE_DISABLE_COMPILE_CACHE=1'), program);
  }
  // The test before this one has deployed a function.
  for (const program of ['esbuild', 'postgres', 'node'])
    assert.ok(programs.has(program), [...programs].join());
});

test('the three curl lines work unchanged, repeatedly', async () => {
  assert.equal(curlLines().length, 3);
  for (let time = 0; time < 2; time += 1) {
    for (const line of curlLines()) {
      const { stdout } = await run('bash', ['-c', `${line} --fail-with-body`], { cwd: root });
      assert.ok(!('error' in JSON.parse(stdout)), stdout);
    }
  }
});

test('trellis key create makes another key while the service runs, with the requested scopes', async () => {
  const { stdout } = await cli(['key', 'create', '--scopes', 'integrations:read'], { DATA_DIR: dataDir });
  const headers = { authorization: `Bearer ${stdout.trim()}` };
  assert.equal((await fetch(`${service.baseUrl}/providers`, { headers })).status, 200);
  assert.equal((await fetch(`${service.baseUrl}/connections`, { headers })).status, 403);
  await assert.rejects(cli(['key', 'create', '--scopes', 'nonsense'], { DATA_DIR: dataDir }), /nonsense/);
});

test('trellis key create --replaces accepts a key of the environment, and reports why another one is refused', async () => {
  const env = { DATA_DIR: dataDir };
  const { stdout: list } = await cli(['key', 'list'], env);
  const id = Number(list.trim().split('\n').at(-1)?.split('\t')[0]);
  const create = (...more: string[]) => cli(['key', 'create', '--scopes', 'records:read', ...more], env);
  const refused: [string[], RegExp][] = [
    [['--replaces', String(id + 1)], /--replaces \d+: is not the ID of a key of this environment/],
    [['--replaces', 'one'], /--replaces "one"/],
    [['--replaces', '0'], /--replaces "0"/],
    [['--replaces', String(id), '--environment', 'prod'], /--replaces \d+: is not the ID of a key/],
    [['--replaces', String(id), '--scopes', 'proxy:read'], /--replaces \d+: needs records:read/],
  ];
  for (const [more, why] of refused) await assert.rejects(create(...more), why);
  assert.match((await create('--replaces', String(id))).stdout, /^trs_dev_/);
  await assert.rejects(create('--replaces', String(id)), /has replaced: name that key/);
});

test('trellis key list and revoke: a key that ends is listed, and refused within a second of its revocation', async () => {
  const env = { DATA_DIR: dataDir };
  const past = ['key', 'create', '--expires-at', '2020-01-01T00:00:00Z'];
  await assert.rejects(cli(past, env), /--expires-at/);
  const made = await cli(
    [
      'key',
      'create',
      '--name',
      'short\tlived',
      '--scopes',
      'integrations:read',
      '--expires-at',
      '2099-01-01T00:00:00Z',
    ],
    env,
  );
  const secret = made.stdout.trim();
  const headers = { authorization: `Bearer ${secret}` };
  const status = async () => (await fetch(`${service.baseUrl}/providers`, { headers })).status;
  assert.equal(await status(), 200);
  const list = async () => (await cli(['key', 'list'], env)).stdout.trimEnd().split('\n').slice(1);
  const line = (await list()).find((text) => text.includes('short lived'))?.split('\t') ?? [];
  const [id = '', , hint, scopes, , , expires] = line;
  assert.deepEqual(
    [hint, scopes, expires],
    [secret.slice(-4), 'integrations:read', '2099-01-01T00:00:00.000Z'],
  );
  await assert.rejects(cli(['key', 'revoke', id, '--environment', 'prod'], env), /prod has no key/);
  await assert.rejects(cli(['key', 'revoke'], env), /missing required argument 'id'/);
  await cli(['key', 'revoke', id], env);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  assert.equal(await status(), 401);
  assert.ok((await list()).every((text) => !text.startsWith(`${id}\t`)));
});

test('a second service on the same data dir, or the same port, reports this and stops', async () => {
  await assert.rejects(cli(['start'], { DATA_DIR: dataDir, PORT: '0' }), (error: { stderr: string }) => {
    assert.match(error.stderr, new RegExp(dataDir));
    assert.doesNotMatch(error.stderr, /\n +at /);
    return true;
  });
  const other = await mkdtemp(join(tmpdir(), 'trellis-start-other-'));
  const port = new URL(service.baseUrl).port;
  await assert.rejects(
    cli(['start'], { DATA_DIR: other, PORT: port, TRELLIS_SANDBOX: 'off' }),
    (error: { stderr: string }) => {
      assert.match(error.stderr, new RegExp(`PORT: .*${port} is in use`));
      return true;
    },
  );
  await rm(other, { recursive: true, force: true });
});

test('a faulty configuration is reported in one message, without a stack', async () => {
  await assert.rejects(
    cli(['start'], { PORT: 'x', LOG_LEVEL: 'y' }),
    (error: { stderr: string; code: number }) => {
      assert.match(error.stderr, /has 2 faults:[\s\S]*PORT[\s\S]*LOG_LEVEL/);
      assert.doesNotMatch(error.stderr, /at .*\.ts:/);
      assert.equal(error.code, 1);
      return true;
    },
  );
});

test('kill -9 of the service loses nothing, leaves no process, and the next start has the same key', async () => {
  await service.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'kept' },
  });
  const [{ stdout: before }] = await Promise.all([run('ps', ['-eo', 'args'])]);
  assert.ok(before.includes(dataDir), 'the embedded server shows its data dir');
  const { secretKey, pid } = service;
  process.kill(pid, 'SIGKILL');
  for (let isLeft = true; isLeft; ) isLeft = (await run('ps', ['-eo', 'args'])).stdout.includes(dataDir);
  service = await startRunningService({ dataDir, env: { SANDBOX_KEY: 'not-for-children' } });
  assert.equal(service.secretKey, secretKey);
  assert.ok(!service.greeting.join('\n').includes(secretKey), 'a key is shown at its creation alone');
  const { data } = (await service.call('GET', '/integrations/kept')) as { data: { test: boolean } };
  assert.equal(data.test, true);
});

test('a missing master.key stops the start and no other key is made', async () => {
  await service.stop({ keepData: true });
  const path = join(dataDir, 'master.key');
  await rename(path, `${path}.away`);
  await assert.rejects(cli(['start'], { DATA_DIR: dataDir, PORT: '0' }), /master\.key is missing/);
  await assert.rejects(stat(path));
  await rename(`${path}.away`, path);
  service = await startRunningService({ dataDir, env: { SANDBOX_KEY: 'not-for-children' } });
});

test('TRELLIS_SECRET_KEY is the key of dev, and its former value never becomes valid again automatically', async () => {
  const other = await mkdtemp(join(tmpdir(), 'trellis-start-key-'));
  const [first, second] = ['the-first-secret-key-chosen', 'the-second-secret-key-chosen'];
  const statusOf = async ({ baseUrl }: RunningService, key: string) =>
    (await fetch(`${baseUrl}/providers`, { headers: { authorization: `Bearer ${key}` } })).status;
  let running = await startRunningService({ dataDir: other, env: { TRELLIS_SECRET_KEY: first } });
  assert.equal(running.secretKey, first);
  assert.equal(await statusOf(running, first), 200);
  // Only a key that the service made is printed: the output of a container is kept elsewhere.
  assert.ok(!running.greeting.join('\n').includes(first));
  await running.stop();
  running = await startRunningService({ dataDir: other, env: { TRELLIS_SECRET_KEY: second } });
  assert.deepEqual([await statusOf(running, first), await statusOf(running, second)], [401, 200]);
  await running.stop();
  // A node that was left with the old setting must not make it good again; and the refusal ends the process.
  const env = { DATA_DIR: other, PORT: '0', TRELLIS_SECRET_KEY: first };
  await assert.rejects(cli(['start'], env), /replaced by a newer secret[\s\S]*key revoke \d+/);
  await rm(other, { recursive: true, force: true });
});

test('SIGTERM lets a request in flight end, exits with 0 and leaves no process behind', async () => {
  const body = JSON.stringify({ provider: 'google-sheet', unique_key: 'late' });
  const socket = connect(Number(new URL(service.baseUrl).port), '127.0.0.1');
  socket.write(
    `POST /integrations/quickstart HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${service.secretKey}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\nExpect: 100-continue\r\n\r\n`,
  );
  // The service has taken the request once it asks for the body.
  await once(socket, 'data');
  const stopped = service.stop({ keepData: true });
  socket.write(body);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  assert.match(answer.toString(), /^HTTP\/1\.1 200 /);
  const code = await stopped;
  socket.destroy();
  assert.equal(code, 0);
  // Its own end is not reported as the loss of all workers.
  assert.ok(!service.logged.some((line) => line.includes('no node with the role')));
  assert.ok(!isAlive(service.pid));
  const { stdout } = await run('ps', ['-eo', 'args']);
  assert.ok(!stdout.includes(dataDir), stdout);
  service = await startRunningService({ dataDir, env: { SANDBOX_KEY: 'not-for-children' } });
});

test('the command line explains itself', async () => {
  assert.match((await cli([], {})).stdout, /Usage: trellis/);
  const child = spawn(process.execPath, [join(root, 'server/cli/main.ts'), 'nonsense'], { stdio: 'ignore' });
  const [code] = await once(child, 'exit');
  assert.equal(code, 2);
});
