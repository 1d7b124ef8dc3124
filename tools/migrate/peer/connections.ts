import { z } from 'zod';
import { type Credentials, modeNamed } from '../../../server/auth-modes/modes.ts';
import { readImported } from '../../../server/connections/import.ts';
import { connectionId } from '../../../server/connections/routes/wire.ts';
import { tagsOf } from '../../../server/connections/store/tags.ts';
import type { Integration } from '../../../server/integrations/store.ts';
import { integrationKey } from '../../../server/integrations/wire.ts';
import { endsForGood, type ImportedConnection, importedSettings } from '../connections.ts';
import {
  type ConnectionOutcome,
  type ConnectionRef,
  type IntegrationFilter,
  storableText,
} from '../ledger.ts';
import {
  issuesOf,
  type PeerConnection,
  type PeerSummary,
  peerConnection,
  peerConnectionRef,
  peerConnections,
  peerSummary,
  readOptional,
  readRequired,
  readTime,
} from './answers.ts';
import { type Peer, PeerError, PeerLostError } from './client.ts';

/** The connections of the peer, in the form in which they are stored. */

/** The keys of the connections that the peer lists, and the number of entries without an ID. */
export type Listed = { keys: Set<string>; nameless: number };

type Page = {
  connections: PeerSummary[];
  /** Entries that cannot be requested, under a storable ID. */
  unfit: ConnectionOutcome[];
};

type Entry = { key: string; summary?: PeerSummary; unfit?: ConnectionOutcome };

/**
 * The peer's connections of these integrations, each once, in pages; adds all of them to `listed`.
 *
 * A page is named by its offset in a list that changes: if a connection is deleted meanwhile, the following ones move up
 * and one is missed. So the pages are read again until a pass brings no new connection. A page may be shorter than
 * requested, and an empty page follows the last one.
 */
export async function* pagesOfConnections(
  peer: Peer,
  { pageSize, filter, listed }: { pageSize: number; filter: IntegrationFilter; listed: Listed },
): AsyncGenerator<Page> {
  const known = new Set<string>();
  for (let hasNew = true; hasNew; ) {
    hasNew = false;
    const inPass = new Set<string>();
    for (let page = 0; ; page += 1) {
      const entries = await listPage(peer, { limit: pageSize, page });
      const size = inPass.size;
      for (const { key } of entries) inPass.add(key);
      // A peer without pages returns all connections each time.
      if (inPass.size === size) break;
      const fresh = new Map(entries.map((one) => [one.key, one]));
      for (const key of fresh.keys()) if (known.has(key)) fresh.delete(key);
      if (fresh.size === 0) continue;
      for (const key of fresh.keys()) known.add(key);
      hasNew = true;
      yield pageOf([...fresh.values()], { filter, listed });
    }
  }
}

function pageOf(
  entries: readonly Entry[],
  { filter, listed }: { filter: IntegrationFilter; listed: Listed },
): Page {
  const connections = entries
    .flatMap(({ summary }) => (summary ? [summary] : []))
    .filter((one) => filter?.has(one.provider_config_key) ?? true);
  const unfit = entries
    .flatMap((one) => (one.unfit ? [one.unfit] : []))
    .filter((one) => filter?.has(one.integration) ?? true);
  for (const one of connections) listed.keys.add(keyOf(refOf(one)));
  for (const one of unfit) listed.keys.add(keyOf(one));
  listed.nameless += entries.filter((one) => !one.summary && !one.unfit).length;
  return { connections, unfit };
}

/** Throws PeerLostError if the response is not the peer's own: no conclusion is safe without the whole list. */
async function listPage(peer: Peer, query: { limit: number; page: number }): Promise<Entry[]> {
  const response = await peer.get('/connections', query).catch((error: unknown) => {
    if (error instanceof PeerError && error.code === 'not_json')
      throw new PeerLostError(error.message, { cause: error });
    throw error;
  });
  return readRequired(peerConnections, response, '/connections').connections.map(readEntry);
}

function readEntry(given: unknown): Entry {
  const named = peerConnectionRef.safeParse(given).data;
  if (named === undefined) return { key: JSON.stringify(given) };
  const { integration, connection: id } = refOf(named);
  const key = keyOf(refOf(named));
  const unfit = (reason: string, detail: string): Entry => ({
    key,
    unfit: {
      integration: storableText(integration, 255),
      connection: storableText(id, 255),
      outcome: 'failed',
      reason,
      detail,
    },
  });
  if (!connectionId.safeParse(id).success || !integrationKey.safeParse(integration).success)
    return unfit('invalid_id', 'The ID is too long, or has a character that is not allowed.');
  // In a path they mean another one (RFC 3986 §5.2.4), however they are escaped.
  if (id === '.' || id === '..')
    return unfit('invalid_id', 'The ID consists of dots, so it cannot be used in a URL.');
  const read = peerSummary.safeParse(given);
  return read.success
    ? { key, summary: read.data }
    : unfit('unknown_form', `In the list: ${issuesOf(read.error)}`);
}

