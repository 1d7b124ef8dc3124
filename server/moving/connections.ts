import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import { type Credentials, isRenewable } from '../auth-modes/mode.ts';
import { faultFrom } from '../connections/health.ts';
import { assertIntegrationUnchanged } from '../connections/integration-unchanged.ts';
import { isKept, sealKept } from '../connections/previous-refresh-tokens.ts';
import {
  type ConnectionSettings,
  type GrantFacts,
  insertConnection,
  replaceCredentials,
  replaceSettings,
} from '../connections/save.ts';
import { type Connection, type EndUser, findConnectionForUpdate } from '../connections/store.ts';
import { endUserInput, organizationInput, storedTags } from '../connections/tags.ts';
import { connectionId } from '../connections/wire.ts';
import type { Tx } from '../db/pool.ts';
import { webAddress } from '../http/text.ts';
import type { Integration, IntegrationReading } from '../integrations/store.ts';
import { type Judged, note, type OpenImport, type Put } from './ledger.ts';
import { isAsStored, readOrigin } from './origin.ts';

/**
 * Imported connections, stored as own ones: under their ID, each sealed with its own data key.
 *
 * Credentials are not tested: the source has just exported them as valid, and thousands of tests would look like an attack
 * to a provider. No event is raised and no event function is run: the application has these connections already. The audit
 * log has an entry for each. Does not own: which are imported (`ledger.ts`), when their syncs begin (the end of the import).
 */

const organization = organizationInput.nullish();
const json = z.record(z.string(), z.unknown());

/**
 * What stands in a connection beside its credentials, read with the rules of `POST /connections`. Of tags there may be more
 * than it takes: it adds those of the end user.
 */
export const movedSettings = z.object({
  connectionId,
  metadata: json.nullish().transform((given) => given ?? {}),
  connectionConfig: json.nullish().transform((given) => given ?? {}),
  tags: storedTags.nullish().transform((given) => given ?? {}),
  endUser: endUserInput.extend({ organization }).nullish(),
  webhookUrlOverride: webAddress().nullish(),
});

/** What was known of the grant elsewhere, beyond what credentials say. */
type MovedGrant = GrantFacts & {
  keptTokens?: readonly string[];
  grantedAt?: Date | undefined;
  /** When the credentials came that there are. */
  refreshedAt?: Date | undefined;
};

export type Moved = z.output<typeof movedSettings> & {
  integration: Integration;
  /** Undefined: the source has none that work. The connection waits for its user, under its ID. */
  credentials: Credentials | undefined;
  grant: MovedGrant;
  createdAt: Date | undefined;
  /** What the source does not give of it, so that it is to be asked again. */
  lacks?: 'no_refresh_token';
  /** State that goes along; active where absent. */
  state?: { status: Connection['status']; fault: unknown; scopesLacking: string[] | undefined } | undefined;
};

type Storing = {
  reading: IntegrationReading;
  from: OpenImport;
  /** For the audit log. */
  sourceName: string;
  /** Whether one that is here gets what is moved. */
  overwrites: boolean;
  at: Date;
};

/** Never sent to anybody: it has ended. */
const noCredentials: Credentials = {
  type: 'OAUTH2',
  access_token: '-',
  expires_at: new Date(0).toISOString(),
  raw: {},
};

/**
 * Makes the connection, or where one of the ID is here, gives it what is moved: what became of it, noted in the same
 * transaction. To be called for those that `judge` wants imported.
 *
 * Where the credentials here are newer than those that are moved, these and all that is known of the grant stay, and what
 * stands beside them alone is given. Throws `unknown_provider_config` where the integration was changed or deleted
 * meanwhile, and `unavailable` where another run has begun; fails on `connection_id_unique` where somebody else makes the connection at the same time.
 */
