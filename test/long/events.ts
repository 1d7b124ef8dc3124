// Writers of events that pause between BEGIN and COMMIT, a reader that follows them, and sequencers that are killed: does
// the reader see each event once, and none behind one it has seen?

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type FeedBench, numbersOf } from '../../server/events/feed.fixture.ts';
import { urlOf } from '../support/database.ts';
import { pick, randomOf } from './random.ts';

/** What a follower sees next: the numbers of some events, and where to go on. */
type Read<Position> = (after: Position | undefined) => Promise<{ numbers: number[]; next: Position }>;

type Followed = {
  written: number;
  /** Numbers of committed events that the follower did not see. */
  missed: number[];
  /** As the follower came upon them. */
  seen: number[];
};

const writers = 8;

/** Writes and follows until `isOver`, and then to the end of what was written. */
export async function followWriters<Position>(
  bench: FeedBench,
  { read, isOver, seed }: { read: Read<Position>; isOver: () => boolean; seed: number },
): Promise<Followed> {
  const committed = new Set<number>();
  let isWriting = true;
  const write = async (writer: number) => {
    const random = randomOf(seed * 1000 + writer);
    for (let n = 0; !isOver(); n += 1) {
      const numbers = Array.from(
        { length: 1 + pick(random, 3) },
        (_, index) => writer + 10 * (n * 4 + index),
      );
      const rollsBack = random() < 0.1;
      const writing = bench.db.transaction(async (tx) => {
        for (const number of numbers) {
          await bench.queue(number, { tx });
          await sleep(pick(random, 15));
        }
        if (rollsBack) throw new RolledBack();
      });
      await writing.then(
        () => {
          for (const number of numbers) committed.add(number);
        },
        (error: unknown) => {
          if (!(error instanceof RolledBack)) throw error;
        },
      );
      await sleep(pick(random, 25));
    }
  };
  const writing = Promise.all(Array.from({ length: writers }, (_, writer) => write(writer))).finally(() => {
    isWriting = false;
  });
  const seen: number[] = [];
  let position: Position | undefined;
  const step = async () => {
    const page = await read(position);
    seen.push(...page.numbers);
    position = page.next;
  };
  while (isWriting) {
    await step();
    await sleep(2);
  }
  await writing;
  // Any caller of `place` may be the sequencer; the call waits for a sequencer that is in the middle of a step.
  await bench.place();
  for (let count = -1; count < seen.length; ) {
    count = seen.length;
    await step();
  }
  const known = new Set(seen);
  return { written: committed.size, missed: [...committed].filter((number) => !known.has(number)), seen };
}

class RolledBack extends Error {}

/** The feed as it is. */
export function feedReader(bench: FeedBench): Read<number> {
  return async (after) => {
    const page = await bench.read(after, { limit: 20 });
    return { numbers: numbersOf(page), next: page.next };
  };
}

/** What a feed by time would be. */
export function timeReader({ db }: FeedBench): Read<string> {
  return async (after = '') => {
    const rows = await db.query<{ number: number; position: string }>(
      `select (data->>'datasets')::integer as number, created_at::text || ' ' || id as position
       from event
       where created_at::text || ' ' || id > $1
       order by 2
       limit 20`,
      [after],
    );
    return { numbers: rows.map(({ number }) => number), next: rows.at(-1)?.position ?? after };
  };
}

/** The whole feed, as one who comes later reads it. */
export async function readAll(bench: FeedBench): Promise<number[]> {
  const numbers: number[] = [];
  for (let after = 0; ; ) {
    const page = await bench.read(after, { limit: 1000 });
    if (page.events.length === 0) return numbers;
    numbers.push(...numbersOf(page));
    after = page.next;
  }
}

/** Follows while the node that gives positions is killed `kills` times. Each kill hits one in the middle of a step. */
export async function followThroughKills(
  bench: FeedBench,
  { kills, everyMs, seed }: { kills: number; everyMs: number; seed: number },
): Promise<Followed> {
  let isOver = false;
  const following = followWriters(bench, { read: feedReader(bench), isOver: () => isOver, seed });
  const sequencers = await startSequencers(bench);
  try {
    for (let killed = 0; killed < kills; killed += 1) {
      await sleep(everyMs);
      await sequencers.killOne();
    }
    isOver = true;
    return await following;
  } finally {
    isOver = true;
    await following;
    await sequencers.stop();
  }
}

/** Two nodes that give positions; `killOne` kills one in the middle of a step, as `kill -9` does, and starts another. */
async function startSequencers(
  bench: FeedBench,
): Promise<{ killOne(): Promise<void>; stop(): Promise<void> }> {
  const nodes = new Set<ChildProcess>();
  let waiting: ((node: ChildProcess) => void) | undefined;
  const start = async () => {
    const file = join(import.meta.dirname, 'event-node.ts');
    const stdio = ['ignore', 'inherit', 'inherit', 'ipc'] as const;
    const node = spawn(process.execPath, [file, urlOf(bench.target)], { stdio: [...stdio] });
    nodes.add(node);
    node.on('message', () => waiting?.(node));
    await once(node, 'message');
  };
  const kill = async (node: ChildProcess) => {
    nodes.delete(node);
    const gone = once(node, 'exit');
    node.kill('SIGKILL');
    await gone;
  };
  await Promise.all([start(), start()]);
  return {
    async killOne() {
      const { promise, resolve } = Promise.withResolvers<ChildProcess>();
      waiting = resolve;
      const node = await promise;
      waiting = undefined;
      await kill(node);
      await start();
    },
    async stop() {
      await Promise.all([...nodes].map(kill));
    },
  };
}
