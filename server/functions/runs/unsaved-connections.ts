/** Connections that are not stored yet, for the code that judges them. */
import { ownClientOf } from '../../auth-modes/mode.ts';
import type { UnsavedConnection } from '../../connections/hooks.ts';
import type { ConnectionReader, LiveConnection } from '../../connections/reader.ts';
import type { Vault } from '../../vault.ts';
import { noRow } from '../context/context.ts';

export type UnsavedConnections = {
  /** As the reader that it was made with, and it knows the candidates. */
  reader: ConnectionReader;
  /**
   * Lets the reader know it while `work` lasts. Its ID must not be that of a connection; where another candidate has it at the
   * moment, it gets one that is drawn.
   */
  during<T>(candidate: UnsavedConnection, work: (connection: LiveConnection) => Promise<T>): Promise<T>;
};

/** Nobody else asks for a candidate's ID: it is drawn at random or taken by no connection yet. */
export function createUnsavedConnections(
  reader: ConnectionReader,
  { vault, now }: { vault: Vault; now: () => Date },
): UnsavedConnections {
  const known = new Map<string, LiveConnection>();
  const nameOf = (at: { environmentId: number; integrationKey: string; connectionId: string }) =>
    JSON.stringify([at.environmentId, at.integrationKey, at.connectionId]);
  return {
    reader: {
      ...reader,
      get: async (at) => known.get(nameOf(at)) ?? reader.get(at),
      known: (at) => known.get(nameOf(at)) ?? reader.known(at),
      reread: async (connection) => known.get(nameOf(connection)) ?? reader.reread(connection),
    },
    async during(candidate, work) {
      const wanted = liveFrom(candidate, { vault, at: now() });
      const isTaken = known.has(nameOf(wanted));
      const connection = isTaken ? { ...wanted, connectionId: crypto.randomUUID() } : wanted;
      const name = nameOf(connection);
      known.set(name, connection);
      try {
        return await work(connection);
      } finally {
        known.delete(name);
      }
    },
  };
}

function liveFrom(candidate: UnsavedConnection, { vault, at }: { vault: Vault; at: Date }): LiveConnection {
  const { integration } = candidate;
  return {
    ...candidate,
    // Whatever would be written of it finds nothing.
    id: noRow,
    environmentId: integration.environmentId,
    integrationId: integration.id,
    integrationKey: integration.key,
    providerName: integration.provider.name,
    isTest: integration.isTest,
    // Nothing that it seals is kept.
    dataKey: vault.createDataKey().key,
    credentialsVersion: 1,
    status: 'active',
    ...{ grantedAt: at, refreshedAt: at, createdAt: at, updatedAt: at },
    ...{ scopesRequested: undefined, refreshExpiresAt: undefined, tokenSlots: undefined },
    ...{ refreshNotBefore: undefined, renewedAt: undefined, fault: undefined, outage: undefined },
    ...{ suspension: undefined, suspendedUntil: undefined, scopesLacking: undefined },
    hasOwnClient: ownClientOf(candidate.credentials) !== undefined,
    ...{ integrationFault: undefined, webhookUrlOverride: undefined },
    ...{ lastFetchedAt: undefined, lastUsedAt: undefined },
  };
}
