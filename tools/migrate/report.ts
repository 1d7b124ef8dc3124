/**
 * The result of an import, as lines for a person and as JSON for a program. Holds no secret.
 *
 * Does not own: what is counted (`ledger.ts`), and the steps beyond counts (`peer/`, `file/`).
 */
import { z } from 'zod';
import type { Db } from '../../server/db/pool.ts';
import { AppError } from '../../server/errors.ts';
import { SkippedError } from './datasets.ts';
import {
  countOutcomes,
  type countRecords,
  type DatasetRef,
  findExpiryOfLacking,
  type Import,
  type IntegrationFilter,
  type Outcome,
  type OutcomeCount,
  pagesOfIncomplete,
} from './ledger.ts';
import { PeerError } from './peer/client.ts';

type Count = OutcomeCount<Outcome | 'to_import'>;

export type ReportedIntegration = {
  unique_key: string;
  provider: string | null;
  outcome: 'made' | 'used' | 'skipped' | 'to_make';
  reason: string | null;
  next_step: string | null;
};

export type FailedDataset = Partial<DatasetRef> & { outcome?: string; reason?: string; detail?: string };

type ReportedRecords = Awaited<ReturnType<typeof countRecords>> & {
  failed: FailedDataset[];
  /** Of an import from a peer. */
  consumers?: { made: number; existing: number };
  /** Datasets with another number of records than the peer reports. */
  differing?: FailedDataset[];
};

export type Report = {
  source: string;
  environment: string;
  dry_run: boolean;
  started_at: string;
  ended_at: string;
  /** Why the run stopped early; null if it was completed. */
  broken_off: string | null;
  integrations: ReportedIntegration[];
  /** Over all runs of this import, of the integrations that this run covers. */
  connections: Count[];
  /** Null if no records were requested. */
  records: ReportedRecords | null;
  /** Why the import may be incomplete though nothing is known to be missing, in sentences. */
  doubts: string[];
  /** What to do now, in sentences. */
  next_steps: string[];
};

/** `from` is undefined after a dry run. */
export type Reported = { report: Report; from: Import | undefined; filter: IntegrationFilter };

export function newReport(
  given: Pick<Report, 'source' | 'environment' | 'dry_run'> & { startedAt: Date },
): Report {
  const { startedAt, ...named } = given;
  return {
    ...named,
    started_at: startedAt.toISOString(),
    ended_at: startedAt.toISOString(),
    broken_off: null,
    integrations: [],
    connections: [],
    records: null,
    doubts: [],
    next_steps: [],
  };
}

/** Adds one connection to the counts of a dry run. */
export function addOutcome({ connections }: Report, outcome: Count['outcome'], reason?: string): void {
  const count = connections.find((one) => one.outcome === outcome && one.reason === reason);
  if (count === undefined) connections.push({ outcome, reason, count: 1 });
  else count.count += 1;
}

/** Fills in the counts of the ledger and the time of the end. */
export async function completeReport(
  db: Db,
  {
    report,
    from,
    filter,
    endedAt,
  }: { report: Report; from: Import; filter: IntegrationFilter; endedAt: Date },
): Promise<Reported> {
  report.connections = await countOutcomes(db, from, filter);
  report.next_steps.push(...(await stepForLacking(db, { report, from, filter })));
  report.ended_at = endedAt.toISOString();
  return { report, from, filter };
}

async function stepForLacking(
  db: Db,
  { report, from, filter }: Reported & { from: Import },
): Promise<string[]> {
  const lacking = report.connections.filter(({ reason }) => reason === 'no_refresh_token');
  const count = lacking.reduce((sum, one) => sum + one.count, 0);
  if (count === 0) return [];
  const expiry = await findExpiryOfLacking(db, from, filter);
  const times = [...new Set([expiry?.first, expiry?.last].map((at) => at?.toISOString()))];
  const when =
    expiry === undefined ? '' : times.length === 1 ? ` at ${times[0]}` : ` from ${times[0]} to ${times[1]}`;
  return [
    `The source returned no refresh token for ${count} connections, so they work until their access tokens expire${when}. ` +
      'Check that the key may read credentials, then run the same command again: it requests these connections again. If ' +
      'the source has no refresh token for a connection, its user must connect again.',
  ];
}

/** The reason code and message of an error that concerns one connection or dataset; undefined if the run must end. */
export function failureOf(error: unknown): { reason: string; detail: string } | undefined {
  const listed = (issues: readonly { path: readonly PropertyKey[]; message: string }[] = []) =>
    issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
  if (error instanceof z.ZodError) return { reason: 'invalid', detail: listed(error.issues).join('; ') };
  if (error instanceof SkippedError) return { reason: error.reason, detail: error.message };
  if (error instanceof PeerError) return { reason: error.code, detail: error.message };
  if (!(error instanceof AppError) || error.code === 'unavailable') return undefined;
  return { reason: error.code, detail: [error.message, ...listed(error.errors)].join(' ') };
}

