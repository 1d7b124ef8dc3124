/**
 * The part of the Drive API v3 for clients of files: about.get, files create, get, list, update, delete, and watch.
 *
 * It checks a request in Google's order: route, token, scope, file, method. Spreadsheets are stored by the Sheets API.
 * README.md lists the assumptions about Google.
 */
import { rm } from 'node:fs/promises';
import type { Access, Api, ApiReply, ApiRequest } from '../api.ts';
import { htmlPage, jsonAnswer } from '../sheets/answers.ts';
import { Channels } from './channels.ts';
import {
  badRequest,
  DriveError,
  invalidParameter,
  notDownloadable,
  notImplemented,
  rangeNotSatisfiable,
  scopeInsufficient,
  unauthenticated,
} from './errors.ts';
import { aboutShape, channelShape, fileListShape, fileShape, pickFields, type Shape } from './fields.ts';
import { createFiles, type SpreadsheetFiles } from './files.ts';
import { listPage } from './list.ts';
import { describeFile, describeUser, type Metadata, readMetadata } from './metadata.ts';
import { findOperation, type Operation } from './operations.ts';
import { createFileStore, type DriveFile, type FileStore, type StorageQuota } from './store.ts';
import { readMultipart, type Upload, Uploads } from './uploads.ts';

type Granted = Access & { ok: true };

interface DriveOptions {
  dataDir: string;
  /** The origin of addresses in responses. */
  url: string;
  /** Milliseconds since 1970. */
  now: () => number;
  spreadsheets: SpreadsheetFiles;
  /** Default: 10,000 files and 1 GiB. */
  quota?: StorageQuota;
}

/** The limit of a file, equal to that of a request body. */
const fileLimitBytes = 32 * 1024 * 1024;
const defaultFields = 'kind,id,name,mimeType';

interface DriveApi extends Api {
  readonly channels: Channels;
}

