import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { build } from 'esbuild';
import { hostileFunctions } from '../../../test/functions/hostile/functions.ts';
import { type Confinement, candidates, confinementOf } from './confinement.ts';
import { CustomerProcess, launch } from './customer-process.ts';
import { childProgram } from './program.ts';
import { Run } from './run.ts';
import { plainHarness } from './runtime.fixture.ts';
import { defaultLimits } from './runtime.ts';

// Each layer alone: the code below has the rights that the other layers would have taken away before.

const [unconfined, confined] = await Promise.all([confinementOf('off'), confinementOf('auto')]);

/** Runs a script with Node's own rights; what its `attempts` came to, by name: `refused` where one threw. */
async function attempt(
  t: TestContext,
  attempts: Record<string, string>,
  {
    environmentId = 1,
    confinement = unconfined,
    ...parts
  }: { environmentId?: number; flags?: string[]; prelude?: string; confinement?: Confinement },
): Promise<Record<string, unknown>> {
  const tries = Object.entries(attempts).map(
    ([name, code]) =>
      `try { results[${JSON.stringify(name)}] = await (async () => { ${code} })() ?? 'done' }
       catch (error) { results[${JSON.stringify(name)}] = 'refused' }`,
  );
  const contents = `${parts.prelude ?? ''}
    const results = {};
    (async () => { ${tries.join('\n')}; require('fs').writeSync(3, JSON.stringify(results)); process.exit() })();`;
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: import.meta.dirname },
    bundle: true,
    write: false,
    format: 'cjs',
    platform: 'node',
    packages: 'external',
  });
  const { child, channel } = launch({
    environmentId,
    memoryMb: 64,
    confinement,
    script: outputFiles[0]!.text,
    ...(parts.flags && { flags: parts.flags }),
  });
  t.after(() => child.kill('SIGKILL'));
  const read: Buffer[] = [];
  for await (const part of channel) read.push(part);
  return JSON.parse(Buffer.concat(read).toString());
}

test('the flags alone refuse files, sockets, processes, threads and native code', async (t) => {
  const attempts = {
    readFile: `return require('fs').readFileSync('/etc/hostname', 'utf8')`,
    listFolder: `return require('fs').readdirSync('/')`,
    writeFile: `require('fs').writeFileSync('/tmp/trellis-flags', 'x')`,
    connect: `await require('events').once(require('net').connect(1, '127.0.0.1'), 'connect')`,
    listen: `await require('events').once(require('net').createServer().listen(0), 'listening')`,
    fetch: `await fetch('http://127.0.0.1:1')`,
    spawn: `require('child_process').spawnSync('/bin/true').error && x`,
    worker: `new (require('worker_threads').Worker)('1', { eval: true })`,
    wasi: `new (require('wasi').WASI)({ version: 'preview1' })`,
    inspector: `require('inspector').open(0)`,
    addon: `process.dlopen({ exports: {} }, '/usr/lib/evil.node')`,
    sqlite: `new (process.getBuiltinModule('node:sqlite').DatabaseSync)('/tmp/trellis-flags')`,
    strings: `return new Function('return 1')()`,
  };
  const results = await attempt(t, attempts, {});
  assert.deepEqual(results, Object.fromEntries(Object.keys(attempts).map((name) => [name, 'refused'])));
  assert.equal(existsSync('/tmp/trellis-flags'), false);
});

test('a disarmed process has no signals, priorities or bindings', async (t) => {
  const attempts = {
    kill: `process.kill(process.ppid, 0)`,
    lowKill: `process._kill(process.ppid, 0)`,
    debug: `process._debugProcess(process.ppid)`,
    priority: `require('os').setPriority(19)`,
    binding: `process.binding('fs')`,
    linkedBinding: `process._linkedBinding('fs')`,
    execve: `process.execve('/bin/true')`,
    handles: `return process._getActiveHandles()`,
    again: `delete process.kill; Object.defineProperty(process, 'kill', { value: () => {} })`,
  };
  const results = await attempt(t, attempts, {
    flags: [],
    prelude: `import { disarm } from './harden.ts'; disarm();`,
  });
  assert.deepEqual(results, Object.fromEntries(Object.keys(attempts).map((name) => [name, 'refused'])));
});

