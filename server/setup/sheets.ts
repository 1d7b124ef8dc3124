/**
 * The choice of an end user after an account is connected: the sheet whose rows become records.
 *
 * Owns: which connection a session may set up, and the effects of the choice. Does not own: the functions
 * (`shipped/google-sheet`) and the page (`web/connect/`).
 */

import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import { toChoose } from '../connect/progress.ts';
import { finishSetUp, isMadeBy, type Session } from '../connect/sessions.ts';
import type { ConnectionReader, LiveConnection } from '../connections/store/reader.ts';
import { changeMetadata } from '../connections/store/save.ts';
import { type Connection, findConnection, getById } from '../connections/store/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Actions } from '../functions/actions/actions.ts';
import type { ShippedFunctions } from '../functions/deploys/shipped.ts';
import { queueRuns } from '../functions/runs/queue.ts';
import { addVariant, lockSyncs, makeBaseSyncs, resetSyncs, startSyncs } from '../functions/syncs/syncs.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { Vault } from '../vault.ts';

/** The fields of sheets that a connect page receives: a part of the outputs of the shipped actions. */
export const setUpWire = z.object({
  kind: z.literal('sheet'),
  provider_config_key: z.string(),
  connection_id: z.string(),
  /** The e-mail address of the connected account. */
  account: z.string().nullable(),
});

export const spreadsheetsWire = z.object({
  /** False if the connection may not list files, and the page asks for a link instead. */
  available: z.boolean(),
  spreadsheets: z.array(z.object({ spreadsheetId: z.string(), title: z.string(), modifiedAt: z.string() })),
  nextPageToken: z.string().nullable(),
});

export const spreadsheetWire = z.object({
  spreadsheetId: z.string(),
  title: z.string(),
  /** The tab to select first. */
  sheetId: z.number().nullable(),
  tabs: z.array(z.object({ sheetId: z.number(), title: z.string(), kind: z.string(), hidden: z.boolean() })),
});

const cell = z.union([z.string(), z.number(), z.boolean(), z.null(), z.object({ error: z.string() })]);
export const previewWire = z.object({
  headerRow: z.number(),
  suggestedHeaderRow: z.number(),
  suggestedKeyColumn: z.string().nullable(),
  totalRows: z.number(),
  columns: z.array(z.object({ field: z.string(), type: z.string() })),
  keys: z
    .object({ column: z.string(), empty: z.number(), duplicates: z.number(), examples: z.array(z.string()) })
    .nullable(),
  rows: z.array(z.record(z.string(), cell)),
});

const spreadsheet = z.string().min(1).max(2_000);
const sheetId = z.int().min(0);
const headerRow = z.int().min(1).max(1_000_000);
const keyColumn = z.string().min(1).max(1_000);

export const spreadsheetsBody = z.strictObject({
  search: z.string().min(1).max(200).optional(),
  pageToken: z.string().max(4_096).optional(),
});
/** A link, or an ID. */
export const spreadsheetBody = z.strictObject({ spreadsheet });
export const previewBody = z.strictObject({
  spreadsheet,
  sheetId: sheetId.optional(),
  headerRow: headerRow.optional(),
  keyColumn: keyColumn.optional(),
});
/** Without a key column, rows are identified by their content. */
export const choiceBody = z.strictObject({
  spreadsheetId: z.string().regex(/^[A-Za-z0-9_-]{1,100}$/),
  sheetId,
  headerRow: headerRow.default(1),
  keyColumn: keyColumn.optional(),
  title: z.string().max(1_000).optional(),
  tab: z.string().max(1_000).optional(),
});
type Choice = z.output<typeof choiceBody>;

export const chosenWire = z.object({
  provider_config_key: z.string(),
  connection_id: z.string(),
  variant: z.string(),
});
nameSchemas({
  ChosenSheet: chosenWire,
  SetUp: setUpWire,
  SheetPreview: previewWire,
  Spreadsheet: spreadsheetWire,
  SpreadsheetPage: spreadsheetsWire,
});

const rows = 'rows';
const setUpActions = ['list-spreadsheets', 'describe-spreadsheet', 'preview-rows'] as const;
export type SetUpAction = (typeof setUpActions)[number];

export type SetUpDeps = {
  db: Db;
  vault: Vault;
  connections: Pick<ConnectionReader, 'get' | 'reread' | 'forget'>;
  actions: Pick<Actions, 'get' | 'call'>;
  shipped: Pick<ShippedFunctions, 'enable'>;
  /** Makes this node look for due runs at once. */
  poke: () => void;
  now: () => Date;
};

/**
 * The connection that a session has made or renewed, if a choice is still open. Throws `unknown_connect_session_token`
 * if there is no open choice, or if another connection or grant has replaced it, and the errors of `connections.get`.
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

/** Enables the actions of this page on the integration. Throws `function_exists`, as `enable` does. */
export async function enableSetUpActions(
  { shipped }: Pick<SetUpDeps, 'shipped'>,
  session: Session,
  integrationKey: string,
): Promise<void> {
  const { environmentId } = session;
  const at = { environmentId, integrationKey, actor: `session:${session.id}` };
  for (const name of setUpActions) await shipped.enable({ ...at, kind: 'action', name });
}

/**
 * Calls one of the shipped read-only actions, never an action of the operator with the same name (`function_exists`).
 * Throws `setup_refused` with the reason if the sheet cannot be read, and the errors of `getConnectionOf` if the
 * connection has another grant by then.
 */
export async function callSetUpAction(
  { actions, connections }: Pick<SetUpDeps, 'actions' | 'connections'>,
  {
    session,
    connection,
    name,
    input,
    signal,
  }: { session: Session; connection: LiveConnection; name: SetUpAction; input: object; signal: AbortSignal },
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
      // A run uses the credentials at the time of its calls, so its output or its error may be of another account.
      requireMade(session, await connections.reread(connection));
    });
  return JSON.parse(output.toString('utf8'));
}

type Settings = Omit<Choice, 'keyColumn'> & { identity: 'key' | 'content'; keyColumn?: string };

/** Stores the choice, once for a session, and starts the first run. Returns the variant of the sync. */
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
    // First, so that one of two simultaneous choices wins.
    await finishSetUp(tx, { session, at: now() });
    const found = await findConnection(tx, { ...place, vault });
    if (found === undefined) throw new AppError('unknown_connection');
    let placed: PlacedSheet | undefined;
    await changeMetadata(tx, {
      connection: found,
      change: (metadata) => {
        placed = placeSheet(metadata, settings);
        return placed.metadata;
      },
    });
    // Read under its lock.
    requireMade(session, await getById(tx, { id: found.id, vault }));
    const { variant: name, isRenumbered } = placed!;
    await startRun(tx, { place, variant: name, isRenumbered, at: now() });
    await writeAudit(tx, {
      environmentId,
      actor,
      action: 'connect_session.sheet_chosen',
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

type PlacedSheet = { metadata: Record<string, unknown>; variant: string; isRenumbered: boolean };

/** A sheet with an existing entry keeps its variant; the first one is `base`. */
function placeSheet(metadata: Record<string, unknown>, settings: Settings): PlacedSheet {
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

/** The sync of the variant runs as soon as there is capacity. It starts from nothing if its rows get other IDs. */
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
