/** An application that makes connections and deletes them, follows the feed, and has events sent to it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { pick, randomOf } from '../long/random.ts';
import type { Calls } from './calls.ts';

type FeedEvent = { id: string; type: string; data: { connection_id?: string; id?: string } };

export type EventLoad = {
  run(isOver: () => boolean, pauseMs: number): Promise<void>;
  /** Goes on to the end of the feed. */
  finish(): Promise<void>;
  /** All events by id, as the follower saw them; `repeated` are those that came twice. */
  seen: ReadonlyMap<string, FeedEvent>;
  repeated: readonly string[];
  /** Acknowledged changes whose event the feed does not have. */
  missing(): string[];
  acknowledged(): number;
};

export function openEventLoad(
  calls: Calls,
  { integration, seed }: { integration: string; seed: number },
): EventLoad {
  const random = randomOf(seed);
  const seen = new Map<string, FeedEvent>();
  const repeated: string[] = [];
  const made: string[] = [];
  const removed: string[] = [];
  let number = 0;
  let after = '0';

  async function makeAndDelete(): Promise<void> {
    number += 1;
    const id = `short-lived-${number}`;
    const outcome = await calls.make('connect', {
      method: 'POST',
      path: '/connections',
      body: {
        provider_config_key: integration,
        connection_id: id,
        credentials: { type: 'API_KEY', apiKey: `secret-of-${id}` },
      },
    });
    if (outcome.kind !== 'done') return;
    made.push(id);
    await sleep(pick(random, 200));
    const gone = await calls.make('disconnect', {
      method: 'DELETE',
      path: `/connections/${id}?provider_config_key=${integration}`,
    });
    if (gone.kind === 'done') removed.push(id);
  }

  /** One page on; undefined where none could be read. */
  async function follow(waitS: number): Promise<number | undefined> {
    const outcome = await calls.make('feed', {
      method: 'GET',
      path: `/events?after=${after}&limit=200&wait=${waitS}`,
    });
    if (outcome.kind !== 'done') return undefined;
    const page = outcome.body as { events: FeedEvent[]; next_after: string };
    for (const event of page.events) {
      if (seen.has(event.id)) repeated.push(event.id);
      seen.set(event.id, event);
    }
    after = page.next_after;
    return page.events.length;
  }

  return {
    seen,
    repeated,
    async run(isOver, pauseMs) {
      const making = async () => {
        while (!isOver()) {
          await makeAndDelete();
          await sleep(pick(random, pauseMs * 2));
        }
      };
      const following = async () => {
        while (!isOver()) if ((await follow(2)) === undefined) await sleep(200);
      };
      await Promise.all([making(), following()]);
    },
    async finish() {
      while ((await follow(0)) !== 0);
    },
    missing() {
      const of = (type: string) =>
        new Set(
          [...seen.values()].filter((event) => event.type === type).map(({ data }) => data.connection_id),
        );
      const created = of('connection.created');
      const deleted = of('connection.deleted');
      return [
        ...made.filter((id) => !created.has(id)).map((id) => `connection.created of ${id}`),
        ...removed.filter((id) => !deleted.has(id)).map((id) => `connection.deleted of ${id}`),
      ];
    },
    acknowledged: () => made.length + removed.length,
  };
}
