/**
 * All use of Trellis: connect sessions, storing rows, writing back.
 *
 * An event may come late or twice. The application does not rely on its data, but reads the current state of the
 * connection, which is correct in any case.
 */
import { isTrellisError, type Trellis, type TrellisEvent } from '@trellis-run/client';
import type { Live } from './live.ts';
import type { Row, Store } from './store.ts';

const integration = 'google-sheet';
/** The shipped functions that the application uses. */
const functions = {
  rows: 'sync',
  'append-rows': 'action',
  'update-cells': 'action',
  'preview-rows': 'action',
} as const;
/** Other applications may have connections of the same integration; this application ignores them. */
const tags = { app: 'sheetside' };
/** The consumer name: Trellis stores the position of this consumer for each sheet. */
const consumer = 'example-app';

/** The part of a connection's metadata that the user chose on the connect page. */
type Choice = { spreadsheetId: string; sheetId: number; headerRow?: number; title?: string; tab?: string };

/** The message for the user of a connection that does not work; `next_step` of its health is the message for the operator. */
const problems = {
  active: null,
  needs_reauth: 'The access to your account has ended. Reconnect the account to continue.',
  blocked: 'Your administrator does not allow access at the moment.',
};

/** An error with a message for the user of the application. */
export class Refusal extends Error {}

export type Sheets = ReturnType<typeof createSheets>;