test('the realm alone lets nobody out', async (t) => {
  const { script, modules } = await childProgram();
  const process = await CustomerProcess.start({
    environmentId: 1,
    memoryMb: 96,
    confinement: unconfined,
    flags: [],
    script,
    boot: { modules, harness: plainHarness },
  });
  t.after(() => process.stop({ cause: 'unavailable', message: 'the test is over' }));
  for (const [name, { code, returns }] of Object.entries(hostileFunctions)) {
    if (!name.startsWith('escapes')) continue;
    const outcome = await new Run(process, {
      environmentId: 1,
      bundle: { id: name, code },
      exportName: 'default',
      kind: 'action',
      input: null,
      limits: defaultLimits,
      serve: async () => ({ value: null }),
      log: () => {},
    }).outcome();
    assert.deepEqual(outcome, { result: returns }, name);
    assert.equal(await process.settled(), true, name);
  }
});

test('the user and namespaces alone keep out of files, other processes and the network', async (t) => {
  if (confined.kind !== 'user') return t.skip(`not here: ${confined.missing}`);
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const path = join(tmpdir(), `trellis-layer-${process.pid}`);
  t.after(() => rmSync(path, { force: true }));
  const attempts = {
    user: `return process.getuid()`,
    pid: `return process.pid < 10`,
    signal: `process.kill(${process.pid}, 0)`,
    processes: `return require('fs').readdirSync('/proc').includes('${process.pid}')`,
    write: `require('fs').writeFileSync(${JSON.stringify(path)}, 'x')`,
    connect: `await require('events').once(require('net').connect(${port}, '127.0.0.1'), 'connect')`,
    become: `process.setuid(0)`,
    environment: `return Object.keys(process.env).join()`,
  };
  const [one, other] = await Promise.all([
    attempt(t, attempts, { flags: [], confinement: confined }),
    attempt(t, { user: attempts.user }, { flags: [], confinement: confined, environmentId: 2 }),
  ]);
  const { user, pid, environment, processes, ...rest } = one;
  assert.deepEqual([pid, environment?.toString().includes('PATH'), processes], [true, false, false]);
  assert.ok(Number(user) >= 1_900_000_000);
  assert.notEqual(other.user, user);
  assert.deepEqual(new Set(Object.values(rest)), new Set(['refused']));
});

test('bwrap alone keeps out of files, other processes and the network', async (t) => {
  const bubble = candidates().find(({ kind }) => kind === 'bwrap');
  if (bubble === undefined) return t.skip('no bwrap here');
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const path = join(tmpdir(), `trellis-bubble-${process.pid}`);
  writeFileSync(path, 'secret');
  t.after(() => rmSync(path, { force: true }));
  const { processes, environment, ...rest } = await attempt(
    t,
    {
      read: `require('fs').readFileSync(${JSON.stringify(path)})`,
      change: `require('fs').appendFileSync(${JSON.stringify(path)}, 'x')`,
      connect: `await require('events').once(require('net').connect(${port}, '127.0.0.1'), 'connect')`,
      signal: `process.kill(${process.pid}, 0)`,
      processes: `return require('fs').readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name)).length < 10`,
      environment: `return Object.keys(process.env).includes('PATH')`,
    },
    { flags: [], confinement: bubble },
  );
  assert.deepEqual([processes, environment], [true, false]);
  assert.deepEqual(new Set(Object.values(rest)), new Set(['refused']));
});

test('where memory runs out the kernel takes functions before the service', async (t) => {
  if (process.platform !== 'linux') return t.skip('Linux alone has an order');
  const bubble = candidates().find(({ kind }) => kind === 'bwrap');
  const read = { order: `return require('fs').readFileSync('/proc/self/oom_score_adj', 'utf8').trim()` };
  for (const confinement of [unconfined, confined, bubble ?? unconfined])
    assert.deepEqual(await attempt(t, read, { flags: [], confinement }), { order: '1000' }, confinement.kind);
  assert.notEqual(readFileSync('/proc/self/oom_score_adj', 'utf8').trim(), '1000');
});
