/** Requests to the Sheets API: the permissions of the connection, and responses as JSON. */
import type { Context } from 'trellis';
import { fault, sourceFault } from './faults.ts';
import type { SheetSettings } from './settings.ts';

/** The part of the context that syncs and actions share. */
export type Api = Pick<Context, 'get' | 'post' | 'getConnection' | 'log'>;

/** The sheet of a variant, and the rights of the connection. */
export type SheetAccess = { settings: SheetSettings; rights: Rights };
export type Rights = { canWrite: boolean; canSeeFiles: boolean; account: string | undefined };

const auth = 'https://www.googleapis.com/auth/';
const writeScopes = [`${auth}spreadsheets`, `${auth}drive`, `${auth}drive.file`];
const fileScopes = [
  `${auth}drive`,
  `${auth}drive.file`,
  `${auth}drive.readonly`,
  `${auth}drive.metadata.readonly`,
];
/** Retries of a read after a temporary failure. */
export const retries = 2;
export const spreadsheets = '/v4/spreadsheets';

export async function rightsOf(trellis: Api): Promise<Rights> {
  const { scopes, account } = await trellis.getConnection();
  const granted = Array.isArray(scopes) ? (scopes as string[]) : [];
  const email = (account as { email?: unknown } | null)?.email;
  return {
    canWrite: writeScopes.some((scope) => granted.includes(scope)),
    canSeeFiles: fileScopes.some((scope) => granted.includes(scope)),
    account: typeof email === 'string' ? email : undefined,
  };
}

/** The response to a GET of a spreadsheet. Throws the error of `sourceFault`, and `upstream_unreadable`. */
export async function getJson<T>(
  trellis: Api,
  of: { spreadsheetId: string; rights: Rights; params: Record<string, string | boolean> },
): Promise<T> {
  const { spreadsheetId, rights, params } = of;
  const { data } = await trellis
    .get<Buffer>({
      endpoint: `${spreadsheets}/${spreadsheetId}`,
      params,
      responseType: 'arraybuffer',
      retries,
    })
    .catch((error: unknown) => {
      throw sourceFault(error, rights.account);
    });
  return jsonOf<T>(data);
}

/** Sends edits of a spreadsheet, which Google applies together or not at all. Throws the error of `sourceFault`. */
export async function batchUpdate(
  trellis: Pick<Api, 'post'>,
  { settings, rights, requests }: SheetAccess & { requests: object[] },
): Promise<void> {
  await trellis
    .post({ endpoint: `${spreadsheets}/${settings.spreadsheetId}:batchUpdate`, data: { requests } })
    .catch((error: unknown) => {
      throw sourceFault(error, rights.account);
    });
}

/** Throws `upstream_unreadable`. */
export function jsonOf<T>(bytes: Buffer): T {
  try {
    const json: unknown = JSON.parse(bytes.toString());
    if (typeof json === 'object' && json !== null) return json as T;
  } catch {}
  throw fault('upstream_unreadable', 'Google returned a response that is not JSON. Nothing was changed.');
}
