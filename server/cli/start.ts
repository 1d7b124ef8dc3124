import { relative } from 'node:path';
import { parseArgs } from 'node:util';
import { loadConfigWith } from '../config/config.ts';
import { devKeyPath } from '../data-dir.ts';
import { createLog } from '../log.ts';
import { type Service, startService } from '../main.ts';
import { collectWhileIdle } from './idle-memory.ts';

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
