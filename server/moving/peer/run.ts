import { setTimeout as sleep } from 'node:timers/promises';
import { type Db, retryOnViolation } from '../../db/pool.ts';
import type { Environment } from '../../environments/store.ts';
import { startNewSyncs } from '../../functions/runs/schedule.ts';
import type { Integration, IntegrationReading } from '../../integrations/store.ts';
import { type Moved, storeMoved } from '../connections.ts';
import { IntegrationSkippedError } from '../datasets.ts';
import { eachAtOnce } from '../each-at-once.ts';
import {
  closeImport,
  findImport,
  type Import,
  type Judged,
  judge,
  look,
  note,
  type Only,
  type OpenImport,
  type Outcome,
  openImport,
  type Place,
  pagesOfHere,
} from '../ledger.ts';
import {
  adviceOnMissing,
  pagesOfMissing,
  type Remaining,
  reasonOfMissing,
  recordMissing,
} from '../missing-at-source.ts';
import { type Count, countsOf, type Report, type Reported, recordsOf, stepForLacking } from '../report.ts';
import type { PeerSummary } from './answers.ts';
import { type Peer, PeerLostError } from './client.ts';
import { fetchConnection, keyOf, movedFrom, pagesOfConnections, shellFrom } from './connections.ts';
import { makeIntegrations, type PlannedIntegration, planIntegrations } from './integrations.ts';
import { askedOf, doubtsOf, isIn, keyOfPlace, type Listed } from './listed.ts';
import { datasetOf, type Position } from './positions.ts';
import { reasonOf } from './reason.ts';
import { type MovedDataset, moveDatasets } from './records.ts';

/**
 * An import from a peer that runs: integrations, connections, and where they are asked for records and positions.
 *
 * Each connection is one transaction, with what the ledger says of it. So a run that is killed at any moment is gone on
 * with by the next one, and nothing is lost or there twice.
 */
export type PeerRun = {
  db: Db;
  peer: Peer;
  reading: IntegrationReading;
  environment: Environment;
  /** Where providers send users back to. */
  baseUrl: string;
  providerNames: ReadonlyMap<string, string>;
  only: Only;
  overwrites: boolean;
  /** Connections that are read at once, and that are listed at once, at most 2,000. */
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
  /** After a renewal that failed the peer gives no credentials for so long. */
  deadAgainMs: number;
};

const sourceName = 'nango';

/** What would be done. Reads no credentials, and writes nothing. */
export async function tryPeerRun(run: PeerRun): Promise<Reported> {
  const { db, environment, only } = run;
  const startedAt = run.now();
  const planned = await planIntegrations(db, run.peer, planSettings(run));
  const from = await findImport(db, { environmentId: environment.id, source: run.peer.url });
  const counts = new Map<string, Count>();
  const add = ({ outcome, reason }: Omit<Count, 'count'>) => {
    const key = `${outcome} ${reason ?? ''}`;
    counts.set(key, { outcome, reason, count: (counts.get(key)?.count ?? 0) + 1 });
  };
  const listed: Listed = { keys: new Set(), nameless: 0 };
  for await (const page of pagesOfConnections(run.peer, run.pageSize)) {
    const { asked, unfit } = askedOf(only, { page, listed });
    run.onProgress(`${listed.keys.size} connections compared`);
    for (const { outcome, reason } of unfit) add({ outcome, reason });
    for (const one of await compare(run, { page: asked, from, planned })) {
      const [settled] = settledWithout(one);
      if (settled !== undefined) add({ outcome: settled.outcome, reason: settled.reason });
      else add({ outcome: 'to_import', reason: hasErrors(one.summary) ? 'may_be_dead' : undefined });
    }
  }
  const report = reportOf(run, { planned, startedAt, isDryRun: true });
  if (from !== undefined && listed.nameless === 0) {
    const remaining: Remaining = { stillHere: [], here: 0 };
    for await (const { gone, here } of pagesOfMissing(db, from, { only, isListed: isIn(listed.keys) })) {
      for (const one of gone) add({ outcome: 'gone', reason: reasonOfMissing(one) });
      remaining.stillHere.push(...gone.filter(({ isHere }) => isHere));
      remaining.here += here;
    }
    adviseOnGone(report, remaining);
  }
  report.doubts.push(...doubtsOf(listed));
  return { report: { ...report, connections: [...counts.values()] }, from: undefined, only };
}

