/**
 * Uploads: in one request (`media`, `multipart`), or in chunks (`resumable`).
 *
 * It implements both protocols of resumable uploads: Drive's (Content-Range, 308) and Google's common one (X-Goog-Upload-*,
 * always 200). The content of an upload is on disk, not in memory.
 */
import { randomBytes } from 'node:crypto';
import { appendFile, rm, writeFile } from 'node:fs/promises';
import type { Access, ApiReply } from '../api.ts';
import { badRequest, DriveError, uploadTooLarge } from './errors.ts';
import type { FileStore } from './store.ts';

/** The size of each chunk except the last must be a multiple of this. */
const granularityBytes = 256 * 1024;
/** The limit of uploads; the oldest is dropped first. */
const maxUploads = 100;

/** A resumable upload. */
export interface Upload {
  readonly id: string;
  readonly access: Access & { ok: true };
  /** The file whose content it replaces; absent for a new file. */
  readonly fileId: string | undefined;
  readonly metadata: object;
  readonly mimeType: string | undefined;
  /** The fields of the last response. */
  readonly fields: string | undefined;
  readonly path: string;
  receivedBytes: number;
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;
/** The next step of an upload: a response, or the creation of the file. */
type Step = { answer: ApiReply } | { finished: Upload };

/** The two parts of a `multipart/related` body (RFC 2387). Throws 400 unless there are two and the first is JSON. */
export function readMultipart(
  body: Buffer,
  contentType: string,
): { metadata: Buffer; content: Buffer; mimeType: string } {
  const found = /;\s*boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(contentType);
  const boundary = found?.[1] ?? found?.[2];
  if (boundary === undefined) throw badRequest('Missing boundary in multipart body.');
  const delimiter = Buffer.from(`--${boundary}`);
  const starts: number[] = [];
  for (let at = body.indexOf(delimiter); at !== -1; at = body.indexOf(delimiter, at + delimiter.length))
    if (at === 0 || body[at - 1] === 10) starts.push(at);
  const [first, second, last] = starts;
  if (first === undefined || second === undefined || last === undefined || starts.length !== 3)
    throw badRequest('Malformed multipart body.');
  const partBetween = (from: number, to: number) => {
    const part = body.subarray(from + delimiter.length, to);
    const head = part.indexOf('\r\n\r\n');
    if (head === -1) throw badRequest('Malformed multipart body.');
    const type = /^content-type: *(.+?) *$/im.exec(part.toString('latin1', 0, head))?.[1];
    return { type, bytes: part.subarray(head + 4, part.length - 2) };
  };
  const metadata = partBetween(first, second);
  const content = partBetween(second, last);
  return {
    metadata: metadata.bytes,
    content: content.bytes,
    mimeType: content.type ?? 'application/octet-stream',
  };
}

/** The uploads of a sandbox. A restart drops them. */
export class Uploads {
  readonly #store: FileStore;
  readonly #limitBytes: number;
  readonly #uploads = new Map<string, Upload>();

  constructor(store: FileStore, limitBytes: number) {
    this.#store = store;
    this.#limitBytes = limitBytes;
  }

