/** Calling Google for a spreadsheet: what the connection may do, and answers read or refused in words of ours. */
import type { Context } from 'trellis';
import { fault, sourceFault } from './faults.ts';

/** What functions of both kinds have. */
export type Api = Pick<Context, 'get' | 'post' | 'getConnection' | 'log'>;

export type Rights = { canWrite: boolean; canSeeFiles: boolean; account: string | undefined };

const auth = 'https://www.googleapis.com/auth/';
const writing = [`${auth}spreadsheets`, `${auth}drive`, `${auth}drive.file`];
const seeing = [
  `${auth}drive`,
  `${auth}drive.file`,
  `${auth}drive.readonly`,
  `${auth}drive.metadata.readonly`,
];
/** Further attempts of a read that fails in a way that passes. */
export const retries = 2;
export const spreadsheets = '/v4/spreadsheets';

export async function rightsOf(trellis: Api): Promise<Rights> {
  const { scopes, account } = await trellis.getConnection();
  const granted = Array.isArray(scopes) ? (scopes as string[]) : [];
  const email = (account as { email?: unknown } | null)?.email;
  return {
    canWrite: writing.some((scope) => granted.includes(scope)),
    canSeeFiles: seeing.some((scope) => granted.includes(scope)),
    account: typeof email === 'string' ? email : undefined,
  };
}

/** What a GET of a spreadsheet answers. Throws what `sourceFault` makes of a refusal, and `upstream_unreadable`. */
export async function getJson<T>(
  trellis: Api,
  {
    spreadsheetId,
    rights,
    path,
    params,
  }: { spreadsheetId: string; rights: Rights; path: string; params: Record<string, string | boolean> },
): Promise<T> {
  const { data } = await trellis
    .get<Buffer>({
      endpoint: `${spreadsheets}/${spreadsheetId}${path}`,
      ...{ params, responseType: 'arraybuffer', retries },
    })
    .catch((error: unknown) => {
      throw sourceFault(error, rights.account);
    });
  return jsonOf<T>(data);
}

/** Throws `upstream_unreadable`. */
export function jsonOf<T>(bytes: Buffer): T {
  try {
    const json: unknown = JSON.parse(bytes.toString());
    if (typeof json === 'object' && json !== null) return json as T;
  } catch {}
  throw fault('upstream_unreadable', 'Google answered something else than JSON; nothing was changed.');
}
