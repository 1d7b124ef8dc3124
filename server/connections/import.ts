import { authModes, type Credentials } from '../auth-modes/mode.ts';
import type { Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Caller } from '../http/caller.ts';
import type { Integration, IntegrationReading } from '../integrations/store.ts';
import { auditConnection } from './audit.ts';
import { isKept } from './candidates.ts';
import { connectionEvent } from './event.ts';
import { insertConnection, type NewConnection, replaceCredentials } from './save.ts';
import { type Connection, findConnectionForUpdate } from './store.ts';

/**
 * Makes a connection out of tokens that the application holds already. An existing ID gets the new credentials, and
 * its tags and metadata become what is given. Connection, event and audit entry stand or fall together.
 *
 * A refresh token that was replaced by its successor is of the same grant, and used up: the stored tokens are the newer
 * ones, and stay.
 */
export async function importConnection(
  tx: Tx,
  {
    caller,
    integration,
    id,
    given,
    reading,
  }: {
    caller: Caller;
    integration: Integration;
    id: string | undefined;
    given: Omit<NewConnection, 'integration' | 'grant' | 'connectionId'>;
    reading: IntegrationReading;
  },
): Promise<Connection> {
  const { vault } = reading;
  const place = { environmentId: caller.environmentId, integrationKey: integration.key };
  const current =
    id === undefined ? undefined : await findConnectionForUpdate(tx, { ...place, connectionId: id, vault });
  const credentials =
    current && (await isReplaced(tx, current, given.credentials)) ? current.credentials : given.credentials;
  const expiry = credentials.type === 'OAUTH2' ? credentials.expires_at : undefined;
  const content = {
    ...given,
    credentials,
    grant: { accessExpiresAt: expiry === undefined ? undefined : new Date(expiry) },
  };
  const connection = current
    ? await replaceCredentials(tx, { vault, current, ...content })
    : await insertConnection(tx, { vault, integration, connectionId: id, ...content });
  await queueEvent(tx, {
    environmentId: caller.environmentId,
    type: current ? 'connection.reconnected' : 'connection.created',
    data: connectionEvent(connection),
  });
  await auditConnection(tx, {
    caller,
    connection,
    action: current ? 'connection.overridden' : 'connection.imported',
  });
  return connection;
}

/** Whether the stored tokens are those that the provider gave in place of `given`. */
async function isReplaced(tx: Tx, current: Connection, given: Credentials): Promise<boolean> {
  if (given.type !== 'OAUTH2' || given.refresh_token === undefined) return false;
  return isKept(tx, { connection: current, token: given.refresh_token });
}

/** The credentials of a body as the provider's mode takes them; throws `invalid_body`, naming the field. */
export function readCredentials(integration: Integration, given: Record<string, unknown>): Credentials {
  const mode = authModes[integration.provider.auth_mode];
  if (given.type !== undefined && given.type !== mode.name) {
    throw new AppError(
      'invalid_body',
      `${integration.provider.display_name} takes credentials of type ${mode.name}.`,
      {
        errors: [{ code: 'custom', message: `must be ${mode.name}`, path: ['credentials', 'type'] }],
      },
    );
  }
  const read = mode.importSchema.safeParse(given);
  if (read.success) return read.data;
  throw new AppError('invalid_body', undefined, {
    errors: read.error.issues.map(({ code, message, path }) => ({
      code,
      message,
      path: ['credentials', ...path.map(String)],
    })),
  });
}
