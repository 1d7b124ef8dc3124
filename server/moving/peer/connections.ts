import type { Credentials } from '../../auth-modes/mode.ts';
import { readImported } from '../../connections/import.ts';
import { tagsOf } from '../../connections/tags.ts';
import { connectionId } from '../../connections/wire.ts';
import type { Integration } from '../../integrations/store.ts';
import { integrationKey } from '../../integrations/wire.ts';
import { endsForGood, type Moved, movedSettings } from '../connections.ts';
import { cleaned, type Judged } from '../ledger.ts';
import {
  faultsOf,
  type PeerConnection,
  type PeerSummary,
  peerConnection,
  peerConnections,
  peerPlace,
  peerSummary,
  readAnswer,
  readPart,
  readTime,
} from './answers.ts';
import { type Peer, PeerError, PeerLostError } from './client.ts';

/** Connections as the peer gives them, made ready to be stored. */

/** Of the peer's list. */
export type ListedPage = {
  connections: PeerSummary[];
  /** Those that are not to be asked for: why, under an ID that can be noted. */
  unfit: Judged[];
  /** How many do not even say what they are called. */
  nameless: number;
};

type Entry = { key: string } & (
  | { summary: PeerSummary }
  | { unfit: Judged }
  | { summary?: undefined; unfit?: undefined }
);

/**
 * All connections that the peer lists, each once, in pages.
 *
 * Its pages are numbers of places in a list that goes on changing: where a connection is deleted while they are read, those
 * behind it move up by one, and one slips past. So they are read again until a pass brings nothing that was not seen. A
 * page may be shorter than was asked for, and the last one is followed by an empty one.
 */
export async function* pagesOfConnections(peer: Peer, pageSize: number): AsyncGenerator<ListedPage> {
  const seen = new Set<string>();
  for (let hasNew = true; hasNew; ) {
    hasNew = false;
    const inPass = new Set<string>();
    for (let page = 0; ; page += 1) {
      const entries = await listPage(peer, { limit: pageSize, page });
      const size = inPass.size;
      for (const { key } of entries) inPass.add(key);
      // A peer that knows no pages gives all of them each time.
      if (inPass.size === size) break;
      const fresh = new Map(entries.map((one) => [one.key, one]));
      for (const key of fresh.keys()) if (seen.has(key)) fresh.delete(key);
      if (fresh.size === 0) continue;
      for (const key of fresh.keys()) seen.add(key);
      hasNew = true;
      yield pageOf([...fresh.values()]);
    }
  }
}

function pageOf(entries: readonly Entry[]): ListedPage {
  const connections = entries.flatMap((one) => ('summary' in one && one.summary ? [one.summary] : []));
  const unfit = entries.flatMap((one) => ('unfit' in one && one.unfit ? [one.unfit] : []));
  return { connections, unfit, nameless: entries.length - connections.length - unfit.length };
}

/** Throws PeerLostError where something else answers than the peer: nothing can be said without the whole list. */
async function listPage(peer: Peer, query: { limit: number; page: number }): Promise<Entry[]> {
  const answer = await peer.get('/connections', query).catch((error: unknown) => {
    if (error instanceof PeerError && error.code === 'not_json')
      throw new PeerLostError(error.message, { cause: error });
    throw error;
  });
  return readAnswer(peerConnections, answer, '/connections').connections.map(readEntry);
}

function readEntry(given: unknown): Entry {
  const named = peerPlace.safeParse(given).data;
  if (named === undefined) return { key: JSON.stringify(given) };
  const { connection_id: id, provider_config_key: integration } = named;
  const key = keyOf(named);
  const unfit = (reason: string, detail: string): Entry => ({
    key,
    unfit: {
      integration: cleaned(integration, 255),
      connection: cleaned(id, 255),
      outcome: 'failed',
      reason,
      detail,
    },
  });
  if (!connectionId.safeParse(id).success || !integrationKey.safeParse(integration).success)
    return unfit('invalid_id', 'The ID holds a character that none here may have, or is too long.');
  // Part of a path, they mean another one (RFC 3986 §5.2.4), however they are escaped.
  if (id === '.' || id === '..')
    return unfit('invalid_id', 'Nobody can ask the peer for an ID of dots alone.');
  const read = peerSummary.safeParse(given);
  return read.success
    ? { key, summary: read.data }
    : unfit('unknown_form', `In the list: ${faultsOf(read.error)}`);
}

export function keyOf(one: Pick<PeerSummary, 'connection_id' | 'provider_config_key'>): string {
  return JSON.stringify([one.provider_config_key, one.connection_id]);
}

