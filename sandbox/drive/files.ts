/**
 * The files that an account and its client can see, and changes to them, one at a time.
 *
 * Spreadsheets belong to the Sheets API: Drive lists, creates and trashes them, but does not edit them.
 */
import { randomBytes } from 'node:crypto';
import type { Access } from '../api.ts';
import { badRequest, fileNotFound, notImplemented } from './errors.ts';
import { hasContent, type Metadata, rootOf, spreadsheet } from './metadata.ts';
import type { Operation } from './operations.ts';
import type { DriveFile, FileStore } from './store.ts';
import type { Uploads } from './uploads.ts';

type Granted = Access & { ok: true };

/** The part of the Sheets API that Drive uses. */
export interface SpreadsheetFiles {
  /** Creates an empty spreadsheet that belongs to the caller; returns its id. */
  create(access: Granted, title: string): Promise<string>;
  list(): Promise<
    readonly {
      spreadsheetId: string;
      title: string;
      owner: { email: string; sub: string };
      clientId?: string;
      modifiedAt: number;
      version: number;
      trashed: boolean;
    }[]
  >;
  setTrashed(spreadsheetId: string, trashed: boolean): Promise<void>;
}

const driveFile = 'https://www.googleapis.com/auth/drive.file';

/** All look-ups find only the files that the granted scopes of the operation include; otherwise they throw 404. */
export function createFiles({
  store,
  uploads,
  spreadsheets,
  now,
}: {
  store: FileStore;
  uploads: Uploads;
  spreadsheets: SpreadsheetFiles;
  now: () => number;
}) {
  let lastChange: Promise<unknown> = Promise.resolve();

  /** Runs changes one at a time, so that nothing changes between a change's reads and writes. */
  function inTurn<T>(change: () => Promise<T>): Promise<T> {
    const done = lastChange.then(change, change);
    lastChange = done.catch(() => {});
    return done;
  }

  async function visible(operation: Operation, access: Granted): Promise<DriveFile[]> {
    const sheets = (await spreadsheets.list()).map(fileOfSpreadsheet);
    const isOwnFilesOnly = operation.scopes.every(
      (scope) => scope === driveFile || !access.scopes.has(scope),
    );
    return [...(await store.list()), ...sheets].filter(
      (file) => file.owner.sub === access.sub && (!isOwnFilesOnly || file.clientId === access.clientId),
    );
  }

  async function open(operation: Operation, access: Granted, id: string): Promise<DriveFile> {
    const file = (await visible(operation, access)).find((one) => one.id === id);
    if (file === undefined) throw fileNotFound(id);
    return file;
  }

  function newFile(access: Granted, metadata: Metadata): DriveFile {
    const { email, sub, clientId } = access;
    const at = now();
    return {
      id: randomBytes(25).toString('base64url').slice(0, 33),
      name: 'Untitled',
      mimeType: 'application/octet-stream',
      starred: false,
      trashed: false,
      parents: [rootOf(sub)],
      createdAt: at,
      modifiedAt: at,
      version: 1,
      owner: { email, sub },
      clientId,
      ...metadata,
    };
  }

  /** Creates or changes a file; `path` is the file with its new content, if any. */
  async function write(
    by: { operation: Operation; access: Granted; fileId: string | undefined },
    metadata: Metadata,
    path: string | undefined,
  ): Promise<DriveFile> {
    const { operation, access, fileId } = by;
    if (fileId === undefined && metadata.mimeType === spreadsheet) {
      if (path !== undefined) throw notImplemented('the conversion of uploads');
      const spreadsheetId = await spreadsheets.create(access, metadata.name ?? 'Untitled');
      return open(operation, access, spreadsheetId);
    }
    return inTurn(async () => {
      let file: DriveFile;
      if (fileId === undefined) file = newFile(access, metadata);
      else {
        const before = await open(operation, access, fileId);
        if (before.mimeType === spreadsheet) {
          const { trashed, ...others } = metadata;
          if (trashed === undefined || Object.keys(others).length > 0 || path !== undefined)
            throw notImplemented('changes to spreadsheets; use the Sheets API');
          await spreadsheets.setTrashed(before.id, trashed);
          return open(operation, access, fileId);
        }
        file = { ...before, modifiedAt: now(), ...metadata, version: before.version + 1 };
      }
      if (!hasContent(file.mimeType)) {
        if (path !== undefined) throw badRequest('Bad Request');
        await store.put(file);
        return file;
      }
      if (path !== undefined) return store.putContent(file, path);
      if (file.content === undefined) return store.putContent(file, await uploads.keep(Buffer.alloc(0)));
      await store.put(file);
      return file;
    });
  }

  async function remove(operation: Operation, access: Granted, id: string): Promise<void> {
    await inTurn(async () => {
      const file = await open(operation, access, id);
      if (file.mimeType === spreadsheet) throw notImplemented('the deletion of spreadsheets');
      await store.remove(file.id);
    });
  }

  /** Resolves once all changes are done. */
  const settled = () => lastChange.then(() => {});

  return { visible, open, write, remove, inTurn, settled };
}

function fileOfSpreadsheet(sheet: Awaited<ReturnType<SpreadsheetFiles['list']>>[number]): DriveFile {
  return {
    id: sheet.spreadsheetId,
    name: sheet.title,
    mimeType: spreadsheet,
    starred: false,
    trashed: sheet.trashed,
    parents: [rootOf(sheet.owner.sub)],
    createdAt: sheet.modifiedAt,
    modifiedAt: sheet.modifiedAt,
    version: sheet.version,
    owner: sheet.owner,
    ...(sheet.clientId !== undefined && { clientId: sheet.clientId }),
  };
}
