import { setTimeout as sleep } from 'node:timers/promises';
import { forEachLimited } from '../../../server/concurrency.ts';
import type { Db } from '../../../server/db/pool.ts';
import type { Environment } from '../../../server/environments/store.ts';
import { startNewSyncs } from '../../../server/functions/runs/schedule.ts';
import type { Integration, IntegrationReading } from '../../../server/integrations/store.ts';
import { importConnection } from '../connections.ts';
import { integrationSkipped } from '../datasets.ts';
import {
  type ConnectionOutcome,
  type ConnectionRef,
  closeImport,
  countRecords,
  decide,
  findImport,
  findKnown,
  type Import,
  type ImportRun,
  type IntegrationFilter,
  openImport,
  pagesOfImported,
  pagesOfPresent,
  saveOutcomes,
} from '../ledger.ts';
import {
  addOutcome,
  completeReport,
  type FailedDataset,
  failureOf,
  newReport,
  type Report,
  type Reported,
} from '../report.ts';
import type { PeerSummary } from './answers.ts';
import { type Peer, PeerLostError } from './client.ts';
import {
  fetchConnection,
  importedFrom,
  keyOf,
  type Listed,
  pagesOfConnections,
  refOf,
  shellFrom,
} from './connections.ts';
import { makeIntegrations, type PlannedIntegration, planIntegrations } from './integrations.ts';
import { datasetOf, importDatasets, type Position } from './records.ts';

/**
 * An import from a running peer: integrations, connections, and on request records and positions.
 *
 * Each connection is one transaction with its entry in the ledger. So the next run continues a run that was killed at any
 * moment, and no connection is lost or imported twice.
 */
export type PeerRun = {
  db: Db;
  peer: Peer;
  reading: IntegrationReading;
  environment: Environment;
  /** Where providers send users back to. */
  baseUrl: string;
  providerNames: ReadonlyMap<string, string>;
  filter: IntegrationFilter;
  overwrites: boolean;
  /** Connections that are read at a time, and that are listed at a time, at most 2,000. */
  parallel: number;
  pageSize: number;
  /** Undefined: no records. */
  records:
    | {
        models: readonly string[] | undefined;
        positions: ReadonlyMap<string, Position>;
        consumer: string;
      }
    | undefined;
  onProgress: (text: string) => void;
  now: () => Date;
  /** How long the peer gives no credentials after a refresh that failed. */
  deadAgainMs: number;
};

/** What a run would do. Reads no credentials, and writes nothing. */
export async function tryPeerRun(run: PeerRun): Promise<Reported> {
  const { db, environment, filter } = run;
  const startedAt = run.now();
  const planned = await planIntegrations(db, run.peer, planSettings(run));
  const from = await findImport(db, { environmentId: environment.id, source: run.peer.url });
  const report = reportOf(run, { planned, startedAt, isDryRun: true });
  const listed: Listed = { keys: new Set(), nameless: 0 };
  for await (const { connections, unfit } of pagesOfConnections(run.peer, { ...run, listed })) {
    run.onProgress(`${listed.keys.size} connections compared`);
    for (const { outcome, reason } of unfit) addOutcome(report, outcome, reason);
    for (const one of await compare(run, { page: connections, from, planned })) {
      const hasErrors = one.summary.errors?.some(({ type }) => type === 'auth');
      if (one.settled !== undefined) addOutcome(report, one.settled.outcome, one.settled.reason);
      else addOutcome(report, 'to_import', hasErrors ? 'may_be_dead' : undefined);
    }
  }
  if (from !== undefined && listed.nameless === 0)
    await reportMissing(run, { from, listed, report }, async (gone) => {
      for (const { outcome, reason } of gone) addOutcome(report, outcome, reason);
    });
  adviseOnNameless(report, listed);
  return { report, from: undefined, filter };
}