/** A Drive API for the files in `dataDir`. */
export function createDriveApi({
  dataDir,
  url,
  now,
  spreadsheets,
  quota = defaultStorageQuota,
}: DriveOptions): DriveApi {
  const channels = new Channels({ url, now });
  const store = createFileStore(dataDir, quota);
  const uploads = new Uploads(store, fileLimitBytes);
  const { visible, open, write, remove, inTurn, settled } = createFiles({
    store,
    uploads,
    spreadsheets,
    now,
  });

  async function upload(operation: Operation, access: Granted, request: Call): Promise<object | ApiReply> {
    const { query, headers, body, fileId } = request;
    const contentType = String(headers['content-type'] ?? '');
    const by = { operation, access, fileId };
    const withBytes = async (metadata: Metadata, mimeType: string, content: Buffer) => {
      const path = await uploads.keep(content);
      const typed = fileId === undefined ? { mimeType, ...metadata } : metadata;
      const file = await write(by, typed, path).finally(() => rm(path, { force: true }));
      notifyOf(file, { fileId, changed: 'content' });
      return shownFile(file);
    };
    if (fileId !== undefined) await open(operation, access, fileId);
    const kind = query.get('uploadType') ?? String(headers['x-goog-upload-protocol'] ?? '');
    switch (kind) {
      case 'media':
        return withBytes({}, contentType || 'application/octet-stream', body);
      case 'multipart': {
        const parts = readMultipart(body, contentType);
        return withBytes(readMetadata(parts.metadata, access.sub), parts.mimeType, parts.content);
      }
      case 'resumable': {
        const metadata = readMetadata(body, access.sub);
        const fields = query.get('fields') ?? undefined;
        const at = `${url}${request.rawUrl}`;
        return uploads.begin({ access, fileId, metadata, fields }, { at, headers });
      }
      default:
        throw badRequest('Invalid upload type.');
    }
  }

  async function finish(operation: Operation, done: Upload): Promise<object> {
    const { access, fileId, mimeType, path } = done;
    const metadata = fileId === undefined && mimeType ? { mimeType, ...done.metadata } : done.metadata;
    const file = await write({ operation, access, fileId }, metadata, path).finally(() =>
      uploads.drop(done.id),
    );
    notifyOf(file, { fileId, changed: 'content' });
    return shown(describeFile(file, url), { fields: done.fields ?? defaultFields, shape: fileShape });
  }

  /** Notifies push channels. `fileId` is that of the request: a new file has none, but the account may have a channel. */
  function notifyOf(
    file: DriveFile,
    { fileId, changed }: { fileId: string | undefined; changed: string },
  ): void {
    const state = fileId === undefined ? 'add' : 'update';
    channels.notify(file.id, { sub: file.owner.sub, state, changed });
  }

  const shownFile = (file: DriveFile) => describeFile(file, url);

  async function run(operation: Operation, access: Granted, request: Call): Promise<object | ApiReply> {
    const { query, body } = request;
    const fileId = request.fileId ?? '';
    const shownAs = (value: object, shape: Shape, fallback: string) =>
      shown(value, { fields: query.get('fields') ?? fallback, shape });
    switch (operation.name) {
      case 'about': {
        if (!query.get('fields'))
          throw invalidParameter('fields', "The 'fields' parameter is required for this method.");
        const usage = (await store.list())
          .filter(({ owner }) => owner.sub === access.sub)
          .reduce((sum, { content }) => sum + (content?.sizeBytes ?? 0), 0);
        const storageQuota = {
          limit: String(quota.bytes),
          usage: String(usage),
          usageInDrive: String(usage),
          usageInDriveTrash: '0',
        };
        return shownAs({ kind: 'drive#about', user: describeUser(access), storageQuota }, aboutShape, '*');
      }
      case 'list': {
        const page = listPage(await visible(operation, access), query);
        const list = {
          kind: 'drive#fileList',
          incompleteSearch: false,
          ...(page.nextPageToken !== undefined && { nextPageToken: page.nextPageToken }),
          files: page.files.map(shownFile),
        };
        return shownAs(list, fileListShape, `kind,incompleteSearch,nextPageToken,files(${defaultFields})`);
      }
      case 'get': {
        const file = await open(operation, access, fileId);
        if (query.get('alt') !== 'media') return shownAs(shownFile(file), fileShape, defaultFields);
        if (file.content === undefined) throw notDownloadable();
        return answerContent(file, { store, range: request.headers.range });
      }
      case 'create':
      case 'update': {
        if (query.has('addParents') || query.has('removeParents'))
          throw notImplemented('addParents and removeParents');
        const by = { operation, access, fileId: request.fileId };
        const file = await write(by, readMetadata(body, access.sub), undefined);
        notifyOf(file, { fileId: request.fileId, changed: 'properties' });
        return shownAs(shownFile(file), fileShape, defaultFields);
      }
      case 'upload': {
        const made = await upload(operation, access, request);
        return isReply(made) ? made : shownAs(made, fileShape, defaultFields);
      }
      case 'delete':
        await remove(operation, access, fileId);
        channels.notify(fileId, { sub: access.sub, state: 'remove' });
        return { status: 204, headers: {}, body: '' };
      case 'watch':
        await open(operation, access, fileId);
        return shownAs(channels.open(access, { fileId, body }), channelShape, '*');
      case 'startPageToken':
        return { kind: 'drive#startPageToken', startPageToken: '1' };
      case 'watchChanges':
        if (!query.get('pageToken')) throw invalidParameter('pageToken', 'Required parameter: pageToken');
        return shownAs(channels.open(access, { fileId: undefined, body }), channelShape, '*');
      case 'stopChannel':
        channels.stop(access, body);
        return { status: 204, headers: {}, body: '' };
    }
  }

  async function answer(operation: Operation, request: Call): Promise<object | ApiReply> {
    const uploadId = request.query.get('upload_id');
    if (operation.name === 'upload' && uploadId !== null) {
      // The upload ID is the credential: Google accepts the chunks without a token.
      const step = await inTurn(() => uploads.next(uploadId, request));
      return 'answer' in step ? step.answer : finish(operation, step.finished);
    }
    const { access } = request;
    if (!access.ok) throw unauthenticated(access.kind);
    const isMedia = operation.name === 'get' && request.query.get('alt') === 'media';
    const scopes = isMedia
      ? operation.scopes.filter((scope) => !scope.includes('metadata'))
      : operation.scopes;
    if (!scopes.some((scope) => access.scopes.has(scope))) throw scopeInsufficient(operation.rpc, scopes);
    return run(operation, access, request);
  }

  return {
    matches: (path) => /^(\/upload)?\/drive(\/|$)/.test(path),

    routeOf: (method, path) => findOperation(method, path)?.operation.route ?? '/drive/{unknown}',

    async handle(request) {
      const [path = '', ...rest] = request.rawUrl.split('?');
      const query = new URLSearchParams(rest.join('?'));
      const found = findOperation(request.method, path);
      if (found === undefined) return htmlPage(404, path);
      const { operation, fileId } = found;
      const isCompact = /^(false|0)$/i.test(query.get('prettyPrint') ?? '');
      const inJson = (status: number, json: object, extra: Readonly<Record<string, string>>) =>
        jsonAnswer({ status, json, route: operation.route, isCompact, extra }, request.headers);
      try {
        const made = await answer(operation, { ...request, query, fileId });
        return isReply(made) ? made : await inJson(200, made, {});
      } catch (error) {
        if (!(error instanceof DriveError)) throw error;
        return inJson(error.code, error.toJson(), error.headers);
      }
    },

    channels,

    async close() {
      await settled();
      await channels.close();
    },
  };
}