export async function storeMoved(tx: Tx, moved: Moved, storing: Storing): Promise<Judged> {
  const { integration, connectionId: id } = moved;
  const { reading, from, at } = storing;
  const { vault } = reading;
  const { environmentId, key } = integration;
  const place = { environmentId, integrationKey: key, connectionId: id };
  const current = await findConnectionForUpdate(tx, { ...place, vault });
  const judgedAs = { integration: key, connection: id };
  const audit = (action: string) =>
    writeAudit(tx, {
      environmentId,
      actor: 'command line',
      action,
      target: `${key}/${id}`,
      details: { from: storing.sourceName },
    });
  const settle = async (judged: Pick<Judged, 'outcome' | 'reason'>, stored?: Put) => {
    await note(tx, from, [{ ...judgedAs, ...judged, ...(stored && { stored }) }]);
    return { ...judgedAs, ...judged };
  };
  const isAsLacking =
    current !== undefined &&
    !isShell(current) &&
    endsForGood(current.credentials) &&
    (await isAsStored(tx, from, current));
  const isLacking = isAsLacking && !storing.overwrites;
  const judgedBefore = current && judgeFound(current, moved, { ...storing, isAsLacking });
  if (judgedBefore !== undefined) return settle(judgedBefore);
  // What was lacking is given, and what stands beside it is not touched.
  const settings = isLacking ? {} : settingsOf(moved);
  if (current !== undefined && !isLacking && (await isNewer(tx, { current, moved }))) {
    await replaceSettings(tx, { vault, current, at, ...settingsOf(moved) });
    await assertIntegrationUnchanged(tx, { tried: integration, reading });
    await audit('connection.updated');
    return settle({ outcome: 'overwritten', reason: 'credentials_kept' });
  }
  const content = { ...settings, ...grantOf(moved), at };
  const connection =
    current === undefined
      ? await insertConnection(tx, { vault, integration, connectionId: id, ...content })
      : await replaceCredentials(tx, { vault, current, ...content });
  await putGrant(tx, { connection, moved, storing, current });
  await assertIntegrationUnchanged(tx, { tried: integration, reading });
  await audit(current === undefined ? 'connection.imported' : 'connection.overridden');
  const isNew = current === undefined || isShell(current) || isLacking;
  const outcome = isNew ? 'made' : 'overwritten';
  return settle(moved.credentials === undefined ? dead : { outcome, reason: moved.lacks }, {
    id: connection.id,
    credentialsVersion: connection.credentialsVersion,
    toldGrantedAt: moved.grant.grantedAt,
  });
}

function settingsOf(moved: Moved): ConnectionSettings {
  const endUser: EndUser | undefined = moved.endUser ?? undefined;
  const { metadata, connectionConfig, tags } = moved;
  return {
    ...{ metadata, connectionConfig, tags, endUser },
    webhookUrlOverride: moved.webhookUrlOverride ?? undefined,
  };
}

function grantOf(moved: Moved): { credentials: Credentials; grant: GrantFacts } {
  const credentials = moved.credentials ?? noCredentials;
  const expiry = isRenewable(credentials) ? credentials.expires_at : undefined;
  return {
    credentials,
    grant: { accessExpiresAt: expiry === undefined ? undefined : new Date(expiry), ...moved.grant },
  };
}

/**
 * Whether the credentials here are newer: a refresh token that was replaced by its successor here is used up; and unless the
 * connection waits for its user, what was put here since an import did works, and so does a grant that was given later than
 * the one that is moved, or whose credentials came later. A state that works stays, too, where the one that is moved does not.
 */
