/**
 * Spreadsheets on disk: one JSON file each, read at the first request, written soon after a change.
 *
 * A file is written under a temporary name and renamed, so it is never partial. Changes are
 * collected for a short time; `close` writes the rest.
 */
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Spreadsheet } from './spreadsheet.ts';

/** The time in which changes are collected before they are written. */
const writeDelayMs = 200;

/** A store for the files in `dataDir`, which is created with the first spreadsheet. */
export function createSpreadsheetStore(dataDir: string) {
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
    }, writeDelayMs);
  }

  /** The current spreadsheet, which callers must not change; undefined if there is none. */
  function find(spreadsheetId: string): Promise<Spreadsheet | undefined> {
    // The id is part of a file name.
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
    /** Stores a spreadsheet under its id: immediately for `find`, on disk soon after. */
    put(spreadsheet: Spreadsheet): void {
      loaded.set(spreadsheet.spreadsheetId, Promise.resolve(spreadsheet));
      unwritten.set(spreadsheet.spreadsheetId, spreadsheet);
      writeSoon();
    },
    /** All spreadsheets; reads the files that are not loaded yet. */
    async list(): Promise<Spreadsheet[]> {
      const files = await readdir(dataDir).catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return [];
        throw error;
      });
      const ids = new Set(files.filter((file) => file.endsWith('.json')).map((file) => file.slice(0, -5)));
      for (const id of unwritten.keys()) ids.add(id);
      const found = await Promise.all([...ids].map(find));
      return found.filter((one) => one !== undefined);
    },
    /** Writes pending changes to disk. Rejects if a file cannot be written. */
    async close(): Promise<void> {
      clearTimeout(timer);
      timer = undefined;
      await writing;
      await writeAll();
    },
  };
}
