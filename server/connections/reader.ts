import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { findIntegration, type Integration, type IntegrationReading } from '../integrations/store.ts';
import { TtlCache } from '../ttl-cache.ts';
import { type Connection, findConnection, unknownMessage } from './store.ts';

const maxCached = 10_000;

/** A connection together with its integration: what a call on behalf of a connection needs. */
export type LiveConnection = Connection & { integration: Integration };

type Place = { environmentId: number; integrationKey: string; connectionId: string };

/**
 * Reads connections for the hot paths. An answer is cached for a second, so a deletion or a change takes effect
 * everywhere within a second, and at once on the node that `forget`s it. Unwrapped keys live no longer than that.
 */
export type ConnectionReader = {
  /** Throws `unknown_provider_config` (404). */
  getIntegration(at: Omit<Place, 'connectionId'>): Promise<Integration>;
  /** Throws `unknown_connection` (400), also where there is no such integration. */
  get(at: Place): Promise<LiveConnection>;
  /** What `get` would give without a wait; undefined where it would ask the database. */
  known(at: Place): LiveConnection | undefined;
  /** The connection as the database has it now. */
  reread(connection: LiveConnection): Promise<LiveConnection>;
  forget(at: Place): void;
  /** All connections of an integration. */
  forgetIntegration(at: Omit<Place, 'connectionId'>): void;
};

export function createConnectionReader({
  db,
  reading,
  clock = () => performance.now(),
}: {
  db: Db;
  reading: IntegrationReading;
  /** As `TtlCache` counts their second. */
  clock?: () => number;
}): ConnectionReader {
  async function load(at: Place): Promise<LiveConnection> {
    const [integration, connection] = await Promise.all([
      findIntegration(db, { ...reading, environmentId: at.environmentId, key: at.integrationKey }),
      findConnection(db, { ...at, vault: reading.vault }),
    ]);
    if (integration === undefined || connection === undefined) {
      throw new AppError('unknown_connection', unknownMessage(at));
    }
    if (integration.isTest && reading.testClient === undefined) {
      // Without the sandbox the definition names the real provider, which must never see a test token.
      throw new AppError('test_credentials_unavailable', undefined, { status: 424 });
    }
    return { ...connection, integration };
  }

  const connections = new TtlCache({ load, keyOf: placeKey, clock, max: maxCached });

  return {
    async getIntegration({ environmentId, integrationKey }) {
      const integration = await findIntegration(db, { ...reading, environmentId, key: integrationKey });
      if (integration === undefined) {
        throw new AppError(
          'unknown_provider_config',
          `This environment has no integration with the ID "${integrationKey}".`,
        );
      }
      return integration;
    },
    get: async (at) => connections.get(at),
    known: (at) => connections.known(at),
    reread: (connection) => connections.reread(placeOf(connection)),
    forget: (at) => connections.forget(at),
    forgetIntegration({ environmentId, integrationKey }) {
      connections.forgetWhere(
        (connection) =>
          connection.environmentId === environmentId && connection.integrationKey === integrationKey,
      );
    },
  };
}

/** Where a connection is found. */
export function placeOf(connection: Place): Place {
  const { environmentId, integrationKey, connectionId } = connection;
  return { environmentId, integrationKey, connectionId };
}

function placeKey({ environmentId, integrationKey, connectionId }: Place): string {
  return `${environmentId}/${integrationKey.length}/${integrationKey}/${connectionId}`;
}
