import { writeAudit } from '../activity/audit.ts';
import { type Credentials, ownClientOf } from '../auth-modes/mode.ts';
import { connectionEvent } from '../connections/event.ts';
import { warnOfExpiry } from '../connections/expiry.ts';
import { noteIssuedToken } from '../connections/grants.ts';
import { missingScopesOf } from '../connections/health.ts';
import { noHooks } from '../connections/hooks.ts';
import { assertIntegrationUnchanged } from '../connections/integration-unchanged.ts';
import { placeOf } from '../connections/reader.ts';
import { type GrantFacts, insertConnection, replaceCredentials } from '../connections/save.ts';
import type { Connection } from '../connections/store.ts';
import { tagsKept } from '../connections/tags.ts';
import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Integration } from '../integrations/store.ts';
import { missingScopes } from '../providers/scopes.ts';
import { allowsOtherAccount } from './scopes.ts';
import { noteOutcome, type Session, useSession } from './sessions.ts';
import { type ConnectDeps, getAllowed, lockRenewed, type Target } from './target.ts';

/** What any mode brings home. */
export type AuthorizationResult = {
  /** Given the credentials that are replaced, if of the same account: a refresh token that did not come again stays. */
  credentials: (previous: Credentials | undefined) => Credentials;
  grant: GrantFacts;
  /** Whether the provider issued a refresh token with it. */
  isRefreshable?: boolean;
  /** Whether the provider says that the account's e-mail address is not proven. */
  isEmailUnproven?: boolean;
  connectionConfig: Record<string, string>;
};

export type Saved = {
  connection: Connection;
  missingScopes: string[];
  /** Whether another account took the place of the one that was connected. */
  isOtherAccount: boolean;
};

/**
 * Makes the session's connection, or renews the one it names: connection, event, audit entry and the end of the
 * session in one transaction. A renewed connection keeps its ID, metadata and tags, but for those of an end user whose
 * place another takes, and its refresh token where none came and the account is known to be the same.
 *
 * `tried` is the integration that the credentials were got from, or tried with. Throws `unknown_provider_config` where
 * it is not that any more, `another_account` (nothing is changed), `connection_validation_failed` where the account
 * cannot be told or the application's own code refuses it, and `unknown_connect_session_token` where the session is used
 * up.
 */
export async function saveConnection(
  deps: ConnectDeps,
  {
    session,
    tried,
    authorization,
  }: { session: Session; tried: Integration; authorization: AuthorizationResult },
): Promise<Saved> {
  const { db, reading, reader, hooks = noHooks, now } = deps;
  const { vault } = reading;
  const { settings } = session;
  const connectionId = crypto.randomUUID();
  await hooks.validate({
    integration: tried,
    connectionId,
    credentials: authorization.credentials(undefined),
    connectionConfig: authorization.connectionConfig,
    ...{ account: asAccount(authorization.grant.account), scopesGranted: authorization.grant.scopesGranted },
    ...{ accessExpiresAt: authorization.grant.accessExpiresAt, metadata: {} },
    ...{ tags: settings.tags ?? {}, endUser: settings.end_user },
  });
  const at = now();
  const saved = await db.transaction(async (tx) => {
    const integration = await getAllowed(tx, { reading, session, key: tried.key });
    const missing = missingScopes(integration.provider, {
      wanted: authorization.grant.scopesRequested ?? [],
      granted: authorization.grant.scopesGranted ?? [],
    });
    // Of two that end at once the second waits here, finds the session used, and leaves nothing behind.
    await useSession(tx, { id: session.id, at });
    // Read under its lock: a refresh may have stored the successor of the token that is kept.
    const current = await lockRenewed(tx, { session, reading });
    checkAccount({ session, integration, current }, authorization);
    const given = {
      vault,
      // A token of one account must not come to stand for another, nor for one that may be another.
      credentials: authorization.credentials(
        isSameAccount(current?.account, authorization.grant.account) ? current?.credentials : undefined,
      ),
      grant: authorization.grant,
      at,
      connectionConfig: { ...current?.connectionConfig, ...authorization.connectionConfig },
      ...(settings.tags && {
        tags: { ...(current && tagsKept(current, settings.end_user)), ...settings.tags },
      }),
      endUser: settings.end_user,
      webhookUrlOverride: settings.webhook_url_override,
    };
    const connection = current
      ? await replaceCredentials(tx, { ...given, current })
      : await insertConnection(tx, { ...given, integration, connectionId });
    await (current ? hooks.afterReconnect : hooks.afterCreate)(tx, { connection, at });
    const outcome = {
      integration: integration.key,
      connection: connection.connectionId,
      missing_scopes: missing,
      grant: { row: connection.id, given_at: connection.grantedAt.toISOString() },
    };
    await noteOutcome(tx, { id: session.id, outcome });
    await assertIntegrationUnchanged(tx, { tried, reading });
    const before = current ? missingScopesOf(current, integration.provider) : [];
    const lost = missing.filter((scope) => !before.includes(scope));
    await note(tx, { connection, session, isReconnect: current !== undefined, missing, lost });
    await warnOfExpiry(tx, { connection, provider: integration.provider, at });
    if (authorization.isRefreshable) {
      const wasDead = current?.status === 'needs_reauth';
      const client = ownClientOf(connection.credentials) ?? integration.client;
      const of = { integration: { ...integration, client }, account: connection.account, connection };
      await noteIssuedToken(tx, { ...of, wasDead, at });
    }
    const isOtherAccount = differs(current?.account, authorization.grant.account);
    return { connection, missingScopes: missing, isOtherAccount };
  });
  reader.forget(placeOf(saved.connection));
  hooks.created();
  return saved;
}