/** Imports. If the peer is lost on the way, the report says so. The caller ensures that no other import runs. */
export async function runPeer(run: PeerRun): Promise<Reported> {
  const { db, environment, now, overwrites, filter } = run;
  const startedAt = now();
  const settings = planSettings(run);
  const planned = await planIntegrations(db, run.peer, settings);
  const made = await makeIntegrations(db, planned, settings);
  const from = await openImport(db, { environmentId: environment.id, source: run.peer.url, overwrites });
  const report = reportOf(run, { planned: made.planned, startedAt, isDryRun: false });
  try {
    const listed = await importConnections(run, { from, ...made });
    adviseOnNameless(report, listed);
    // An entry without an ID may be any connection that is not listed.
    if (listed.nameless === 0)
      await reportMissing(run, { from, listed, report }, (gone) => saveOutcomes(db, from, gone));
    if (run.records !== undefined)
      report.records = await importRecords({ ...run, records: run.records }, { from, ...made });
    // Their first runs are spread over their frequencies.
    await db.transaction(async (tx) => {
      await startNewSyncs(tx, { environmentId: environment.id, at: now() });
      await closeImport(tx, from);
    });
  } catch (error) {
    if (!(error instanceof PeerLostError)) throw error;
    report.broken_off = error.message;
  }
  return completeReport(db, { report, from, filter, endedAt: now() });
}

function planSettings({ environment, reading, providerNames, filter }: PeerRun) {
  return { environmentId: environment.id, reading, providerNames, filter };
}

function adviseOnNameless(report: Report, { nameless }: Listed): void {
  if (nameless > 0)
    report.doubts.push(
      `The source lists ${nameless} connections without an ID. They were not imported, and connections that were deleted at the source could not be determined.`,
    );
}

/** So many connections may be deleted from a small installation, even if they are most of it. */
const fewGone = 5;
const maxNamed = 20;

/**
 * Reports the connections of the ledger that the source no longer has. Those that an import has stored stay here until the
 * operator deletes them.
 *
 * If they are all of the connections here, or more than half and more than a few, the report doubts the list and advises no
 * deletion: a key of another environment, or another server at the address, lists none of them.
 */
async function reportMissing(
  { db, filter }: PeerRun,
  { from, listed, report }: { from: Import; listed: Listed; report: Report },
  save: (outcomes: ConnectionOutcome[]) => Promise<void>,
): Promise<void> {
  const stillHere: string[] = [];
  let here = 0;
  for await (const page of pagesOfImported(db, from, filter)) {
    here += page.filter(({ isHere }) => isHere).length;
    const gone = page.filter((one) => !listed.keys.has(keyOf(one)));
    stillHere.push(...gone.flatMap((one) => (one.isHere ? [`${one.integration}/${one.connection}`] : [])));
    await save(
      gone.map(({ isHere, ...ref }) => ({
        ...ref,
        outcome: 'gone',
        reason: isHere ? 'still_here' : undefined,
      })),
    );
  }
  if (stillHere.length === 0) return;
  if (stillHere.length === here || (stillHere.length > fewGone && stillHere.length > here / 2)) {
    report.doubts.push(
      `The source no longer lists ${stillHere.length} of the ${here} imported connections. Check at the source, with the ` +
        'same key and address, that they were deleted there. If they were, delete them in this installation too; then they ' +
        'are no longer reported.',
    );
    return;
  }
  const others = stillHere.length - maxNamed;
  const named = stillHere.slice(0, maxNamed).join(', ');
  report.next_steps.push(
    `Deleted at the source, but not in this installation: ${named}${others > 0 ? ` and ${others} others` : ''}. ` +
      'Delete these connections if they are no longer needed.',
  );
}

type Compared = {
  summary: PeerSummary;
  /** The outcome if it need not be read from the peer. */
  settled: ConnectionOutcome | undefined;
  /** Whether the ledger has another outcome. */
  isNews: boolean;
};

