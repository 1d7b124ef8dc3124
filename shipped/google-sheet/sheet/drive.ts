/** Requests to the Drive API, for connections with a Drive scope. */
import type { Api } from './api.ts';
import { fault } from './faults.ts';

const drive = 'https://www.googleapis.com';

/**
 * The version of the file, which changes with every edit; undefined if Drive does not return it. Throws
 * `source_unavailable` if the file is in the trash.
 */
export async function fileVersion(trellis: Api, spreadsheetId: string): Promise<string | undefined> {
  const answer = await trellis
    .get<{ version?: string; trashed?: boolean }>({
      endpoint: `/drive/v3/files/${spreadsheetId}`,
      baseUrlOverride: drive,
      params: { fields: 'version,modifiedTime,trashed', supportsAllDrives: true },
    })
    .catch(() => undefined);
  if (answer?.data.trashed === true) {
    throw fault(
      'source_unavailable',
      'The spreadsheet is in the trash. Restore it, or choose another spreadsheet. No records were deleted.',
    );
  }
  const version = answer?.data.version;
  return typeof version === 'string' ? version : undefined;
}

export type FoundFile = { spreadsheetId: string; title: string; modifiedAt: string; url: string };

/** The spreadsheets that the account may see, most recently modified first. */
export async function listFiles(
  trellis: Api,
  { search, pageToken, limit }: { search: string | undefined; pageToken: string | undefined; limit: number },
): Promise<{ files: FoundFile[]; nextPageToken: string | undefined }> {
  const named = search === undefined ? '' : ` and name contains '${search.replace(/['\\]/g, '\\$&')}'`;
  const { data } = await trellis.get<{
    nextPageToken?: string;
    files?: { id: string; name: string; modifiedTime: string; webViewLink?: string }[];
  }>({
    endpoint: '/drive/v3/files',
    baseUrlOverride: drive,
    retries: 2,
    params: {
      q: `mimeType = 'application/vnd.google-apps.spreadsheet' and trashed = false${named}`,
      fields: 'nextPageToken,files(id,name,modifiedTime,webViewLink)',
      orderBy: 'modifiedTime desc',
      pageSize: limit,
      pageToken,
    },
  });
  return {
    nextPageToken: data.nextPageToken,
    files: (data.files ?? []).map(({ id, name, modifiedTime, webViewLink }) => ({
      spreadsheetId: id,
      title: name,
      modifiedAt: modifiedTime,
      url: webViewLink ?? `https://docs.google.com/spreadsheets/d/${id}/edit`,
    })),
  };
}
