import { writeAudit } from '../activity/audit.ts';
import type { Credentials } from '../auth-modes/mode.ts';
import { connectionEvent } from '../connections/event.ts';
import { placeOf } from '../connections/reader.ts';
import { type GrantFacts, insertConnection, replaceCredentials } from '../connections/save.ts';
import type { Connection } from '../connections/store.ts';
import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import { missingScopes } from '../providers/scopes.ts';
import { type Session, useSession } from './sessions.ts';
import { type ConnectDeps, getTarget, type Target } from './target.ts';

/** What any mode brings home. */
export type Gain = {
  /** Given the credentials that are replaced, so that a refresh token which did not come again is kept. */
  credentials: (previous: Credentials | undefined) => Credentials;
  grant: GrantFacts;
  /** Whether the provider says that the account's e-mail address is not proven. */
  isEmailUnproven?: boolean;
  connectionConfig: Record<string, string>;
};

export type Saved = { connection: Connection; isReconnect: boolean; missingScopes: string[] };

/**
 * Makes the session's connection, or renews the one it names: connection, event, audit entry and the end of the
 * session in one transaction. A renewed connection keeps its ID, metadata and tags.
 *
 * Throws `another_account` (nothing is changed), `connection_validation_failed` where the account cannot be told,
 * and `unknown_connect_session_token` where the session is used up.
 */
export async function saveConnection(
  deps: ConnectDeps,
  { session, key, gain }: { session: Session; key: string; gain: Gain },
): Promise<Saved> {
  const { db, reading, reader } = deps;
  const { vault } = reading;
  const saved = await db.transaction(async (tx) => {
    const target = await getTarget(tx, { reading, session, key });
    const { integration, current } = target;
    checkAccount(target, gain);
    const { settings } = session;
    const missing = missingScopes(integration.provider, {
      wanted: gain.grant.scopesRequested ?? [],
      granted: gain.grant.scopesGranted ?? [],
    });
    const given = {
      vault,
      credentials: gain.credentials(current?.credentials),
      grant: gain.grant,
      connectionConfig: { ...current?.connectionConfig, ...gain.connectionConfig },
      ...(settings.tags && { tags: { ...current?.tags, ...settings.tags } }),
      endUser: settings.end_user,
      webhookUrlOverride: settings.webhook_url_override,
    };
    // Of two that end at once the second waits here, finds the session used, and leaves nothing behind.
    const outcome = { integration: integration.key, missing_scopes: missing };
    await useSession(tx, { id: session.id, outcome });
    const connection = current
      ? await replaceCredentials(tx, { ...given, current })
      : await insertConnection(tx, { ...given, integration });
    await note(tx, { connection, session, isReconnect: current !== undefined, missing });
    return { connection, isReconnect: current !== undefined, missingScopes: missing };
  });
  reader.forget(placeOf(saved.connection));
  return saved;
}

async function note(
  tx: Queryable,
  {
    connection,
    session,
    isReconnect,
    missing,
  }: { connection: Connection; session: Session; isReconnect: boolean; missing: string[] },
): Promise<void> {
  const { environmentId } = connection;
  const type = isReconnect ? 'connection.reconnected' : 'connection.created';
  await queueEvent(tx, {
    environmentId,
    type,
    data: { ...connectionEvent(connection), missing_scopes: missing },
  });
  await writeAudit(tx, {
    environmentId,
    actor: `session:${session.id}`,
    action: type,
    target: `${connection.integrationKey}/${connection.connectionId}`,
    details: { missing_scopes: missing.length },
  });
}

/** Refuses an account that is not the one expected, and one that cannot be told from it. */
function checkAccount({ session, integration, current }: Target, { grant, isEmailUnproven }: Gain): void {
  const { display_name: provider } = integration.provider;
  const before = current?.account;
  const now = grant.account;
  if (before !== undefined && now !== undefined) {
    if (before.id === now.id) return;
    const known = before.email === undefined ? 'another one' : masked(before.email);
    throw new AppError(
      'another_account',
      `The connected account is ${known}, and ${now.email ?? 'another one'} was chosen now. Nothing was changed.`,
    );
  }
  if (before !== undefined) {
    throw new AppError(
      'connection_validation_failed',
      `${provider} did not say which account this is, so it cannot be compared with the one connected before.`,
    );
  }
  if (!session.settings.require_same_account) return;
  const expected = session.settings.end_user?.email ?? current?.endUser?.email ?? undefined;
  if (expected === undefined || now?.email === undefined || isEmailUnproven) {
    throw new AppError(
      'connection_validation_failed',
      `The account must be the one of the application's user, and ${provider} did not prove its e-mail address.`,
    );
  }
  if (now.email.toLowerCase() !== expected.toLowerCase()) {
    throw new AppError(
      'another_account',
      `The account must be ${expected}, and ${now.email} was chosen. Nothing was connected.`,
    );
  }
}

/** `a…@example.com`: enough for whoever owns it. */
export function masked(email: string): string {
  const [name = '', domain = ''] = email.split('@');
  return `${name.slice(0, 1)}…@${domain}`;
}
