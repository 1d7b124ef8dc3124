/** Runs that something asks for, rather than a schedule: of actions and of event functions. */
import { randomUUIDv7 } from 'node:crypto';
import { holdConnection } from '../../connections/store.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { currentTraceparent } from '../../tracing/cause.ts';
import type { DeployedFunction } from '../deploys/store.ts';
import { type Claim, leaseMs, type RunKind, type Trigger } from './claims.ts';

type AskedRun = {
  /** Without a row there is no connection yet: `id` is null then. */
  connection: {
    id: number | null;
    environmentId: number;
    integrationKey: string;
    connectionId: string;
  };
  found: Pick<DeployedFunction, 'id' | 'name' | 'versionId' | 'definition'>;
  kind: RunKind & ('action' | 'on_event');
  priority: number;
  /** Sealed with the connection's key. */
  input: Buffer | null;
  now: Date;
};

/** Leaves it to whichever node claims it; answers its ID. Throws `unknown_connection` where the connection is deleted. */
export async function queueRun(
  tx: Tx,
  { trigger, maxAttempts, ...asked }: AskedRun & { trigger: Trigger; maxAttempts: number },
): Promise<string> {
  const id = randomUUIDv7();
  await insert(tx, { ...asked, id, trigger, maxAttempts, owner: undefined });
  return id;
}

/**
 * A run that is claimed as it is made, since somebody waits for it: no other node takes it while its lease is renewed.
 * `leaseMs` where nobody renews it. Throws as `queueRun`.
 */
export async function beginRun(
  db: Db,
  { environment, ...asked }: AskedRun & { environment: string; leaseMs?: number },
): Promise<Claim> {
  const { connection, found, now, kind, input } = asked;
  const { environmentId, integrationKey, connectionId } = connection;
  const [id, owner] = [randomUUIDv7(), crypto.randomUUID()];
  const leasedAtMs = performance.now();
  await db.transaction((tx) => insert(tx, { ...asked, id, owner, trigger: 'manual', maxAttempts: 1 }));
  return {
    ...{ id, owner, leasedAtMs, environmentId, environment },
    function: { id: found.id, name: found.name, isEnabled: true },
    versionId: found.versionId,
    definition: found.definition,
    connection: { id: connection.id ?? 0, connectionId, integrationKey },
    ...{ syncId: null, variant: 'base', kind, trigger: 'manual' },
    ...{ attempt: 1, maxAttempts: 1, queuedAt: now, notBefore: now, isResumed: false, isCancelled: false },
    ...{ input, counts: {}, lastSucceededAt: null, traceparent: currentTraceparent() },
  };
}

async function insert(
  tx: Tx,
  run: AskedRun & {
    id: string;
    trigger: Trigger;
    maxAttempts: number;
    /** Undefined: it waits. */
    owner: string | undefined;
    leaseMs?: number;
  },
): Promise<void> {
  const { connection, found, now, owner } = run;
  if (connection.id !== null) await holdConnection(tx, connection.id);
  const isClaimed = owner !== undefined;
  await tx.query(
    `insert into run (id, environment_id, function_id, version_id, connection_id, kind, trigger, state, priority,
       not_before, queued_at, started_at, attempt, most_attempts, owner, lease_until, input, traceparent)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $12, $13, $14,
       case when $14::uuid is not null then clock_timestamp() + make_interval(secs => $15) end, $16, $17)`,
    [
      ...[run.id, connection.environmentId, found.id, found.versionId, connection.id, run.kind, run.trigger],
      ...[isClaimed ? 'running' : 'waiting', run.priority, now, isClaimed ? now : null, isClaimed ? 1 : 0],
      ...[run.maxAttempts, owner ?? null, (run.leaseMs ?? leaseMs) / 1000, run.input, currentTraceparent()],
    ],
  );
}
