import { createSecretKey, randomBytes } from 'node:crypto';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import type { Db, Queryable } from '../db/pool.ts';
import { placeAll } from '../db/sequencer.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { openVault } from '../vault.ts';
import type { EventType } from './event-types.ts';
import { type FeedPage, readFeed } from './feed.ts';
import { queueEvent } from './outbox.ts';
import { eventSequence } from './sequence.ts';

type Of = { environmentId: number; environment: string };
/** A database with the feeds of two environments. */
export type FeedBench = TestDatabase & {
  dev: Of;
  prod: Of;
  /** Queues an event of `dev` with the number `n`. */
  queue(n?: number, given?: { tx?: Queryable; of?: Of; type?: 'retention' | 'stale' }): Promise<string>;
  place(): Promise<void>;
  read(after?: number, given?: Asked): Promise<FeedPage>;
  /** As `read`, by other means. */
  readBy(db: Pick<Db, 'query'>, after?: number, given?: Asked): Promise<FeedPage>;
};
type Asked = { limit?: number; types?: EventType[]; of?: Of };

export async function openFeedBench(): Promise<FeedBench> {
  const database = await openTestDatabase();
  const { db } = database;
  const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
  const environment = async (name: string): Promise<Of> => {
    const { id } = (await ensureEnvironment(db, { name, vault })).environment;
    return { environmentId: id, environment: name };
  };
  const dev = await environment('dev');
  const readBy: FeedBench['readBy'] = (by, after, { limit = 100, types, of = dev } = {}) =>
    readFeed(by, { of, after, limit, types });
  return {
    ...database,
    dev,
    prod: await environment('prod'),
    async queue(n = 0, { tx = db, of = dev, type = 'retention' } = {}) {
      const { environmentId } = of;
      if (type === 'stale') {
        const dataset = { connection_id: 'c', provider_config_key: 'i', model: 'Row', variant: 'base' };
        const acknowledged_at = '2026-01-01T00:00:00.000Z';
        const data = { ...dataset, consumer: String(n), cursor: null, acknowledged_at };
        return queueEvent(tx, { environmentId, type: 'consumer.stale', data });
      }
      const data = { datasets: n, pruned: 0, bytes: 0, tombstones_removed: 0 };
      return queueEvent(tx, { environmentId, type: 'records.retention_done', data });
    },
    async place() {
      await placeAll(db, eventSequence);
    },
    read: (after, asked) => readBy(db, after, asked),
    readBy,
  };
}

/** The numbers of the events of a page. */
export const numbersOf = ({ events }: FeedPage): number[] => events.map(({ data }) => Number(data.datasets));
