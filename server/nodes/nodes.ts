/**
 * The nodes of an installation.
 *
 * Owns: the table `node`. A node inserts its row when it starts, renews it every few seconds, and deletes it when it ends. The
 * rows are for lists, for warnings, for requests that each node reads its provider definitions again, for writes that nodes
 * of earlier versions could not read, and for the wait for another node's refresh. No other guarantee depends on them.
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
/** A node with a row as old as this has ended, unless the database was away. */
const endedAfterS = 30;
/** The migration of the first version whose nodes list the connections that they refresh. */
const firstListing = '0073';
/** The time limit for each statement of a stop. */
const stopMs = 500;
/** The row of a killed node is deleted after this time. */
const rememberedS = 3_600;

/**
 * Inserts this node's row and renews it. Until the stop, each renewal calls `onWorkers` with whether a node runs that does
 * background work, and `reload` if an operator requested it; its result, a fault or undefined, is the answer to the request.
 */
export async function joinNodes(
  db: Db,
  {
    onError,
    onWorkers,
    reload,
    refreshing,
    ...own
  }: Pick<Node, 'name' | 'role' | 'version'> & {
    onError: (error: unknown) => void;
    onWorkers: (areThere: boolean) => void;
    reload: () => Promise<string | undefined>;
    /** The row IDs of the connections that this node refreshes now: see `mayRefresh`. */
    refreshing: ReadonlySet<number>;
  },
): Promise<Presence> {
  const [id, startedAt] = [crypto.randomUUID(), new Date()];
  const migration = (await listMigrations()).at(-1) ?? '';
  let isStopping = false;
  const write = async () => {
    const row = { ...own, id, migration, startedAt, isStopping, refreshing: [...refreshing] };
    const { areThere, reloadRequest } = await renew(db, row);
    if (!isStopping) onWorkers(areThere);
    if (reloadRequest !== null) await answerReload(db, { id, request: reloadRequest, fault: await reload() });
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

/** `areThere`: whether a node runs that does background work. `reloadRequest`: null unless this node has to answer one. */
type Renewal = { areThere: boolean; reloadRequest: string | null };

type Row = Omit<Node, 'seenAt' | 'isSilent'> & { refreshing: number[] };

async function renew(db: Queryable, node: Row): Promise<Renewal> {
  const found = first(
    await db.query<Renewal>(
      `with forgotten as (
         delete from node
         where id in (
           select id
           from node
           where seen_at < clock_timestamp() - make_interval(secs => $9) and id <> $1
           for update skip locked
         )
       ), renewed as (
         insert into node (id, name, role, version, migration, started_at, is_stopping, refreshing)
         values ($1, $2, $3, $4, $5, $6, $7, $10)
         on conflict (id) do update set
           seen_at = clock_timestamp(),
           is_stopping = excluded.is_stopping,
           refreshing = excluded.refreshing,
           reachable_since = case
             when node.seen_at > clock_timestamp() - make_interval(secs => $8) then node.reachable_since
             else clock_timestamp()
           end
         returning case when reload_request is distinct from reload_answer then reload_request end as request
       )
       select ($3 <> 'api' and not $7) or exists (
         select
         from node
         where role <> 'api'
           and not is_stopping
           and id <> $1
           and seen_at > clock_timestamp() - make_interval(secs => $8)
       ) as "areThere",
       (select request from renewed) as "reloadRequest"`,
      [
        node.id,
        node.name,
        node.role,
        node.version,
        node.migration,
        node.startedAt,
        node.isStopping,
        silentAfterS,
        rememberedS,
        node.refreshing,
      ],
    ),
  );
  return found ?? { areThere: false, reloadRequest: null };
}

/** Requests that all running nodes read their provider definitions again. Each does at its next renewal. */
export async function requestReload(db: Queryable): Promise<string> {
  const request = crypto.randomUUID();
  await db.query(
    `update node
     set reload_request = $1
     where seen_at > clock_timestamp() - make_interval(secs => $2)
       and not is_stopping`,
    [request, silentAfterS],
  );
  return request;
}

/** `hasAnswered`: false also for a node of a version that knows no such requests. */
export type ReloadAnswer = { name: string; hasAnswered: boolean; fault: string | null };

/** The answers of the nodes that have the request and still run. */
export function listReloadAnswers(db: Queryable, request: string): Promise<ReloadAnswer[]> {
  return db.query<ReloadAnswer>(
    `select name, reload_answer is not distinct from reload_request as "hasAnswered", reload_fault as fault
     from node
     where reload_request = $1
       and seen_at > clock_timestamp() - make_interval(secs => $2)
       and not is_stopping
     order by name collate "C", started_at`,
    [request, silentAfterS],
  );
}

async function answerReload(
  db: Queryable,
  { id, request, fault }: { id: string; request: string; fault: string | undefined },
): Promise<void> {
  await db.query('update node set reload_answer = $2, reload_fault = $3 where id = $1', [
    id,
    request,
    fault ?? null,
  ]);
}

/**
 * Whether a node may still have the answer to a request of more than `sinceMs` ago: it refreshes the connection of this row
 * ID, or has not renewed its row since. A node that has not done so for half a minute counts as ended only if another node
 * has reached the database all the while: after an outage of the database, running nodes are silent too.
 */
export async function mayRefresh(
  q: Queryable,
  { connection, sinceMs }: { connection: number; sinceMs: number },
): Promise<boolean> {
  const found = await q.query(
    `select
     from node
     where ($1 = any(refreshing) or seen_at < clock_timestamp() - make_interval(secs => $2))
       and (
         seen_at > clock_timestamp() - make_interval(secs => $3)
         or not exists (
           select
           from node
           where migration collate "C" >= $5
             and seen_at > clock_timestamp() - make_interval(secs => $4)
             and reachable_since < clock_timestamp() - make_interval(secs => $3)
         )
       )
     limit 1`,
    [connection, sinceMs / 1000, endedAfterS, silentAfterS, firstListing],
  );
  return found.length > 0;
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
