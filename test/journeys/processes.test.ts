// Several processes behind one port, with the embedded database.
// Slow: it starts services of two processes each, and kills and replaces these.

import assert from 'node:assert/strict';
import { chmod, copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { findEmbedded } from '../../server/db/embedded/embedded.ts';
import { isAlive } from '../../server/is-alive.ts';
import { type Provider, ok as provided, startProvider } from '../conformance/provider.ts';
import { callCommand, runCommand } from '../support/command.ts';
import { openTestDatabase } from '../support/database.ts';
import { processesBeneath } from '../support/processes.ts';
import { type RunningService, settingsFor, startRunningService } from '../support/service.ts';

const isLinux = process.platform === 'linux';
const only = { skip: isLinux ? false : 'the processes of a service are found in /proc' };

let provider: Provider;
let definitions: string;
let service: RunningService;
before(async () => {
  provider = await startProvider();
  definitions = await mkdtemp(join(tmpdir(), 'trellis-processes-'));
  service = await startRunningService({
    env: {
      TRELLIS_PROCESSES: '2',
      TRELLIS_PROVIDERS_DIR: definitions,
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
      TRELLIS_DRAIN_SECONDS: '60',
    },
  });
  await service.call('POST', '/integrations', {
    body: {
      unique_key: 'slow',
      provider: 'private-api-key',
      integration_config: { base_url: `http://127.0.0.1:${provider.port}` },
    },
  });
  await service.call('POST', '/connections', {
    body: {
      provider_config_key: 'slow',
      connection_id: 'slow',
      credentials: { type: 'API_KEY', apiKey: 'secret-of-the-provider' },
    },
  });
});
after(async () => {
  await provider.close();
  await rm(definitions, { recursive: true, force: true });
});

/**
 * Without an agent each call opens a connection. If the service has closed a kept connection meanwhile, the call is repeated,
 * as clients do (RFC 9112 §9.5).
 */
function get(path: string, agent: Agent | false = false): Promise<{ status: number; text: string }> {
  const headers = {
    authorization: `Bearer ${service.secretKey}`,
    'provider-config-key': 'slow',
    'connection-id': 'slow',
  };
  return new Promise((resolve, reject) => {
    const sent = request(service.baseUrl + path, { agent, headers }, async (response) => {
      try {
        let text = '';
        for await (const chunk of response) text += chunk;
        resolve({ status: response.statusCode ?? 0, text });
      } catch (error) {
        reject(error);
      }
    });
    sent
      .once('error', (error: NodeJS.ErrnoException) => {
        if (sent.reusedSocket && error.code === 'ECONNRESET') get(path, agent).then(resolve, reject);
        else reject(error);
      })
      .end();
  });
}

/** The processes that serve, or are about to. */
async function servingOf(supervisor: number): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await processesBeneath(supervisor)) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (command.includes('server/cli/main.ts\0start')) found.push(pid);
  }
  return found;
}

async function until<T>(find: () => Promise<T | false> | T | false): Promise<T> {
  for (;;) {
    const found = await find();
    if (found !== false) return found;
    await pause(20);
  }
}

/** The processes that are ready, by the metrics of the machine. */
async function readyNames(): Promise<string[]> {
  const { text } = await get('/metrics');
  return [...text.matchAll(/^trellis_sign_ins_refused_total\{process="(\d+)"\}/gm)].map(
    ([, name = '']) => name,
  );
}

/** The names of the nodes that run. */
async function nodesOf({ dataDir }: RunningService): Promise<string[]> {
  const { stdout } = await runCommand(['nodes', '--json'], { DATA_DIR: dataDir });
  const nodes = JSON.parse(stdout) as { name: string; state: string }[];
  return nodes.filter(({ state }) => state === 'runs').map(({ name }) => name.replace(/^.*:\d+/, ''));
}

const isLogged = (message: string, since = 0) =>
  service.logged.slice(since).some((line) => line.includes(message));

test('two processes serve one port, each is a node, and either reports the metrics of both', async () => {
  for (let count = 0; count < 8; count += 1) assert.equal((await get('/connections')).status, 200);
  for (let count = 0; count < 2; count += 1) {
    const { status, text } = await get('/metrics');
    assert.equal(status, 200);
    const handled = new Map(
      Array.from(
        text.matchAll(
          /^trellis_http_request_duration_seconds_count\{process="(\w+)",method="GET",route="\/connections",.*\} (\d+)$/gm,
        ),
        ([, process, value]) => [process, Number(value)] as const,
      ),
    );
    assert.deepEqual([...handled.keys()].sort(), ['1', '2']);
    assert.equal((handled.get('1') ?? 0) + (handled.get('2') ?? 0), 8);
    assert.deepEqual(text.match(/^trellis_database_up.*$/gm), ['trellis_database_up 1']);
    const measured = [...text.matchAll(/^process_resident_memory_bytes\{process="(\w+)"\} [1-9]/gm)];
    assert.deepEqual(measured.map(([, process]) => process).sort(), ['1', '2', 'supervisor']);
  }
  assert.deepEqual(await nodesOf(service), ['/1', '/2']);
  assert.equal(service.greeting.filter((line) => line.startsWith('ready ')).length, 1);
  for (const line of service.logged.filter((text) => text.includes('"reqId"')))
    assert.match(line, /"process":"[12]"/);
});