function asAccount(account: GrantFacts['account']): { id: string; email: string | undefined } | undefined {
  return account && { id: account.id, email: account.email };
}

async function note(
  tx: Queryable,
  {
    connection,
    session,
    isReconnect,
    missing,
    lost,
  }: {
    connection: Connection;
    session: Session;
    isReconnect: boolean;
    missing: string[];
    /** Those of the missing ones that were not missing before. */
    lost: string[];
  },
): Promise<void> {
  const { environmentId } = connection;
  const type = isReconnect ? 'connection.reconnected' : 'connection.created';
  await queueEvent(tx, {
    environmentId,
    type,
    data: { ...connectionEvent(connection), missing_scopes: missing },
  });
  if (lost.length > 0) {
    await queueEvent(tx, {
      environmentId,
      type: 'connection.scopes_reduced',
      data: { ...connectionEvent(connection), lost_scopes: lost },
    });
  }
  await writeAudit(tx, {
    environmentId,
    actor: `session:${session.id}`,
    action: type,
    target: `${connection.integrationKey}/${connection.connectionId}`,
    details: { missing_scopes: missing.length },
  });
}

/**
 * Refuses an account that is not the one expected, and one that cannot be told from it: `another_account`,
 * `connection_validation_failed`. Expected is the one that was connected before, unless the session says
 * `require_same_account: false`, and the end user's where it says `true`.
 */
export function checkAccount(target: Target, { grant, isEmailUnproven }: AuthorizationResult): void {
  const { session, integration, current } = target;
  const { settings } = session;
  const { display_name: provider } = integration.provider;
  const before = allowsOtherAccount(target) ? undefined : current?.account;
  const now = grant.account;
  if (before !== undefined && now === undefined) {
    throw new AppError(
      'connection_validation_failed',
      `${provider} did not say which account this is, so it cannot be compared with the one connected before.`,
    );
  }
  if (differs(before, now)) {
    const known = before?.email === undefined ? 'another one' : masked(before.email);
    throw new AppError(
      'another_account',
      `The connected account is ${known}, and ${now?.email ?? 'another one'} was chosen now. Nothing was changed.`,
    );
  }
  if (!settings.require_same_account) return;
  const named = settings.end_user?.email;
  if (before !== undefined && !named) return;
  const expected = named ?? current?.endUser?.email ?? undefined;
  if (expected === undefined || now?.email === undefined || isEmailUnproven) {
    throw new AppError(
      'connection_validation_failed',
      `The account must be the one of the application's user, and ${provider} did not prove its e-mail address.`,
    );
  }
  if (now.email.toLowerCase() !== expected.toLowerCase()) {
    throw new AppError(
      'another_account',
      `The account must be ${expected}, and ${now.email} was chosen. Nothing was ${current ? 'changed' : 'connected'}.`,
    );
  }
}

/** Whether both are known and the same. Of one that is not known nobody can say so. */
export function isSameAccount(one: { id: string } | undefined, other: { id: string } | undefined): boolean {
  return one !== undefined && one.id === other?.id;
}

function differs(one: { id: string } | undefined, other: { id: string } | undefined): boolean {
  return one !== undefined && other !== undefined && one.id !== other.id;
}

/** `a…@example.com`: enough for the owner to recognize it. */
export function masked(email: string): string {
  const [name = '', domain = ''] = email.split('@');
  return `${name.slice(0, 1)}…@${domain}`;
}
