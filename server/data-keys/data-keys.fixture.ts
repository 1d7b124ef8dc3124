import { createSecretKey, randomBytes } from 'node:crypto';
import { openTestDatabase } from '../../test/support/database.ts';
import type { MasterKey } from '../config/config.ts';
import { openVault } from '../vault.ts';
import { insertDataKey } from './store.ts';

export const masterKey = (id: string): MasterKey => ({ id, key: createSecretKey(randomBytes(32)) });

/** A new database, and a master key that wraps in it. */
export async function openKeyBench() {
  const { db, drop } = await openTestDatabase();
  const [old, young] = [masterKey('old'), masterKey('young')];
  const before = openVault([old]);
  return {
    db,
    drop,
    old,
    young,
    before,
    /** The ring in the middle of a rotation. */
    both: openVault([young, old]),
    /** Data keys without an owner, wrapped by `old`, and a text that each has sealed. */
    async make(count: number): Promise<{ id: string; sealed: Buffer }[]> {
      const made: { id: string; sealed: Buffer }[] = [];
      for (let n = 0; n < count; n += 1) {
        const { id, key } = await insertDataKey(db, before);
        made.push({ id, sealed: key.seal(`text ${n}`, 'test') });
      }
      return made;
    },
    async wrappedOf(id: string): Promise<Buffer | undefined> {
      const [row] = await db.query<{ wrapped: Buffer }>('select wrapped from data_key where id = $1', [id]);
      return row?.wrapped;
    },
    /** How many data keys each master key wraps. */
    async counts(): Promise<Record<string, number>> {
      const rows = await db.query<{ id: string; count: number }>(
        'select master_key as id, count(*) as count from data_key group by master_key order by master_key',
      );
      return Object.fromEntries(rows.map(({ id, count }) => [id, count]));
    },
  };
}