/** What the peer has of a connection. */
type Fetched =
  | { kind: 'found'; connection: PeerConnection }
  /** It has no credentials that work, or says so for a while after it failed to renew them. */
  | { kind: 'dead'; connection: PeerConnection | undefined; detail: string }
  | { kind: 'gone' };

/**
 * One connection with its credentials and its refresh token. The peer renews what is about to end before it answers; it is
 * never asked to renew anything else.
 */
export async function fetchConnection(
  peer: Peer,
  { connection_id: id, provider_config_key: key }: Pick<PeerSummary, 'connection_id' | 'provider_config_key'>,
): Promise<Fetched> {
  try {
    const answer = await peer.get(`/connections/${encodeURIComponent(id)}`, {
      provider_config_key: key,
      refresh_token: 'true',
      force_refresh: 'false',
    });
    return { kind: 'found', connection: readPart(peerConnection, answer, '/connections/{id}') };
  } catch (error) {
    if (!(error instanceof PeerError)) throw error;
    // By the peer's own word alone: whatever stands before it has a 404 of its own.
    if (error.code === 'not_found' || error.code === 'unknown_connection') return { kind: 'gone' };
    if (error.code !== 'invalid_credentials' && error.status !== 424) throw error;
    const { connection } = (error.payload ?? {}) as { connection?: unknown };
    const read = peerConnection.safeParse(connection);
    return { kind: 'dead', connection: read.data, detail: `${error.status} ${error.code}` };
  }
}

/** Ready to be stored. Throws ZodError and `invalid_body` where a part of it does not fit, naming the part. */
export function movedFrom(
  connection: PeerConnection,
  { integration, at }: { integration: Integration; at: Date },
): Moved {
  const credentials = credentialsOf(connection.credentials ?? {}, { integration, at });
  return {
    ...settingsOf(connection),
    integration,
    credentials,
    ...(endsForGood(credentials) && { lacks: 'no_refresh_token' }),
    // It tells no time of the renewal itself, which is not later than the last change.
    grant: { refreshedAt: connection.updated_at },
    createdAt: connection.created_at,
  };
}

/** A connection without credentials, to be renewed by its user under its ID. */
export function shellFrom(
  summary: PeerSummary,
  { connection, integration }: { connection: PeerConnection | undefined; integration: Integration },
): Moved {
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
  const settings = movedSettings.parse({
    connectionId: connection.connection_id,
    metadata: connection.metadata,
    connectionConfig: connection.connection_config,
    tags: connection.tags,
    endUser: endUser && {
      id: endUser.id,
      email: endUser.email,
      display_name: endUser.display_name,
      tags: endUser.tags,
      organization: endUser.organization,
    },
    webhookUrlOverride: connection.webhook_url_override || undefined,
  });
  // Connections that are older than tags have none.
  return { ...settings, tags: tagsOf({ endUser: settings.endUser ?? undefined, tags: settings.tags }) };
}

function credentialsOf(
  given: Record<string, unknown>,
  { integration, at }: { integration: Integration; at: Date },
): Credentials {
  const { auth_mode: mode } = integration.provider;
  const named = (names: readonly string[]) =>
    Object.fromEntries(
      names.flatMap((name) =>
        given[name] === undefined || given[name] === null ? [] : [[name, given[name]]],
      ),
    );
  const fields = {
    OAUTH2: ['access_token', 'refresh_token', 'raw'],
    OAUTH2_CC: ['token', 'client_id', 'client_secret', 'raw'],
    API_KEY: ['apiKey'],
    BASIC: ['username', 'password'],
    NONE: [],
  }[mode];
  const type = given.type ?? (mode === 'NONE' ? 'NONE' : undefined);
  const own = mode === 'OAUTH2' ? ownClientOf(given, integration) : {};
  return readImported(integration, { type, ...named(fields), ...own, ...expiryOf(given, at) });
}

/** Of a client of the connection's own, what is to be stored: the integration's could not renew its tokens. */
function ownClientOf(
  { config_override: given }: Record<string, unknown>,
  { client }: Integration,
): { config_override?: object } {
  const { client_id: id, client_secret: secret } = (given ?? {}) as Record<string, unknown>;
  if (!id || id === client?.clientId) return {};
  return { config_override: { client_id: id, client_secret: secret } };
}

/** An end that cannot be read is one that has come: the token is renewed before it is used. */
function expiryOf({ expires_at: given }: Record<string, unknown>, at: Date): { expires_at?: string } {
  if (given === undefined || given === null) return {};
  return { expires_at: (readTime(given) ?? at).toISOString() };
}
