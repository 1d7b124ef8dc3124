/**
 * Imported connections, stored as own ones under their ID, each sealed with its own data key.
 *
 * Credentials are not tested: the source has just exported them as valid, and thousands of tests look like an attack to a
 * provider. No event is raised and no event function runs: the application has these connections already. The audit log
 * has an entry for each. Does not own: which connections are imported (`ledger.ts`), when their syncs begin (the end of the
 * import).
 */
import { z } from 'zod';
import { writeCommandAudit } from '../../server/activity/audit.ts';
import { type Credentials, isRenewable } from '../../server/auth-modes/modes.ts';
import { faultFrom } from '../../server/connections/health/health.ts';
import { isSuperseded, sealKept } from '../../server/connections/refresh/previous-refresh-tokens.ts';
import { connectionId } from '../../server/connections/routes/wire.ts';
import {
  type ConnectionSettings,
  type GrantFacts,
  insertConnection,
  replaceCredentials,
  replaceSettings,
} from '../../server/connections/store/save.ts';
import { type Connection, findConnectionForUpdate } from '../../server/connections/store/store.ts';
import { endUserInput, organizationInput, storedTags } from '../../server/connections/store/tags.ts';
import { assertIntegrationUnchanged } from '../../server/connections/verify.ts';
import { type Db, retryOnViolation, type Tx } from '../../server/db/pool.ts';
import { webAddress } from '../../server/http/text.ts';
import type { Integration, IntegrationReading } from '../../server/integrations/store.ts';
import { missingScopes } from '../../server/providers/scopes.ts';
import {
  type ConnectionOutcome,
  findCredentialOrigin,
  hasImportedCredentials,
  type ImportRun,
  saveOutcomes,
} from './ledger.ts';

const organization = organizationInput.nullish();
const json = z.record(z.string(), z.unknown());

/**
 * The parts of a connection beside its credentials, read with the rules of `POST /connections`. More tags are allowed than
 * there: that route adds those of the end user.
 */
export const importedSettings = z
  .object({
    connection_id: connectionId,
    metadata: json.nullish(),
    connection_config: json.nullish(),
    tags: storedTags.nullish(),
    end_user: endUserInput.extend({ organization }).nullish(),
    webhook_url_override: webAddress().nullish(),
  })
  .transform((given) => ({
    connectionId: given.connection_id,
    metadata: given.metadata ?? {},
    connectionConfig: given.connection_config ?? {},
    tags: given.tags ?? {},
    endUser: given.end_user ?? undefined,
    webhookUrlOverride: given.webhook_url_override ?? undefined,
  }));

export type ImportedConnection = z.output<typeof importedSettings> & {
  integration: Integration;
  /** Undefined: the source has no valid ones. The connection is stored as a shell: its user connects again under its ID. */
  credentials: Credentials | undefined;
  /** Facts about the grant that the credentials do not hold. */
  grant: GrantFacts & {
    keptTokens?: readonly string[];
    grantedAt?: Date | undefined;
    /** When the current credentials were issued. */
    refreshedAt?: Date | undefined;
  };
  createdAt: Date | undefined;
  /** A part that the source does not give, so a later run requests it again. */
  lacks?: 'no_refresh_token';
  /** The state at the source; active if absent. */
  state?: { status: Connection['status']; fault: unknown; scopesLacking: string[] | undefined } | undefined;
};

type StoreSettings = {
  reading: IntegrationReading;
  from: ImportRun;
  /** For the audit log. */
  sourceName: string;
  /** Whether a connection that is here is overwritten. */
  overwrites: boolean;
  at: Date;
};

/** Of a shell. Never sent: the token has expired. */
const noCredentials: Credentials = {
  type: 'OAUTH2',
  access_token: '-',
  expires_at: new Date(0).toISOString(),
  raw: {},
};

/**
 * Makes the connection, or overwrites the one with its ID, and saves the outcome in the same transaction. For connections
 * that `decide` wants imported.
 *
 * If the credentials here are newer than the imported ones, they and all facts about the grant stay, and only the settings
 * are overwritten. Throws `unknown_provider_config` if the integration was changed or deleted meanwhile, and `unavailable`
 * if another run has begun.
 */
