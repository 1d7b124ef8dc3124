// A database and a token endpoint for tests of refreshes, with as many nodes on them as a test wants.

import { createSecretKey, randomBytes } from 'node:crypto';
import { authModes } from '../../server/auth-modes/modes.ts';
import { insertConnection, replaceCredentials } from '../../server/connections/store/save.ts';
import { findConnection, getConnection } from '../../server/connections/store/store.ts';
import type { Db } from '../../server/db/pool.ts';
import { ensureEnvironment } from '../../server/environments/store.ts';
import { createIntegration } from '../../server/integrations/store.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import { openVault } from '../../server/vault.ts';
import { openTestDatabase } from './database.ts';
import type { NodeSettings } from './refresh-node.ts';
import { type Rotation, startTokenProvider, type TokenProvider } from './token-provider.ts';

export type RefreshBench = {
  db: Db;
  provider: TokenProvider;
  /** All that a node needs but its name. */
  settings: Omit<NodeSettings, 'name'>;
  /** A connection of this name with a token that ends at `expiresAt`; a new grant where it exists already. */
  connect(name: string, expiresAt: Date): Promise<void>;
  /** Status and cause, as stored. */
  stateOf(name: string): Promise<{ status: string; cause: string | null }>;
  /** Types of the connection's events, oldest first. */
  eventsOf(name: string): Promise<string[]>;
  close(): Promise<void>;
};

export async function openRefreshBench({
  rotation,
  timeoutMs,
  timing,
}: {
  rotation: Rotation;
  timeoutMs: number;
  timing: NodeSettings['timing'];
}): Promise<RefreshBench> {
  const { db, target, drop } = await openTestDatabase();
  const provider = await startTokenProvider({ rotation, timeoutMs });
  const masterKey = randomBytes(32).toString('hex');
  const vault = openVault([{ id: 'test', key: createSecretKey(Buffer.from(masterKey, 'hex')) }]);
  const { environment } = await ensureEnvironment(db, { name: 'dev', vault });
  const environmentId = environment.id;
  const reading = { vault, catalog: loadCatalog(provider.directory, authModes), testClient: undefined };
  const integration = await createIntegration(db, {
    ...reading,
    environmentId,
    key: 'rotating',
    provider: 'rotating',
    client: { clientId: 'id', clientSecret: 'secret' },
  });
  const at = (connectionId: string) => ({ environmentId, integrationKey: 'rotating', connectionId, vault });

  return {
    db,
    provider,
    settings: { target, directory: provider.directory, masterKey, environmentId, timing },
    async connect(name, expiresAt) {
      const credentials = {
        type: 'OAUTH2',
        access_token: `first~${randomBytes(8).toString('hex')}`,
        refresh_token: provider.issue(name),
        expires_at: expiresAt.toISOString(),
        raw: {},
      } as const;
      const current = await findConnection(db, at(name));
      const given = { vault, credentials, grant: { accessExpiresAt: expiresAt }, at: new Date() };
      await (current
        ? replaceCredentials(db, { ...given, current })
        : insertConnection(db, { ...given, integration, connectionId: name }));
    },
    async stateOf(name) {
      const { status, fault } = await getConnection(db, at(name));
      return { status, cause: fault?.cause ?? null };
    },
    async eventsOf(name) {
      const rows = await db.query<{ type: string }>(
        `select type from event where data->>'connection_id' = $1 order by created_at, id`,
        [name],
      );
      return rows.map(({ type }) => type);
    },
    async close() {
      await provider.close();
      await drop();
    },
  };
}
