/**
 * The nodes of an installation, as their rows tell.
 *
 * Owns: the table `node`. A node writes its row when it begins, renews it every few seconds, and takes it away when it ends.
 * It is there to be looked at, for warnings, and for what may not be written beside services of earlier versions. Nothing else
 * that must be right depends on it.
 */
import { setTimeout as pause } from 'node:timers/promises';
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
  /** The newest migration that it brings. */
  migration: string;
  startedAt: Date;
  seenAt: Date;
  isStopping: boolean;
  /** It was not seen for longer than a node is silent that lives. */
  isSilent: boolean;
};

export type Presence = {
  /** From now on others are told that it ends. Never throws. */
  tellStop(): Promise<void>;
  /** Takes its row away. */
  stop(): Promise<void>;
};

const renewMs = 5_000;
/** Three renewals may fail. */
const silentAfterS = 20;
/** How long a stop waits until it has said so. */
const tellMs = 500;
/** Then a node that was killed is forgotten. */
const rememberedS = 3_600;

/**
 * Writes this node's row and keeps it. `onWorkers` is told at each renewal whether any node lives that does what is due in
 * the background.
 */
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
  let isFailing = false;
  let running: Promise<void> | undefined;
  const write = async () => {
    onWorkers(await renew(db, { ...own, id, migration, startedAt, isStopping }));
  };
  const renewInTurn = () => {
    running ??= write()
      .then(
        () => {
          isFailing = false;
        },
        (error: unknown) => {
          if (!isFailing) onError(error);
          isFailing = true;
        },
      )
      .finally(() => {
        running = undefined;
      });
    return running;
  };
  await write();
  const timer = setInterval(renewInTurn, renewMs);
  return {
    async tellStop() {
      isStopping = true;
      const told = (running ?? Promise.resolve()).then(renewInTurn);
      // A database that is away holds up no stop.
      await Promise.race([told, pause(tellMs, undefined, { ref: false })]);
    },
    async stop() {
      clearInterval(timer);
      // It is forgotten by itself where the database does not answer.
      const gone = (running ?? Promise.resolve()).then(() =>
        db.query('delete from node where id = $1', [id]),
      );
      await Promise.race([gone, pause(tellMs, undefined, { ref: false })]);
      gone.catch(() => {});
    },
  };
}

/** Answers whether any node lives that works in the background. */
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

/** Those that live, and those that were killed within the last hour. */
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
 * Throws `unavailable` while a node lives that does not bring the migration of this number: what it cannot read is not
 * written beside it. `what` that is stands in the message.
 */
export async function requireNodesSince(
  q: Queryable,
  { migration, what }: { migration: number; what: string },
): Promise<void> {
  if (!(await hasNodesBefore(q, migration))) return;
  const message = `A node of an earlier version runs, which does not know ${what}. Bring all nodes up to this version first.`;
  throw new AppError('unavailable', message, { retryAfterS: 60 });
}

/** Whether a node lives that does not bring the migration of this number. */
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
