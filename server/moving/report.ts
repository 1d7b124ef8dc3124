import type { Db } from '../db/pool.ts';
import { countRecords } from './dataset-ledger.ts';
import {
  countOutcomes,
  type Dataset,
  findEndsOfLacking,
  type Import,
  type Only,
  type Outcome,
  pagesOfUnsettled,
} from './ledger.ts';

/**
 * What an import came to, for a person and for a program. Never a secret.
 *
 * Does not own: what is counted (`ledger.ts`), and what is said beyond counts (`peer/`, `file/`).
 */

export type Count = { outcome: Outcome | 'to_import'; reason: string | undefined; count: number };

export type ReportedIntegration = {
  unique_key: string;
  provider: string | null;
  outcome: 'made' | 'used' | 'skipped' | 'to_make';
  reason: string | null;
  next_step: string | null;
};

export type Report = {
  source: string;
  environment: string;
  dry_run: boolean;
  started_at: string;
  ended_at: string;
  /** Why the run broke off; null where it came to its end. */
  broken_off: string | null;
  integrations: ReportedIntegration[];
  /** Over all runs of this import, of the integrations that this run asked for. */
  connections: Count[];
  /** Of records, where they were asked for. */
  records: Record<string, unknown> | null;
  /** Why it may not be whole though nothing is known to lack, in sentences. */
  doubts: string[];
  /** What to do now, in sentences. */
  next_steps: string[];
};

const words: Record<Count['outcome'], string> = {
  to_import: 'would be imported',
  made: 'imported',
  overwritten: 'given what the source has',
  existing: 'were here and were left alone',
  dead: 'have no credentials that work at the source: made to be connected again',
  gone: 'are gone at the source',
  removed: 'were deleted here since they were imported, and stay so',
  skipped: 'passed over',
  failed: 'failed',
};

function wordsFor({ outcome, reason }: Count): string {
  if (reason === 'credentials_kept')
    return 'given what the source has beside credentials: those here are newer';
  if (reason === 'still_here') return 'are gone at the source, and still here';
  if (reason === 'no_refresh_token')
    return `${{ ...words, ...wordsOfLacking }[outcome]}, but without a refresh token: they end with their access token`;
  return words[outcome];
}

const wordsOfLacking: Partial<typeof words> = {
  dead: 'have no credentials that work at the source, and are still here',
  gone: 'are gone at the source, and still here',
  skipped: 'passed over, and still here',
  failed: 'failed, and are still here',
};

/** For a person; none where no connection lacks its refresh token. */
export async function stepForLacking(
  db: Db,
  from: Import,
  { only, counts }: { only: Only; counts: readonly Count[] },
): Promise<string[]> {
  const lacking = counts.filter(({ reason }) => reason === 'no_refresh_token');
  const count = lacking.reduce((sum, one) => sum + one.count, 0);
  if (count === 0) return [];
  const ends = await findEndsOfLacking(db, from, only);
  const times = [...new Set([ends?.first, ends?.last].map((at) => at?.toISOString()))];
  const when =
    ends === undefined ? '' : times.length === 1 ? ` at ${times[0]}` : ` from ${times[0]} to ${times[1]}`;
  return [
    `The source gave no refresh token for ${count} connections, so they work until their access tokens end${when}. See that the key ` +
      'may read credentials there, then run the same command again: it asks for these once more. Where there is none, their users connect again.',
  ];
}

/** Whether everything that the source has is here, or would be. */
export function isWhole({ broken_off, connections, integrations, records, doubts }: Report): boolean {
  const isOpen = connections.some(
    ({ outcome, reason }) => ['dead', 'skipped', 'failed'].includes(outcome) || reason === 'no_refresh_token',
  );
  const isLacking = integrations.some(({ outcome }) => outcome === 'skipped');
  return (
    broken_off === null && doubts.length === 0 && !isOpen && !isLacking && failedOf({ records }).length === 0
  );
}

type FailedDataset = Partial<Dataset> & { reason?: string; detail?: string };

function failedOf({ records }: Pick<Report, 'records'>): FailedDataset[] {
  return (records as { failed?: FailedDataset[] } | null)?.failed ?? [];
}

/** For a terminal. */
export function linesOf(report: Report): string[] {
  const lines: string[] = [`environment ${report.environment}`];
  for (const { unique_key: key, outcome, reason, next_step: step } of report.integrations) {
    const said = { made: 'made', used: 'is here', skipped: 'passed over', to_make: 'would be made' }[outcome];
    lines.push(`integration ${key}: ${said}${reason === null ? '' : ` (${reason})`}`);
    if (step !== null) lines.push(`  ${step}`);
  }
  for (const one of report.connections)
    lines.push(
      `${one.count} connections ${wordsFor(one)}${one.reason === undefined ? '' : ` (${one.reason})`}`,
    );
  if (report.connections.length === 0) lines.push('no connections');
  if (report.records !== null) {
    const { datasets, records, deleted, pruned } = report.records as Record<string, number>;
    for (const [reason, some] of Map.groupBy(failedOf(report), (one) => one.reason ?? 'unknown')) {
      lines.push(`${some.length} datasets passed over (${reason})`);
      const [{ integration, connection, model, detail }] = some as [FailedDataset];
      if (detail !== undefined)
        lines.push(
          `  ${[integration, connection, model].filter((part) => part !== undefined).join('/')}: ${detail}`,
        );
    }
    lines.push(
      `${records} records of ${datasets} datasets, ${deleted} deleted ones, and ${pruned} pruned ones that were passed over`,
    );
  }
  lines.push(...report.doubts, ...report.next_steps);
  if (report.dry_run) lines.push('nothing was changed');
  if (report.broken_off !== null)
    lines.push(`broken off: ${report.broken_off}`, 'Run the same command again: it goes on where it was.');
  return lines;
}

/** The counts of all runs of an import, of these integrations. */
export async function countsOf(db: Db, from: Import, only: Only): Promise<Count[]> {
  return countOutcomes(db, from, only);
}

export async function recordsOf(db: Db, from: Import, only: Only): Promise<Record<string, number>> {
  return { ...(await countRecords(db, from, only)) };
}

/** `from` is undefined where nothing was written. */
export type Reported = { report: Report; from: Import | undefined; only: Only };

/**
 * The report as JSON text, in pieces, and in it each connection that is not here, or not whole: there may be many. Of
 * several environments it is a list.
 */
export async function* reportText(db: Db, reported: readonly Reported[]): AsyncGenerator<string> {
  if (reported.length !== 1) yield '[';
  for (const [index, one] of reported.entries()) {
    if (index > 0) yield ',';
    yield* textOf(db, one);
  }
  yield reported.length === 1 ? '\n' : ']\n';
}

async function* textOf(db: Db, { report, from, only }: Reported): AsyncGenerator<string> {
  const head = JSON.stringify(report, null, 2);
  yield `${head.slice(0, -2)},\n  "not_whole": [`;
  let separator = '\n    ';
  if (from !== undefined) {
    for await (const page of pagesOfUnsettled(db, from, only)) {
      for (const { integration, connection, outcome, reason, detail } of page) {
        const entry = {
          provider_config_key: integration,
          connection_id: connection,
          outcome,
          reason,
          detail,
        };
        yield `${separator}${JSON.stringify(entry)}`;
        separator = ',\n    ';
      }
    }
  }
  yield `${separator === '\n    ' ? '' : '\n  '}]\n}`;
}