/** Imports. If the peer is lost on the way, the report says so. The caller ensures that no other import runs. */
export async function runPeer(run: PeerRun): Promise<Reported> {
  const { db, environment, now, overwrites, only } = run;
  const startedAt = now();
  const settings = planSettings(run);
  const planned = await planIntegrations(db, run.peer, settings);
  const made = await makeIntegrations(db, planned, settings);
  const from = await openImport(db, { environmentId: environment.id, source: run.peer.url, overwrites });
  const report = reportOf(run, { planned: made.planned, startedAt, isDryRun: false });
  let records: Report['records'] = null;
  try {
    const listed = await importConnections(run, { from, ...made });
    report.doubts.push(...doubtsOf(listed));
    // One that has no name may be any of those that are not listed.
    if (listed.nameless === 0)
      adviseOnGone(report, await recordMissing(db, from, { only, isListed: isIn(listed.keys) }));
    if (run.records !== undefined) records = await importRecords(run, { from, ...made });
    // Spread over their frequencies, not all at once.
    await db.transaction(async (tx) => {
      await startNewSyncs(tx, { environmentId: environment.id, at: now() });
      await closeImport(tx, from);
    });
  } catch (error) {
    if (!(error instanceof PeerLostError)) throw error;
    report.broken_off = error.message;
  }
  report.connections = await countsOf(db, from, only);
  report.next_steps.push(...(await stepForLacking(db, from, { only, counts: report.connections })));
  report.records = records;
  report.ended_at = now().toISOString();
  return { report, from, only };
}

function planSettings({ environment, reading, providerNames, only }: PeerRun) {
  return { environmentId: environment.id, reading, providerNames, only };
}

function adviseOnGone(report: Report, remaining: Remaining): void {
  const { steps, doubts } = adviceOnMissing(remaining);
  report.next_steps.push(...steps);
  report.doubts.push(...doubts);
}

function hasErrors({ errors }: PeerSummary): boolean {
  return (errors ?? []).some(({ type }) => type === 'auth');
}

type Compared = {
  summary: PeerSummary;
  /** What the ledger has of it. */
  outcome: Outcome | undefined;
  verdict: ReturnType<typeof judge>;
  plan: PlannedIntegration | undefined;
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
  const places = page.map((one) => ({ integration: one.provider_config_key, connection: one.connection_id }));
  const known = await look(db, { environmentId: environment.id, from, places, overwrites });
  return known.map((one, index) => ({
    summary: page[index]!,
    outcome: one.outcome,
    verdict: judge(one, { overwrites }),
    plan: plans.get(one.integration),
  }));
}

type Made = { planned: PlannedIntegration[]; integrations: Map<string, Integration> };

/** Answers what the peer has. */
async function importConnections(
  run: PeerRun,
  { from, ...made }: Made & { from: OpenImport },
): Promise<Listed> {
  const { db, onProgress } = run;
  const dead: { summary: PeerSummary; at: number }[] = [];
  const listed: Listed = { keys: new Set(), nameless: 0 };
  let seen = 0;
  let read = 0;
  const tell = () => onProgress(`${read} of ${seen} connections read`);
  const importNext = async (summary: PeerSummary, isLast: boolean) => {
    const became = await importOne(run, { from, made, summary, isLast });
    if (became === 'gone') listed.keys.delete(keyOf(summary));
    if (became === 'dead') dead.push({ summary, at: Date.now() });
  };
  for await (const page of pagesOfConnections(run.peer, run.pageSize)) {
    const { asked, unfit } = askedOf(run.only, { page, listed });
    await note(db, from, unfit);
    const compared = await compare(run, { page: asked, from, planned: made.planned });
    seen += asked.length;
    const news = compared.filter(({ verdict, outcome }) => verdict !== outcome);
    await note(db, from, news.flatMap(settledWithout));
    const open = compared.filter((one) => settledWithout(one).length === 0);
    read += compared.length - open.length;
    tell();
    await eachAtOnce(open, run.parallel, async ({ summary }) => {
      await importNext(summary, false);
      read += 1;
      tell();
    });
  }
  await eachAtOnce(dead, run.parallel, async ({ summary, at }) => {
    await sleep(Math.max(0, at + run.deadAgainMs - Date.now()));
    onProgress(`${dead.length} connections without credentials asked for again`);
    await importNext(summary, true);
  });
  return listed;
}

/** What is known without a look at the peer: nothing, or one. */
function settledWithout({ summary, verdict, plan }: Compared): Judged[] {
  const place = { integration: summary.provider_config_key, connection: summary.connection_id };
  if (verdict !== 'import') return [{ ...place, outcome: verdict }];
  if (plan === undefined) return [{ ...place, outcome: 'skipped', reason: 'unknown_integration' }];
  if (plan.plan === 'skip') return [{ ...place, outcome: 'skipped', reason: plan.reason }];
  return [];
}

function whySkipped(planned: readonly PlannedIntegration[], { integration }: Place): string {
  return planned.find(({ key }) => key === integration)?.reason ?? 'unknown_integration';
}

/**
 * Reads one connection and stores it. `dead` where the peer gives no credentials and is to be asked once more; the last
 * time one of OAuth is made that waits for its user.
 */
