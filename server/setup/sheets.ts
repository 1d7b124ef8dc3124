/**
 * What an end user chooses once an account is connected: the sheet whose rows are to be records.
 *
 * Owns: which connection a session may set up, and what the choice comes to. Does not own: what the functions do that are
 * asked (`shipped/google-sheet`), nor what a page shows (`web/connect/`).
 */
import { writeAudit } from '../activity/audit.ts';
import { toChoose } from '../connect/progress.ts';
import { finishSetUp, isMadeBy, type Session } from '../connect/sessions.ts';
import type { ConnectionReader, LiveConnection } from '../connections/reader.ts';
import { type Connection, changeMetadata, findConnection, getById } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Actions } from '../functions/actions/actions.ts';
import type { ShippedFunctions } from '../functions/deploys/shipped.ts';
import { queueRuns } from '../functions/runs/runs.ts';
import { addVariant, lockSyncs, makeBaseSyncs, resetSyncs, startSyncs } from '../functions/syncs/syncs.ts';
import type { Vault } from '../vault.ts';
import type { Choice } from './wire.ts';

const rows = 'rows';
const asking = ['list-spreadsheets', 'describe-spreadsheet', 'preview-rows'] as const;
export type Asking = (typeof asking)[number];

export type SetUpDeps = {
  db: Db;
  vault: Vault;
  connections: Pick<ConnectionReader, 'get' | 'reread' | 'forget'>;
  actions: Pick<Actions, 'get' | 'call'>;
  shipped: Pick<ShippedFunctions, 'enable'>;
  /** Lets this node look for what is due at once. */
  poke: () => void;
  now: () => Date;
};

/**
 * The connection that a session has made or renewed, where something of it is still to be chosen. Throws
 * `unknown_connect_session_token` where nothing is, or no longer, or where another connection or grant has come in its
 * place, and what `connections.get` throws.
 */
export async function getConnectionOf(
  { connections, now }: Pick<SetUpDeps, 'connections' | 'now'>,
  session: Session,
): Promise<LiveConnection> {
  const { outcome, expiresAt, environmentId } = session;
  if (outcome === undefined || expiresAt <= now()) throw new AppError('unknown_connect_session_token');
  const { integration: integrationKey, connection: connectionId } = outcome;
  const cached = await connections.get({ environmentId, integrationKey, connectionId });
  // Another node may have stored it within the last second.
  const connection = isMadeBy(session, cached) ? cached : await connections.reread(cached);
  requireMade(session, connection);
  if (toChoose(session, connection.integration.provider.name) === null)
    throw new AppError('unknown_connect_session_token');
  return connection;
}

function requireMade(session: Session, connection: Connection): void {
  if (!isMadeBy(session, connection)) throw new AppError('unknown_connect_session_token');
}

/** Puts what is asked with on the integration. Throws `function_exists`, as `enable` does. */
export async function prepare(
  { shipped }: Pick<SetUpDeps, 'shipped'>,
  session: Session,
  integrationKey: string,
): Promise<void> {
  const { environmentId } = session;
  const at = { environmentId, integrationKey, actor: `session:${session.id}` };
  for (const name of asking) await shipped.enable({ ...at, kind: 'action', name });
}

/**
 * Calls one of the read-only actions that ship, and none of the operator's that has the name (`function_exists`). Throws
 * `setup_refused` where the sheet cannot be read, with why in the payload, and what `getConnectionOf` throws where the
 * connection has got another grant by then.
 */
export async function ask(
  { actions, connections }: Pick<SetUpDeps, 'actions' | 'connections'>,
  {
    session,
    connection,
    name,
    input,
    signal,
  }: { session: Session; connection: LiveConnection; name: Asking; input: object; signal: AbortSignal },
): Promise<unknown> {
  const { environmentId, integrationKey } = connection;
  const found = await actions.get({ environmentId, integrationKey, name });
  if (found.origin !== 'shipped') throw new AppError('function_exists');
  const output = await actions
    .call({ connection, environment: session.environment, found, input, signal })
    .catch((error: unknown) => {
      if (error instanceof AppError && error.code === 'action_script_runtime_error') {
        const { type, message } = error.payload as { type?: unknown; message?: unknown };
        throw new AppError('setup_refused', String(message), { payload: { type: String(type) } });
      }
      throw error;
    })
    .finally(async () => {
      // A run takes the credentials that there are when it calls: its answer, or its fault, may be of another account.
      requireMade(session, await connections.reread(connection));
    });
  return JSON.parse(output.toString('utf8'));
}

