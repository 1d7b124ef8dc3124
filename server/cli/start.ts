import { relative } from 'node:path';
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { loadConfigWith } from '../config/config.ts';
import { devKeyPath } from '../data-dir.ts';
import { createLog } from '../log.ts';
import { type Service, startService } from '../main.ts';

/** `trellis start [--role api|worker|all]`: runs until SIGTERM or SIGINT; answers the exit code. */
export async function start(args: string[]): Promise<number> {
  const { role } = parseArgs({ args, options: { role: { type: 'string' } } }).values;
  const config = loadConfigWith(role === undefined ? {} : { TRELLIS_ROLE: role });
  const log = createLog({ level: config.logLevel, format: config.logFormat });
  const asked = new Promise<string>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, resolve);
  });
  const service = await startService({ config, log });
  console.log(greeting(service, config.dataDir));
  collectWhileIdle();
  const reason = await Promise.race([asked, service.failed]);
  if (reason instanceof Error) log.fatal({ err: reason }, 'the service cannot go on');
  else log.info({ signal: reason }, 'stopping');
  await service.stop();
  // All is closed. What is left is Node's own end, which waits for ever for some sockets that callers have reset (seen in
  // 26.10: `Environment::CleanupHandles` goes round). Whatever is still to be written is written before.
  process.once('exit', (code) => process.exit(code));
  return reason instanceof Error ? 1 : 0;
}

/** What a person needs to begin; the last line says that the service is ready. */
function greeting(service: Service, dataDir: string): string {
  const { role, baseUrl, sandboxUrl, newDevKey, setUpLink } = service;
  if (role === 'worker')
    return `\n  worker      what is due in the background; no interface\n\nready ${baseUrl}`;
  const path = devKeyPath(dataDir);
  const shown = relative(process.cwd(), path);
  const file = quoted(shown.startsWith('..') ? path : shown);
  const lines = ['', `  dashboard   ${baseUrl}/`, `  interface   ${baseUrl}/docs`];
  if (sandboxUrl) lines.push(`  sandbox     ${sandboxUrl}/  (a provider to try everything with)`);
  if (setUpLink)
    lines.push(`  set up      ${setUpLink}  (makes the owner of the dashboard, once; for a day)`);
  if (newDevKey) lines.push(`  secret key  ${newDevKey}  (of dev; also in ${file})`);
  lines.push('');
  if (service.hasDevKeyFile) lines.push(...examples({ baseUrl, file, hasSandbox: sandboxUrl !== undefined }));
  else lines.push(`  ${file} is missing: "trellis key create" makes another key.`);
  lines.push('', `ready ${baseUrl}`);
  return lines.join('\n');
}

/** Three lines that can be pasted at every start, again and again. */
function examples({
  baseUrl,
  file,
  hasSandbox,
}: {
  baseUrl: string;
  file: string;
  hasSandbox: boolean;
}): string[] {
  const call = (path: string, body?: object) =>
    `curl -s ${baseUrl}${path} -H "Authorization: Bearer $(cat ${file})"${
      body ? ` -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'` : ''
    }`;
  return hasSandbox
    ? [
        call('/integrations/quickstart', { provider: 'google-sheet', unique_key: 'google-sheet' }),
        call('/connect/sessions', { end_user: { id: 'ada' } }),
        call('/connections'),
      ]
    : [call('/providers'), call('/integrations'), call('/connections')];
}

function quoted(path: string): string {
  return /^[A-Za-z0-9_./-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
}

/**
 * Gives memory back while nobody calls.
 *
 * What a start leaves behind, and what a busy hour did, stays with the process: pages that hold a few live objects each,
 * a young generation as large as it ever grew. A whole collection that also moves what lives together gives 30 to 40 MB of
 * it back, and takes 60 to 150 ms, in which nothing else is done. So it waits for a time in which next to nothing was, and
 * comes again only where there is something to give back. See docs/decisions/0022.
 */

/** Once, however busy: what a start leaves is most of it, and few call a node that has just come. */
const afterStartMs = 2_000;
const everyMs = 30_000;
/** Of the time between two looks. What a node does by itself takes 1 to 2 %. */
const maxBusyShare = 0.05;
/** Less than that is not worth a pause. */
const minGrowthBytes = 4 * 1024 * 1024;

/** Looks for as long as the process lives, and does not keep it alive. Nothing where Node was started without `--expose-gc`. */
export function collectWhileIdle(): void {
  const { gc } = globalThis;
  if (gc === undefined) return;
  let before = performance.eventLoopUtilization();
  let atBestBytes = 0;
  const collect = () => {
    gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
    atBestBytes = process.memoryUsage.rss();
    before = performance.eventLoopUtilization();
  };
  const look = () => {
    const { utilization } = performance.eventLoopUtilization(before);
    before = performance.eventLoopUtilization();
    const isGrown = process.memoryUsage.rss() - atBestBytes > minGrowthBytes;
    if (isGrown && utilization < maxBusyShare) collect();
  };
  setTimeout(() => {
    collect();
    setInterval(look, everyMs).unref();
  }, afterStartMs).unref();
}
