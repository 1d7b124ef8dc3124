import { getEnvironment, listEnvironments } from '../../environments/store.ts';
import { findImport, judge, look } from '../ledger.ts';
import type { Count, Report, Reported, ReportedIntegration } from '../report.ts';
import { type EntryOf, entrySchema, linesOf } from './entries.ts';
import { planIntegration } from './integrations.ts';
import type { FileRun, ProvenFile } from './run.ts';

/** What an import of a file would do; nothing is changed. */
export async function tryFile(
  run: Pick<FileRun, 'db' | 'reading' | 'environmentName' | 'overwrites' | 'now'>,
  file: ProvenFile,
): Promise<Reported[]> {
  const names = new Set((await listEnvironments(run.db)).map(({ name }) => name));
  const reports: { report: Report; counts: Map<string, Count>; environmentId: number }[] = [];
  for await (const line of linesOf(file.read())) {
    // They are many, and say nothing here.
    if (line.subarray(0, 16).toString() === '{"kind":"record"') continue;
    const entry = entrySchema.parse(JSON.parse(line.toString('utf8')));
    if (entry.kind === 'environment') {
      const name = run.environmentName ?? entry.name;
      const isHere = names.has(name);
      const environmentId = isHere ? (await getEnvironment(run.db, name)).id : 0;
      const report = reportOf(run, { name, file });
      if (!isHere) report.next_steps.push(`the environment ${name} would be made`);
      reports.push({ report, counts: new Map(), environmentId });
      continue;
    }
    const open = reports.at(-1);
    if (open === undefined) continue;
    if (entry.kind === 'integration') open.report.integrations.push(await tryIntegration(run, open, entry));
    if (entry.kind === 'connection') await tryConnection(run, { ...open, entry, file });
  }
  return reports.map(({ report, counts }) => ({
    report: { ...report, connections: [...counts.values()] },
    from: undefined,
    only: undefined,
  }));
}

async function tryIntegration(
  { db, reading }: Pick<FileRun, 'db' | 'reading'>,
  { environmentId }: { environmentId: number },
  entry: EntryOf<'integration'>,
): Promise<ReportedIntegration> {
  if (environmentId !== 0) return planIntegration(db, entry, { environmentId, reading });
  const isKnown = reading.catalog.find(entry.provider) !== undefined;
  return {
    unique_key: entry.unique_key,
    provider: entry.provider,
    outcome: isKnown ? 'to_make' : 'skipped',
    reason: isKnown ? null : 'unknown_provider',
    next_step: null,
  };
}

async function tryConnection(
  { db, overwrites }: Pick<FileRun, 'db' | 'overwrites'>,
  given: {
    entry: EntryOf<'connection'>;
    environmentId: number;
    report: Report;
    counts: Map<string, Count>;
    file: ProvenFile;
  },
): Promise<void> {
  const { entry, environmentId, report, counts, file } = given;
  const place = { integration: entry.unique_key, connection: entry.connection_id };
  const from = await findImport(db, { environmentId, source: `file ${file.head.id}` });
  const [known] = await look(db, { environmentId, from, places: [place], overwrites });
  const verdict = judge(known!, { overwrites });
  const skipped = report.integrations.find(
    ({ unique_key: key, outcome }) => key === place.integration && outcome === 'skipped',
  );
  const outcome = verdict !== 'import' ? verdict : skipped ? 'skipped' : 'to_import';
  const reason = outcome === 'skipped' ? (skipped?.reason ?? undefined) : undefined;
  const key = `${outcome} ${reason ?? ''}`;
  counts.set(key, { outcome, reason, count: (counts.get(key)?.count ?? 0) + 1 });
}

function reportOf({ now }: Pick<FileRun, 'now'>, { name, file }: { name: string; file: ProvenFile }): Report {
  return {
    source: `file ${file.head.id} of ${file.head.made_at}`,
    environment: name,
    dry_run: true,
    started_at: now().toISOString(),
    ended_at: now().toISOString(),
    broken_off: null,
    integrations: [],
    connections: [],
    records: null,
    doubts: [],
    next_steps: [],
  };
}
