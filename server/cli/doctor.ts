import { styleText } from 'node:util';
import { loadConfig } from '../config/config.ts';
import { hasEmbedded } from '../db/embedded/server-dir.ts';
import type { Finding, State } from '../ops/doctor/check.ts';
import { examine } from '../ops/doctor/examine.ts';
import { withDatabase } from './database.ts';
import { type JsonOption, oneLine, printJson } from './terminal.ts';

const colors: Record<State, 'green' | 'yellow' | 'red' | 'dim'> = {
  ok: 'green',
  warn: 'yellow',
  fail: 'red',
  skipped: 'dim',
};

/** `trellis doctor`: exits with 1 if a problem has to be fixed before the service can be relied on. */
export async function doctorCommand({ json }: JsonOption): Promise<number> {
  const findings = await examine({
    load: loadConfig,
    withDatabase,
    hasDatabase: ({ databaseUrl, dataDir }) => databaseUrl !== undefined || hasEmbedded(dataDir),
    onFinding: json ? () => {} : print,
  });
  const failed = findings.filter(({ state }) => state === 'fail').length;
  const warned = findings.filter(({ state }) => state === 'warn').length;
  if (json) printJson({ result: failed > 0 ? 'fail' : 'ok', findings });
  else console.log(`\n${summary(failed, warned)}`);
  return failed > 0 ? 1 : 0;
}

function print({ check, state, message, fix }: Finding): void {
  const mark = styleText(colors[state], state.padEnd(7));
  console.log(`${mark} ${check.padEnd(20)} ${oneLine(message)}`);
  if (fix !== undefined) console.log(`${' '.repeat(29)}${styleText('bold', 'fix:')} ${oneLine(fix)}`);
}

function summary(failed: number, warned: number): string {
  if (failed === 0 && warned === 0) return 'No problems found.';
  return `${[failed > 0 && `${failed} to fix`, warned > 0 && `${warned} to check`].filter(Boolean).join(', ')}.`;
}