export function refOf(one: Pick<PeerSummary, 'connection_id' | 'provider_config_key'>): ConnectionRef {
  return { integration: one.provider_config_key, connection: one.connection_id };
}

export function keyOf({ integration, connection }: ConnectionRef): string {
  return JSON.stringify([integration, connection]);
}

/** A connection at the peer. */
type Fetched =
  | { kind: 'found'; connection: PeerConnection }
  /** The peer has no valid credentials for it, or failed to refresh them a short time ago. */
  | { kind: 'dead'; connection: PeerConnection | undefined; detail: string }
  | { kind: 'gone' };

/**
 * One connection with its credentials and its refresh token. The peer refreshes tokens that are about to expire before it
 * responds; no other refresh is requested.
 */
export async function fetchConnection(
  peer: Peer,
  { connection_id: id, provider_config_key: key }: Pick<PeerSummary, 'connection_id' | 'provider_config_key'>,
): Promise<Fetched> {
  try {
    const response = await peer.get(`/connections/${encodeURIComponent(id)}`, {
      provider_config_key: key,
      refresh_token: 'true',
      force_refresh: 'false',
    });
    return { kind: 'found', connection: readOptional(peerConnection, response, '/connections/{id}') };
  } catch (error) {
    if (!(error instanceof PeerError)) throw error;
    // Only the peer's own codes count: a proxy in front of it has a 404 of its own.
    if (error.code === 'not_found' || error.code === 'unknown_connection') return { kind: 'gone' };
    if (error.code !== 'invalid_credentials' && error.status !== 424) throw error;
    const { connection } = (error.payload ?? {}) as { connection?: unknown };
    const read = peerConnection.safeParse(connection);
    return { kind: 'dead', connection: read.data, detail: `${error.status} ${error.code}` };
  }
}

/** Throws ZodError and `invalid_body` with the name of a part that is not valid. */
export function importedFrom(
  connection: PeerConnection,
  { integration, at }: { integration: Integration; at: Date },
): ImportedConnection {
  const credentials = credentialsOf(connection.credentials ?? {}, { integration, at });
  return {
    ...settingsOf(connection),
    integration,
    credentials,
    ...(endsForGood(credentials) && { lacks: 'no_refresh_token' }),
    // The peer does not give the time of the refresh, which is not later than the last change.
    grant: { refreshedAt: connection.updated_at, isUnverified: true },
    createdAt: connection.created_at,
  };
}

/** A connection without credentials: its user connects again under its ID. */
export function shellFrom(
  summary: PeerSummary,
  { connection, integration }: { connection: PeerConnection | undefined; integration: Integration },
): ImportedConnection {
  return {
    ...settingsOf(connection ?? summary),
    integration,
    credentials: undefined,
    grant: {},
    createdAt: connection?.created_at ?? summary.created,
  };
}

function settingsOf(connection: Omit<PeerConnection, 'credentials' | 'created_at' | 'updated_at'>) {
  const { end_user: endUser } = connection;
  const settings = importedSettings.parse({
    ...connection,
    end_user: endUser && {
      id: endUser.id,
      email: endUser.email,
      display_name: endUser.display_name,
      tags: endUser.tags,
      organization: endUser.organization,
    },
    webhook_url_override: connection.webhook_url_override || undefined,
  });
  // Connections that were made before tags existed have none.
  return { ...settings, tags: tagsOf(settings) };
}

function credentialsOf(
  given: Record<string, unknown>,
  { integration, at }: { integration: Integration; at: Date },
): Credentials {
  const { auth_mode: mode } = integration.provider;
  const { importSchema, form } = modeNamed(mode);
  const defined = form?.hasDefinedFields ? Object.keys(integration.provider.credentials) : [];
  const { properties = {} } = z.toJSONSchema(importSchema, { io: 'input' });
  const { type: _type, expires_at: _end, config_override, ...others } = properties;
  const fields = Object.fromEntries(
    [...Object.keys(others), ...defined].flatMap((name) =>
      given[name] == null ? [] : [[name, given[name]]],
    ),
  );
  // A peer names no type for credentials without a field.
  const type = given.type ?? (form !== undefined && Object.keys(form.fields).length === 0 ? mode : undefined);
  return readImported(integration, {
    type,
    ...fields,
    ...expiryOf(given, at),
    ...(config_override !== undefined && ownClientOf(given, integration)),
  });
}

/** The connection's own OAuth client, if it has one: the integration's client cannot refresh its tokens. */
function ownClientOf(
  { config_override: given }: Record<string, unknown>,
  { client }: Integration,
): { config_override?: object } {
  const { client_id: id, client_secret: secret } = (given ?? {}) as Record<string, unknown>;
  if (!id || id === client?.clientId) return {};
  return { config_override: { client_id: id, client_secret: secret } };
}

/** A time that is not valid counts as past: the token is refreshed before it is used. */
function expiryOf({ expires_at: given }: Record<string, unknown>, at: Date): { expires_at?: string } {
  if (given === undefined || given === null) return {};
  return { expires_at: (readTime(given) ?? at).toISOString() };
}
