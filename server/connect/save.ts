import { writeAudit } from '../activity/audit.ts';
import { type Credentials, ownClientOf } from '../auth-modes/modes.ts';
import { healthToWire, missingScopesOf } from '../connections/health/health.ts';
import { warnOfExpiry } from '../connections/health/warnings.ts';
import { recordIssuedToken } from '../connections/revocation/issued-tokens.ts';
import { noHooks } from '../connections/store/hooks.ts';
import { placeOf } from '../connections/store/reader.ts';
import { type GrantFacts, insertConnection, replaceCredentials } from '../connections/store/save.ts';
import { type Connection, queueConnectionEvent } from '../connections/store/store.ts';
import { tagsKept } from '../connections/store/tags.ts';
import { assertIntegrationUnchanged } from '../connections/verify.ts';
import { AppError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import { missingScopes } from '../providers/scopes.ts';
import { type Session, storeOutcome, useSession } from './sessions.ts';
import { allowsOtherAccount, type ConnectDeps, getAllowed, lockRenewed, type Target } from './target.ts';

/** The result of an authorization, in any mode. */
export type AuthorizationResult = {
  /**
   * Takes the replaced credentials if they are of the same account: their refresh token stays if there is no new one.
   */
  credentials: (previous: Credentials | undefined) => Credentials;
  grant: GrantFacts;
  /** Whether the provider issued a refresh token with it. */
  isRefreshable?: boolean;
  /** Whether the provider has not verified the account's e-mail address. */
  isEmailUnproven?: boolean;
  connectionConfig: Record<string, string>;
};

export type Saved = {
  connection: Connection;
  missingScopes: string[];
  /** Whether another account replaced the connected one. */
  isOtherAccount: boolean;
};

/**
 * Makes the session's connection, or renews the one that it names: connection, event, audit entry and the end of the
 * session in one transaction. A renewed connection keeps its ID, metadata and tags, except those of a replaced end
 * user, and its refresh token if there is no new one and the account is known to be the same.
 *
 * `tried` is the integration with which the credentials were requested or tested. Throws `unknown_provider_config` if
 * it has changed since, `another_account` (nothing is changed), `connection_validation_failed` if the account is
 * unknown or the application's own code refuses it, and `unknown_connect_session_token` if the session is used.
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
  const { grant } = authorization;
  const connectionId = crypto.randomUUID();
  await hooks.validate({
    integration: tried,
    connectionId,
    credentials: authorization.credentials(undefined),
    connectionConfig: authorization.connectionConfig,
    account: grant.account && { email: undefined, ...grant.account },
    scopesGranted: grant.scopesGranted,
    accessExpiresAt: grant.accessExpiresAt,
    metadata: {},
    tags: settings.tags ?? {},
    endUser: settings.end_user,
  });
  const at = now();
  const saved = await db.transaction(async (tx) => {
    const integration = await getAllowed(tx, { reading, session, key: tried.key });
    const missing = missingScopes(integration.provider, {
      wanted: grant.scopesRequested ?? [],
      granted: grant.scopesGranted ?? [],
    });
    // Of two simultaneous callbacks, the second waits here, finds the session used, and leaves nothing behind.
    await useSession(tx, { id: session.id, at });
    // Read under its lock: a refresh may have replaced the token that is kept.
    const current = await lockRenewed(tx, { session, reading });
    checkAccount({ session, integration, current }, authorization);
    const given = {
      vault,
      // A connection must not keep the token of another account, nor of one that may be another.
      credentials: authorization.credentials(
        isSameAccount(current?.account, grant.account) ? current?.credentials : undefined,
      ),
      grant: { ...grant, lacksScopes: missing.length > 0 },
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
    await storeOutcome(tx, { id: session.id, outcome });
    await assertIntegrationUnchanged(tx, { integration: tried, reading });
    const before = current ? missingScopesOf(current, integration.provider) : [];
    const lost = missing.filter((scope) => !before.includes(scope));
    const type = current ? 'connection.reconnected' : 'connection.created';
    const { state } = healthToWire(connection, integration.provider);
    await queueConnectionEvent(tx, connection, { type, state, missing_scopes: missing });
    if (lost.length > 0)
      await queueConnectionEvent(tx, connection, {
        type: 'connection.scopes_reduced',
        state,
        lost_scopes: lost,
      });
    await writeAudit(tx, {
      environmentId: connection.environmentId,
      actor: `session:${session.id}`,
      action: type,
      target: `${connection.integrationKey}/${connection.connectionId}`,
      details: { missing_scopes: missing.length },
    });
    await warnOfExpiry(tx, { connection, provider: integration.provider, at });
    if (authorization.isRefreshable) {
      const wasDead = current?.status === 'needs_reauth';
      const client = ownClientOf(connection.credentials) ?? integration.client;
      const of = { integration: { ...integration, client }, account: connection.account, connection };
      await recordIssuedToken(tx, { ...of, wasDead, at });
    }
    return { connection, missingScopes: missing, isOtherAccount: differs(current?.account, grant.account) };
  });
  reader.forget(placeOf(saved.connection));
  hooks.afterCommit();
  return saved;
}

/**
 * Refuses an account that differs from the expected one, or that cannot be compared with it: `another_account`,
 * `connection_validation_failed`. Expected is the account that was connected before, unless the session has
 * `require_same_account: false`, and the end user's if it has `true`.
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
      `${provider} did not identify the account, so it cannot be compared with the account connected before.`,
    );
  }
  if (differs(before, now)) {
    const known = before?.email === undefined ? 'another account' : masked(before.email);
    throw new AppError(
      'another_account',
      `The connected account is ${known}, and ${now?.email ?? 'another account'} was chosen now. Nothing was changed.`,
    );
  }
  if (!settings.require_same_account) return;
  const named = settings.end_user?.email;
  if (before !== undefined && !named) return;
  const expected = named ?? current?.endUser?.email ?? undefined;
  if (expected === undefined || now?.email === undefined || isEmailUnproven) {
    throw new AppError(
      'connection_validation_failed',
      `The account must belong to the user of the application, and ${provider} did not verify its e-mail address.`,
    );
  }
  if (now.email.toLowerCase() !== expected.toLowerCase()) {
    throw new AppError(
      'another_account',
      `The account must be ${expected}, and ${now.email} was chosen. Nothing was ${current ? 'changed' : 'connected'}.`,
    );
  }
}

/** Whether both accounts are known and the same. */
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