  /** Writes the content of one request to a temporary file; returns its path. */
  async keep(content: Buffer): Promise<string> {
    if (content.length > this.#limitBytes) throw uploadTooLarge(this.#limitBytes);
    const path = await this.#store.newPart(randomBytes(16).toString('hex'));
    await writeFile(path, content);
    return path;
  }

  /** Begins an upload; the response has the address for the content. `at` is the address of this request. */
  async begin(
    wanted: Pick<Upload, 'access' | 'fileId' | 'metadata' | 'fields'>,
    { at, headers }: { at: string; headers: Headers },
  ): Promise<ApiReply> {
    const announced =
      textOf(headers, 'x-upload-content-length') ?? textOf(headers, 'x-goog-upload-header-content-length');
    if (announced !== undefined && Number(announced) > this.#limitBytes)
      throw uploadTooLarge(this.#limitBytes);
    const id = randomBytes(24).toString('base64url');
    const path = await this.#store.newPart(id);
    await writeFile(path, '');
    const mimeType =
      textOf(headers, 'x-upload-content-type') ?? textOf(headers, 'x-goog-upload-header-content-type');
    this.#uploads.set(id, { ...wanted, id, mimeType, path, receivedBytes: 0 });
    for (const oldest of this.#uploads.keys()) {
      if (this.#uploads.size <= maxUploads) break;
      await this.drop(oldest);
    }
    const location = `${at}${at.includes('?') ? '&' : '?'}upload_id=${id}`;
    const isCommon = textOf(headers, 'x-goog-upload-protocol') !== undefined;
    const told: Record<string, string> = isCommon
      ? {
          'X-Goog-Upload-URL': location,
          'X-Goog-Upload-Status': 'active',
          'X-Goog-Upload-Chunk-Granularity': String(granularityBytes),
        }
      : { Location: location };
    return { status: 200, headers: { ...told, 'X-GUploader-UploadID': id }, body: '' };
  }

  /** Appends the next chunk, or returns the progress. Throws 404 for an unknown upload. */
  async next(id: string, request: { method: string; headers: Headers; body: Buffer }): Promise<Step> {
    const upload = this.#uploads.get(id);
    if (upload === undefined) throw noUpload();
    const command = textOf(request.headers, 'x-goog-upload-command');
    return command === undefined ? this.#byRange(upload, request) : this.#byCommand(upload, command, request);
  }

  /** Drops an upload, with its content unless it was moved. */
  async drop(id: string): Promise<void> {
    const upload = this.#uploads.get(id);
    this.#uploads.delete(id);
    if (upload !== undefined) await rm(upload.path, { force: true });
  }

  async #byRange(upload: Upload, request: { method: string; headers: Headers; body: Buffer }): Promise<Step> {
    if (request.method === 'DELETE') {
      await this.drop(upload.id);
      return { answer: { status: 499, headers: {}, body: '' } };
    }
    const given = textOf(request.headers, 'content-range');
    const range = given === undefined ? undefined : /^bytes (?:(\d+)-(\d+)|\*)\/(\d+|\*)$/.exec(given);
    if (range === null) throw badRequest('Failed to parse Content-Range header.');
    if (range === undefined) {
      await this.#append(upload, { start: 0, bytes: request.body, isLast: true });
      return { finished: upload };
    }
    const [, start, end, total] = range;
    if (start === undefined || end === undefined) {
      if (Number(total) === upload.receivedBytes) return { finished: upload };
      return { answer: incomplete(upload) };
    }
    if (Number(end) - Number(start) + 1 !== request.body.length)
      throw badRequest('The Content-Range header does not fit the body.');
    const isLast = total !== '*' && Number(end) + 1 === Number(total);
    await this.#append(upload, { start: Number(start), bytes: request.body, isLast });
    return isLast ? { finished: upload } : { answer: incomplete(upload) };
  }

  async #byCommand(
    upload: Upload,
    command: string,
    request: { headers: Headers; body: Buffer },
  ): Promise<Step> {
    const commands = command.split(',').map((text) => text.trim());
    const answer = (headers: Record<string, string>): Step => ({
      answer: { status: 200, headers, body: '' },
    });
    if (commands.includes('cancel')) {
      await this.drop(upload.id);
      return answer({ 'X-Goog-Upload-Status': 'cancelled' });
    }
    const isLast = commands.includes('finalize');
    if (commands.includes('upload')) {
      const start = Number(textOf(request.headers, 'x-goog-upload-offset') ?? Number.NaN);
      await this.#append(upload, { start, bytes: request.body, isLast });
    } else if (!isLast && !commands.includes('query')) {
      throw badRequest('Invalid X-Goog-Upload-Command.');
    }
    if (isLast) return { finished: upload };
    const size = String(upload.receivedBytes);
    return answer({ 'X-Goog-Upload-Status': 'active', 'X-Goog-Upload-Size-Received': size });
  }

  async #append(upload: Upload, piece: { start: number; bytes: Buffer; isLast: boolean }): Promise<void> {
    const { start, bytes, isLast } = piece;
    if (start !== upload.receivedBytes)
      throw badRequest(`The upload is at byte ${upload.receivedBytes}, not at ${start}.`);
    if (!isLast && bytes.length % granularityBytes !== 0)
      throw badRequest(`The size of a chunk must be a multiple of ${granularityBytes} bytes.`);
    if (upload.receivedBytes + bytes.length > this.#limitBytes) {
      await this.drop(upload.id);
      throw uploadTooLarge(this.#limitBytes);
    }
    upload.receivedBytes += bytes.length;
    await appendFile(upload.path, bytes);
  }
}

function incomplete({ receivedBytes }: Upload): ApiReply {
  const headers: Record<string, string> = receivedBytes > 0 ? { Range: `bytes=0-${receivedBytes - 1}` } : {};
  return { status: 308, headers, body: '' };
}

function noUpload(): DriveError {
  return new DriveError({ code: 404, reason: 'notFound', message: 'Upload not found.' });
}

function textOf(headers: Headers, name: string): string | undefined {
  const value = headers[name];
  return typeof value === 'string' ? value : undefined;
}
