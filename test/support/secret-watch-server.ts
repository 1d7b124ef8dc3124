import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { scopesOfRole } from '../../server/http/auth/caller.ts';
import { DataKey, type Vault } from '../../server/vault.ts';
import { isKept, type SecretWatch } from './secret-watch.ts';

/** Of a longer answer its beginning and its end are told. */
const maxOfEnd = 128 * 1024;

/**
 * Reports every answer of a server in this process to the watch, for any caller and client: redirects, refusals, pages
 * and answers that the proxy relays included. `scopesOf` has the scopes of the caller's key.
 */
export function watchServer(
  server: Server,
  { watch, scopesOf }: { watch: SecretWatch; scopesOf: ReadonlyMap<string, readonly string[]> },
): void {
  const follow = (request: IncomingMessage, response: ServerResponse) => {
    const body = createBody();
    const route = `${request.method} ${request.url}`;
    const sent = isKept(route) ? bodyOf(request) : undefined;
    const { write, end } = response;
    const told = (chunk: unknown) => {
      if (typeof chunk === 'string' || chunk instanceof Uint8Array) body.add(Buffer.from(chunk as string));
    };
    response.write = function (this: ServerResponse, ...given: unknown[]) {
      told(given[0]);
      return Reflect.apply(write, this, given);
    } as typeof write;
    response.end = function (this: ServerResponse, ...given: unknown[]) {
      told(given[0]);
      return Reflect.apply(end, this, given);
    } as typeof end;
    const key = /^Bearer (.*)$/i.exec(request.headers.authorization ?? '')?.[1] ?? '';
    response.once('close', () => {
      watch.answered(route, {
        sent: sent?.text(),
        status: response.statusCode,
        text: body.text(),
        headers: headersOf(response),
        scopes: isOfPerson(request) ? [...scopesOfRole('owner')] : (scopesOf.get(key) ?? []),
      });
    });
  };
  server.prependListener('request', follow).prependListener('checkContinue', follow);
}

/** The body of a request, copied as its reader reads it: a second reader would consume it. */
function bodyOf(request: IncomingMessage) {
  const body = createBody();
  const { push } = request;
  request.push = function (this: IncomingMessage, chunk: Buffer | null, ...rest: []) {
    if (chunk !== null) body.add(chunk);
    return Reflect.apply(push, this, [chunk, ...rest]);
  };
  return body;
}

/** Whether a cookie counts; what its role may not do is not given to it at all. */
function isOfPerson({ headers }: IncomingMessage): boolean {
  return headers.authorization === undefined && headers['x-trellis-environment'] !== undefined;
}

/** As they were sent: what is handed to `writeHead` as a list is told by no getter. */
function headersOf(response: ServerResponse): [string, string][] {
  const { _header: head } = response as ServerResponse & { _header?: string | null };
  const lines = (head ?? '').split('\r\n').slice(1);
  return lines.flatMap((line) => {
    const [, name, value] = /^([^:]+): ?(.*)$/.exec(line) ?? [];
    return name === undefined || value === undefined ? [] : [[name.toLowerCase(), value]];
  });
}

function createBody() {
  const beginning: Buffer[] = [];
  let ending: Buffer = Buffer.alloc(0);
  let length = 0;
  return {
    add(chunk: Buffer): void {
      if (length < maxOfEnd) beginning.push(chunk);
      else ending = Buffer.concat([ending, chunk]).subarray(-maxOfEnd);
      length += chunk.length;
    },
    text: () => Buffer.concat([...beginning, ending]).toString('utf8'),
  };
}

/** What an application gave along is no secret of the service, and is shown as it is. */
const givenAlong = ['metadata', 'connection config'];

/** The same vault, of which the watch learns every data key, and every secret that one seals. */
export function watchedVault(vault: Vault, watch: Pick<SecretWatch, 'made' | 'sealed'>): Vault {
  const told = (key: DataKey) => {
    watch.made('data_key', DataKey.rootOf(key));
    key.seal = (plain, context) => {
      if (typeof plain === 'string' && !givenAlong.includes(context)) watch.sealed(plain);
      return DataKey.prototype.seal.call(key, plain, context);
    };
  };
  for (const { key } of vault.masterKeys) watch.made('master_key', key.export());
  return {
    ...vault,
    createDataKey(master) {
      const made = vault.createDataKey(master);
      told(made.key);
      return made;
    },
    unwrap(wrapped) {
      const key = vault.unwrap(wrapped);
      told(key);
      return key;
    },
  };
}