async function isNewer(tx: Tx, { current, moved }: { current: Connection; moved: Moved }): Promise<boolean> {
  if (isShell(current)) return false;
  if (moved.credentials !== undefined && (await isUsedUp(tx, current, moved.credentials))) return true;
  if (current.status === 'needs_reauth') return false;
  // Those that can be renewed are worth more than some that end with their access token.
  if (moved.lacks !== undefined && !endsForGood(current.credentials)) return true;
  if (current.status === 'active' && moved.state !== undefined && moved.state.status !== 'active')
    return true;
  const { environmentId } = current;
  const place = { integration: current.integrationKey, connection: current.connectionId };
  const origin = await readOrigin(tx, { environmentId, place, stored: current });
  if (origin.kind === 'since') return true;
  // What an import has stored may have the time of the import for that of its grant.
  const grantedAt = origin.kind === 'import' ? origin.toldGrantedAt : current.grantedAt;
  const { grantedAt: movedAt, refreshedAt: movedRefreshedAt } = moved.grant;
  if (grantedAt === undefined || movedAt === undefined) return false;
  // Of one grant, what an older file brings may be used up.
  const isSameGrant = origin.kind === 'import' && grantedAt.getTime() === movedAt.getTime();
  if (isSameGrant) return movedRefreshedAt !== undefined && current.refreshedAt > movedRefreshedAt;
  return grantedAt > movedAt;
}

async function isUsedUp(tx: Tx, current: Connection, given: Credentials): Promise<boolean> {
  if (given.type !== 'OAUTH2' || given.refresh_token === undefined) return false;
  return isKept(tx, { connection: current, token: given.refresh_token });
}

/** What becomes of a connection that is here and stays as it is; undefined where it gets what is moved. */
function judgeFound(
  current: Connection,
  { credentials, lacks }: Moved,
  { overwrites, isAsLacking }: Storing & { isAsLacking: boolean },
): Pick<Judged, 'outcome' | 'reason'> | undefined {
  if (isShell(current)) return credentials === undefined ? dead : undefined;
  if (isAsLacking && credentials === undefined) return dead;
  if (isAsLacking && !overwrites) return lacks === undefined ? undefined : { outcome: 'made', reason: lacks };
  // Somebody made it since it was looked for; and one that works is worth more than one that waits for its user.
  return !overwrites || credentials === undefined ? { outcome: 'existing' } : undefined;
}

/** Whether they hold a token that ends and that nobody can renew. */
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

/** Whether it stands for one of the source that has no credentials, and nobody has connected it since. */
function isShell({ status, fault }: Connection): boolean {
  return status === 'needs_reauth' && fault?.evidence.imported_from !== undefined;
}

/** What `insertConnection` has no word for. `current` is what stood there before. */
async function putGrant(
  tx: Tx,
  given: { connection: Connection; moved: Moved; storing: Storing; current: Connection | undefined },
): Promise<void> {
  const { connection, moved, storing, current } = given;
  const { sourceName, at } = storing;
  const shell = {
    status: 'needs_reauth' as const,
    fault: faultFrom('no_refresh_token', { evidence: { imported_from: sourceName }, at }),
    scopesLacking: undefined,
  };
  const state = moved.credentials === undefined ? shell : moved.state;
  const { keptTokens: kept = [], refreshedAt } = moved.grant;
  await tx.query(
    `update connection
     set
       created_at = case when $6 then coalesce($2, created_at) else created_at end,
       granted_at = coalesce($3, granted_at),
       status = coalesce($4, status),
       fault = coalesce($5, fault),
       scopes_lacking = coalesce($7, scopes_lacking),
       kept_tokens = coalesce($8, kept_tokens),
       refreshed_at = coalesce($10, refreshed_at)
     where id = $1 and environment_id = $9`,
    [
      connection.id,
      moved.createdAt ?? null,
      moved.grant.grantedAt ?? null,
      state?.status ?? null,
      state?.fault ? JSON.stringify(state.fault) : null,
      current === undefined,
      state?.scopesLacking ?? null,
      kept.length === 0 ? null : sealKept(connection, kept),
      connection.environmentId,
      refreshedAt === undefined ? null : earlierOf(refreshedAt, at),
    ],
  );
}

/** The source's clock may be ahead. */
function earlierOf(one: Date, other: Date): Date {
  return one < other ? one : other;
}
