/**
 * Everything that the application does with Trellis: connect sessions, taking rows over, writing back.
 *
 * An event only says that something has happened to a connection, perhaps a while ago, perhaps twice. So what is done about
 * it is to look how the connection is now; that is right whatever came before.
 */
import { type Connection, isTrellisError, type Trellis, type TrellisEvent } from 'trellis-client';
import type { Live } from './live.ts';
import type { Row, Store } from './store.ts';

const integration = 'google-sheet';
/** Others may have connections of the same integration: these are left alone. */
const tags = { app: 'sheetside' };
/** Under this name Trellis keeps how far each sheet's rows are taken over. */
const consumer = 'example-app';

/** Of a connection's metadata: what its user has chosen on the connect page. */
type Choice = { spreadsheetId: string; sheetId: number; headerRow?: number; title?: string; tab?: string };

/** What a person has to know of a connection that does not work; `next_step` of its health says it to whoever runs this. */
const problems = {
  active: null,
  needs_reauth: 'The access to your account has ended. Reconnect it, and everything goes on.',
  blocked: 'Your administrator does not allow the access at the moment.',
};

/** What a person of the application is told, in place of what they asked for. */
export class Refusal extends Error {}

export type Sheets = ReturnType<typeof createSheets>;

export function createSheets({ trellis, store, live }: { trellis: Trellis; store: Store; live: Live }) {
  const followed = new Map<string, AbortController>();

  /** Made once; calling it again changes nothing. */
  async function prepare(eventsUrl: string): Promise<void> {
    // With the client of the sandbox. For Google itself: `integrations.create` with an OAuth client of yours.
    await trellis.integrations.createTest({ provider: 'google-sheet', unique_key: integration });
    for (const [name, type] of [['rows', 'sync'] as const, ['update-cells', 'action'] as const]) {
      const path = { key: integration, name };
      await trellis.request('PUT /integrations/{key}/functions/{name}/shipped', { path, body: { type } });
    }
    // Where a policy prunes, a sync leaves alone what was pruned; it also takes what was never followed.
    const policy = { provider_config_key: integration, prune_after_days: 7 };
    await trellis.request('PUT /records/retention', { body: policy });
    const endpoints = await trellis.events.endpoints.list().toArray();
    const types = ['connection.*', 'sync.changed', 'sync.failed'];
    if (!endpoints.some(({ url }) => url === eventsUrl))
      await trellis.events.endpoints.create({ url: eventsUrl, types });
    // What happened while the application was off.
    const connections = await trellis.connections.list({ integrationId: integration, tags }).toArray();
    const ids = [...connections, ...store.accounts().map((one) => ({ connection_id: one.connectionId }))];
    for (const id of new Set(ids.map(({ connection_id }) => connection_id))) await look(id);
  }

  /** Acts on an event, which may come late, twice, or after others. */
  async function hear({ type, data }: TrellisEvent): Promise<void> {
    if (!('connection_id' in data) || !data.connection_id || data.provider_config_key !== integration) return;
    await look(data.connection_id);
    if (type === 'connection.reconnected' || type === 'connection.recovered') await read(data.connection_id);
    const account = store.account(data.connection_id);
    if (type === 'sync.failed' && account?.problem === null)
      live.tell(account.person, { notice: data.error.message });
  }

  /** Makes the account here what the connection is. */
  async function look(connectionId: string): Promise<void> {
    const found = await find(connectionId);
    const person = found?.end_user?.id;
    if (found === undefined || typeof person !== 'string') return forget(connectionId);
    const { health, account } = found;
    const isNew = store.account(connectionId) === undefined;
    const { title, tab } = chosenIn(found.metadata) ?? {};
    store.save({
      ...{ connectionId, person, email: account?.email ?? null },
      sheet: tab === undefined ? null : `${title}, ${tab}`,
      problem: problems[health.status],
    });
    // Somebody who has two gets the first.
    if (store.account(connectionId) === undefined) return;
    live.tell(person, { account: store.account(connectionId) });
    follow(connectionId);
    // The first sync, with everything anew: the records may be older than this application's store.
    if (isNew) await read(connectionId, { reset: true, emptyCache: true });
  }

  async function find(connectionId: string) {
    const list = trellis.connections.list({ integrationId: integration, connectionId, tags });
    return (await list.toArray({ atMost: 1 }))[0];
  }

  function forget(connectionId: string): void {
    followed.get(connectionId)?.abort();
    const known = store.account(connectionId);
    store.remove(connectionId);
    if (known !== undefined) live.tell(known.person, { account: null, rows: [] });
  }

  /** Has the sheet read now; else that is done every five minutes. */
  async function read(connectionId: string, opts?: { reset: boolean; emptyCache: boolean }): Promise<void> {
    await trellis.connection(integration, connectionId).syncs.trigger('rows', { ...(opts && { opts }) });
  }

  function follow(connectionId: string): void {
    if (followed.has(connectionId)) return;
    const stop = new AbortController();
    followed.set(connectionId, stop);
    takeOver(connectionId, stop.signal)
      .catch((error) => {
        if (stop.signal.aborted) return;
        if (isTrellisError(error, 'unknown_connection')) forget(connectionId);
        else console.error(`${connectionId} is not followed any more:`, error);
      })
      .finally(() => followed.delete(connectionId));
  }

  /** Takes rows over as they change, and has Trellis let go of what is here. Ends when the connection does. */
  async function takeOver(connectionId: string, signal: AbortSignal): Promise<void> {
    const rows = trellis.connection(integration, connectionId).records<Pick<Row, 'fields'>>('Row');
    // Records that are gone without a trace, as where a sync was reset, are told by a beginning.
    const options = { consumer, onExpired: 'restart', pollMs: 1_000, signal } as const;
    for await (const batch of rows.follow(options)) {
      const changed: Row[] = [];
      const deleted: string[] = [];
      const kept: string[] = [];
      for (const { id, fields, _trellis_metadata: about } of batch.records) {
        if (about.last_action === 'DELETED') deleted.push(id);
        else if (fields !== undefined) changed.push({ id, fields, cursor: about.cursor });
        // It was pruned: here, or by the policy, which waits 30 days for an application that is off.
        else kept.push(id);
      }
      const { isRestart, isCaughtUp } = batch;
      const gone = store.change(connectionId, { changed, deleted, kept, isRestart, isCaughtUp });
      const { person = '' } = store.account(connectionId) ?? {};
      live.tell(person, { changed, deleted: gone });
      await batch.acknowledge();
      await rows.pruneConsumed(consumer, { signal });
    }
  }

  /** The token of a session in which a person connects an account, chooses a sheet, or connects anew. */
  async function session(person: string): Promise<string> {
    const account = store.accountOf(person);
    const choose = account?.sheet ? {} : { setup: 'sheet' as const };
    if (account === undefined) {
      const asked = { end_user: { id: person }, tags, allowed_integrations: [integration], ...choose };
      return (await trellis.connectSessions.create(asked)).token;
    }
    const { connectionId: connection_id } = account;
    const asked = { integration_id: integration, connection_id, end_user: { id: person }, ...choose };
    return (await trellis.connectSessions.reconnect(asked)).token;
  }

  /** Appends a row as a person types it, by Google's own API. */
  async function append(person: string, typed: Record<string, string>): Promise<void> {
    const { connection, choice } = await chosenBy(person);
    const { spreadsheetId, sheetId, headerRow = 1 } = choice;
    type Tabs = { sheets: { properties: { sheetId?: number; title: string } }[] };
    const { sheets } = await google<Tabs>(
      connection,
      `/${spreadsheetId}?fields=sheets.properties(sheetId,title)`,
    );
    const tab = sheets.find(({ properties }) => (properties.sheetId ?? 0) === sheetId);
    if (tab === undefined) throw new Refusal('The tab is not there any more.');
    const of = (cells: string) =>
      encodeURIComponent(`'${tab.properties.title.replaceAll("'", "''")}'!${cells}`);
    const values = `/${spreadsheetId}/values`;
    const header = await google<{ values?: string[][] }>(
      connection,
      `${values}/${of(`${headerRow}:${headerRow}`)}`,
    );
    const row = (header.values?.[0] ?? []).map((name) => typed[name] ?? null);
    const path = `${values}/${of(`A${headerRow}`)}:append?valueInputOption=USER_ENTERED`;
    await google(connection, path, { values: [row] });
    await read(connection.id);
  }

  /** Changes cells of a row. A record does not say in which row it stands by now: this action finds it. */
  async function change(person: string, { id, values }: { id: string; values: Record<string, string> }) {
    const { connection } = await chosenBy(person);
    const cursor = store.rows(connection.id).find((row) => row.id === id)?.cursor;
    const input = { updates: [{ id, values, cursor }], input: 'USER_ENTERED' };
    // Also where it is refused: then the page shows what is there by now.
    await connection.actions.run('update-cells', input).finally(() => read(connection.id));
  }

  async function chosenBy(person: string): Promise<{ connection: Connection; choice: Choice }> {
    const { connectionId } = accountOf(person);
    const choice = chosenIn((await find(connectionId))?.metadata);
    if (choice === undefined) throw new Refusal('No sheet is chosen yet.');
    return { connection: trellis.connection(integration, connectionId), choice };
  }

  function accountOf(person: string) {
    const account = store.accountOf(person);
    if (account === undefined) throw new Refusal('No sheet is connected.');
    return account;
  }

  return {
    ...{ prepare, hear, session, append, change },
    read: (person: string) => read(accountOf(person).connectionId),
    /** Deletes the connection, ends the access at the provider, and forgets the rows. */
    async disconnect(person: string): Promise<void> {
      const { connectionId } = accountOf(person);
      await trellis.connections.delete(integration, connectionId);
      forget(connectionId);
    },
    close(): void {
      for (const stop of followed.values()) stop.abort();
    },
  };
}