export function createSheets({ trellis, store, live }: { trellis: Trellis; store: Store; live: Live }) {
  const followed = new Map<string, AbortController>();
  let turn: Promise<unknown> = Promise.resolve();

  /** Idempotent set-up of the integration. */
  async function prepare(eventsUrl: string): Promise<void> {
    // With the OAuth client of the sandbox. For Google: `integrations.create` with your own OAuth client.
    await trellis.integrations.createTest({ provider: 'google-sheet', integration_id: integration });
    for (const [name, type] of Object.entries(functions)) {
      const path = { key: integration, name };
      await trellis.request('PUT /integrations/{key}/functions/{name}/shipped', { path, body: { type } });
    }
    // With a retention policy, syncs do not restore pruned payloads. The policy also prunes records that were never followed.
    const policy = { integration_id: integration, prune_after_days: 7 };
    await trellis.request('PUT /records/retention', { body: policy });
    const { endpoints } = trellis.events;
    const endpoint = (await endpoints.list().toArray()).find(({ url }) => url === eventsUrl);
    const types = ['connection.*', 'sync.changed', 'sync.failed'];
    if (endpoint === undefined) await endpoints.create({ url: eventsUrl, types });
    // Trellis disables an endpoint that was unreachable for five days.
    else if (!endpoint.enabled) await endpoints.update(endpoint.id, { enabled: true });
    // Handles changes since the application was stopped.
    const connections = await trellis.connections.list({ integrationId: integration, tags }).toArray();
    const ids = [...connections, ...store.accounts().map((one) => ({ connection_id: one.connectionId }))];
    for (const id of new Set(ids.map(({ connection_id }) => connection_id))) await look(id);
  }

  /** Handles an event, which may come late, twice, or out of order. */
  async function hear({ type, data }: TrellisEvent): Promise<void> {
    if (!('connection_id' in data) || !data.connection_id || data.integration_id !== integration) return;
    await look(data.connection_id);
    const account = store.account(data.connection_id);
    if (account === undefined) return;
    if (type === 'connection.reconnected' || type === 'connection.recovered') await read(data.connection_id);
    if (type === 'sync.failed' && account.problem === null)
      live.tell(account.person, { notice: data.error.message });
  }

  /** Updates the stored account from the connection; one at a time, so that the last state wins. */
  function look(connectionId: string): Promise<void> {
    const done = turn.then(() => lookNow(connectionId));
    turn = done.catch(() => {});
    return done;
  }

  async function lookNow(connectionId: string): Promise<void> {
    const found = await find(connectionId);
    const person = found?.end_user?.id;
    if (found === undefined || typeof person !== 'string') return forget(connectionId);
    const other = store.accountOf(person)?.connectionId;
    if (other !== undefined && other !== connectionId) {
      // Connected in two tabs: the last connection is kept.
      const [newest, ...older] = await connectionsOf(person);
      for (const { connection_id } of older) await remove(connection_id);
      if (newest?.connection_id !== connectionId) return;
      forget(other);
    }
    const { health, account } = found;
    const isNew = store.account(connectionId) === undefined;
    const { title, tab } = chosenIn(found.metadata) ?? {};
    store.save({
      connectionId,
      person,
      email: account?.email ?? null,
      sheet: tab === undefined ? null : `${title}, ${tab}`,
      problem: problems[health.status],
    });
    live.tell(person, { account: store.account(connectionId) });
    follow(connectionId);
    // The first sync reads everything again: the records may be older than this application's store.
    if (isNew) await read(connectionId, { reset: true, emptyCache: true });
  }

  async function find(connectionId: string) {
    const list = trellis.connections.list({ integrationId: integration, connectionId, tags });
    return (await list.toArray({ atMost: 1 }))[0];
  }

  /** Newest first. */
  function connectionsOf(person: string) {
    return trellis.connections.list({ integrationId: integration, endUserId: person, tags }).toArray();
  }

  /** Deletes a connection, and revokes the access at the provider unless another connection uses it. */
  async function remove(connectionId: string): Promise<void> {
    await trellis.connections.delete(integration, connectionId).catch((error) => {
      if (!isTrellisError(error, 'unknown_connection')) throw error;
    });
  }

  function forget(connectionId: string): void {
    followed.get(connectionId)?.abort();
    const known = store.account(connectionId);
    store.remove(connectionId);
    if (known !== undefined) live.tell(known.person, { account: null, rows: [] });
  }

  /** Starts a sync of the sheet now; otherwise it runs every five minutes. */
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
        else console.error(`Following ${connectionId} failed:`, error);
      })
      .finally(() => followed.delete(connectionId));
  }

  /** Stores rows as they change, and prunes stored rows at Trellis. Ends when the connection ends. */
  async function takeOver(connectionId: string, signal: AbortSignal): Promise<void> {
    const rows = trellis.connection(integration, connectionId).records<Pick<Row, 'fields'>>('Row');
    // After a reset of the sync, all records come again, so records that do not come were removed.
    const options = { consumer, onExpired: 'restart', pollMs: 1_000, signal } as const;
    for await (const batch of rows.follow(options)) {
      const changed: Row[] = [];
      const deleted: string[] = [];
      const kept: string[] = [];
      for (const { id, fields, _trellis_metadata: about } of batch.records) {
        if (about.last_action === 'DELETED') deleted.push(id);
        else if (fields !== undefined) changed.push({ id, fields, cursor: about.cursor });
        // The payload was pruned: by this application, or by the policy if the application was stopped for 30 days.
        else kept.push(id);
      }
      const { isRestart, isCaughtUp } = batch;
      const gone = store.change(connectionId, { changed, deleted, kept, isRestart, isCaughtUp });
      const { person = '', columns = [] } = store.account(connectionId) ?? {};
      live.tell(person, { changed, deleted: gone });
      await batch.acknowledge();
      await rows.pruneConsumed(consumer, { signal });
      const isKnown = (name: string) => columns.includes(name);
      if (changed.every(({ fields }) => Object.keys(fields).every(isKnown))) continue;
      // Rows do not need the order; the next change requests it again.
      await arrange(connectionId, signal).catch((error) => {
        if (!isTrellisError(error)) throw error;
      });
    }
  }

  /** Requests the order of the columns, since JavaScript orders integer keys of an object first. */
  async function arrange(connectionId: string, signal: AbortSignal): Promise<void> {
    const choice = chosenIn((await find(connectionId))?.metadata);
    if (choice === undefined) return;
    const { spreadsheetId: spreadsheet, sheetId, headerRow = 1 } = choice;
    const input = { spreadsheet, sheetId, headerRow, limit: 1 };
    const { actions } = trellis.connection(integration, connectionId);
    type Preview = { columns: { field: string }[] };
    const { columns } = await actions.run<Preview>('preview-rows', input, { signal });
    signal.throwIfAborted();
    const names = columns.map(({ field }) => field);
    store.arrange(connectionId, names);
    const account = store.account(connectionId);
    if (account !== undefined) live.tell(account.person, { account });
  }

  /** The token of a session in which the user connects an account, chooses a sheet, or reconnects. */
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

  /** Writes the user's input by an action, which finds the columns by field names. */
  async function write(
    person: string,
    action: 'append-rows' | 'update-cells',
    values: object,
  ): Promise<void> {
    const { connectionId } = accountOf(person);
    const input = { ...values, input: 'USER_ENTERED' };
    const { actions } = trellis.connection(integration, connectionId);
    // Also after a refusal, so that the page shows the current row.
    await actions.run(action, input).finally(() => read(connectionId));
  }

  function accountOf(person: string) {
    const account = store.accountOf(person);
    if (account === undefined) throw new Refusal('No sheet is connected.');
    return account;
  }

  return {
    prepare,
    hear,
    session,
    append: (person: string, values: Record<string, string>) =>
      write(person, 'append-rows', { rows: [values] }),
    /** A record has no row number; the action finds the row. */
    async change(person: string, { id, values }: { id: string; values: Record<string, string> }) {
      const cursor = store.rows(accountOf(person).connectionId).find((row) => row.id === id)?.cursor;
      await write(person, 'update-cells', { updates: [{ id, values, cursor }] });
    },
    /** There is no event for the choice of a sheet without rows. */
    async read(person: string): Promise<void> {
      const { connectionId } = accountOf(person);
      await look(connectionId);
      await read(connectionId);
    },
    /** Deletes the user's connection and rows. */
    async disconnect(person: string): Promise<void> {
      for (const { connection_id } of await connectionsOf(person)) await remove(connection_id);
      const account = store.accountOf(person);
      if (account !== undefined) forget(account.connectionId);
    },
    close(): void {
      for (const stop of followed.values()) stop.abort();
    },
  };
}

function chosenIn(metadata: unknown): Choice | undefined {
  return (metadata as { sheets?: { base?: Choice } } | null | undefined)?.sheets?.base;
}

/** The error message for the user. */
export function words(error: unknown): string {
  if (!isTrellisError(error))
    return error instanceof Refusal ? error.message : 'Something went wrong. Try again.';
  // The original message contains an internal address.
  if (isTrellisError(error, 'network_error', 'timeout'))
    return 'Your sheet cannot be reached at the moment. Check whether the change was made before you try again.';
  // An action returns the cause in its payload.
  const { type, message } = (error.payload ?? {}) as { type?: unknown; message?: unknown };
  if (type === 'row_changed') return 'The row was changed in the meantime. Nothing was written.';
  return typeof message === 'string' ? message : error.message;
}
