import { relative } from 'node:path';
import { loadConfig } from '../config.ts';
import { devKeyPath } from '../data-dir.ts';
import { createLog } from '../log.ts';
import { type Service, startService } from '../main.ts';

/** `trellis start`: runs until SIGTERM or SIGINT; answers the exit code. */
export async function start(): Promise<number> {
  const config = loadConfig();
  const log = createLog({ level: config.logLevel, format: config.logFormat });
  const asked = new Promise<string>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, resolve);
  });
  const service = await startService({ config, log });
  console.log(greeting(service, config.dataDir));
  const reason = await Promise.race([asked, service.failed]);
  if (reason instanceof Error) log.fatal({ err: reason }, 'the service cannot go on');
  else log.info({ signal: reason }, 'stopping');
  await service.stop();
  return reason instanceof Error ? 1 : 0;
}

/** What a person needs to begin; the last line says that the service is ready. */
function greeting(service: Service, dataDir: string): string {
  const { baseUrl, sandboxUrl, newDevKey, setUpLink } = service;
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
