/** The background jobs of all modules: each runs every minute, on one node. */
import { sweepCounts } from '../activity/counts.ts';
import { keepDays } from '../activity/partitions.ts';
import { sweepJob } from '../connect/sweep.ts';
import { expiryJob, sunsetJob } from '../connections/health/warnings.ts';
import { keepaliveJob, probeJob } from '../connections/refresh/keepalive.ts';
import { tokenSlotsJob } from '../connections/revocation/issued-tokens.ts';
import { revocationJob } from '../connections/revocation/revocations.ts';
import { deliverySweepJob } from '../deliveries/sweep.ts';
import { eventRetentionJob } from '../events/retention.ts';
import { bundleSweepJob } from '../functions/deploys/sweep.ts';
import { runSweepJob } from '../functions/runs/runs.ts';
import { idempotencySweepJob } from '../idempotency/store.ts';
import type { Job } from '../jobs/jobs.ts';
import { hasNodesBefore } from '../nodes/nodes.ts';
import { sweepRemoteCalls } from '../nodes/remote-call-server.ts';
import { quotaSweepJob } from '../proxy/quota/window-store.ts';
import { recordJobs } from '../records/retention/retention.ts';
import { signInSweepJob } from '../users/users.ts';
import { watchJob } from '../webhooks/channels/watches.ts';
import { replaySweepJob } from '../webhooks/inbound/replay-guard.ts';
import { retryJob } from '../webhooks/security-events/security-events.ts';
import type { Functions } from './functions.ts';
import type { Parts } from './parts.ts';

/** Nodes count their operations from this migration on. */
const operationCountsMigration = 48;

type MinuteJob = Job<Record<string, never>>;

/** In the order in which they are registered. */
export function listJobs(parts: Parts, { watching }: Functions): MinuteJob[] {
  const { config, db, vault, catalog, log, activity, reader, credentials, reading, now } = parts;
  const { isSandboxOn, outbound } = parts;
  const { keptDays } = config.activity;
  return [
    ...recordJobs(db, activity),
    revocationJob({ db, reading, log, now, fetchFor: outbound.fetchFor }),
    sweepJob({ db, vault, log, activity, now }),
    expiryJob({ db, catalog, log, now }),
    sunsetJob({ db, catalog, log, now }),
    tokenSlotsJob({ db, log }),
    signInSweepJob({ db, now }),
    retryJob({ db, reader, credentials, log, now }),
    replaySweepJob({ db, now }),
    idempotencySweepJob({ db, now }),
    ...(config.functions.isOn ? [watchJob(watching)] : []),
    bundleSweepJob({ db, now }),
    quotaSweepJob(db),
    deliverySweepJob({ db, now, keptDays: config.deliveryDays }),
    eventRetentionJob(db, { keptDays: config.eventDays, now }),
    { name: 'activity.days', run: () => keepDays(db, { now: now(), keptDays }) },
    {
      name: 'activity.counts',
      run: async (_, signal) =>
        sweepCounts(db, {
          now: now(),
          hasOlderNodes: await hasNodesBefore(db, operationCountsMigration),
          signal,
        }),
    },
    runSweepJob({ db, now, keptDays }),
    { name: 'nodes.errands', run: () => sweepRemoteCalls(db) },
    probeJob({ db, reader, credentials, isSandboxOn, log, now }),
    keepaliveJob({ db, catalog, reader, credentials, isSandboxOn, log, now }),
  ];
}
