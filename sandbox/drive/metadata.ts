/** The metadata of a file in requests and responses. */
import { badRequest, DriveError, notImplemented } from './errors.ts';
import type { DriveFile } from './store.ts';

export const spreadsheet = 'application/vnd.google-apps.spreadsheet';
const apps = 'application/vnd.google-apps.';

/** The fields of a file that clients may set. */
export type Metadata = Partial<
  Pick<
    DriveFile,
    | 'name'
    | 'mimeType'
    | 'description'
    | 'starred'
    | 'trashed'
    | 'parents'
    | 'properties'
    | 'appProperties'
    | 'createdAt'
    | 'modifiedAt'
  >
>;

/** The ID of an account's root folder, for the alias `root`. */
export function rootOf(sub: string): string {
  return `0A${sub}`;
}

/** Whether files of this type have content; folders and Google documents do not. */
export function hasContent(mimeType: string): boolean {
  return !mimeType.startsWith(apps);
}

/**
 * The metadata in a JSON body, which may be empty. Throws 400 for wrong types, 403 for fields that are not writable, 501
 * for fields that the sandbox does not implement.
 */
export function readMetadata(body: Buffer, sub: string): Metadata {
  let given: unknown;
  try {
    given = body.length === 0 ? {} : JSON.parse(body.toString());
  } catch {
    throw badRequest('Parse Error');
  }
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw badRequest('Parse Error');
  const metadata: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === null) continue;
    if (readOnly.has(name)) throw notWritable();
    const reader = readers[name];
    if (reader === undefined) throw notImplemented(`the field ${name}`);
    const read = reader.read(value);
    if (read === undefined) throw badRequest(`Invalid value for field ${name}`);
    metadata[reader.as ?? name] = read;
  }
  const { parents } = metadata as Metadata;
  if (parents !== undefined) metadata.parents = parents.map((id) => (id === 'root' ? rootOf(sub) : id));
  return metadata as Metadata;
}

/** The whole resource. The caller selects the requested fields. */
export function describeFile(file: DriveFile, url: string): object {
  const { owner, content } = file;
  return {
    kind: 'drive#file',
    id: file.id,
    name: file.name,
    mimeType: file.mimeType,
    ...(file.description !== undefined && { description: file.description }),
    starred: file.starred,
    trashed: file.trashed,
    parents: file.parents,
    ...(file.properties && { properties: file.properties }),
    ...(file.appProperties && { appProperties: file.appProperties }),
    spaces: ['drive'],
    version: String(file.version),
    createdTime: new Date(file.createdAt).toISOString(),
    modifiedTime: new Date(file.modifiedAt).toISOString(),
    owners: [describeUser(owner)],
    ownedByMe: true,
    ...(content && {
      size: String(content.sizeBytes),
      md5Checksum: content.md5,
      sha256Checksum: content.sha256,
      originalFilename: file.name,
      headRevisionId: `${file.id}-${content.sha256.slice(0, 16)}`,
    }),
    webViewLink:
      file.mimeType === spreadsheet
        ? `${url}/spreadsheets/d/${file.id}/edit`
        : `${url}/file/d/${file.id}/view`,
  };
}

/** The user resource of the caller's account. */
export function describeUser({ email, sub }: { email: string; sub: string }): object {
  const displayName = email.split('@', 1)[0];
  return { kind: 'drive#user', displayName, me: true, permissionId: sub, emailAddress: email };
}

const readOnly = new Set(
  'kind,version,size,md5Checksum,sha1Checksum,sha256Checksum,owners,ownedByMe,spaces,webViewLink,headRevisionId'.split(
    ',',
  ),
);

const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
const flag = (value: unknown) => (typeof value === 'boolean' ? value : undefined);
const time = (value: unknown) => {
  const at = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? undefined : at;
};
const texts = (value: unknown) =>
  Array.isArray(value) && value.every((one) => typeof one === 'string') ? value : undefined;
const pairs = (value: unknown) =>
  typeof value === 'object' && !Array.isArray(value) && texts(Object.values(value ?? {})) ? value : undefined;

const readers: Readonly<Record<string, { read: (value: unknown) => unknown; as?: string }>> = {
  name: { read: text },
  mimeType: { read: text },
  description: { read: text },
  starred: { read: flag },
  trashed: { read: flag },
  parents: { read: texts },
  properties: { read: pairs },
  appProperties: { read: pairs },
  createdTime: { read: time, as: 'createdAt' },
  modifiedTime: { read: time, as: 'modifiedAt' },
};

function notWritable(): DriveError {
  const message = 'The resource body includes fields which are not directly writable.';
  return new DriveError({ code: 403, reason: 'fieldNotWritable', message });
}
