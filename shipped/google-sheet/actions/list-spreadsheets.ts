import { createAction } from 'trellis';
import { z } from 'zod';
import { rightsOf } from '../sheet/api.ts';
import { listFiles } from '../sheet/drive.ts';

const Output = z.object({
  /** False if the connection may not list files: the user then has to enter a link. */
  available: z.boolean(),
  /** Only files that this application created or the user picked are listed. */
  ownFilesOnly: z.boolean(),
  spreadsheets: z.array(
    z.object({ spreadsheetId: z.string(), title: z.string(), modifiedAt: z.string(), url: z.string() }),
  ),
  nextPageToken: z.string().nullable(),
});
const drive = 'https://www.googleapis.com/auth/drive';

export default createAction({
  description:
    'Lists the spreadsheets that the account can see, most recently modified first, if the connection may list files.',
  version: '1.0.0',
  readOnly: true,
  input: z.object({
    search: z.string().min(1).max(200).optional(),
    pageToken: z.string().max(4_096).optional(),
    limit: z.int().min(1).max(100).default(50),
  }),
  output: Output,
  exec: async (trellis, { search, pageToken, limit }) => {
    const { canSeeFiles } = await rightsOf(trellis);
    const none = { ownFilesOnly: false, spreadsheets: [], nextPageToken: null };
    if (!canSeeFiles) return { available: false, ...none };
    const { scopes } = await trellis.getConnection();
    const granted = scopes as string[];
    const ownFilesOnly = ![drive, `${drive}.readonly`, `${drive}.metadata.readonly`].some((scope) =>
      granted.includes(scope),
    );
    const { files, nextPageToken = null } = await listFiles(trellis, { search, pageToken, limit });
    return { available: true, ownFilesOnly, spreadsheets: files, nextPageToken };
  },
});