test(
  'while a killed process is away the other one answers, also what it had not accepted, and the killed one is replaced',
  only,
  async () => {
    const before = await servingOf(service.pid);
    assert.equal(before.length, 2);
    const [killed = 0, other = 0] = before;
    provider.play(() => {});
    const calls = Promise.allSettled(Array.from({ length: 20 }, () => get('/proxy/waiting')));
    for (let count = 0; count < 20; count += 1) await provider.next();
    process.kill(killed, 'SIGSTOP');
    await until(async () => (await readFile(`/proc/${killed}/stat`, 'utf8')).includes(') T '));
    let ended = 0;
    const fresh = Array.from({ length: 8 }, () => get('/connections').finally(() => (ended += 1)));
    // One is passed to the stopped process.
    await until(() => ended >= 7);
    process.kill(killed, 'SIGKILL');
    for (const { status } of await Promise.all(fresh)) assert.equal(status, 200);
    // The supervisor has noticed its end then.
    await until(() => !isAlive(killed));
    for (let count = 0; count < 8; count += 1) assert.equal((await get('/connections')).status, 200);
    const now = await until(async () => {
      const pids = await servingOf(service.pid);
      return pids.length === 2 && pids;
    });
    assert.ok(now.includes(other) && !now.includes(killed));
    for (const seen of provider.seen) seen.write(provided);
    const answered = (await calls).filter(({ status }) => status === 'fulfilled').length;
    assert.ok(answered > 0 && answered < 20, `${answered} calls were answered`);
    await until(async () => (await readyNames()).length === 2);
  },
);

/** Calls without pause, over kept and over new connections. The result: the failures. */
async function callsDuring(work: () => Promise<void>): Promise<unknown[]> {
  const agent = new Agent({ keepAlive: true });
  const failures: unknown[] = [];
  let isOver = false;
  let calls = 0;
  const ways: (Agent | false)[] = [agent, agent, agent, false, false];
  const callers = ways.map(async (one) => {
    while (!isOver) {
      const answer = await get(calls++ % 10 === 0 ? '/ready' : '/connections', one).catch(
        (error: unknown) => error,
      );
      if ((answer as { status?: number }).status !== 200) failures.push(answer);
    }
  });
  await work();
  isOver = true;
  await Promise.all(callers);
  agent.destroy();
  assert.ok(calls > 50);
  return failures;
}

test(
  'SIGHUP replaces both processes, reads definitions again, and no call on a new connection fails',
  only,
  async () => {
    const before = await servingOf(service.pid);
    await writeFile(join(definitions, 'own.yaml'), 'extends: google-sheet\ndisplay_name: Our sheets\n');
    const since = service.logged.length;
    const failures = await callsDuring(async () => {
      process.kill(service.pid, 'SIGHUP');
      await until(() => isLogged('all processes were restarted', since));
    });
    const ended = service.logged
      .slice(since)
      .filter((line) => /ended unexpectedly|cleanly|in time/.test(line));
    assert.deepEqual({ failures, ended }, { failures: [], ended: [] });
    const now = await servingOf(service.pid);
    assert.equal(now.length, 2);
    assert.deepEqual(
      now.filter((pid) => before.includes(pid)),
      [],
    );
    for (let count = 0; count < 4; count += 1) assert.equal((await get('/providers/own')).status, 200);
  },
);

test('a process that dies during a rolling restart is replaced once', only, async () => {
  const before = await servingOf(service.pid);
  const since = service.logged.length;
  process.kill(service.pid, 'SIGHUP');
  await until(async () => (await servingOf(service.pid)).length === 3);
  process.kill(before[0]!, 'SIGKILL');
  await until(() => isLogged('all processes were restarted', since));
  await until(async () => (await servingOf(service.pid)).length === 2 && (await readyNames()).length === 2);
});

