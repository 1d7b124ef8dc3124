/**
 * The nodes of an installation.
 *
 * Owns: the table `node`. A node inserts its row when it starts, renews it every few seconds, and deletes it when it ends. The
 * rows are for lists, for warnings, and for writes that nodes of earlier versions could not read. No other guarantee depends
 * on them.
 */
import { atMost, repeatEvery } from '../concurrency.ts';
import type { Role } from '../config/config.ts';
import { listMigrations } from '../db/migration-files.ts';
import { type Db, first, type Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';

export type Node = {
  id: string;
  /** Where it listens. */
  name: string;
  role: Role;
  version: string;
  /** The newest migration of its version. */
  migration: string;
  startedAt: Date;
  seenAt: Date;
  isStopping: boolean;
  /** Its row was not renewed for longer than a running node needs. */
  isSilent: boolean;
};

export type Presence = {
  /** Marks the node as stopping for the others. Never throws. */
  markStopping(): Promise<void>;
  /** Deletes the row. */
  stop(): Promise<void>;
};

const renewMs = 5_000;
/** Three renewals may fail. */
const silentAfterS = 20;
/** The time limit for each statement of a stop. */
const stopMs = 500;
/** The row of a killed node is deleted after this time. */
const rememberedS = 3_600;

/** Inserts this node's row and renews it. Each renewal calls `onWorkers` with whether a node runs that does background work. */
export async function joinNodes(
  db: Db,
  {
    onError,
    onWorkers,
    ...own
  }: Pick<Node, 'name' | 'role' | 'version'> & {
    onError: (error: unknown) => void;
    onWorkers: (areThere: boolean) => void;
  },
): Promise<Presence> {
  const [id, startedAt] = [crypto.randomUUID(), new Date()];
  const migration = (await listMigrations()).at(-1) ?? '';
  let isStopping = false;
  const write = async () => {
    onWorkers(await renew(db, { ...own, id, migration, startedAt, isStopping }));
  };
  await write();
  const renewals = repeatEvery(renewMs, write, { onError });
  return {
    async markStopping() {
      isStopping = true;
      await atMost(stopMs, renewals.runNext());
    },
    async stop() {
      // Other nodes remove the row later if the database does not answer.
      const removed = renewals.stop().then(() => db.query('delete from node where id = $1', [id]));
      await atMost(stopMs, removed);
    },
  };
}

/** Returns whether a node runs that does background work. */
async function renew(db: Queryable, node: Omit<Node, 'seenAt' | 'isSilent'>): Promise<boolean> {
  const found = first(
    await db.query<{ areThere: boolean }>(
      `with forgotten as (
         delete from node
         where id in (
           select id
           from node
           where seen_at < clock_timestamp() - make_interval(secs => $9) and id <> $1
           for update skip locked
         )
       ), renewed as (
         insert into node (id, name, role, version, migration, started_at, is_stopping)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (id) do update set seen_at = clock_timestamp(), is_stopping = excluded.is_stopping
       )
       select ($3 <> 'api' and not $7) or exists (
         select
         from node
         where role <> 'api'
           and not is_stopping
           and id <> $1
           and seen_at > clock_timestamp() - make_interval(secs => $8)
       ) as "areThere"`,
      [
        ...[node.id, node.name, node.role, node.version, node.migration, node.startedAt, node.isStopping],
        ...[silentAfterS, rememberedS],
      ],
    ),
  );
  return found?.areThere === true;
}

/** Running nodes, and nodes that were killed within the last hour. */
export function listNodes(db: Queryable): Promise<Node[]> {
  return db.query<Node>(
    `select
       id,
       name,
       role,
       version,
       migration,
       started_at as "startedAt",
       seen_at as "seenAt",
       is_stopping as "isStopping",
       seen_at <= clock_timestamp() - make_interval(secs => $1) as "isSilent"
     from node
     order by name collate "C", started_at`,
    [silentAfterS],
  );
}

/**
 * Throws `unavailable` while a node runs whose version lacks the migration of this number, and so cannot read what is to be
 * written. `what` names that in the message.
 */
export async function requireNodesSince(
  q: Queryable,
  { migration, what }: { migration: number; what: string },
): Promise<void> {
  if (!(await hasNodesBefore(q, migration))) return;
  const message = `A node of an earlier version runs, which does not support ${what}. Upgrade all nodes to this version first.`;
  throw new AppError('unavailable', message, { retryAfterS: 60 });
}

/** Whether a node runs whose version lacks the migration of this number. */
export async function hasNodesBefore(q: Queryable, migration: number): Promise<boolean> {
  const older = await q.query(
    `select
     from node
     where migration collate "C" < $1
       and seen_at > clock_timestamp() - make_interval(secs => $2)
     limit 1`,
    [String(migration).padStart(4, '0'), silentAfterS],
  );
  return older.length > 0;
}