export async function importConnection(
  db: Db,
  imported: ImportedConnection,
  settings: StoreSettings,
): Promise<void> {
  // Somebody else may make the connection at the same time.
  await retryOnViolation('connection_id_unique', () => db.transaction((tx) => store(tx, imported, settings)));
}

async function store(tx: Tx, imported: ImportedConnection, settings: StoreSettings): Promise<void> {
  const { integration, connectionId: id } = imported;
  const { reading, from, at } = settings;
  const { vault } = reading;
  const { environmentId, key } = integration;
  const current = await findConnectionForUpdate(tx, {
    environmentId,
    integrationKey: key,
    connectionId: id,
    vault,
  });
  const audit = (action: string) =>
    writeCommandAudit(tx, {
      environmentId,
      action,
      target: `${key}/${id}`,
      details: { from: settings.sourceName },
    });
  const save = (outcome: Omit<Parameters<typeof saveOutcomes>[2][number], 'integration' | 'connection'>) =>
    saveOutcomes(tx, from, [{ integration: key, connection: id, ...outcome }]);
  const isAsLacking =
    current !== undefined &&
    !isShell(current) &&
    endsForGood(current.credentials) &&
    (await hasImportedCredentials(tx, from, current));
  const isLacking = isAsLacking && !settings.overwrites;
  const unchanged = current && outcomeIfUnchanged(current, imported, { ...settings, isAsLacking });
  if (unchanged !== undefined) return save(unchanged);
  // Missing credentials are added, and the settings stay.
  const content = isLacking ? {} : settingsOf(imported);
  if (current !== undefined && !isLacking && (await isNewer(tx, { current, imported }))) {
    await replaceSettings(tx, { connection: current, at, ...settingsOf(imported) });
    await assertIntegrationUnchanged(tx, { integration, reading });
    await audit('connection.updated');
    return save({ outcome: 'overwritten', reason: 'credentials_kept' });
  }
  const given = { ...content, ...grantOf(imported), at };
  const connection =
    current === undefined
      ? await insertConnection(tx, { vault, integration, connectionId: id, ...given })
      : await replaceCredentials(tx, { vault, current, ...given });
  await updateGrant(tx, { connection, imported, settings, isNew: current === undefined });
  await assertIntegrationUnchanged(tx, { integration, reading });
  await audit(current === undefined ? 'connection.imported' : 'connection.overridden');
  const isNew = current === undefined || isShell(current) || isLacking;
  const outcome = isNew ? 'made' : 'overwritten';
  return save({
    ...(imported.credentials === undefined ? dead : { outcome, reason: imported.lacks }),
    stored: {
      id: connection.id,
      credentialsVersion: connection.credentialsVersion,
      sourceGrantedAt: imported.grant.grantedAt,
    },
  });
}

function settingsOf(imported: ImportedConnection): ConnectionSettings {
  const { metadata, connectionConfig, tags, endUser, webhookUrlOverride } = imported;
  return { metadata, connectionConfig, tags, endUser, webhookUrlOverride };
}

function grantOf(imported: ImportedConnection): { credentials: Credentials; grant: GrantFacts } {
  const credentials = imported.credentials ?? noCredentials;
  const expiry = isRenewable(credentials) ? credentials.expires_at : undefined;
  const { scopesRequested: wanted = [], scopesGranted: granted = wanted } = imported.grant;
  const missing = missingScopes(imported.integration.provider, { wanted, granted });
  return {
    credentials,
    grant: {
      accessExpiresAt: expiry === undefined ? undefined : new Date(expiry),
      ...imported.grant,
      lacksScopes: missing.length > 0,
    },
  };
}

/**
 * Whether the credentials here are newer. A refresh token that was replaced here is used up. Unless the connection here
 * waits for its user, credentials that were stored here since an import are valid, and so are those of a grant or a refresh
 * that is later than the imported one. A valid state also stays if the imported one is not valid.
 */
