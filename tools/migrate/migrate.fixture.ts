import { createSecretKey, randomBytes } from 'node:crypto';
import { BlockList } from 'node:net';
import { join } from 'node:path';
import { authModes, type Credentials } from '../../server/auth-modes/modes.ts';
import { sealKept } from '../../server/connections/refresh/previous-refresh-tokens.ts';
import { type Connection, findConnection } from '../../server/connections/store/store.ts';
import { type Environment, ensureEnvironment } from '../../server/environments/store.ts';
import { createOutbound } from '../../server/outbound/outbound.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import { openVault } from '../../server/vault.ts';
import { openTestDatabase } from '../../test/support/database.ts';
import { type PeerStandIn, startPeer } from '../../test/support/peer.ts';
import type { PeerIntegration } from '../../test/support/peer-bodies.ts';
import { openPeer } from './peer/client.ts';
import type { PeerRun } from './peer/run.ts';
import type { Report } from './report.ts';

const catalog = loadCatalog(join(import.meta.dirname, '../../providers'), authModes);
const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');

/** An installation that is moved into: a database, its master key, an environment. */
export async function openInstallation(id = 'k1') {
  const { db, drop } = await openTestDatabase();
  const vault = openVault([{ id, key: createSecretKey(randomBytes(32)) }]);
  const reading = { vault, catalog, testClient: undefined };
  const make = async (name: string): Promise<Environment> =>
    (await ensureEnvironment(db, { name, vault })).environment;
  const environment = await make('prod');
  return {
    db,
    drop,
    vault,
    reading,
    environment,
    make,
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

/** A stand-in with one integration of OAuth, and where it is moved to. `close` it. */
export async function openMove(integration: string) {
  const [peer, here] = await Promise.all([startPeer(), openInstallation()]);
  const closing = [() => peer.close(), () => here.drop()];
  peer.integrations = [googleOf(integration)];
  return {
    peer,
    here,
    /** A run that waits for nothing longer than it must. */
    open(more: Partial<PeerRun> = {}, from: Pick<PeerStandIn, 'url' | 'key'> = peer): PeerRun {
      const outbound = createOutbound({ allow: [{ addresses: loopback }] });
      closing.push(() => outbound.close());
      const fetch = outbound.fetchFor({ isTest: false });
      return {
        db: here.db,
        reading: here.reading,
        environment: here.environment,
        peer: openPeer({ url: from.url, key: from.key, fetch, pauseMs: 1 }),
        baseUrl: 'https://trellis.example.com',
        providerNames: new Map(),
        filter: undefined,
        overwrites: false,
        parallel: 8,
        pageSize: 500,
        records: undefined,
        onProgress: () => {},
        now: () => new Date(),
        deadAgainMs: 0,
        ...more,
      };
    },
    /** Called after the test. */
    after(close: () => Promise<void>): void {
      closing.push(close);
    },
    async close(): Promise<void> {
      for (const close of closing.reverse()) await close();
    },
  };
}
export type Move = Awaited<ReturnType<typeof openMove>>;

function googleOf(key: string): PeerIntegration {
  const client = { client_id: 'c.apps', client_secret: 'client-secret-there' };
  const credentials = { type: 'OAUTH2', ...client, scopes: 'openid,email' };
  return { key, provider: 'google-sheet', authMode: 'OAUTH2', credentials };
}

/** How many came to what, with the reason behind it. */
export function outcomesOf({ connections }: Pick<Report, 'connections'>): Record<string, number> {
  return Object.fromEntries(
    connections.map(({ outcome, reason, count }) => [reason ? `${outcome} ${reason}` : outcome, count]),
  );
}

/** What a renewal here leaves in the row; `kept` are the tokens before it that are known. */
export async function renewHere(
  { db, find }: Installation,
  { at: [integration, id], kept }: { at: [string, string]; kept: string[] },
): Promise<Connection> {
  const found = (await find(integration, id))!;
  const renewed = {
    ...found.credentials,
    access_token: 'access-here-0001',
    refresh_token: 'refresh-here-0001',
  };
  await db.query(
    `update connection
     set credentials = $2, kept_tokens = $3, credentials_version = credentials_version + 1, status = 'active',
       fault = null, scopes_lacking = null, access_expires_at = '2026-03-03', refreshed_at = now()
     where id = $1`,
    [found.id, found.dataKey.sealJson(renewed, 'credentials'), sealKept(found, kept)],
  );
  return (await find(integration, id))!;
}
