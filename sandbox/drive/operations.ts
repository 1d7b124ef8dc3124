/** The methods of Drive v3 in the sandbox, by HTTP method and path. */

const AUTH = 'https://www.googleapis.com/auth/';
const WRITE = [`${AUTH}drive`, `${AUTH}drive.file`];
const READ = [...WRITE, `${AUTH}drive.metadata.readonly`, `${AUTH}drive.readonly`];

type Push = 'watch' | 'watchChanges' | 'startPageToken' | 'stopChannel';

export interface Operation {
  readonly name: 'about' | 'list' | 'get' | 'create' | 'update' | 'upload' | 'delete' | Push;
  /** Its name in Google's RPC service. */
  readonly rpc: string;
  /** The path with `{fileId}`, for the counts of calls. */
  readonly route: string;
  /** One of them is sufficient. */
  readonly scopes: readonly string[];
}

const FILES = '/drive/v3/files';
const ONE = `${FILES}/{fileId}`;

const operations: Readonly<Record<string, Operation>> = {
  'GET /drive/v3/about': { name: 'about', rpc: 'DriveAbout.Get', route: '/drive/v3/about', scopes: READ },
  [`GET ${FILES}`]: { name: 'list', rpc: 'DriveFiles.List', route: FILES, scopes: READ },
  [`POST ${FILES}`]: { name: 'create', rpc: 'DriveFiles.Create', route: FILES, scopes: WRITE },
  [`GET ${ONE}`]: { name: 'get', rpc: 'DriveFiles.Get', route: ONE, scopes: READ },
  [`PATCH ${ONE}`]: { name: 'update', rpc: 'DriveFiles.Update', route: ONE, scopes: WRITE },
  [`DELETE ${ONE}`]: { name: 'delete', rpc: 'DriveFiles.Delete', route: ONE, scopes: WRITE },
  [`POST ${ONE}/watch`]: { name: 'watch', rpc: 'DriveFiles.Watch', route: `${ONE}/watch`, scopes: READ },
  'POST /drive/v3/changes/watch': {
    name: 'watchChanges',
    rpc: 'DriveChanges.Watch',
    route: '/drive/v3/changes/watch',
    scopes: READ,
  },
  'GET /drive/v3/changes/startPageToken': {
    name: 'startPageToken',
    rpc: 'DriveChanges.GetStartPageToken',
    route: '/drive/v3/changes/startPageToken',
    scopes: READ,
  },
  'POST /drive/v3/channels/stop': {
    name: 'stopChannel',
    rpc: 'DriveChannels.Stop',
    route: '/drive/v3/channels/stop',
    scopes: READ,
  },
};
// The chunks of a resumable upload are sent to the address of its first request.
for (const method of ['POST', 'PUT', 'DELETE'])
  addUpload(method, { rpc: 'DriveFiles.Create', route: `/upload${FILES}` });
for (const method of ['PATCH', 'PUT', 'POST', 'DELETE'])
  addUpload(method, { rpc: 'DriveFiles.Update', route: `/upload${ONE}` });

function addUpload(method: string, { rpc, route }: { rpc: string; route: string }): void {
  const operation: Operation = { name: 'upload', rpc, route, scopes: WRITE };
  Object.assign(operations, { [`${method} ${route}`]: operation });
}

/** The operation of an HTTP method and a path (without query); undefined if there is none. */
export function findOperation(
  method: string,
  path: string,
): { operation: Operation; fileId: string | undefined } | undefined {
  const [, stem = path, fileId, below = ''] =
    /^(.*\/v3\/files)\/([A-Za-z0-9_-]{1,100})(\/watch)?$/.exec(path) ?? [];
  const operation = operations[`${method} ${fileId === undefined ? stem : `${stem}/{fileId}${below}`}`];
  return operation && { operation, fileId };
}
