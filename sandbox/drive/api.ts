/**
 * The part of the Drive API v3 that file clients need: about.get, files create, get, list, update, delete, and watch.
 *
 * Owns: routes, the order of checks (route, token, scope, file, method), which files an account and its client see.
 * channels.ts tells of changes, uploads.ts takes bytes in, store.ts keeps them, query.ts reads `q`, fields.ts `fields`, metadata.ts the resource.
 * Does not own: spreadsheets, which the Sheets API keeps and this one shows. What is assumed rather than known about
 * Google is listed in README.md beside this file.
 */
import { rm } from 'node:fs/promises';
import type { Access } from '../access.ts';
import type { Api, ApiReply, ApiRequest } from '../api.ts';
import { htmlPage, jsonAnswer } from '../sheets/answers.ts';
import { Channels } from './channels.ts';
import { answerContent } from './content.ts';
import {
  badRequest,
  DriveError,
  invalidParameter,
  notDownloadable,
  notImplemented,
  scopeInsufficient,
  unauthenticated,
} from './errors.ts';
import { ABOUT, CHANNEL, FILE, FILE_LIST, pickFields, type Shape } from './fields.ts';
import { createFiles, type SpreadsheetFiles } from './files.ts';
import { listPage } from './list.ts';
import { describeFile, describeUser, type Metadata, readMetadata } from './metadata.ts';
import { findOperation, type Operation } from './operations.ts';
import { createFileStore, type DriveFile, type StorageQuota } from './store.ts';
import { readMultipart, type Upload, Uploads } from './uploads.ts';

type Granted = Access & { ok: true };

interface DriveOptions {
  dataDir: string;
  /** The origin that addresses in answers start with. */
  url: string;
  /** Milliseconds since 1970. */
  now: () => number;
  spreadsheets: SpreadsheetFiles;
  /** Default: 10,000 files and 1 GiB. */
  quota?: StorageQuota;
}

/** A file is no larger than a request may be, so that no answer holds more than that. */
const FILE_LIMIT_BYTES = 32 * 1024 * 1024;
const DEFAULT_FIELDS = 'kind,id,name,mimeType';

interface DriveApi extends Api {
  readonly channels: Channels;
}

/** A Drive API over the files in `dataDir`. */
export function createDriveApi({
  dataDir,
  url,
  now,
  spreadsheets,
  quota = STORAGE_QUOTA,
}: DriveOptions): DriveApi {
  const channels = new Channels({ url, now });
  const store = createFileStore(dataDir, quota);
  const uploads = new Uploads(store, FILE_LIMIT_BYTES);
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
      tellOf(file, { fileId, changed: 'content' });
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
    tellOf(file, { fileId, changed: 'content' });
    return shown(describeFile(file, url), { fields: done.fields ?? DEFAULT_FIELDS, shape: FILE });
  }

  /** `fileId` is that of the request: a new file is watched by nobody yet, but its account may be. */
  function tellOf(
    file: DriveFile,
    { fileId, changed }: { fileId: string | undefined; changed: string },
  ): void {
    const state = fileId === undefined ? 'add' : 'update';
    channels.tell(file.id, { sub: file.owner.sub, state, changed });
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
        return shownAs({ kind: 'drive#about', user: describeUser(access), storageQuota }, ABOUT, '*');
      }
      case 'list': {
        const page = listPage(await visible(operation, access), query);
        const list = {
          kind: 'drive#fileList',
          incompleteSearch: false,
          ...(page.nextPageToken !== undefined && { nextPageToken: page.nextPageToken }),
          files: page.files.map(shownFile),
        };
        return shownAs(list, FILE_LIST, `kind,incompleteSearch,nextPageToken,files(${DEFAULT_FIELDS})`);
      }
      case 'get': {
        const file = await open(operation, access, fileId);
        if (query.get('alt') !== 'media') return shownAs(shownFile(file), FILE, DEFAULT_FIELDS);
        if (file.content === undefined) throw notDownloadable();
        return answerContent(file, { store, range: request.headers.range });
      }
      case 'create':
      case 'update': {
        if (query.has('addParents') || query.has('removeParents'))
          throw notImplemented('addParents and removeParents');
        const by = { operation, access, fileId: request.fileId };
        const file = await write(by, readMetadata(body, access.sub), undefined);
        tellOf(file, { fileId: request.fileId, changed: 'properties' });
        return shownAs(shownFile(file), FILE, DEFAULT_FIELDS);
      }
      case 'upload': {
        const made = await upload(operation, access, request);
        return isReply(made) ? made : shownAs(made, FILE, DEFAULT_FIELDS);
      }
      case 'delete':
        await remove(operation, access, fileId);
        channels.tell(fileId, { sub: access.sub, state: 'remove' });
        return { status: 204, headers: {}, body: '' };
      case 'watch':
        await open(operation, access, fileId);
        return shownAs(channels.open(access, { fileId, body }), CHANNEL, '*');
      case 'startPageToken':
        return { kind: 'drive#startPageToken', startPageToken: '1' };
      case 'watchChanges':
        if (!query.get('pageToken')) throw invalidParameter('pageToken', 'Required parameter: pageToken');
        return shownAs(channels.open(access, { fileId: undefined, body }), CHANNEL, '*');
      case 'stopChannel':
        channels.stop(access, body);
        return { status: 204, headers: {}, body: '' };
    }
  }

  async function answer(operation: Operation, request: Call): Promise<object | ApiReply> {
    const uploadId = request.query.get('upload_id');
    if (operation.name === 'upload' && uploadId !== null) {
      // The id is the credential: Google takes the pieces without a token.
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

const STORAGE_QUOTA: StorageQuota = { files: 10_000, bytes: 1024 ** 3 };

type Call = ApiRequest & { query: URLSearchParams; fileId: string | undefined };

function shown(value: object, { fields, shape }: { fields: string; shape: Shape }): object {
  return pickFields(value, fields, shape);
}

function isReply(made: object | ApiReply): made is ApiReply {
  return 'headers' in made && 'body' in made;
}