/** Whether everything that the source has is here, or would be. */
export function isWhole({ broken_off, connections, integrations, records, doubts }: Report): boolean {
  return (
    broken_off === null &&
    doubts.length === 0 &&
    !connections.some(
      ({ outcome, reason }) =>
        ['dead', 'skipped', 'failed'].includes(outcome) || reason === 'no_refresh_token',
    ) &&
    !integrations.some(({ outcome }) => outcome === 'skipped') &&
    (records?.failed.length ?? 0) === 0
  );
}

const texts: Record<Count['outcome'], string> = {
  to_import: 'would be imported',
  made: 'imported',
  overwritten: 'updated from the source',
  existing: 'already exist and were not changed',
  dead: 'have no valid credentials at the source: created; their users must connect again',
  gone: 'no longer exist at the source',
  removed: 'were deleted after their import and were not created again',
  skipped: 'skipped',
  failed: 'failed',
};

const textsOfLacking: Partial<typeof texts> = {
  dead: 'have no valid credentials at the source; the imported connections still exist',
  gone: 'no longer exist at the source; the imported connections still exist',
  skipped: 'skipped; the imported connections still exist',
  failed: 'failed; the imported connections still exist',
};

function textOf({ outcome, reason }: Count): string {
  if (reason === 'credentials_kept')
    return 'updated from the source, except for credentials: the existing credentials are newer';
  if (reason === 'still_here') return 'no longer exist at the source; the imported connections still exist';
  if (reason === 'no_refresh_token')
    return `${textsOfLacking[outcome] ?? texts[outcome]}, without a refresh token: they work until the access token expires`;
  return texts[outcome];
}

/** For a terminal. */
export function linesOf(report: Report): string[] {
  const lines: string[] = [`environment ${report.environment}`];
  for (const { unique_key: key, outcome, reason, next_step: step } of report.integrations) {
    const text = { made: 'created', used: 'already exists', skipped: 'skipped', to_make: 'would be created' }[
      outcome
    ];
    lines.push(`integration ${key}: ${text}${reason === null ? '' : ` (${reason})`}`);
    if (step !== null) lines.push(`  ${step}`);
  }
  for (const one of report.connections)
    lines.push(
      `${one.count} connections ${textOf(one)}${one.reason === undefined ? '' : ` (${one.reason})`}`,
    );
  if (report.connections.length === 0) lines.push('no connections');
  if (report.records !== null) {
    const { failed, datasets, records, deleted, pruned } = report.records;
    for (const [reason, some] of Map.groupBy(failed, (one) => one.reason ?? 'unknown')) {
      lines.push(`${some.length} datasets skipped (${reason})`);
      const { integration, connection, model, detail } = some[0]!;
      const name = [integration, connection, model].filter((part) => part !== undefined).join('/');
      if (detail !== undefined) lines.push(`  ${name}: ${detail}`);
    }
    lines.push(
      `imported ${records} records and ${deleted} deleted records of ${datasets} datasets; skipped ${pruned} pruned records`,
    );
  }
  lines.push(...report.doubts, ...report.next_steps);
  if (report.dry_run) lines.push('nothing was changed');
  if (report.broken_off !== null)
    lines.push(`stopped: ${report.broken_off}`, 'Run the same command again: it continues where it stopped.');
  return lines;
}

/**
 * The JSON text of the report, in pieces: it lists each connection that is not here or not complete, and there may be
 * many. A list if there are several environments.
 */
export async function* reportText(db: Db, reported: readonly Reported[]): AsyncGenerator<string> {
  if (reported.length !== 1) yield '[';
  for (const [index, { report, from, filter }] of reported.entries()) {
    if (index > 0) yield ',';
    yield `${JSON.stringify(report, null, 2).slice(0, -2)},\n  "not_whole": [`;
    let separator = '\n    ';
    for await (const page of from === undefined ? [] : pagesOfIncomplete(db, from, filter)) {
      for (const { integration, connection, ...rest } of page) {
        yield separator +
          JSON.stringify({ provider_config_key: integration, connection_id: connection, ...rest });
        separator = ',\n    ';
      }
    }
    yield `${separator === '\n    ' ? '' : '\n  '}]\n}`;
  }
  yield reported.length === 1 ? '\n' : ']\n';
}
