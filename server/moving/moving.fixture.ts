import { createSecretKey, randomBytes } from 'node:crypto';
import { BlockList } from 'node:net';
import { join } from 'node:path';
import { openTestDatabase } from '../../test/support/database.ts';
import type { PeerStandIn } from '../../test/support/peer.ts';
import type { Credentials } from '../auth-modes/mode.ts';
import { type Connection, findConnection } from '../connections/store.ts';
import { type Environment, ensureEnvironment } from '../environments/store.ts';
import { createOutbound } from '../outbound.ts';
import { loadCatalog } from '../providers/catalog.ts';
import { openVault } from '../vault.ts';
import { openPeer } from './peer/client.ts';
import type { PeerRun } from './peer/run.ts';

const catalog = loadCatalog(join(import.meta.dirname, '../../providers'));

/** An installation that is moved into: a database, its master key, an environment. */
export async function openInstallation(id = 'k1') {
  const { db, drop } = await openTestDatabase();
  const vault = openVault([{ id, key: createSecretKey(randomBytes(32)) }]);
  const reading = { vault, catalog, testClient: undefined };
  const make = async (name: string): Promise<Environment> =>
    (await ensureEnvironment(db, { name, vault })).environment;
  const environment = await make('prod');
  return {
    ...{ db, drop, vault, reading, environment, make },
    /** Undefined where it is not here. */
    find(integration: string, connectionId: string): Promise<Connection | undefined> {
      const at = { environmentId: environment.id, integrationKey: integration, connectionId };
      return findConnection(db, { ...at, vault });
    },
    async credentialsOf(integration: string, connectionId: string): Promise<Credentials | undefined> {
      const at = { environmentId: environment.id, integrationKey: integration, connectionId };
      return (await findConnection(db, { ...at, vault }))?.credentials;
    },
    async count(table: string): Promise<number> {
      const [row] = await db.query<{ count: number }>(`select count(*) as count from ${table}`);
      return row!.count;
    },
  };
}
export type Installation = Awaited<ReturnType<typeof openInstallation>>;

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');

/** A run from the stand-in that waits for nothing longer than it must. `close` it. */
export function openRun(
  to: Pick<Installation, 'db' | 'reading' | 'environment'>,
  from: Pick<PeerStandIn, 'url' | 'key'>,
  more: Partial<PeerRun> = {},
): { run: PeerRun; close: () => Promise<void> } {
  const outbound = createOutbound({ allow: loopback });
  const fetch = outbound.fetchFor({ isTest: false });
  return {
    run: {
      ...{ db: to.db, reading: to.reading, environment: to.environment },
      peer: openPeer({ url: from.url, key: from.key, fetch, pauseMs: 1 }),
      baseUrl: 'https://trellis.example.com',
      providerNames: new Map(),
      only: undefined,
      overwrites: false,
      parallel: 8,
      pageSize: 500,
      records: undefined,
      onProgress: () => {},
      now: () => new Date(),
      deadAgainMs: 0,
      ...more,
    },
    close: () => outbound.close(),
  };
}