async function isNewer(
  tx: Tx,
  { current, imported }: { current: Connection; imported: ImportedConnection },
): Promise<boolean> {
  if (isShell(current)) return false;
  if (
    imported.credentials !== undefined &&
    (await isSuperseded(tx, { connection: current, credentials: imported.credentials }))
  )
    return true;
  if (current.status === 'needs_reauth') return false;
  // Credentials that can be refreshed are better than those that end with their access token.
  if (imported.lacks !== undefined && !endsForGood(current.credentials)) return true;
  if (current.status === 'active' && imported.state !== undefined && imported.state.status !== 'active')
    return true;
  const { environmentId } = current;
  const ref = { integration: current.integrationKey, connection: current.connectionId };
  const origin = await findCredentialOrigin(tx, { environmentId, ref, stored: current });
  if (origin.kind === 'since') return true;
  // If an import has stored them without the time of the grant, `grantedAt` is the time of that import.
  const grantedAt = origin.kind === 'import' ? origin.sourceGrantedAt : current.grantedAt;
  const { grantedAt: importedAt, refreshedAt } = imported.grant;
  if (grantedAt === undefined || importedAt === undefined) return false;
  // Of one grant, the tokens of an older file may be used up.
  const isSameGrant = origin.kind === 'import' && grantedAt.getTime() === importedAt.getTime();
  if (isSameGrant) return refreshedAt !== undefined && current.refreshedAt > refreshedAt;
  return grantedAt > importedAt;
}

/** The outcome if the connection here stays unchanged; undefined if it is to be overwritten. */
function outcomeIfUnchanged(
  current: Connection,
  { credentials, lacks }: ImportedConnection,
  { overwrites, isAsLacking }: StoreSettings & { isAsLacking: boolean },
): Pick<ConnectionOutcome, 'outcome' | 'reason'> | undefined {
  if (isShell(current)) return credentials === undefined ? dead : undefined;
  if (isAsLacking && credentials === undefined) return dead;
  if (isAsLacking && !overwrites) return lacks === undefined ? undefined : { outcome: 'made', reason: lacks };
  // It was made here after the check of the ledger; or it has credentials and the imported one has none.
  return !overwrites || credentials === undefined ? { outcome: 'existing' } : undefined;
}

/** Whether they hold a token that expires and cannot be refreshed. */
export function endsForGood(credentials: Credentials): boolean {
  const { type, ...held } = credentials;
  return (
    type === 'OAUTH2' &&
    'expires_at' in held &&
    held.expires_at !== undefined &&
    !('refresh_token' in held && held.refresh_token)
  );
}

const dead = { outcome: 'dead', reason: 'no_credentials' } as const;

/** Whether it stands for a connection without credentials at the source, and was not connected since. */
function isShell({ status, fault }: Connection): boolean {
  return status === 'needs_reauth' && fault?.evidence.imported_from !== undefined;
}

/** Sets the columns that `insertConnection` and `replaceCredentials` do not set. */
async function updateGrant(
  tx: Tx,
  {
    connection,
    imported,
    settings: { sourceName, at },
    isNew,
  }: { connection: Connection; imported: ImportedConnection; settings: StoreSettings; isNew: boolean },
): Promise<void> {
  const shell = {
    status: 'needs_reauth' as const,
    fault: faultFrom('no_refresh_token', { evidence: { imported_from: sourceName }, at }),
    scopesLacking: undefined,
  };
  const state = imported.credentials === undefined ? shell : imported.state;
  const { keptTokens: kept = [], refreshedAt } = imported.grant;
  // The source's clock may be ahead.
  const pastRefresh = refreshedAt && (refreshedAt < at ? refreshedAt : at);
  await tx.query(
    `update connection
     set
       created_at = case when $6 then coalesce($2, created_at) else created_at end,
       granted_at = coalesce($3, granted_at),
       status = coalesce($4, status),
       fault = coalesce($5, fault),
       scopes_lacking = coalesce($7, scopes_lacking),
       lacks_scopes = lacks_scopes or cardinality($7::text[]) > 0 is true,
       kept_tokens = coalesce($8, kept_tokens),
       refreshed_at = coalesce($10, refreshed_at)
     where id = $1 and environment_id = $9`,
    [
      connection.id,
      imported.createdAt ?? null,
      imported.grant.grantedAt ?? null,
      state?.status ?? null,
      state?.fault ? JSON.stringify(state.fault) : null,
      isNew,
      state?.scopesLacking ?? null,
      kept.length === 0 ? null : sealKept(connection, kept),
      connection.environmentId,
      pastRefresh ?? null,
    ],
  );
}