const defaultStorageQuota: StorageQuota = { files: 10_000, bytes: 1024 ** 3 };

type Call = ApiRequest & { query: URLSearchParams; fileId: string | undefined };

function shown(value: object, { fields, shape }: { fields: string; shape: Shape }): object {
  return pickFields(value, fields, shape);
}

function isReply(made: object | ApiReply): made is ApiReply {
  return 'headers' in made && 'body' in made;
}

/** The bytes of a file, whole or in part (RFC 9110 §14). */

/**
 * The response to `alt=media`. A single range is supported; an invalid header, or several ranges, are ignored, which the RFC
 * allows. Throws 416 for a range beyond the end.
 */
async function answerContent(
  file: DriveFile,
  { store, range }: { store: FileStore; range: string | undefined },
): Promise<ApiReply> {
  const sizeBytes = file.content?.sizeBytes ?? 0;
  const wanted = rangeOf(range, sizeBytes);
  const start = wanted?.start ?? 0;
  const end = wanted?.end ?? sizeBytes - 1;
  const body = sizeBytes === 0 ? Buffer.alloc(0) : await store.read(file.id, { start, end });
  return {
    status: wanted === undefined ? 200 : 206,
    headers: {
      'Content-Type': file.mimeType,
      'Content-Disposition': 'attachment',
      'Cache-Control': 'private, max-age=0, must-revalidate',
      Vary: 'Origin, X-Origin',
      ...(wanted && { 'Content-Range': `bytes ${start}-${end}/${sizeBytes}` }),
    },
    body,
  };
}

function rangeOf(header: string | undefined, sizeBytes: number): { start: number; end: number } | undefined {
  const found = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (found === null || found[0] === 'bytes=-') return undefined;
  const [, first = '', last = ''] = found;
  const start = first === '' ? Math.max(0, sizeBytes - Number(last)) : Number(first);
  const end = first === '' || last === '' ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1);
  if (start >= sizeBytes) throw rangeNotSatisfiable(sizeBytes);
  if (end < start) return undefined;
  return { start, end };
}