async function compare(
  { db, environment, overwrites }: PeerRun,
  {
    page,
    from,
    planned,
  }: { page: PeerSummary[]; from: Import | undefined; planned: readonly PlannedIntegration[] },
): Promise<Compared[]> {
  const plans = new Map(planned.map((one) => [one.key, one]));
  const refs = page.map(refOf);
  const known = await findKnown(db, { environmentId: environment.id, from, refs, overwrites });
  return known.map((one, index) => {
    const decision = decide(one, { overwrites });
    const plan = plans.get(one.integration);
    const outcome =
      decision !== 'import'
        ? decision
        : plan?.plan === 'make' || plan?.plan === 'use'
          ? undefined
          : 'skipped';
    const reason = outcome === 'skipped' ? whySkipped(planned, one) : undefined;
    return {
      summary: page[index]!,
      settled: outcome && { ...refs[index]!, outcome, reason },
      isNews: decision !== one.outcome,
    };
  });
}

function whySkipped(planned: readonly PlannedIntegration[], { integration }: ConnectionRef): string {
  return planned.find(({ key }) => key === integration)?.reason ?? 'unknown_integration';
}

type Made = { planned: PlannedIntegration[]; integrations: Map<string, Integration> };

/** Returns the connections that the peer has. */
async function importConnections(
  run: PeerRun,
  { from, ...made }: Made & { from: ImportRun },
): Promise<Listed> {
  const { db, onProgress } = run;
  const dead: { summary: PeerSummary; at: number }[] = [];
  const listed: Listed = { keys: new Set(), nameless: 0 };
  let total = 0;
  let read = 0;
  const showProgress = () => onProgress(`${read} of ${total} connections read`);
  const importNext = async (summary: PeerSummary, isLast: boolean) => {
    const result = await importOne(run, { from, made, summary, isLast });
    if (result === 'gone') listed.keys.delete(keyOf(refOf(summary)));
    if (result === 'dead') dead.push({ summary, at: Date.now() });
  };
  for await (const { connections, unfit } of pagesOfConnections(run.peer, { ...run, listed })) {
    const compared = await compare(run, { page: connections, from, planned: made.planned });
    const news = compared.flatMap(({ settled, isNews }) => (settled && isNews ? [settled] : []));
    await saveOutcomes(db, from, unfit);
    await saveOutcomes(db, from, news);
    const open = compared.filter(({ settled }) => settled === undefined);
    total += compared.length;
    read += compared.length - open.length;
    showProgress();
    await forEachLimited(open, run.parallel, async ({ summary }) => {
      await importNext(summary, false);
      read += 1;
      showProgress();
    });
  }
  await forEachLimited(dead, run.parallel, async ({ summary, at }) => {
    await sleep(Math.max(0, at + run.deadAgainMs - Date.now()));
    onProgress(`${dead.length} connections without credentials requested again`);
    await importNext(summary, true);
  });
  return listed;
}

/**
 * Reads one connection and stores it. `dead` if the peer gives no credentials and must be requested again; the last time a
 * connection of OAuth is stored as a shell.
 */
async function importOne(
  run: PeerRun,
  { from, made, summary, isLast }: { from: ImportRun; made: Made; summary: PeerSummary; isLast: boolean },
): Promise<'done' | 'dead' | 'gone'> {
  const { db, peer, reading, overwrites } = run;
  const ref = refOf(summary);
  const integration = made.integrations.get(ref.integration)!;
  const at = run.now();
  const settings = { reading, from, sourceName: 'nango', overwrites, at };
  try {
    const fetched = await fetchConnection(peer, summary);
    if (fetched.kind === 'gone') {
      await saveOutcomes(db, from, [{ ...ref, outcome: 'gone' }]);
      return 'gone';
    }
    if (fetched.kind === 'found')
      await importConnection(db, importedFrom(fetched.connection, { integration, at }), settings);
    else if (!isLast) return 'dead';
    else if (integration.provider.auth_mode === 'OAUTH2')
      await importConnection(
        db,
        shellFrom(summary, { connection: fetched.connection, integration }),
        settings,
      );
    else {
      const { detail } = fetched;
      await saveOutcomes(db, from, [{ ...ref, outcome: 'failed', reason: 'no_credentials', detail }]);
    }
  } catch (error) {
    const failure = failureOf(error);
    if (failure === undefined) throw error;
    await saveOutcomes(db, from, [{ ...ref, outcome: 'failed', ...failure }]);
  }
  return 'done';
}

