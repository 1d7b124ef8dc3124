import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query';
import { call, Fault } from '../../api/client.ts';
import type { At } from '../connections/queries.ts';
import {
  callAction,
  pauseSync,
  resetSync,
  setFrequency,
  startSync,
  triggerSync,
} from '../functions/queries.ts';
import { type Identity, rowsSync, type SheetSettings, sheetProvider } from './settings.ts';

export type ListedSpreadsheets = {
  /** False: the connection cannot list files. */
  available: boolean;
  /** Only the files of this application are listed. */
  ownFilesOnly: boolean;
  spreadsheets: { spreadsheetId: string; title: string; modifiedAt: string; url: string }[];
  nextPageToken: string | null;
};
export type Tab = {
  sheetId: number;
  title: string;
  kind: string;
  rows: number;
  columns: number;
  hidden: boolean;
  protected: boolean;
};
export type Book = {
  spreadsheetId: string;
  title: string;
  url: string;
  identities: Identity[];
  /** The initial tab. */
  sheetId: number | null;
  tabs: Tab[];
};
export type CellValue = string | number | boolean | null | { error: string };
export type PreviewColumn = { field: string; column: string; type: string; filled: number };
export type Preview = {
  headerRow: number;
  suggestedHeaderRow: number;
  suggestedKeyColumn: string | null;
  totalRows: number;
  columns: PreviewColumn[];
  keys: { column: string; empty: number; duplicates: number; examples: string[] } | null;
  rows: Record<string, CellValue>[];
};

/** The actions of the set-up. They change nothing at the provider. */
const setUpActions = ['list-spreadsheets', 'describe-spreadsheet', 'preview-rows'] as const;
/** A read of a spreadsheet uses the quota of the account, so it is cached for a while. */
const lookMs = 60_000;
/** An action that throws on purpose returns 500, and would throw again. */
const retry = false;
const shownRows = 10;

const keyOf = (environment: string, { integration, id }: At) => [environment, 'sheets', integration, id];

/**
 * Adds the actions of the set-up to the integration if they are missing. Throws `function_exists` if a deployed
 * function has one of their names.
 */
export const readyQuery = (environment: string, { integration }: At) =>
  queryOptions({
    queryKey: [environment, 'sheets', 'ready', integration],
    queryFn: async ({ signal }) => {
      const { data } = await call('GET /functions', {
        environment,
        signal,
        query: { integration_id: integration, limit: 100 },
      });
      const find = (name: string, type: 'action' | 'sync') =>
        data.find((one) => one.name === name && one.type === type);
      const own = [find(rowsSync, 'sync'), ...setUpActions.map((name) => find(name, 'action'))].find(
        (one) => one !== undefined && one.source !== 'shipped',
      );
      if (own !== undefined) throw taken(own.name);
      for (const name of setUpActions) {
        const there = find(name, 'action');
        if (there === undefined) await putShipped(environment, { integration, name, type: 'action' });
        else if (!there.enabled) throw turnedOff(name);
      }
      return true;
    },
    staleTime: lookMs,
  });

function taken(name: string): Fault {
  const message = `This integration has a function of its own that is called ${name}.`;
  return new Fault({ code: 'function_exists', message, status: 409 });
}

function turnedOff(name: string): Fault {
  const message = `The function ${name} of this integration is turned off.`;
  return new Fault({ code: 'disabled_resource', message, status: 404 });
}

/** The default frequency of the sync. */
export const defaultFrequencyQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'sheets', 'shipped'],
    queryFn: async ({ signal }) => {
      const query = { provider: sheetProvider };
      const { data } = await call('GET /functions/shipped', { environment, signal, query });
      return data.find(({ name, type }) => name === rowsSync && type === 'sync')?.runs ?? null;
    },
    staleTime: Number.POSITIVE_INFINITY,
  });

async function putShipped(
  environment: string,
  { integration, name, type }: { integration: string; name: string; type: 'action' | 'sync' },
): Promise<void> {
  await call('PUT /integrations/{key}/functions/{name}/shipped', {
    environment,
    path: { key: integration, name },
    body: { type },
  });
}

async function callSetUpAction<T>(
  environment: string,
  {
    at,
    name,
    input,
    signal,
  }: { at: At; name: (typeof setUpActions)[number]; input: object; signal: AbortSignal },
): Promise<T> {
  const action = { integration: at.integration, type: 'action', name } as const;
  const { output } = await callAction(environment, { at: action, connection: at.id, input, signal });
  return output as T;
}

/** The spreadsheets of the account, last changed first. */
export const spreadsheetsQuery = (
  environment: string,
  { at, search }: { at: At; search: string | undefined },
) =>
  infiniteQueryOptions({
    queryKey: [...keyOf(environment, at), 'list', search],
    queryFn: ({ signal, pageParam }) => {
      const input = { limit: 20, ...(search && { search }), ...(pageParam && { pageToken: pageParam }) };
      return callSetUpAction<ListedSpreadsheets>(environment, {
        at,
        name: 'list-spreadsheets',
        input,
        signal,
      });
    },
    initialPageParam: '',
    getNextPageParam: ({ nextPageToken }) => nextPageToken ?? undefined,
    placeholderData: keepPreviousData,
    staleTime: lookMs,
    retry,
  });

