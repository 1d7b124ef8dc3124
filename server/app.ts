import { join } from 'node:path';
import type { Fetch } from './auth-modes/token-response.ts';
import type { Config } from './config.ts';
import { connectRoutes } from './connect/routes.ts';
import { createSessionReader } from './connect/sessions.ts';
import { createCredentialSource } from './connections/credentials.ts';
import { createConnectionReader } from './connections/reader.ts';
import { connectionRoutes } from './connections/routes.ts';
import type { Db } from './db/pool.ts';
import { createKeyReader } from './environments/keys.ts';
import { eventRoutes } from './events/routes.ts';
import { healthRoutes } from './http/health.ts';
import { type App, createHttp } from './http/server.ts';
import { startPageRoutes } from './http/start-page.ts';
import { integrationRoutes } from './integrations/routes.ts';
import type { Integration, TestClient } from './integrations/store.ts';
import type { Logger } from './log.ts';
import type { Outbound } from './outbound.ts';
import type { Catalog } from './providers/catalog.ts';
import { providerRoutes } from './providers/routes.ts';
import { proxyRoutes } from './proxy/routes.ts';
import { recordRoutes } from './records/routes.ts';
import type { Vault } from './vault.ts';

/** Where the provider definitions and their logos lie. */
export const providersDirectory = join(import.meta.dirname, '../providers');

export type AppDeps = {
  config: Config;
  log: Logger;
  db: Db;
  vault: Vault;
  catalog: Catalog;
  outbound: Outbound;
  /** Undefined while the sandbox is off. */
  testClient: TestClient | undefined;
  /** Sets off the removal of a deleted connection's records. Never awaited. */
  afterConnectionDeleted: () => void;
};

/**
 * The service's HTTP interface, all rooms wired together; it does not listen yet.
 *
 * What a lower floor sets off above it is passed in here: who is calling for `http/`, what follows a deletion for
 * `connections/`.
 */
export async function createApp({
  config,
  log,
  db,
  vault,
  catalog,
  outbound,
  testClient,
  afterConnectionDeleted,
}: AppDeps): Promise<App> {
  const { brand, baseUrl } = config;
  const reading = { vault, catalog, testClient };
  const aliases = catalog.list().flatMap((definition) => definition.api.root_aliases);
  const app = await createHttp({
    config,
    log,
    authenticate: { key: createKeyReader(db), session: createSessionReader({ db, brand }) },
    isRootAlias: (path) => aliases.some((alias) => path === alias || path.startsWith(`${alias}/`)),
  });
  const reader = createConnectionReader({ db, reading });
  const fetchFor = (integration: Integration): Fetch => outbound.fetchFor({ isTest: integration.isTest });
  const credentials = createCredentialSource({ db, reader, fetchFor, log });

  healthRoutes(app, {
    check: async () => {
      await db.query('select 1');
    },
  });
  startPageRoutes(app, { sandboxUrl: testClient?.url });
  providerRoutes(app, { catalog, baseUrl, directory: providersDirectory });
  integrationRoutes(app, { db, reading, baseUrl, afterChange: (at) => reader.forgetIntegration(at) });
  connectionRoutes(app, {
    db,
    reading,
    reader,
    credentials,
    afterDelete: afterConnectionDeleted,
  });
  await connectRoutes(app, { db, reading, reader, fetchFor, brand, baseUrl, log });
  recordRoutes(app, { db, brand, connections: reader });
  await proxyRoutes(app, { brand, connections: reader, credentials, outbound });
  eventRoutes(app, { db });
  return app;
}
