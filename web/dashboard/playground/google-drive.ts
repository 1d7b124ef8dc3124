import type { SuggestedApi } from './calls.ts';

const fileId = { about: 'The ID of the file', example: '1AbC...xYz' };
const parameter = (name: string, value = '') => ({ name, value });

/** Files of the Drive API v3: developers.google.com/workspace/drive/api/reference/rest/v3. */
export const googleDrive: SuggestedApi = {
  client: { package: '@googleapis/drive', make: 'drive', version: 'v3', name: 'drive' },
  calls: [
    {
      id: 'files.list',
      title: 'List files',
      about: 'The files that the application may see, page by page.',
      method: 'GET',
      path: '/drive/v3/files',
      query: [
        parameter('q', 'trashed = false'),
        parameter('pageSize', '50'),
        parameter('fields', 'nextPageToken,files(id,name,mimeType,modifiedTime)'),
        parameter('orderBy'),
        parameter('pageToken'),
      ],
      client: 'files.list',
    },
    {
      id: 'files.get',
      title: 'Describe a file',
      about: 'Its name, kind, size and times.',
      method: 'GET',
      path: '/drive/v3/files/{fileId}',
      query: [parameter('fields', 'id,name,mimeType,size,modifiedTime')],
      fields: { fileId },
      client: 'files.get',
    },
    {
      id: 'files.download',
      title: 'Fetch the bytes of a file',
      about: 'The content as it is, for files that are no documents of Google.',
      method: 'GET',
      path: '/drive/v3/files/{fileId}',
      query: [parameter('alt', 'media')],
      fields: { fileId },
      client: 'files.get',
    },
    {
      id: 'files.create',
      title: 'Make a file',
      about: 'An empty file, a folder, or a document of Google, by its kind.',
      method: 'POST',
      path: '/drive/v3/files',
      body: { name: 'Made in the playground', mimeType: 'application/vnd.google-apps.folder' },
      client: 'files.create',
    },
    {
      id: 'files.update',
      title: 'Rename a file',
      about: 'Changes what is known of a file, not its bytes.',
      method: 'PATCH',
      path: '/drive/v3/files/{fileId}',
      fields: { fileId },
      body: { name: 'Another name' },
      client: 'files.update',
    },
    {
      id: 'files.delete',
      title: 'Delete a file',
      about: 'For good, past the bin.',
      method: 'DELETE',
      path: '/drive/v3/files/{fileId}',
      fields: { fileId },
      client: 'files.delete',
    },
    {
      id: 'about.get',
      title: 'Whose account it is',
      about: 'The user, and how much storage is left.',
      method: 'GET',
      path: '/drive/v3/about',
      query: [parameter('fields', 'user,storageQuota')],
      client: 'about.get',
    },
  ],
};
