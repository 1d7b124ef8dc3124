/** The bytes of a file, whole or in part (RFC 9110 §14). */
import type { ApiReply } from '../api.ts';
import { rangeNotSatisfiable } from './errors.ts';
import type { DriveFile, FileStore } from './store.ts';

/**
 * The answer to `alt=media`. One range is honoured; a header that is none, or names several, is ignored, as the RFC
 * allows. Throws 416 for a range behind the end.
 */
export async function answerContent(
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
