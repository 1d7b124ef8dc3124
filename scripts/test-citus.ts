// `npm run test:citus [-- test files]`: the tests of records on a Citus cluster, a coordinator and two workers on free ports
// and a temporary directory, which end with this process: through the coordinator, and directly to the workers. PG_CONFIG may
// name the `pg_config` of a PostgreSQL with the extension. Without the extension nothing is tested, and it says so.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chownSync, globSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { findAccount } from '../server/db/embedded/account.ts';
import { citusSettings, findCitus } from '../test/support/citus.ts';
import { startPostgres } from '../test/support/postgres.ts';

const root = path.join(import.meta.dirname, '..');
const running: { stop(): Promise<void> }[] = [];
/** Crashes a worker. */
const alone = 'server/ops/cluster/direct.test.ts';
const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stopping.abort(signal));

const binDir = findCitus();
if (binDir === undefined) {
  console.log('left out: no PostgreSQL of this machine has the extension citus (docs/operations/citus.md)');
  process.exit(0);
}
const dir = mkdtempSync('/tmp/trellis-test-citus-');
try {
  const account = findAccount(path.join(dir, 'data'));
  const password = randomBytes(16).toString('hex');
  const start = async (name: string) => {
    const own = path.join(dir, name);
    mkdirSync(own);
    if (account.identity.uid !== undefined)
      for (const one of [dir, own]) chownSync(one, account.uid, account.gid);
    const server = await startPostgres({
      binDir,
      dir: own,
      account,
      user: 'trellis',
      password,
      signal: stopping.signal,
      settings: { ...citusSettings, autovacuum: 'off' },
    });
    running.push(server);
    return server.url;
  };
  const coordinator = await start('coordinator');
  const workers = [await start('worker-1'), await start('worker-2')];
  const runTests = async (files: string[], env: Record<string, string>) => {
    if (files.length === 0 || stopping.signal.aborted) return;
    const tests = spawn(process.execPath, [path.join(root, 'scripts/test.ts'), '--all', ...files], {
      cwd: root,
      env: { ...process.env, TEST_DATABASE_URL: coordinator, TEST_CITUS_WORKERS: workers.join(), ...env },
      stdio: 'inherit',
    });
    const stop = () => tests.kill('SIGINT');
    stopping.signal.addEventListener('abort', stop);
    const [code] = (await once(tests, 'exit')) as [number | null];
    stopping.signal.removeEventListener('abort', stop);
    process.exitCode ||= code ?? 1;
  };
  const files = process.argv.length > 2 ? process.argv.slice(2) : recordTests();
  const others = files.filter((file) => file !== alone);
  console.log('Through the coordinator:');
  await runTests(others, {});
  console.log('Directly to the workers:');
  await runTests(others, { TEST_CITUS_DIRECT: 'on' });
  await runTests(
    files.filter((file) => file === alone),
    {},
  );
} catch (error) {
  if (!stopping.signal.aborted) throw error;
  process.exitCode = 130;
} finally {
  for (const program of running.reverse()) await program.stop();
  rmSync(dir, { recursive: true, force: true });
}

/** All tests that read or write records: those of the module, and of what is kept beside it. */
function recordTests(): string[] {
  const others = [
    'server/app/figures.test.ts',
    'server/ops/cluster/cluster.test.ts',
    'server/functions/syncs/sync-routes.test.ts',
    'server/functions/context/tracked-checkpoints.test.ts',
    'server/functions/runs/claims.test.ts',
    alone,
  ];
  return [...globSync('server/records/**/*.test.ts', { cwd: root }), ...others].sort();
}
