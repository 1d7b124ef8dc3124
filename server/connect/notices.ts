import { explainError, unexpected } from './fault.ts';
import { hashOf } from './sessions.ts';
import type { ConnectDeps } from './target.ts';

/**
 * What official browser clients are told over the socket on which they wait.
 *
 * Owns: the table `connect_notice`. A trip may end on another node than the one that holds the socket, so what there is
 * to tell is a row, which `socket.ts` takes.
 */
export type Notice =
  | { message_type: 'success'; provider_config_key: string; connection_id: string; is_pending: false }
  | {
      message_type: 'error';
      provider_config_key: string;
      connection_id: string;
      error_type: string;
      error_desc: string;
    };

export function successMessage(made: { integrationKey: string; connectionId: string }): Notice {
  return {
    message_type: 'success',
    provider_config_key: made.integrationKey,
    connection_id: made.connectionId,
    is_pending: false,
  };
}

export function errorMessage(error: unknown, integrationKey: string): Notice {
  const { type, message, evidence } = { evidence: undefined, ...(explainError(error) ?? unexpected) };
  return {
    message_type: 'error',
    provider_config_key: integrationKey,
    connection_id: '',
    error_type: type,
    error_desc: evidence === undefined ? message : `${message} (${evidence})`,
  };
}

/** Never throws: what it is told of has happened. The first word to a waiter counts; without one nothing is told. */
export async function notifyClient(
  { db, log, now }: Pick<ConnectDeps, 'db' | 'log' | 'now'>,
  { waiter, message }: { waiter: string | undefined; message: Notice },
): Promise<void> {
  if (waiter === undefined || !isWaiter(waiter)) return;
  await db
    .query(
      `insert into connect_notice (waiter_hash, message, created_at)
       values ($1, $2, $3)
       on conflict do nothing`,
      [hashOf(waiter), JSON.stringify(message), now()],
    )
    .catch((err: unknown) => log.warn({ err }, 'a waiting client was not told'));
}

/** As we give them out; the browser sends back what it likes. */
function isWaiter(text: string): boolean {
  return /^[A-Za-z0-9_-]{32}$/.test(text);
}

/** What there is to tell these waiters, by hash in hex; it is forgotten with that. */
export async function takeNotices(
  { db }: Pick<ConnectDeps, 'db'>,
  hashes: readonly Buffer[],
): Promise<Map<string, Notice>> {
  const rows = await db.query<{ hash: string; message: Notice }>(
    `delete from connect_notice
     where waiter_hash = any($1)
     returning encode(waiter_hash, 'hex') as hash, message`,
    [hashes],
  );
  return new Map(rows.map(({ hash, message }) => [hash, message]));
}
