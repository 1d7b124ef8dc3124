import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import { findConnection, findHead } from '../connections/store.ts';
import type { Queryable } from '../db/pool.ts';
import { connectToWire, connectWire, readConnectSettings } from '../environments/connect-settings.ts';
import { AppError } from '../errors.ts';
import { findIntegration } from '../integrations/store.ts';
import { explainedScopeWire, explainScope } from '../providers/scopes.ts';
import { hasAttempt } from './attempts.ts';
import { wayOut } from './own-pages.ts';
import { getSession, isMadeBy, reopenSession, type Session } from './sessions.ts';
import type { ConnectDeps } from './target.ts';

/**
 * The progress of a session. Its page polls this while the user is at the provider, whichever node the user returns to,
 * and shows it to a user who opens the page again.
 */
export const progressWire = z.object({
  state: z.enum(['open', 'connected', 'expired']),
  expires_at: z.string(),
  /** Whether somebody went to the provider and may still come back, also after the session has expired. */
  under_way: z.boolean(),
  /** Why the last trip made no connection. */
  failure: z
    .object({
      cause: z.string(),
      type: z.string(),
      evidence: z.record(z.string(), z.union([z.string(), z.number()])),
      at: z.string(),
    })
    .nullable(),
  /** What was made; the session may be open again for what was not granted. Nothing is missing of one that was replaced. */
  connection: z
    .object({
      provider_config_key: z.string(),
      connection_id: z.string(),
      display_name: z.string(),
      provider_display_name: z.string(),
      missing_scopes: z.array(explainedScopeWire),
    })
    .nullable(),
  /** What the end user is to choose before all is done: see `/connect/session/setup`. */
  setup: z.literal('sheet').nullable(),
  /** Where the page leads back to, as the application said. */
  return_url: z.string().nullable(),
  /** How the page looks, where it was asked for: a logo is too large to come with every answer. */
  settings: connectWire.optional(),
});

/**
 * Of a used or expired session, too. One that has expired with nothing under way makes no connection any more.
 *
 * After a failure nothing is under way: beginning a trip forgets the failure, and a trip from before it whose window
 * was closed would hide it for as long as an attempt lasts.
 */
export async function readProgress(
  { db, reading, now, baseUrl }: Pick<ConnectDeps, 'db' | 'reading' | 'now' | 'baseUrl'>,
  { id, environmentId }: Pick<Session, 'id' | 'environmentId'>,
): Promise<z.input<typeof progressWire>> {
  const at = now();
  const hasTrip = await hasAttempt(db, { sessionId: id, environmentId, now: at });
  // Read after its trips, so that what a trip that ended between the two has made is seen.
  const session = await getSession(db, { id, environmentId, vault: reading.vault });
  const { usedAt, expiresAt, failure } = session;
  const isExpired = expiresAt <= at;
  const made = await madeBy(session, { db, reading });
  return {
    state: usedAt !== undefined ? 'connected' : isExpired ? 'expired' : 'open',
    expires_at: expiresAt.toISOString(),
    under_way: usedAt === undefined && failure === undefined && hasTrip,
    failure: failure ?? null,
    connection: made?.wire ?? null,
    setup: isExpired || made === undefined || !made.isThere ? null : toChoose(session, made.provider),
    return_url: wayOut(session.settings.return_url, baseUrl),
  };
}

/** The provider whose sheets can be chosen. */
const sheetProvider = 'google-sheet';

/** What is still to be chosen of the connection that the session has made at this provider. */
export function toChoose(
  { settings, outcome }: Pick<Session, 'settings' | 'outcome'>,
  provider: string,
): 'sheet' | null {
  const isOpen = outcome !== undefined && outcome.setup !== 'done' && provider === sheetProvider;
  return isOpen ? (settings.setup ?? null) : null;
}

/** What the page looks like. */
export async function readLook(
  { db }: Pick<ConnectDeps, 'db'>,
  { environmentId }: Pick<Session, 'environmentId'>,
): Promise<z.input<typeof connectWire>> {
  return connectToWire(await readConnectSettings(db, environmentId));
}

type Made = {
  wire: z.input<typeof progressWire>['connection'];
  provider: string;
  /** Whether the connection is there with the grant that the session made. */
  isThere: boolean;
};

async function madeBy(
  session: Session,
  { db, reading }: Pick<ConnectDeps, 'db' | 'reading'>,
): Promise<Made | undefined> {
  const { environmentId, outcome } = session;
  if (outcome === undefined) return undefined;
  const integration = await findIntegration(db, { ...reading, environmentId, key: outcome.integration });
  if (integration === undefined) return undefined;
  const { provider } = integration;
  const isThere = await isStillMade(db, session);
  const missing = isThere ? outcome.missing_scopes : [];
  const wire = {
    provider_config_key: outcome.integration,
    connection_id: outcome.connection,
    display_name: integration.displayName,
    provider_display_name: provider.display_name,
    missing_scopes: missing.map((scope) => explainScope(provider, scope)),
  };
  return { wire, isThere, provider: provider.name };
}

/** Where no grant is noted, it is looked at when something is asked of the connection. */
async function isStillMade(db: Queryable, session: Session): Promise<boolean> {
  const { grant } = session.outcome ?? {};
  if (grant === undefined) return true;
  const head = await findHead(db, { id: grant.row, environmentId: session.environmentId });
  return head !== undefined && isMadeBy(session, head);
}

/**
 * Lets a session that has made its connection ask for what was not granted: once more, by the same browser, until the
 * session ends. One that is open stays so. Throws `unknown_connect_session_token` where it has expired, nothing is
 * missing, or another connection or grant has come in place of what it made, and `unknown_connection` where that has been
 * deleted.
 */
export async function askForTheRest(
  { db, reading, now }: Pick<ConnectDeps, 'db' | 'reading' | 'now'>,
  session: Session,
): Promise<void> {
  const { outcome, environmentId, usedAt } = session;
  const at = now();
  if (session.expiresAt <= at || outcome === undefined || outcome.missing_scopes.length === 0)
    throw new AppError('unknown_connect_session_token');
  if (usedAt === undefined) return;
  await db.transaction(async (tx) => {
    const connection = await madeConnection(tx, { session, reading });
    await reopenSession(tx, { session, connection, vault: reading.vault, at });
    await writeAudit(tx, {
      environmentId,
      actor: `session:${session.id}`,
      action: 'connect_session.reopened',
      target: `${connection.integration}/${connection.id}`,
      details: { missing_scopes: outcome.missing_scopes.length },
    });
  });
}

async function madeConnection(
  tx: Queryable,
  { session, reading }: { session: Session; reading: ConnectDeps['reading'] },
): Promise<{ row: number; integration: string; id: string }> {
  const { integration = '', connection: id = '' } = session.outcome ?? {};
  const found = await findConnection(tx, {
    environmentId: session.environmentId,
    integrationKey: integration,
    connectionId: id,
    vault: reading.vault,
  });
  if (found === undefined) throw new AppError('unknown_connection');
  if (!isMadeBy(session, found)) throw new AppError('unknown_connect_session_token');
  return { row: found.id, integration, id };
}
