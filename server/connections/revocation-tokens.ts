import type { Credentials } from '../auth-modes/mode.ts';
import type { Tx } from '../db/pool.ts';
import type { Integration } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { Vault } from '../vault.ts';
import { openKept } from './previous-refresh-tokens.ts';
import { fromRow, selectConnections } from './rows.ts';

/** Which tokens a revocation names: those of the grants that are to end. */

/** Whether there is something to end at the provider. */
export function isRevocable(credentials: Credentials, { provider, client }: Integration): boolean {
  // A test integration whose sandbox is off has the real provider's addresses, and no client.
  return credentials.type === 'OAUTH2' && provider.revocation !== undefined && client !== undefined;
}

/**
 * The tokens that stand for the grants of these connections, which are locked, in their order: of each the one in use,
 * then those that are kept beside it and may be the good one. A connection that cannot be opened has none.
 */
export async function listGrantTokens(
  tx: Tx,
  { connections, vault, log }: { connections: readonly { id: number }[]; vault: Vault; log: Logger },
): Promise<string[]> {
  const ids = connections.map(({ id }) => id);
  const rows = await tx.run(
    selectConnections().select('connection.kept_tokens').where('connection.id', 'in', ids),
  );
  const tokensOf = (row: (typeof rows)[number]): string[] => {
    try {
      const connection = fromRow(row, vault);
      const { credentials } = connection;
      if (credentials.type !== 'OAUTH2') return [];
      const { refresh_token: refreshToken, access_token: accessToken } = credentials;
      return [refreshToken ?? accessToken, ...openKept(connection, row.kept_tokens)];
    } catch (error) {
      log.warn({ err: error, connection: row.connection_id }, 'credentials cannot be opened');
      return [];
    }
  };
  const inOrder = rows.toSorted((one, other) => ids.indexOf(one.id) - ids.indexOf(other.id));
  return [...new Set(inOrder.flatMap(tokensOf))];
}