async function importRecords(
  run: PeerRun & { records: NonNullable<PeerRun['records']> },
  { from, planned, integrations }: Made & { from: ImportRun },
): Promise<Report['records']> {
  const { db, peer, reading, filter, records } = run;
  const settings = { db, peer, vault: reading.vault, from, ...records };
  const failed: FailedDataset[] = [];
  const differing: FailedDataset[] = [];
  const consumers = { made: 0, existing: 0 };
  const known = new Set<string>();
  let datasets = 0;
  for await (const page of pagesOfPresent(db, from)) {
    const covered = page.filter(({ integration }) => filter?.has(integration) ?? true);
    for (const one of covered) known.add(keyOf(one));
    await forEachLimited(covered, run.parallel, async (ref) => {
      try {
        // The connections of a skipped integration were not compared with the source.
        if (!integrations.has(ref.integration)) throw integrationSkipped(whySkipped(planned, ref));
        for (const one of await importDatasets(settings, ref)) {
          datasets += 1;
          run.onProgress(`records of ${datasets} datasets read`);
          if (one.placed !== undefined) consumers[one.placed] += 1;
          if (one.outcome !== 'moved') failed.push(one);
          else if (one.expected !== undefined && one.expected !== one.records + one.pruned)
            differing.push(one);
        }
      } catch (error) {
        const failure = failureOf(error);
        if (failure === undefined) throw error;
        failed.push({ ...ref, outcome: 'failed', ...failure });
      }
    });
  }
  for (const dataset of [...records.positions.keys()].map(datasetOf))
    if ((filter?.has(dataset.integration) ?? true) && !known.has(keyOf(dataset)))
      failed.push({ ...dataset, outcome: 'failed', reason: 'unknown_connection' });
  return { ...(await countRecords(db, from, filter)), consumers, failed, differing };
}

function reportOf(
  run: PeerRun,
  { planned, startedAt, isDryRun }: { planned: PlannedIntegration[]; startedAt: Date; isDryRun: boolean },
): Report {
  const { peer, environment } = run;
  const made = isDryRun ? 'to_make' : 'made';
  return {
    ...newReport({ source: peer.url, environment: environment.name, dry_run: isDryRun, startedAt }),
    integrations: planned.map(({ key, provider, plan, reason, nextStep }) => ({
      unique_key: key,
      provider: provider ?? null,
      outcome: ({ skip: 'skipped', use: 'used', make: made } as const)[plan],
      reason: reason ?? null,
      next_step: nextStep ?? null,
    })),
    next_steps: nextSteps(run, planned),
  };
}

function nextSteps({ reading, baseUrl, records }: PeerRun, planned: readonly PlannedIntegration[]): string[] {
  const here = planned.filter(({ plan }) => plan !== 'skip');
  const rotating = here.filter(({ rotates }) => rotates).map(({ key }) => key);
  const modeOf = (provider = '') => reading.catalog.find(provider)?.auth_mode;
  const withPages = here
    .filter(({ provider }) => ['OAUTH2', 'OAUTH1'].includes(modeOf(provider) ?? ''))
    .map(({ key }) => key);
  const steps: string[] = [];
  if (withPages.length > 0)
    steps.push(
      `At the provider, add the redirect URI ${baseUrl}/oauth/callback to the OAuth clients of ${withPages.join(', ')}: ` +
        'users who connect again are redirected to it.',
    );
  if (rotating.length > 0)
    steps.push(
      `Refresh tokens of ${rotating.join(', ')} can be used only once, so only one service may refresh them. Make sure that ` +
        'the source does not refresh them, before you call an API through this service.',
    );
  if (records === undefined)
    steps.push(
      'No records were imported: syncs read all records from the providers, and the records have the last action ADDED.',
    );
  return steps;
}