/** The title and tabs of a spreadsheet, by its link or ID. */
export const spreadsheetQuery = (environment: string, { at, spreadsheet }: { at: At; spreadsheet: string }) =>
  queryOptions({
    queryKey: [...keyOf(environment, at), 'book', spreadsheet],
    queryFn: ({ signal }) =>
      callSetUpAction<Book>(environment, {
        at,
        name: 'describe-spreadsheet',
        input: { spreadsheet },
        signal,
      }),
    staleTime: lookMs,
    retry,
  });

/** The first rows of a tab as records. Without a header row, below the detected one. */
export const previewQuery = (
  environment: string,
  { at, ...input }: { at: At; spreadsheet: string; sheetId: number; headerRow?: number; keyColumn?: string },
) =>
  queryOptions({
    queryKey: [...keyOf(environment, at), 'preview', input],
    queryFn: ({ signal }) =>
      callSetUpAction<Preview>(environment, {
        at,
        name: 'preview-rows',
        signal,
        input: { ...input, limit: shownRows },
      }),
    placeholderData: (before, query) => (isSameTab(query?.queryKey.at(-1), input) ? before : undefined),
    staleTime: lookMs,
    retry,
  });

function isSameTab(before: unknown, now: { spreadsheet: string; sheetId: number }): boolean {
  const previous = before as typeof now | undefined;
  return previous?.spreadsheet === now.spreadsheet && previous.sheetId === now.sheetId;
}

type SheetAt = { at: At; variant: string };

const syncOf = ({ at, variant }: SheetAt) => ({
  integration: at.integration,
  connection: at.id,
  name: rowsSync,
  variant,
});
const place = ({ integration, id }: At) => ({ integration_id: integration, connection_id: id });

/** Changes the entry of one variant, and keeps the current entries of the others. */
async function changeSettings(
  environment: string,
  { at, variant, settings }: SheetAt & { settings: SheetSettings | undefined },
): Promise<void> {
  const { metadata } = await call('GET /connections/{id}', {
    environment,
    path: { id: at.id },
    query: { integration_id: at.integration },
  });
  const { [variant]: _, ...others } = (metadata.sheets ?? {}) as Record<string, unknown>;
  const sheets = settings === undefined ? others : { ...others, [variant]: settings };
  await call('PATCH /connections/metadata', { environment, body: { ...place(at), metadata: { sheets } } });
}

/**
 * Saves the settings of a sheet and starts a run. The settings are saved first, because runs need them. `frequency`
 * null is the frequency of the function, undefined keeps the current one. `emptied` removes the records of the variant.
 */
export async function saveSheet(
  environment: string,
  {
    settings,
    frequency,
    isNew,
    emptied,
    ...of
  }: SheetAt & {
    settings: SheetSettings;
    frequency: string | null | undefined;
    isNew: boolean;
    emptied: boolean;
  },
): Promise<void> {
  const { at, variant } = of;
  const sync = syncOf(of);
  const isThere = (await findSync(environment, of)) !== undefined;
  await changeSettings(environment, { ...of, settings });
  await putShipped(environment, { integration: at.integration, name: rowsSync, type: 'sync' });
  if (variant !== 'base') await addVariant(environment, of);
  // `base` does not exist before its first sheet, and is paused after its sheet was removed.
  if (isNew) await startSync(environment, sync);
  if (frequency !== undefined) await setFrequency(environment, { ...sync, frequency });
  if (emptied) await resetSync(environment, { ...sync, records: 'removed' });
  else if (isThere || !(await hasBegun(environment, of))) await triggerSync(environment, sync);
}

async function addVariant(environment: string, { at, variant }: SheetAt): Promise<void> {
  await call('POST /functions/syncs/{name}/variants/{variant}', {
    environment,
    path: { name: rowsSync, variant },
    body: place(at),
  }).catch((error: unknown) => {
    const isThere = error instanceof Fault && error.code === 'sync_variant_already_exists';
    if (!isThere) throw error;
  });
}

/** Whether a sync that was created after the settings has started its first run, which has read them. */
async function hasBegun(environment: string, of: SheetAt): Promise<boolean> {
  const sync = await findSync(environment, of);
  return sync !== undefined && (sync.current_run !== null || sync.last_run !== null);
}

async function findSync(environment: string, { at, variant }: SheetAt) {
  const query = { ...place(at), function: rowsSync, limit: 200 };
  const { syncs } = await call('GET /functions/syncs', { environment, query });
  return syncs.find((sync) => sync.variant === variant);
}

/** Removes a sheet. Its records are kept or removed. */
export async function removeSheet(
  environment: string,
  { records, ...of }: SheetAt & { records: 'kept' | 'removed' },
): Promise<void> {
  const { at, variant } = of;
  const sync = await findSync(environment, of);
  await changeSettings(environment, { ...of, settings: undefined });
  if (sync === undefined) return;
  // Without settings, the next run reads nothing.
  if (records === 'removed') await resetSync(environment, { ...syncOf(of), records });
  if (variant === 'base') {
    await pauseSync(environment, syncOf(of));
    return;
  }
  await call('DELETE /functions/syncs/{name}/variants/{variant}', {
    environment,
    path: { name: rowsSync, variant },
    body: place(at),
  });
}
