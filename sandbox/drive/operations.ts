/** The methods of Drive v3 in the sandbox, by HTTP method and path. */

const auth = 'https://www.googleapis.com/auth/';
const writeScopes = [`${auth}drive`, `${auth}drive.file`];
const readScopes = [...writeScopes, `${auth}drive.metadata.readonly`, `${auth}drive.readonly`];

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

const files = '/drive/v3/files';
const oneFile = `${files}/{fileId}`;

const operations: Readonly<Record<string, Operation>> = {
  'GET /drive/v3/about': {
    name: 'about',
    rpc: 'DriveAbout.Get',
    route: '/drive/v3/about',
    scopes: readScopes,
  },
  [`GET ${files}`]: { name: 'list', rpc: 'DriveFiles.List', route: files, scopes: readScopes },
  [`POST ${files}`]: { name: 'create', rpc: 'DriveFiles.Create', route: files, scopes: writeScopes },
  [`GET ${oneFile}`]: { name: 'get', rpc: 'DriveFiles.Get', route: oneFile, scopes: readScopes },
  [`PATCH ${oneFile}`]: { name: 'update', rpc: 'DriveFiles.Update', route: oneFile, scopes: writeScopes },
  [`DELETE ${oneFile}`]: { name: 'delete', rpc: 'DriveFiles.Delete', route: oneFile, scopes: writeScopes },
  [`POST ${oneFile}/watch`]: {
    name: 'watch',
    rpc: 'DriveFiles.Watch',
    route: `${oneFile}/watch`,
    scopes: readScopes,
  },
  'POST /drive/v3/changes/watch': {
    name: 'watchChanges',
    rpc: 'DriveChanges.Watch',
    route: '/drive/v3/changes/watch',
    scopes: readScopes,
  },
  'GET /drive/v3/changes/startPageToken': {
    name: 'startPageToken',
    rpc: 'DriveChanges.GetStartPageToken',
    route: '/drive/v3/changes/startPageToken',
    scopes: readScopes,
  },
  'POST /drive/v3/channels/stop': {
    name: 'stopChannel',
    rpc: 'DriveChannels.Stop',
    route: '/drive/v3/channels/stop',
    scopes: readScopes,
  },
};
// The chunks of a resumable upload are sent to the address of its first request.
for (const method of ['POST', 'PUT', 'DELETE'])
  addUpload(method, { rpc: 'DriveFiles.Create', route: `/upload${files}` });
for (const method of ['PATCH', 'PUT', 'POST', 'DELETE'])
  addUpload(method, { rpc: 'DriveFiles.Update', route: `/upload${oneFile}` });

function addUpload(method: string, { rpc, route }: { rpc: string; route: string }): void {
  const operation: Operation = { name: 'upload', rpc, route, scopes: writeScopes };
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
