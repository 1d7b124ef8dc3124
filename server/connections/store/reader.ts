import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import {
  findIntegration,
  getIntegration,
  type Integration,
  type IntegrationReading,
} from '../../integrations/store.ts';
import type { TemplateValues } from '../../providers/template.ts';
import { TtlCache } from '../../ttl-cache.ts';
import { type Connection, type ConnectionPlace, findConnection, unknownMessage } from './store.ts';

const maxCached = 10_000;

/** A connection together with its integration: what a call to the provider needs. */
export type LiveConnection = Connection & { integration: Integration };

/**
 * Reads connections on hot paths. A connection is cached for a second, so a deletion or a change takes effect on all
 * nodes within a second, and at once on the node that calls `forget`. Unwrapped keys live as long as the cached
 * connection.
 */
export type ConnectionReader = {
  /** Throws `unknown_provider_config` (404). */
  getIntegration(at: Omit<ConnectionPlace, 'connectionId'>): Promise<Integration>;
  /** Throws `unknown_connection` (400), also if the integration does not exist. */
  get(at: ConnectionPlace): Promise<LiveConnection>;
  /** The cached connection; undefined if `get` would query the database. */
  known(at: ConnectionPlace): LiveConnection | undefined;
  /** Reads the connection from the database. */
  reread(connection: LiveConnection): Promise<LiveConnection>;
  forget(at: ConnectionPlace): void;
  /** Forgets all connections of an integration. */
  forgetIntegration(at: Omit<ConnectionPlace, 'connectionId'>): void;
};

export function createConnectionReader(given: {
  db: Db;
  reading: IntegrationReading;
  /** The clock of `TtlCache`. */
  clock?: () => number;
}): ConnectionReader {
  const { db, reading, clock = () => performance.now() } = given;
  async function load(at: ConnectionPlace): Promise<LiveConnection> {
    const [integration, connection] = await Promise.all([
      findIntegration(db, { ...reading, environmentId: at.environmentId, key: at.integrationKey }),
      findConnection(db, { ...at, vault: reading.vault }),
    ]);
    if (integration === undefined || connection === undefined) {
      throw new AppError('unknown_connection', unknownMessage(at));
    }
    if (integration.isTest && reading.testClient === undefined) {
      // Without the sandbox the definition has the real provider's addresses, and a test token must never go there.
      throw new AppError('test_credentials_unavailable', undefined, { status: 424 });
    }
    return { ...connection, integration };
  }

  const connections = new TtlCache({ load, keyOf: placeKey, clock, max: maxCached });

  return {
    getIntegration: ({ environmentId, integrationKey: key }) =>
      getIntegration(db, { ...reading, environmentId, key }),
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

export function placeOf(connection: ConnectionPlace): ConnectionPlace {
  const { environmentId, integrationKey, connectionId } = connection;
  return { environmentId, integrationKey, connectionId };
}

function placeKey({ environmentId, integrationKey, connectionId }: ConnectionPlace): string {
  return `${environmentId}/${integrationKey.length}/${integrationKey}/${connectionId}`;
}

/**
 * The values that a connection puts into the placeholders of its provider's addresses. Only strings fill a
 * placeholder; other values of the connection's configuration are for the application.
 */
export function templateValues(
  given: Pick<LiveConnection, 'connectionConfig' | 'integration'>,
): Omit<TemplateValues, 'credentials'> {
  const { connectionConfig, integration } = given;
  const strings = Object.entries(connectionConfig).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  );
  return {
    connectionConfig: Object.fromEntries(strings),
    integrationConfig: integration.integrationConfig,
  };
}