function chosenIn(metadata: unknown): Choice | undefined {
  return (metadata as { sheets?: { base?: Choice } } | null | undefined)?.sheets?.base;
}

/** Calls the Sheets API. Throws what Trellis or Google has said. */
async function google<T>(connection: Connection, path: string, body?: unknown): Promise<T> {
  const headers = { 'content-type': 'application/json' };
  const init = body === undefined ? undefined : { method: 'POST', headers, body: JSON.stringify(body) };
  const answer = await connection.fetch(`/v4/spreadsheets${path}`, init);
  if (answer.ok) return (await answer.json()) as T;
  const error = await connection.errorOf(answer);
  if (error !== undefined) throw error;
  const { error: told } = (await answer.json()) as { error?: { message?: string } };
  throw new Refusal(told?.message ?? `Google answered ${answer.status}.`);
}

/** What to show to the person whose wish failed. */
export function words(error: unknown): string {
  if (!isTrellisError(error)) return error instanceof Refusal ? error.message : 'Something went wrong here.';
  // An action says in its payload what is the matter.
  const { type, message } = (error.payload ?? {}) as { type?: unknown; message?: unknown };
  if (type === 'row_changed') return 'Somebody else has changed this row meanwhile. Nothing was written.';
  return typeof message === 'string' ? message : error.message;
}