async function importOne(
  run: PeerRun,
  { from, made, summary, isLast }: { from: OpenImport; made: Made; summary: PeerSummary; isLast: boolean },
): Promise<'done' | 'dead' | 'gone'> {
  const { db, peer } = run;
  const place = { integration: summary.provider_config_key, connection: summary.connection_id };
  const integration = made.integrations.get(place.integration)!;
  const at = run.now();
  try {
    const fetched = await fetchConnection(peer, summary);
    if (fetched.kind === 'gone') {
      await note(db, from, [{ ...place, outcome: 'gone' }]);
      return 'gone';
    }
    if (fetched.kind === 'found') {
      await store(run, { from, moved: movedFrom(fetched.connection, { integration, at }) });
      return 'done';
    }
    if (!isLast) return 'dead';
    if (integration.provider.auth_mode === 'OAUTH2')
      await store(run, { from, moved: shellFrom(summary, { connection: fetched.connection, integration }) });
    else
      await note(db, from, [
        { ...place, outcome: 'failed', reason: 'no_credentials', detail: fetched.detail },
      ]);
    return 'done';
  } catch (error) {
    const said = reasonOf(error);
    if (said === undefined) throw error;
    await note(db, from, [{ ...place, outcome: 'failed', ...said }]);
    return 'done';
  }
}

async function store(run: PeerRun, { from, moved }: { from: OpenImport; moved: Moved }): Promise<void> {
  const { db, reading, overwrites } = run;
  const storing = { reading, from, sourceName, overwrites, at: run.now() };
  await retryOnViolation('connection_id_unique', () =>
    db.transaction((tx) => storeMoved(tx, moved, storing)),
  );
}

async function importRecords(
  run: PeerRun,
  { from, planned, integrations }: Made & { from: OpenImport },
): Promise<Record<string, unknown>> {
  const { db, peer, reading } = run;
  const moving = { db, peer, vault: reading.vault, from, ...run.records! };
  const failed: Partial<MovedDataset>[] = [];
  const differing: Partial<MovedDataset>[] = [];
  const positions = { made: 0, existing: 0 };
  const known = new Set<string>();
  let datasets = 0;
  /** Of an integration that is passed over, what is here was not brought as the integration is today. */
  const moveAll = async (place: Place) => {
    if (!integrations.has(place.integration)) throw new IntegrationSkippedError(whySkipped(planned, place));
    return moveDatasets(moving, place);
  };
  for await (const page of pagesOfHere(db, from)) {
    const asked = page.filter(({ integration }) => run.only === undefined || run.only.has(integration));
    for (const one of asked) known.add(keyOfPlace(one));
    await eachAtOnce(asked, run.parallel, async (place) => {
      const moved = await moveAll(place).catch((error: unknown) => {
        const said = reasonOf(error);
        if (said === undefined) throw error;
        failed.push({ ...place, outcome: 'failed', ...said });
        return [];
      });
      for (const one of moved) {
        datasets += 1;
        run.onProgress(`records of ${datasets} datasets read`);
        if (one.placed !== undefined) positions[one.placed] += 1;
        if (one.outcome !== 'moved') failed.push(one);
        else if (one.expected !== undefined && one.expected !== one.records + one.pruned) differing.push(one);
      }
    });
  }
  for (const of of [...moving.positions.keys()].map(datasetOf))
    if ((run.only?.has(of.integration) ?? true) && !known.has(keyOfPlace(of)))
      failed.push({ ...of, outcome: 'failed', reason: 'unknown_connection' });
  return { ...(await recordsOf(db, from, run.only)), consumers: positions, failed, differing };
}

function reportOf(
  run: PeerRun,
  { planned, startedAt, isDryRun }: { planned: PlannedIntegration[]; startedAt: Date; isDryRun: boolean },
): Report {
  return {
    source: run.peer.url,
    environment: run.environment.name,
    dry_run: isDryRun,
    started_at: startedAt.toISOString(),
    ended_at: run.now().toISOString(),
    broken_off: null,
    integrations: planned.map(({ key, provider, plan, reason, nextStep }) => ({
      unique_key: key,
      provider: provider ?? null,
      outcome: plan === 'skip' ? 'skipped' : plan === 'use' ? 'used' : isDryRun ? 'to_make' : 'made',
      reason: reason ?? null,
      next_step: nextStep ?? null,
    })),
    connections: [],
    records: null,
    doubts: [],
    next_steps: nextSteps(run, planned),
  };
}

function nextSteps({ reading, baseUrl, records }: PeerRun, planned: readonly PlannedIntegration[]): string[] {
  const here = planned.filter(({ plan }) => plan !== 'skip');
  const rotating = here.filter(({ rotates }) => rotates).map(({ key }) => key);
  const modeOf = (provider = '') => reading.catalog.find(provider)?.auth_mode;
  const withPages = here.filter(({ provider }) => modeOf(provider) === 'OAUTH2').map(({ key }) => key);
  return [
    ...(withPages.length > 0
      ? [
          `At the provider, add the redirect URI ${baseUrl}/oauth/callback to the OAuth clients of ${withPages.join(', ')}: ` +
            'users who connect again are sent back there.',
        ]
      : []),
    ...(rotating.length > 0
      ? [
          `Tokens of ${rotating.join(', ')} are good for one renewal: from now on either the peer renews them or this ` +
            'service. See that the peer does not, before anything is called here.',
        ]
      : []),
    ...(records === undefined
      ? ['No records were moved: syncs read everything from the providers, and all of it comes as ADDED.']
      : []),
  ];
}
