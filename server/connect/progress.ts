import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import { findConnection, findHead } from '../connections/store/store.ts';
import { connectWire } from '../environments/connect-settings.ts';
import { AppError } from '../errors.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { findIntegration } from '../integrations/store.ts';
import { explainedScopeWire, explainScope } from '../providers/scopes.ts';
import { hasAttempt } from './attempts.ts';
import { exitAddress, mayReturnTo } from './session-input.ts';
import { getSession, isMadeBy, reopenSession, type Session } from './sessions.ts';
import type { ConnectDeps } from './target.ts';

/**
 * The progress of a session. Its page polls this while the user is at the provider, whichever node the user returns to,
 * and shows it to a user who opens the page again.
 */
export const progressWire = z.object({
  state: z.enum(['open', 'connected', 'expired']),
  expires_at: z.string(),
  /** Whether an end user is at the provider and may still return, also after the session has expired. */
  under_way: z.boolean(),
  /** Why the last authorization failed. */
  failure: z
    .object({
      cause: z.string(),
      type: z.string(),
      evidence: z.record(z.string(), z.union([z.string(), z.number()])),
      at: z.string(),
    })
    .nullable(),
  /**
   * The connection of the session, which may be open again for missing scopes. A replaced connection has none missing.
   */
  connection: z
    .object({
      provider_config_key: z.string(),
      connection_id: z.string(),
      display_name: z.string(),
      provider_display_name: z.string(),
      /** The e-mail address of the account, where the provider told it. */
      account: z.string().nullable(),
      missing_scopes: z.array(explainedScopeWire),
    })
    .nullable(),
  /** The choice that is still open: see `/connect/session/setup`. */
  setup: z.literal('sheet').nullable(),
  /** The application's address to return to. */
  return_url: z.string().nullable(),
  /** The appearance of the page, on request: a logo is too large for every response. */
  settings: connectWire.optional(),
});
nameSchemas({ ConnectProgress: progressWire });

/**
 * Also of a used or expired session. An expired session without a pending authorization makes no connection any more.
 *
 * After a failure nothing is pending: a new authorization clears the failure, and an older one whose window was closed
 * would hide it for the lifetime of an attempt.
 */
export async function readProgress(
  { db, reading, now, baseUrl }: Pick<ConnectDeps, 'db' | 'reading' | 'now' | 'baseUrl'>,
  { id, environmentId }: Pick<Session, 'id' | 'environmentId'>,
): Promise<z.input<typeof progressWire>> {
  const at = now();
  const hasTrip = await hasAttempt(db, { sessionId: id, environmentId, now: at });
  // Read after its attempts, to include the result of one that ends between the two reads.
  const session = await getSession(db, { id, environmentId, vault: reading.vault });
  const { usedAt, expiresAt, failure } = session;
  const isExpired = expiresAt <= at;
  const made = await madeBy(session, { db, reading });
  const returnUrl = session.settings.return_url;
  // The environment may have withdrawn its scheme since.
  const mayReturn = returnUrl !== undefined && (await mayReturnTo(db, { address: returnUrl, environmentId }));
  return {
    state: usedAt !== undefined ? 'connected' : isExpired ? 'expired' : 'open',
    expires_at: expiresAt.toISOString(),
    under_way: usedAt === undefined && failure === undefined && hasTrip,
    failure: failure ?? null,
    connection: made?.wire ?? null,
    setup: isExpired || made === undefined || !made.isThere ? null : toChoose(session, made.provider),
    return_url: mayReturn ? exitAddress(returnUrl, baseUrl) : null,
  };
}

/** The provider whose sheets can be chosen. */
const sheetProvider = 'google-sheet';

/** The open choice for the connection that the session has made at this provider. */
export function toChoose(
  { settings, outcome }: Pick<Session, 'settings' | 'outcome'>,
  provider: string,
): 'sheet' | null {
  const isOpen = outcome !== undefined && outcome.setup !== 'done' && provider === sheetProvider;
  return isOpen ? (settings.setup ?? null) : null;
}

async function madeBy(session: Session, { db, reading }: Pick<ConnectDeps, 'db' | 'reading'>) {
  const { environmentId, outcome } = session;
  if (outcome === undefined) return undefined;
  const integration = await findIntegration(db, { ...reading, environmentId, key: outcome.integration });
  if (integration === undefined) return undefined;
  const { provider } = integration;
  const { grant } = outcome;
  const head = grant && (await findHead(db, { id: grant.row, environmentId }));
  // Whether the connection exists with the grant of this session. Without a stored grant, routes check the connection
  // when they use it.
  const isThere = grant === undefined || (head !== undefined && isMadeBy(session, head));
  const missing = isThere ? outcome.missing_scopes : [];
  const wire = {
    provider_config_key: outcome.integration,
    connection_id: outcome.connection,
    display_name: integration.displayName,
    provider_display_name: provider.display_name,
    account: (isThere ? head?.account?.email : undefined) ?? null,
    missing_scopes: missing.map((scope) => explainScope(provider, scope)),
  };
  return { wire, isThere, provider: provider.name };
}

/**
 * Opens a session that has made its connection again, for the missing scopes: once more, for the same browser, until
 * the session expires. Does nothing if it is open. Throws `unknown_connect_session_token` if it has expired, nothing
 * is missing, or another connection or grant has replaced its own, and `unknown_connection` if the connection was
 * deleted.
 */
export async function reopenForMissingScopes(
  { db, reading, now }: Pick<ConnectDeps, 'db' | 'reading' | 'now'>,
  session: Session,
): Promise<void> {
  const { outcome, environmentId, usedAt } = session;
  const at = now();
  if (session.expiresAt <= at || outcome === undefined || outcome.missing_scopes.length === 0)
    throw new AppError('unknown_connect_session_token');
  if (usedAt === undefined) return;
  await db.transaction(async (tx) => {
    const { vault } = reading;
    const { integration: integrationKey, connection: connectionId } = outcome;
    const connection = await findConnection(tx, { environmentId, integrationKey, connectionId, vault });
    if (connection === undefined) throw new AppError('unknown_connection');
    if (!isMadeBy(session, connection)) throw new AppError('unknown_connect_session_token');
    await reopenSession(tx, { session, connection, vault, at });
    await writeAudit(tx, {
      environmentId,
      actor: `session:${session.id}`,
      action: 'connect_session.reopened',
      target: `${integrationKey}/${connectionId}`,
      details: { missing_scopes: outcome.missing_scopes.length },
    });
  });
}
