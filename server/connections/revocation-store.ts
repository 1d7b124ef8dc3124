import { ownClientOf } from '../auth-modes/mode.ts';
import type { Queryable, Tx } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import type { ConnectionSubject } from '../events/event-type.ts';
import { clientOf, type Integration, type OAuthClient } from '../integrations/store.ts';
import type { TemplateValues } from '../providers/template-grammar.ts';
import type { Vault } from '../vault.ts';
import { connectionEvent } from './event.ts';
import type { LiveConnection } from './reader.ts';
import { unitOf } from './revocation-lock.ts';
import type { Connection } from './store.ts';
import { templateValues } from './values.ts';

/**
 * Notes of grants that are to be revoked though their connection is gone.
 *
 * Owns: how a note comes to be and what it holds, the column `revokes_late_tokens`. Does not own: whether and when it is
 * sent, and how it ends (`revocation-queue.ts`).
 */
const context = 'revocation';

/** What a note holds that nobody may read. */
export type Sealed = {
  provider: string;
  isTest: boolean;
  /** Of the grant, sent in turn until the provider says that one has ended it. */
  tokens: string[];
  client: OAuthClient;
  values: TemplateValues;
  event: ConnectionSubject;
};
/** What may stand in plain text: nothing of a person. */
export type About = { connection_id: string; provider_config_key: string; provider: string; test: boolean };

/** What is noted cannot be opened: its key is missing, or the bytes are damaged. */
export class UnreadableNote extends Error {}

/**
 * Notes, in the transaction that destroys the connection, that its grant is to end; the note's id. It holds what that
 * takes, sealed with the key of the environment, until it is done. `tokens` are sent in this order; one that a refresh
 * still brings comes first (`revokeLate`).
 */
export async function queueRevocation(
  tx: Tx,
  {
    connection,
    integration,
    tokens,
    isForced,
    vault,
    at,
  }: {
    connection: Connection;
    integration: Integration;
    tokens: string[];
    isForced: boolean;
    vault: Vault;
    at: Date;
  },
): Promise<number> {
  const { environmentId } = connection;
  const key = await environmentKey(tx, { environmentId, vault });
  const sealed: Sealed = {
    provider: integration.provider.name,
    isTest: integration.isTest,
    tokens,
    client: ownClientOf(connection.credentials) ?? clientOf(integration),
    values: templateValues({ ...connection, integration }),
    event: connectionEvent(connection),
  };
  const about: About = {
    connection_id: connection.connectionId,
    provider_config_key: connection.integrationKey,
    provider: sealed.provider,
    test: sealed.isTest,
  };
  const [row] = await tx.query<{ id: number }>(
    `insert into revocation
       (environment_id, connection, about, unit, account_id, is_forced, secrets, next_at, created_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $8)
     returning id`,
    [
      ...[environmentId, connection.id, JSON.stringify(about)],
      unitOf(connection.credentials, integration) ?? null,
      connection.account?.id ?? null,
      isForced,
      key.sealJson(sealed, context),
      at,
    ],
  );
  await tx.query('update connection set revokes_late_tokens = true where id = $1 and environment_id = $2', [
    ...[connection.id, environmentId],
  ]);
  return row!.id;
}

/**
 * A refresh token of a connection that was deleted with its grant while the refresh was under way: it is revoked with
 * the rest, or by itself where that is done or on its way. Nothing happens where the deletion left the grant.
 */
export async function revokeLate(
  tx: Tx,
  {
    connection,
    token,
    vault,
    at,
  }: { connection: LiveConnection; token: string | undefined; vault: Vault; at: Date },
): Promise<void> {
  if (token === undefined) return;
  const { environmentId, integration } = connection;
  const [deleted] = await tx.query<{ isWanted: boolean }>(
    `select revokes_late_tokens as "isWanted"
     from connection
     where id = $1 and environment_id = $2 and deleted_at is not null`,
    [connection.id, environmentId],
  );
  if (!deleted?.isWanted) return;
  const [noted] = await tx.query<{ id: number; secrets: Buffer }>(
    `select id, secrets
     from revocation
     where connection = $1 and environment_id = $2 and sending_until is null
     order by id desc
     limit 1
     for update`,
    [connection.id, environmentId],
  );
  if (noted === undefined) {
    await queueRevocation(tx, { connection, integration, tokens: [token], isForced: false, vault, at });
    return;
  }
  const key = await environmentKey(tx, { environmentId, vault });
  const sealed = key.openJson(noted.secrets, context) as Sealed;
  await tx.query('update revocation set secrets = $2 where id = $1', [
    noted.id,
    key.sealJson(
      { ...sealed, tokens: [token, ...sealed.tokens.filter((other) => other !== token)] },
      context,
    ),
  ]);
}

/** Takes the tokens off a note that the provider has judged: these are left. */
export async function keepTokens(
  q: Queryable,
  {
    note: { id, environmentId, provider, isTest, client, values, event },
    left,
    vault,
  }: { note: Sealed & { id: number; environmentId: number }; left: string[]; vault: Vault },
): Promise<void> {
  const key = await environmentKey(q, { environmentId, vault });
  const sealed: Sealed = { provider, isTest, tokens: left, client, values, event };
  await q.query('update revocation set secrets = $2 where id = $1', [id, key.sealJson(sealed, context)]);
}

/** `dataKey` is that of the environment, wrapped. Throws `UnreadableNote`. */
export function openNote(secrets: Buffer, { dataKey, vault }: { dataKey: Buffer; vault: Vault }): Sealed {
  try {
    return vault.unwrap(dataKey).openJson(secrets, context) as Sealed;
  } catch (error) {
    throw new UnreadableNote('a revocation cannot be opened', { cause: error });
  }
}
