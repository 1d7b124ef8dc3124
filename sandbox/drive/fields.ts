/** The `fields` parameter of Drive: `files(id,name),nextPageToken`, validated against the fields of the sandbox. */
import { type Mask, pick } from '../sheets/field-mask.ts';
import { invalidParameter } from './errors.ts';

/** The field names of a resource with their own fields; `null` for a field without fields. */
export interface Shape {
  readonly [name: string]: Shape | null;
}

const userShape: Shape = { kind: null, displayName: null, me: null, permissionId: null, emailAddress: null };

export const fileShape: Shape = {
  kind: null,
  id: null,
  name: null,
  mimeType: null,
  description: null,
  starred: null,
  trashed: null,
  parents: null,
  properties: {},
  appProperties: {},
  spaces: null,
  version: null,
  createdTime: null,
  modifiedTime: null,
  owners: userShape,
  ownedByMe: null,
  size: null,
  md5Checksum: null,
  sha256Checksum: null,
  originalFilename: null,
  headRevisionId: null,
  webViewLink: null,
};
export const fileListShape: Shape = {
  kind: null,
  incompleteSearch: null,
  nextPageToken: null,
  files: fileShape,
};
export const channelShape: Shape = {
  kind: null,
  id: null,
  resourceId: null,
  resourceUri: null,
  token: null,
  expiration: null,
};
export const aboutShape: Shape = {
  kind: null,
  user: userShape,
  storageQuota: { limit: null, usage: null, usageInDrive: null, usageInDriveTrash: null },
};

/** The part of `value` that `text` selects. Throws 400 `invalidParameter` at the first unknown name. */
export function pickFields(value: object, text: string, shape: Shape): object {
  const tokens = text.match(/[(),/]|[^(),/\s]+/g) ?? [];
  let at = 0;

  function list(within: Shape): Mask {
    const mask: Record<string, Mask> = {};
    let isAll = false;
    for (;;) {
      const [name, below] = path(within);
      if (name === '*') isAll = true;
      else mask[name] = merged(mask[name], below);
      if (tokens[at] !== ',') return isAll || mask;
      at += 1;
    }
  }

  function path(within: Shape): [string, Mask] {
    const name = tokens[at] ?? '';
    at += 1;
    const isFree = Object.keys(within).length === 0;
    if (/^[(),/]?$/.test(name) || !(isFree || name === '*' || Object.hasOwn(within, name)))
      throw invalidParameter('fields', `Invalid field selection ${name}`);
    const below = (isFree ? undefined : within[name]) ?? undefined;
    const opener = tokens[at];
    if (opener !== '/' && opener !== '(') return [name, true];
    if (below === undefined) throw invalidParameter('fields', `Invalid field selection ${name}`);
    at += 1;
    if (opener === '/') {
      const [child, rest] = path(below);
      return [name, child === '*' ? true : { [child]: rest }];
    }
    const mask = list(below);
    if (tokens[at] !== ')') throw invalidParameter('fields', `Invalid field selection ${text}`);
    at += 1;
    return [name, mask];
  }

  const mask = list(shape);
  if (at < tokens.length) throw invalidParameter('fields', `Invalid field selection ${tokens[at]}`);
  return pick(value, mask) as object;
}

function merged(a: Mask | undefined, b: Mask): Mask {
  if (a === undefined || b === true) return b;
  if (a === true) return true;
  const result: Record<string, Mask> = { ...a };
  for (const [name, mask] of Object.entries(b)) result[name] = merged(result[name], mask);
  return result;
}