test(
  'processes that cannot start leave the others in place, and are started again after growing pauses',
  only,
  async () => {
    const before = await servingOf(service.pid);
    await writeFile(join(definitions, 'own.yaml'), 'display_name: [');
    let since = service.logged.length;
    process.kill(service.pid, 'SIGHUP');
    await until(() => isLogged('a new process did not start', since));
    assert.ok(
      service.logged.slice(since).some((line) => line.includes('own.yaml:1')),
      'the reason is in the log',
    );
    assert.deepEqual(await servingOf(service.pid), before);

    since = service.logged.length;
    process.kill(before[0]!, 'SIGKILL');
    const pauses = await until(() => {
      const lines = service.logged
        .slice(since)
        .filter((line) => line.includes('a process ended unexpectedly'));
      return lines.length >= 3 && lines.map((line) => (JSON.parse(line) as { pauseMs: number }).pauseMs);
    });
    assert.ok(pauses[1]! >= 1_000 && pauses[2]! >= 2 * pauses[1]!, String(pauses));
    assert.equal((await get('/connections')).status, 200);
    await writeFile(join(definitions, 'own.yaml'), 'extends: google-sheet\ndisplay_name: Our sheets\n');
    await until(async () => (await readyNames()).length === 2);
  },
);

test('SIGTERM loses no running call, and ends with 0 when the database is stopped', async () => {
  provider.play(() => {});
  const calls = Array.from({ length: 6 }, () => get('/proxy/waiting'));
  const agent = new Agent({ keepAlive: true });
  const idle = new Promise((resolve) =>
    agent.on('free', (socket: Socket) => void socket.once('close', resolve)),
  );
  await get('/health', agent);
  for (let count = 0; count < 6; count += 1) await provider.next();
  const stopped = service.stop({ keepData: true });
  // Idle connections are closed when the drain has begun.
  await idle;
  for (const seen of provider.seen) seen.write(provided);
  for (const { status, text } of await Promise.all(calls)) assert.deepEqual([status, text], [200, 'ok']);
  assert.equal(await stopped, 0);
  assert.equal(await findEmbedded(service.dataDir), undefined);
});

test('without their supervisor the processes end, and the next start works', only, async () => {
  const { dataDir } = service;
  service = await startRunningService({ dataDir, env: { TRELLIS_PROCESSES: '2' } });
  const serving = await servingOf(service.pid);
  assert.equal(serving.length, 2);
  process.kill(service.pid, 'SIGKILL');
  await service.exited;
  await until(() => !serving.some(isAlive));
  await assert.rejects(get('/health'), /ECONNREFUSED/);
  service = await startRunningService({ dataDir, env: { TRELLIS_PROCESSES: '2' } });
  assert.equal((await get('/connections')).status, 200);
});

test('SIGTERM during a rolling restart ends all processes', only, async () => {
  process.kill(service.pid, 'SIGHUP');
  const all = await until(async () => {
    const pids = await servingOf(service.pid);
    return pids.length === 3 && pids;
  });
  assert.equal(await service.stop({ keepData: false }), 0);
  assert.deepEqual(all.filter(isAlive), []);
});

test('if the system cannot start a process, it is asked again after a pause', only, async () => {
  const database = await openTestDatabase();
  const directory = await mkdtemp(join(tmpdir(), 'trellis-processes-'));
  const node = join(directory, 'node');
  const placeNode = () => copyFile(process.execPath, node).then(() => chmod(node, 0o755));
  await placeNode();
  const main = join(import.meta.dirname, '../../server/cli/main.ts');
  const other = await startRunningService({
    program: [node, main],
    dataDir: join(directory, 'data'),
    env: { ...settingsFor(database), TRELLIS_PROCESSES: '2', TRELLIS_SANDBOX: 'off' },
  });
  try {
    await rm(node);
    const [killed = 0] = await servingOf(other.pid);
    process.kill(killed, 'SIGKILL');
    await until(() => other.logged.filter((line) => /"why":"spawn .*ENOENT/.test(line)).length >= 2);
    await placeNode();
    await until(async () => (await servingOf(other.pid)).length === 2);
  } finally {
    assert.equal(await other.stop(), 0);
    await rm(directory, { recursive: true });
    await database.drop();
  }
});

test('a start ends with 1 and the reason if its processes cannot serve', async () => {
  const database = await openTestDatabase();
  const dataDir = await mkdtemp(join(tmpdir(), 'trellis-processes-'));
  const taken = createServer().listen(0, '127.0.0.1');
  try {
    await new Promise((resolve) => taken.once('listening', resolve));
    const { port } = taken.address() as { port: number };
    const { code, stderr } = await runCommand(['start', '--processes', '2'], {
      ...settingsFor(database),
      DATA_DIR: dataDir,
      PORT: String(port),
      TRELLIS_SANDBOX: 'off',
    });
    assert.equal(code, 1);
    assert.equal(stderr.match(/is in use by another program/g)?.length, 1, stderr);
  } finally {
    taken.close();
    await rm(dataDir, { recursive: true });
    await database.drop();
  }
});

test('a number of processes that is not valid is wrong usage', async () => {
  for (const count of ['0', '-1', '1.5', 'x', '1000', '']) {
    const { code, stderr } = await callCommand(['start', '--processes', count]);
    assert.equal(code, 2, count);
    assert.match(stderr, /auto or a number from 1 to 256/, count);
  }
});
