/**
 * What one node asks another to do while somebody waits: a row that the other finds, and in which it answers.
 *
 * Owns: the table `errand` and its life. Neighbours: `errand-desk.ts` takes errands and answers them. Does not own: what is
 * asked; whoever asks seals what is nobody else's business.
 */
import { randomUUIDv7 } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { type Db, first, type Queryable } from '../db/pool.ts';

export type Errand = {
  environmentId: number;
  kind: string;
  request: Buffer;
  /** Takes it back: who has it is told within a second or so. */
  signal?: AbortSignal | undefined;
};

/**
 * `untaken`: nobody had taken it in time, or before it was taken back, and nobody does any more. `lost`: whoever had it is gone, and how far it got is not
 * known. `cancelled`: it was taken back from somebody who had it.
 */
export type ErrandEnd = { answer: Buffer } | { none: 'untaken' | 'lost' | 'cancelled' };

export type Errands = {
  ask(errand: Errand): Promise<ErrandEnd>;
};

/** How often the rows of those who wait are looked at: one statement for all of a node. */
const pollMs = 50;
/** A node that takes errands looks several times a second. */
const untakenMs = 10_000;
/** How long an errand outlives the node that asks, which renews it at a third of that. */
const awaitedS = 15;

type Waiting = { askedAtMs: number; end: (end: ErrandEnd) => void; fail: (error: unknown) => void };

export function createErrands(db: Db, { untakenAfterMs = untakenMs } = {}): Errands {
  const waiting = new Map<string, Waiting>();
  let isLooking = false;
  let renewedAtMs = 0;

  async function look(): Promise<void> {
    const ids = [...waiting.keys()];
    const nowMs = performance.now();
    if (nowMs - renewedAtMs > (awaitedS * 1000) / 3) {
      await renew(db, ids);
      renewedAtMs = nowMs;
    }
    const states = new Map((await findStates(db, ids)).map((row) => [row.id, row]));
    for (const id of ids) {
      const of = waiting.get(id);
      if (of === undefined) continue;
      const state = states.get(id);
      if (state === undefined) of.end({ none: 'lost' });
      else if (state.isAnswered) {
        const answer = await takeAnswer(db, id);
        of.end(answer === undefined ? { none: 'lost' } : { answer });
      } else if (state.isLost) {
        await remove(db, id);
        of.end({ none: 'lost' });
      } else if (!state.isTaken && nowMs - of.askedAtMs > untakenAfterMs) {
        if (await takeBack(db, id)) of.end({ none: 'untaken' });
      }
    }
  }

  /** As long as anybody waits. */
  async function goOn(): Promise<void> {
    if (isLooking) return;
    isLooking = true;
    while (waiting.size > 0) {
      try {
        await look();
      } catch (error) {
        for (const of of [...waiting.values()]) of.fail(error);
      }
      await pause(pollMs);
    }
    isLooking = false;
  }

  return {
    async ask({ signal, ...errand }) {
      const id = randomUUIDv7();
      if (signal?.aborted) return { none: 'untaken' };
      await insert(db, { ...errand, id });
      const over = Promise.withResolvers<ErrandEnd>();
      const cancel = () => {
        withdraw(db, id).then((none) => over.resolve({ none }), over.reject);
      };
      waiting.set(id, { askedAtMs: performance.now(), end: over.resolve, fail: over.reject });
      signal?.addEventListener('abort', cancel, { once: true });
      if (signal?.aborted) cancel();
      void goOn();
      try {
        return await over.promise;
      } finally {
        signal?.removeEventListener('abort', cancel);
        waiting.delete(id);
      }
    },
  };
}

async function insert(
  q: Queryable,
  { id, environmentId, kind, request }: Omit<Errand, 'signal'> & { id: string },
): Promise<void> {
  await q.query(
    `insert into errand (id, environment_id, kind, request, awaited_until)
     values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5))`,
    [id, environmentId, kind, request, awaitedS],
  );
}

async function renew(q: Queryable, ids: string[]): Promise<void> {
  await q.query(
    `update errand
     set awaited_until = clock_timestamp() + make_interval(secs => $2)
     where id = any($1)`,
    [ids, awaitedS],
  );
}

type State = { id: string; isTaken: boolean; isAnswered: boolean; isLost: boolean };

function findStates(q: Queryable, ids: string[]): Promise<State[]> {
  return q.query<State>(
    `select
       id,
       owner is not null as "isTaken",
       answer is not null as "isAnswered",
       coalesce(lease_until <= clock_timestamp(), false) as "isLost"
     from errand
     where id = any($1)`,
    [ids],
  );
}

async function takeAnswer(q: Queryable, id: string): Promise<Buffer | undefined> {
  const rows = await q.query<{ answer: Buffer }>('delete from errand where id = $1 returning answer', [id]);
  return first(rows)?.answer;
}

/** Nobody waits any more; whoever has it is told by that. */
async function withdraw(q: Queryable, id: string): Promise<'untaken' | 'cancelled'> {
  if (await takeBack(q, id)) return 'untaken';
  await remove(q, id);
  return 'cancelled';
}

/** False where somebody has taken it meanwhile. */
async function takeBack(q: Queryable, id: string): Promise<boolean> {
  const rows = await q.query('delete from errand where id = $1 and owner is null returning id', [id]);
  return rows.length > 0;
}

async function remove(q: Queryable, id: string): Promise<void> {
  await q.query('delete from errand where id = $1', [id]);
}
