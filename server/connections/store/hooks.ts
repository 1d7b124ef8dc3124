import type { Tx } from '../../db/pool.ts';
import type { LiveConnection } from './reader.ts';
import type { Connection } from './store.ts';

/**
 * Customer code that runs when a connection is created or deleted. `functions/runs/on-event.ts`, a higher layer,
 * implements the hooks, and `app.ts` passes them in.
 */
export type ConnectionHooks = {
  /** Runs before the connection is stored. Throws `connection_validation_failed` if the code refuses it. */
  validate(candidate: UnsavedConnection): Promise<void>;
  /** Runs in the transaction that creates the connection. */
  afterCreate(tx: Tx, made: { connection: Connection; at: Date }): Promise<void>;
  /** Runs in the transaction that stores new credentials. */
  afterReconnect(tx: Tx, renewed: { connection: Connection; at: Date }): Promise<void>;
  /** Runs after either transaction has committed. Returns at once. */
  afterCommit(): void;
  /** Runs before the connection is deleted. Takes a bounded time and never throws. */
  beforeDelete(connection: LiveConnection): Promise<void>;
};

/** A connection that is not stored yet, as `validate-connection` gets it. */
export type UnsavedConnection = Pick<
  LiveConnection,
  'integration' | 'connectionId' | 'credentials' | 'connectionConfig' | 'account' | 'scopesGranted'
> & {
  metadata: Record<string, unknown>;
  tags: Record<string, string>;
  endUser: LiveConnection['endUser'];
  accessExpiresAt: Date | undefined;
};

export const noHooks: ConnectionHooks = {
  async validate() {},
  async afterCreate() {},
  async afterReconnect() {},
  afterCommit() {},
  async beforeDelete() {},
};