type Settings = Omit<Choice, 'keyColumn'> & { identity: 'key' | 'content'; keyColumn?: string };

/** Stores what was chosen, once for a session, and lets the first run begin. Answers the variant of the sync. */
export async function choose(
  { db, vault, connections, shipped, poke, now }: SetUpDeps,
  { session, connection, choice }: { session: Session; connection: LiveConnection; choice: Choice },
): Promise<string> {
  const { environmentId, integrationKey, connectionId } = connection;
  const place = { environmentId, integrationKey, connectionId };
  const actor = `session:${session.id}`;
  await shipped.enable({ environmentId, integrationKey, kind: 'sync', name: rows, actor });
  const settings = settingsOf(choice);
  const variant = await db.transaction(async (tx) => {
    // First of all: of two that choose at once, one has chosen.
    await finishSetUp(tx, { session, at: now() });
    const found = await findConnection(tx, { ...place, vault });
    if (found === undefined) throw new AppError('unknown_connection');
    let placed: Placed | undefined;
    await changeMetadata(tx, {
      connection: found,
      change: (metadata) => {
        placed = placeIn(metadata, settings);
        return placed.metadata;
      },
    });
    // As it is under its lock.
    requireMade(session, await getById(tx, { id: found.id, vault }));
    const { variant: name, isRenumbered } = placed!;
    await startRun(tx, { place, variant: name, isRenumbered, at: now() });
    await writeAudit(tx, {
      ...{ environmentId, actor, action: 'connect_session.sheet_chosen' },
      target: `${integrationKey}/${connectionId}`,
      details: { variant: name },
    });
    return name;
  });
  connections.forget(place);
  poke();
  return variant;
}

function settingsOf({ keyColumn, ...choice }: Choice): Settings {
  return keyColumn === undefined
    ? { ...choice, identity: 'content' }
    : { ...choice, identity: 'key', keyColumn };
}

type Placed = { metadata: Record<string, unknown>; variant: string; isRenumbered: boolean };

/** A sheet that is there already stays the variant that it is; the first is `base`. */
function placeIn(metadata: Record<string, unknown>, settings: Settings): Placed {
  const sheets = (metadata.sheets ?? {}) as Record<string, Partial<Settings> | undefined>;
  const same = Object.entries(sheets).find(
    ([, one]) => one?.spreadsheetId === settings.spreadsheetId && one.sheetId === settings.sheetId,
  );
  const variant = same?.[0] ?? freeName(sheets);
  const before = same?.[1];
  const isRenumbered =
    before !== undefined &&
    ((before.identity ?? 'content') !== settings.identity || before.keyColumn !== settings.keyColumn);
  return { metadata: { ...metadata, sheets: { ...sheets, [variant]: settings } }, variant, isRenumbered };
}

function freeName(sheets: Record<string, unknown>): string {
  if (!Object.hasOwn(sheets, 'base')) return 'base';
  for (let number = 2; ; number += 1) {
    if (!Object.hasOwn(sheets, `sheet-${number}`)) return `sheet-${number}`;
  }
}

/** The sync of the variant runs as soon as there is capacity; from nothing if its rows get other ids. */
async function startRun(
  tx: Tx,
  {
    place,
    variant,
    isRenumbered,
    at,
  }: {
    place: { environmentId: number; integrationKey: string; connectionId: string };
    variant: string;
    isRenumbered: boolean;
    at: Date;
  },
): Promise<void> {
  await makeBaseSyncs(tx, { ...place, names: [rows] });
  const wanted = [{ name: rows, variant }];
  const there = await lockSyncs(tx, { ...place, wanted });
  if (there.length === 0) await addVariant(tx, { place, name: rows, variant, at });
  const syncs = there.length > 0 ? there : await lockSyncs(tx, { ...place, wanted });
  const syncIds = syncs.map(({ id }) => id);
  await startSyncs(tx, { syncIds, at });
  if (isRenumbered) await resetSyncs(tx, { syncs, records: 'removed', at });
  await queueRuns(tx, { syncIds, at });
}
