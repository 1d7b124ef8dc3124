import type { Tx } from '../db/pool.ts';
import type { LiveConnection } from './reader.ts';
import type { Connection } from './store.ts';

/**
 * What the application's own code does when a connection is made or ends. It lives floors above (`functions/runs/on-event.ts`)
 * and is passed in by `app.ts`; without it nothing is done.
 */
export type ConnectionHooks = {
  /** Before it is stored: throws `connection_validation_failed` where the code refuses it. */
  validate(candidate: UnsavedConnection): Promise<void>;
  /** In the transaction that makes it. */
  afterCreate(tx: Tx, made: { connection: Connection; at: Date }): Promise<void>;
  /** In the transaction that gives it new credentials. */
  afterReconnect(tx: Tx, renewed: { connection: Connection; at: Date }): Promise<void>;
  /** Once either transaction is done. Returns at once. */
  created(): void;
  /** While it is still there. Waits for a bounded time, and never throws. */
  beforeDelete(connection: LiveConnection): Promise<void>;
};

/** A connection that is not stored yet, as code that judges it sees it. */
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
  created() {},
  async beforeDelete() {},
};
