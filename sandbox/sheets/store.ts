/**
 * Spreadsheets on disk: one JSON file each, read when first asked for, written soon after a change.
 *
 * Owns: files. A file is written beside its place and renamed into it, so it is whole or the one before. Changes are
 * gathered for a short while; `close` writes what is left.
 */
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Spreadsheet } from './spreadsheet.ts';

/** How long changes to one or more spreadsheets are gathered before they are written. */
const WRITE_DELAY_MS = 200;

interface SpreadsheetStore {
  /** The spreadsheet as it is now, not to be changed; undefined when there is none. */
  find(spreadsheetId: string): Promise<Spreadsheet | undefined>;
  /** Puts `spreadsheet` in place of what its id stood for. Seen at once by `find`, on disk soon after. */
  put(spreadsheet: Spreadsheet): void;
  /** All spreadsheets, reading the files that were not asked for yet. */
  list(): Promise<Spreadsheet[]>;
  /** Writes everything that is not on disk yet. Rejects when a file cannot be written. */
  close(): Promise<void>;
}

/** A store over the files in `dataDir`, which is made when the first spreadsheet is written. */
export function createSpreadsheetStore(dataDir: string): SpreadsheetStore {
  const loaded = new Map<string, Promise<Spreadsheet | undefined>>();
  const unwritten = new Map<string, Spreadsheet>();
  let timer: NodeJS.Timeout | undefined;
  let writing: Promise<void> = Promise.resolve();

  const fileOf = (spreadsheetId: string) => join(dataDir, `${spreadsheetId}.json`);

  async function load(spreadsheetId: string): Promise<Spreadsheet | undefined> {
    try {
      return JSON.parse(await readFile(fileOf(spreadsheetId), 'utf8')) as Spreadsheet;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw new Error(`spreadsheet ${spreadsheetId} cannot be read`, { cause: error });
    }
  }

  async function writeAll(): Promise<void> {
    for (const [spreadsheetId, spreadsheet] of unwritten) {
      await mkdir(dataDir, { recursive: true });
      const beside = `${fileOf(spreadsheetId)}.tmp`;
      await writeFile(beside, JSON.stringify(spreadsheet));
      await rename(beside, fileOf(spreadsheetId));
      if (unwritten.get(spreadsheetId) === spreadsheet) unwritten.delete(spreadsheetId);
    }
  }

  function writeSoon(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      writing = writing.then(writeAll).catch((error: unknown) => {
        process.emitWarning(`sandbox spreadsheets cannot be written: ${String(error)}`);
      });
    }, WRITE_DELAY_MS);
  }

  function find(spreadsheetId: string): Promise<Spreadsheet | undefined> {
    // The id becomes a file name.
    if (!/^[A-Za-z0-9_-]{1,100}$/.test(spreadsheetId)) return Promise.resolve(undefined);
    const known = loaded.get(spreadsheetId);
    if (known !== undefined) return known;
    const loading = load(spreadsheetId);
    loaded.set(spreadsheetId, loading);
    loading.then(
      (found) => found ?? forget(spreadsheetId, loading),
      () => forget(spreadsheetId, loading),
    );
    return loading;
  }

  function forget(spreadsheetId: string, loading: Promise<Spreadsheet | undefined>): void {
    if (loaded.get(spreadsheetId) === loading) loaded.delete(spreadsheetId);
  }

  return {
    find,
    put(spreadsheet) {
      loaded.set(spreadsheet.spreadsheetId, Promise.resolve(spreadsheet));
      unwritten.set(spreadsheet.spreadsheetId, spreadsheet);
      writeSoon();
    },
    async list() {
      const files = await readdir(dataDir).catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return [];
        throw error;
      });
      const ids = new Set(files.filter((file) => file.endsWith('.json')).map((file) => file.slice(0, -5)));
      for (const id of unwritten.keys()) ids.add(id);
      const found = await Promise.all([...ids].map(find));
      return found.filter((one) => one !== undefined);
    },
    async close() {
      clearTimeout(timer);
      timer = undefined;
      await writing;
      await writeAll();
    },
  };
}
