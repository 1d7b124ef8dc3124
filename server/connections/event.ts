import type { ConnectionSubject } from '../events/event-type.ts';
import type { ConnectionHead } from './store.ts';

/** What every event about a connection says of it. */
export function connectionEvent(connection: ConnectionHead): ConnectionSubject {
  return {
    connection_id: connection.connectionId,
    provider_config_key: connection.integrationKey,
    provider: connection.providerName,
    test: connection.isTest,
    account: connection.account ?? null,
    tags: connection.tags,
    end_user: connection.endUser ? { id: connection.endUser.id } : null,
  };
}
