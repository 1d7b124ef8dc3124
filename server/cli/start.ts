import { relative } from 'node:path';
import { performance } from 'node:perf_hooks';
import { UsageError } from '../../sdk/cli/arguments.ts';
import { loadConfigWith } from '../config/config.ts';
import { processesOf, processesRule } from '../config/processes.ts';
import { devKeyPath } from '../data-dir.ts';
import { createLog } from '../log.ts';
import { type Service, startService } from '../main.ts';
import { isChild, runChild } from '../processes/child.ts';
import { startProcesses } from '../processes/supervisor.ts';

/** `trellis start`: runs until SIGTERM or SIGINT; returns the exit code. */
export async function startCommand({
  role,
  processes,
}: {
  role?: string | undefined;
  processes?: string | undefined;
}): Promise<number> {
  if (processes !== undefined && processesOf(processes) === undefined)
    throw new UsageError(`--processes must be ${processesRule}, it is "${processes}".`);
  const config = loadConfigWith({
    ...(role !== undefined && { TRELLIS_ROLE: role }),
    ...(processes !== undefined && { TRELLIS_PROCESSES: processes }),
  });
  const log = createLog({ level: config.logLevel, format: config.logFormat });
  const isOne = config.processes === 1;
  if (!isOne && isChild) return runChild({ config, log, onReady: collectWhileIdle });
  const signalled = new Promise<string>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, resolve);
  });
  const service = await (isOne ? startService : startProcesses)({ config, log });
  // On a terminal the signal says that it was closed.
  if ((config.providersDir !== undefined || !isOne) && process.stdout.isTTY !== true)
    process.on('SIGHUP', () => void service.reload());
  console.log(greeting(service, config.dataDir));
  collectWhileIdle();
  const reason = await Promise.race([signalled, service.failed]);
  if (reason instanceof Error) log.fatal({ err: reason }, 'a fatal error stops the service');
  else log.info({ signal: reason }, 'stopping');
  await service.stop();
  // Everything is closed and written. Node itself may never exit, because of some sockets that callers have reset (26.10:
  // `Environment::CleanupHandles` loops).
  process.once('exit', (code) => process.exit(code));
  return reason instanceof Error ? 1 : 0;
}

/** The addresses and commands for a start; the last line says that the service is ready. */
function greeting(service: Service, dataDir: string): string {
  const { role, baseUrl, sandboxUrl, newDevKey, setUpLink } = service;
  if (role === 'worker') return `\n  worker      background work only, no HTTP API\n\nready ${baseUrl}`;
  const path = devKeyPath(dataDir);
  const shown = relative(process.cwd(), path);
  const file = quoted(shown.startsWith('..') ? path : shown);
  const lines = ['', `  dashboard   ${baseUrl}/`, `  API docs    ${baseUrl}/docs`];
  if (sandboxUrl) lines.push(`  sandbox     ${sandboxUrl}/  (a provider for tests)`);
  if (setUpLink)
    lines.push(
      `  set up      ${setUpLink}  (creates the owner of the dashboard; valid for one day, works once)`,
    );
  if (newDevKey) lines.push(`  secret key  ${newDevKey}  (environment dev; also in ${file})`);
  lines.push('');
  if (service.hasDevKeyFile) lines.push(...examples({ baseUrl, file, hasSandbox: sandboxUrl !== undefined }));
  else lines.push(`  ${file} is missing. Create another key: trellis key create`);
  lines.push('', `ready ${baseUrl}`);
  return lines.join('\n');
}

/** Three commands that can be repeated. */
function examples(given: { baseUrl: string; file: string; hasSandbox: boolean }): string[] {
  const { baseUrl, file, hasSandbox } = given;
  const call = (path: string, body?: object) =>
    `curl -s ${baseUrl}${path} -H "Authorization: Bearer $(cat ${file})"${
      body ? ` -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'` : ''
    }`;
  return hasSandbox
    ? [
        call('/integrations/quickstart', { provider: 'google-sheet', integration_id: 'google-sheet' }),
        call('/connect/sessions', { end_user: { id: 'ada' } }),
        call('/connections'),
      ]
    : [call('/providers'), call('/integrations'), call('/connections')];
}

function quoted(path: string): string {
  return /^[A-Za-z0-9_./-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
}

/**
 * Returns memory to the system while the process is idle.
 *
 * A start and a busy hour leave memory with the process: pages with a few live objects each, a young generation of its
 * largest size. A full compacting collection returns 30 to 40 MB, and blocks the process for 60 to 150 ms. So it runs in
 * an idle time, and again only if the process has grown. See docs/decisions/0022.
 */

/** The first collection runs even if the process is busy: a start leaves most of the garbage, and a new node has few calls. */
const afterStartMs = 2_000;
const everyMs = 30_000;
/** Share of the time between two checks. An idle node is busy for 1 to 2 %. */
const maxBusyShare = 0.05;
/** An idle process grows by up to 9 MB after a collection, and then no more: collecting that would only cost time. */
const minGrowthBytes = 12 * 1024 * 1024;

/** Without /proc (a bare chroot), the size of the process is unknown: then it never counts as grown. */
function residentBytes(): number {
  try {
    return process.memoryUsage.rss();
  } catch {
    return 0;
  }
}

/** Checks as long as the process lives, and does not keep it alive. No effect without `--expose-gc`. */
function collectWhileIdle(): void {
  const { gc } = globalThis;
  if (gc === undefined) return;
  let before = performance.eventLoopUtilization();
  let atBestBytes = 0;
  const collect = () => {
    gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
    atBestBytes = residentBytes();
    before = performance.eventLoopUtilization();
  };
  const check = () => {
    const { utilization } = performance.eventLoopUtilization(before);
    before = performance.eventLoopUtilization();
    const isGrown = residentBytes() - atBestBytes > minGrowthBytes;
    if (isGrown && utilization < maxBusyShare) collect();
  };
  setTimeout(() => {
    collect();
    setInterval(check, everyMs).unref();
  }, afterStartMs).unref();
}
