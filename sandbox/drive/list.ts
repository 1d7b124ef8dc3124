/** files.list: what is asked for, in order, page by page. */
import { invalidParameter, notImplemented } from './errors.ts';
import { parseQuery } from './query.ts';
import type { DriveFile } from './store.ts';

/**
 * One page of `files`. A page token is the id of the last file shown, so a file made meanwhile is not shown twice; a
 * token whose file is gone is refused, as Google refuses old ones.
 */
export function listPage(
  files: readonly DriveFile[],
  query: URLSearchParams,
): { files: DriveFile[]; nextPageToken: string | undefined } {
  const spaces = query.get('spaces') ?? 'drive';
  if (spaces !== 'drive') throw notImplemented(`spaces=${spaces}`);
  const corpora = query.get('corpora') ?? 'user';
  if (corpora !== 'user' && corpora !== 'allDrives') throw notImplemented(`corpora=${corpora}`);
  const pageSize = Number(query.get('pageSize') ?? 100);
  if (!Number.isInteger(pageSize) || pageSize < 1 || pageSize > 1000)
    throw invalidParameter(
      'pageSize',
      `Invalid value '${pageSize}'. Values must be within the range: [1, 1000]`,
    );
  const q = query.get('q') ?? '';
  const test = q.trim() === '' ? () => true : parseQuery(q);
  const found = files.filter(test).sort(orderOf(query.get('orderBy') ?? 'modifiedTime desc'));
  const token = query.get('pageToken');
  const after = token === null ? -1 : found.findIndex(({ id }) => tokenOf(id) === token);
  if (token !== null && after === -1) throw invalidParameter('pageToken', 'Invalid Value');
  const page = found.slice(after + 1, after + 1 + pageSize);
  const last = page.at(-1);
  const hasMore = last !== undefined && found.at(-1) !== last;
  return { files: page, nextPageToken: hasMore ? tokenOf(last.id) : undefined };
}

function tokenOf(id: string): string {
  return `~!!~${Buffer.from(id).toString('base64url')}`;
}

type Order = (a: DriveFile, b: DriveFile) => number;

const ORDERS: Readonly<Record<string, Order>> = {
  name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  createdTime: (a, b) => a.createdAt - b.createdAt,
  modifiedTime: (a, b) => a.modifiedAt - b.modifiedAt,
  folder: (a, b) => Number(isFolder(b)) - Number(isFolder(a)),
};

function isFolder({ mimeType }: DriveFile): boolean {
  return mimeType === 'application/vnd.google-apps.folder';
}

function orderOf(text: string): Order {
  const keys = text.split(',').map((key) => {
    const [, name = '', descending] = /^ *([A-Za-z_]+)( desc)? *$/.exec(key) ?? [];
    const order = ORDERS[name];
    if (order === undefined) throw invalidParameter('orderBy', `Invalid field name: ${key.trim()}`);
    return descending === undefined ? order : (a: DriveFile, b: DriveFile) => order(b, a);
  });
  // The id decides at last, so that pages never overlap.
  return (a, b) => {
    for (const order of keys) {
      const difference = order(a, b);
      if (difference !== 0) return difference;
    }
    return a.id < b.id ? -1 : 1;
  };
}
