// What a node of the service needs to refresh connections, without the rest of it.

import { createSecretKey } from 'node:crypto';
import { authModes } from '../../server/auth-modes/modes.ts';
import { createStatusTransitions } from '../../server/connections/health/status-transitions.ts';
import {
  type CredentialSource,
  createCredentialSource,
} from '../../server/connections/refresh/credentials.ts';
import type { RefreshTiming } from '../../server/connections/refresh/refresh.ts';
import {
  type ConnectionReader,
  createConnectionReader,
  type LiveConnection,
} from '../../server/connections/store/reader.ts';
import { type Db, type DbTarget, openDb } from '../../server/db/pool.ts';
import type { IntegrationReading } from '../../server/integrations/store.ts';
import { createLog } from '../../server/log.ts';
import type { Fetch } from '../../server/outbound/outbound.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import { openVault } from '../../server/vault.ts';
import { openSecretWatch } from './secret-watch.ts';
import { watchedVault } from './secret-watch-server.ts';

export type RefreshNode = {
  db: Db;
  reading: IntegrationReading;
  reader: ConnectionReader;
  credentials: CredentialSource;
  /** The row IDs of the connections that it refreshes. */
  refreshing: ReadonlySet<number>;
  /** The connection `name`, as the database has it now. */
  live(name: string): Promise<LiveConnection>;
  /** Fails where a secret got into the log: see `secret-watch.ts`. */
  close(): Promise<void>;
};

export type NodeSettings = {
  target: DbTarget;
  /** The provider definitions. */
  directory: string;
  /** 32 bytes as hex. */
  masterKey: string;
  environmentId: number;
  /** Says to the provider who asks. */
  name: string;
  timing: RefreshTiming;
};

/** Opens a node with a pool of its own. `through` stands in the way of its requests to the provider. */
export function openRefreshNode(
  { target, directory, masterKey, environmentId, name, timing }: NodeSettings,
  { now, through = fetch }: { now: () => Date; through?: Fetch },
): RefreshNode {
  const db = openDb(target, { maxConnections: 4 });
  const watch = openSecretWatch();
  const ring = [{ id: 'test', key: createSecretKey(Buffer.from(masterKey, 'hex')) }];
  const vault = watchedVault(openVault(ring), watch);
  const reading = { vault, catalog: loadCatalog(directory, authModes), testClient: undefined };
  const reader = createConnectionReader({ db, reading });
  const log = createLog({ level: 'trace', format: 'json' }, watch.log);
  const transitions = createStatusTransitions({ db, log, reader, now });
  const fetchFor = watch.watched(
    (): Fetch => (url, init) => through(url, { ...init, headers: { ...init.headers, 'x-node': name } }),
  );
  const refreshing = new Set<number>();
  const deps = { db, reader, fetchFor, transitions, vault, log, refreshing, now, timing };
  const credentials = createCredentialSource(deps);
  return {
    db,
    reading,
    reader,
    credentials,
    refreshing,
    async live(connectionId) {
      const at = { environmentId, integrationKey: 'rotating', connectionId };
      reader.forget(at);
      return reader.get(at);
    },
    async close() {
      await credentials.settled();
      await db.end();
      watch.assertClean();
    },
  };
}
