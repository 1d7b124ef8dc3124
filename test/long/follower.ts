// Writers that pause between BEGIN and COMMIT, and a reader that follows them: does it end up with what stands?

import { setTimeout as sleep } from 'node:timers/promises';
import type { Db, Tx } from '../../server/db/pool.ts';
import { AppError } from '../../server/errors.ts';
import type { RecordBench } from '../support/records.ts';
import { datasetCalls, type WireRecord } from '../support/records.ts';
import { pick, type Random, randomOf } from './random.ts';

/** What a record is like after its latest change, as text. */
type StatusTransitions = Map<string, string>;

/** Something that is written to and followed. */
type Feed = {
  /** One write of a writer's, with pauses where others may overtake it. */
  write(random: Random): Promise<void>;
  /**
   * Some changes after a position; the position of the last of them, or undefined where there are none. Says `expired` where
   * the reader has to begin again.
   */
  read(
    after: string | undefined,
  ): Promise<{ changes: [id: string, state: string][]; last: string | undefined } | 'expired'>;
  /** What stands when nobody writes. */
  stand(): Promise<StatusTransitions>;
};

const writers = 8;
const writesEach = 6;
const idCount = 24;

/** Ids whose state the reader got wrong, once all is at rest. */
export async function follow(feed: Feed, seed: number): Promise<string[]> {
  let isWriting = true;
  const write = async (writer: number) => {
    const random = randomOf(seed * 1000 + writer);
    for (let n = 0; n < writesEach; n += 1) await feed.write(random);
  };
  const writing = Promise.all(Array.from({ length: writers }, (_, writer) => write(writer))).finally(() => {
    isWriting = false;
  });
  const seen: StatusTransitions = new Map();
  let position: string | undefined;
  const read = async (): Promise<boolean> => {
    const next = await feed.read(position);
    if (next === 'expired') {
      seen.clear();
      position = undefined;
      return true;
    }
    const { changes, last } = next;
    for (const [id, state] of changes) seen.set(id, state);
    position = last ?? position;
    return last !== undefined;
  };
  while (isWriting) {
    if (!(await read())) await sleep(1);
  }
  await writing;
  while (await read());
  const standing = await feed.stand();
  return [...new Set([...seen.keys(), ...standing.keys()])].filter((id) => seen.get(id) !== standing.get(id));
}

/** A dataset of records: saves, deletes, prunes and restores, and emptied at times, followed by cursor. */
export async function recordFeed(bench: RecordBench): Promise<Feed> {
  const connection = await bench.connect();
  const steady = datasetCalls(bench.db, connection);
  await steady.save([{ id: 'start', round: 0 }]);
  /** Content per id as last sent, for restores. */
  const sent = new Map<string, { id: string; round: number }>();
  /** Content at each change, from any reader that read its payload: prune and restore are not changes. */
  const contents = new Map<string, number>();
  const stateOf = ({ round, _trellis_metadata: { last_action, cursor, pruned_at } }: WireRecord) => {
    if (pruned_at === null) contents.set(cursor, Number(round));
    return `${last_action} ${cursor}`;
  };
  return {
    async write(random) {
      const paused = datasetCalls(pausing(bench.db, random), connection);
      const ids = Array.from({ length: 1 + pick(random, 5) }, () => `r${pick(random, idCount)}`);
      const choice = random();
      if (choice < 0.25) {
        const seq = 1 + pick(random, (await steady.row()).last_seq);
        await paused.prune(await steady.cursorOf(seq), 1 + pick(random, 8));
      } else if (choice < 0.4) {
        await paused.delete(...ids);
      } else if (choice < 0.43) {
        await paused.empty();
      } else if (choice < 0.55) {
        await paused.save([...new Set(ids)].flatMap((id) => sent.get(id) ?? []));
      } else {
        const records = [...new Set(ids)].map((id) => ({ id, round: pick(random, 1_000_000) }));
        for (const record of records) sent.set(record.id, record);
        await paused.save(records);
      }
    },
    async read(after) {
      const page = await steady
        .list({ cursor: after, limit: 5, unlessEmptied: true })
        .catch((error: unknown) => {
          if (error instanceof AppError && error.code === 'cursor_expired') return undefined;
          throw error;
        });
      if (page === undefined) return 'expired';
      const { records } = page;
      return {
        changes: records.map((record) => [record.id, stateOf(record)]),
        last: records.at(-1)?._trellis_metadata.cursor,
      };
    },
    async stand() {
      const records = await steady.listAll();
      for (const { id, round, _trellis_metadata: metadata } of records) {
        const known = contents.get(metadata.cursor);
        if (metadata.pruned_at === null && known !== undefined && known !== round)
          throw new Error(`${id} changed its content without moving its cursor`);
      }
      return new Map(records.map((record) => [record.id, stateOf(record)]));
    },
  };
}

/** What a feed by time would be: rows under the time of their change, followed by time and id. */
export async function timeFeed(bench: RecordBench): Promise<Feed> {
  const { db } = bench;
  await db.query('drop table if exists by_time');
  await db.query(
    'create table by_time (id text primary key, state text not null, changed_at timestamptz not null)',
  );
  return {
    async write(random) {
      // In order, so that no two wait for each other.
      const ids = Array.from({ length: 1 + pick(random, 5) }, () => `r${pick(random, idCount)}`).sort();
      await pausing(db, random).transaction(async (tx) => {
        for (const id of new Set(ids)) {
          await tx.query(
            `insert into by_time (id, state, changed_at) values ($1, $2, clock_timestamp())
             on conflict (id) do update set state = excluded.state, changed_at = excluded.changed_at`,
            [id, String(random())],
          );
        }
      });
    },
    async read(after) {
      const [time, id] = after?.split(' ') ?? ['0', ''];
      const rows = await db.query<{ id: string; state: string; time: string }>(
        `select id, state, (extract(epoch from changed_at) * 1000000)::bigint::text as time
         from by_time
         where ((extract(epoch from changed_at) * 1000000)::bigint, id) > ($1::bigint, $2)
         order by 3, 1
         limit 5`,
        [time, id],
      );
      const last = rows.at(-1);
      return { changes: rows.map((row) => [row.id, row.state]), last: last && `${last.time} ${last.id}` };
    },
    async stand() {
      const rows = await db.query<{ id: string; state: string }>('select id, state from by_time');
      return new Map(rows.map(({ id, state }) => [id, state]));
    },
  };
}

/** The same database, where each statement of a transaction, and its commit, may be overtaken by others. */
function pausing(db: Db, random: Random): Db {
  const pause = () => sleep(random() < 0.3 ? pick(random, 6) : 0);
  return {
    ...db,
    transaction: (work, mode) =>
      db.transaction(async (tx) => {
        const query: Tx['query'] = async (text, values) => {
          await pause();
          return tx.query(text, values);
        };
        const result = await work({ ...tx, query });
        await pause();
        return result;
      }, mode),
  };
}
