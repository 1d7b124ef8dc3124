// Slow: it drives published clients.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { after, before, test } from 'node:test';
import { auth, drive as createClient, type drive_v3 } from '@googleapis/drive';
import { type BothWays, comparable, openBothWays, type Way } from './both-ways.ts';

/** Google's own Drive client, straight at the sandbox and through the proxy, with the same results. */
let ways: BothWays;
before(async () => {
  ways = await openBothWays('google-drive');
});
after(() => ways.close());

function clientOf({ token, headers }: Way): drive_v3.Drive {
  const credentials = new auth.OAuth2();
  credentials.setCredentials({ access_token: token });
  return createClient({ version: 'v3', auth: credentials, headers });
}

const all = 'id,name,mimeType,size,md5Checksum,parents,trashed,starred,description,appProperties,version';

/** What a program does with files, and everything that it was told. */
async function useFiles(way: Way, bytes: Buffer): Promise<{ told: unknown; ids: string[] }> {
  const { files, about } = clientOf(way);
  const here = { rootUrl: `${way.root}/` };
  const told: unknown[] = [(await about.get({ fields: 'user,storageQuota/limit' }, here)).data];
  const folder = (
    await files.create(
      { requestBody: { name: `Box ${way.name}`, mimeType: 'application/vnd.google-apps.folder' } },
      here,
    )
  ).data.id as string;
  // Metadata alone, bytes alone, both from memory, both from a stream of unknown length.
  const bare = await files.create({ fields: all, requestBody: { name: 'bare', parents: [folder] } }, here);
  const raw = await files.create({ fields: all, media: { mimeType: 'text/csv', body: 'a,b\n1,2\n' } }, here);
  const whole = await files.create(
    {
      fields: all,
      requestBody: { name: 'Grüße.bin', parents: [folder], appProperties: { run: '7' } },
      media: {
        mimeType: 'application/octet-stream',
        body: Readable.from([bytes.subarray(0, 5), bytes.subarray(5)]),
      },
    },
    here,
  );
  told.push(bare.data, raw.data, whole.data);
  const [bareId, rawId, wholeId] = [bare, raw, whole].map(({ data }) => data.id as string) as [
    string,
    string,
    string,
  ];
  const down = await files.get({ fileId: wholeId, alt: 'media' }, { ...here, responseType: 'arraybuffer' });
  assert.ok(Buffer.from(down.data as unknown as ArrayBuffer).equals(bytes));
  const part = await files.get(
    { fileId: wholeId, alt: 'media' },
    { ...here, responseType: 'arraybuffer', headers: { range: 'bytes=10-19' } },
  );
  told.push(part.status, Buffer.from(part.data as unknown as ArrayBuffer).equals(bytes.subarray(10, 20)));
  const renamed = await files.update(
    { fileId: rawId, fields: all, requestBody: { name: 'renamed', starred: true, parents: [folder] } },
    here,
  );
  const replaced = await files.update(
    { fileId: bareId, fields: all, requestBody: { description: 'now with bytes' }, media: { body: 'hello' } },
    here,
  );
  told.push(renamed.data, replaced.data);
  const q = `'${folder}' in parents and trashed = false`;
  const names: unknown[] = [];
  let pageToken: string | undefined;
  do {
    const page = (
      await files.list(
        { q, pageSize: 2, orderBy: 'name', ...(pageToken !== undefined && { pageToken }) },
        here,
      )
    ).data;
    names.push((page.files ?? []).map(({ name }) => name));
    pageToken = page.nextPageToken ?? undefined;
  } while (pageToken !== undefined);
  assert.deepEqual(names, [['Grüße.bin', 'bare'], ['renamed']]);
  told.push(names, (await files.delete({ fileId: rawId }, here)).status);
  const gone = await files.get({ fileId: rawId }, here).catch((error: unknown) => error);
  const { status, message, errors } = gone as { status: number; message: string; errors: unknown };
  assert.equal(status, 404);
  told.push(status, message, errors);
  for (const id of [bareId, wholeId, folder]) await files.delete({ fileId: id }, here);
  return { told, ids: [folder, bareId, rawId, wholeId] };
}

test("Google's Drive client makes, uploads, reads, lists, changes and deletes files alike both ways", async () => {
  const bytes = randomBytes(300_000);
  const straight = await useFiles(ways.straight, bytes);
  const proxied = await useFiles(ways.proxied, bytes);
  assert.deepEqual(comparable(proxied.told, proxied.ids), comparable(straight.told, straight.ids));
  assert.ok(JSON.stringify(straight.told).includes(createHash('md5').update(bytes).digest('hex')));
});

test("the address in the client's constructor is enough for what is no upload", async () => {
  // The client reads a constructor's rootUrl for plain calls alone and sends uploads to Google: they need it per call.
  const { root, token, headers } = ways.proxied;
  const credentials = new auth.OAuth2();
  credentials.setCredentials({ access_token: token });
  const { files, about } = createClient({ version: 'v3', auth: credentials, headers, rootUrl: root });
  assert.equal((await about.get({ fields: 'user' })).data.user?.emailAddress, 'ada@example.com');
  const made = await files.create({ requestBody: { name: 'x' } });
  assert.equal((await files.get({ fileId: made.data.id as string })).data.name, 'x');
  await files.delete({ fileId: made.data.id as string });
});

test('a resumable upload goes through the proxy in pieces, and can ask how far it is', async () => {
  const { root, token, headers } = ways.proxied;
  const bytes = randomBytes(256 * 1024 + 1000);
  const send = (path: string, init: RequestInit & { headers?: Record<string, string> }) =>
    fetch(root + path, {
      ...init,
      headers: { authorization: `Bearer ${token}`, ...headers, ...init.headers },
    });
  const begun = await send('/upload/drive/v3/files?uploadType=resumable&fields=id,size,sha256Checksum', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-upload-content-type': 'image/png' },
    body: JSON.stringify({ name: 'picture' }),
  });
  assert.equal(begun.status, 200);
  const at = new URL(begun.headers.get('location') ?? '');
  assert.equal(at.origin, ways.straight.root);
  const piece = (from: number, to: number) =>
    send(at.pathname + at.search, {
      method: 'PUT',
      headers: { 'content-range': `bytes ${from}-${to - 1}/${bytes.length}` },
      body: bytes.subarray(from, to),
    });
  const first = await piece(0, 256 * 1024);
  assert.deepEqual([first.status, first.headers.get('range')], [308, `bytes=0-${256 * 1024 - 1}`]);
  const asked = await send(at.pathname + at.search, {
    method: 'PUT',
    headers: { 'content-range': `bytes */${bytes.length}` },
  });
  assert.deepEqual([asked.status, asked.headers.get('range')], [308, `bytes=0-${256 * 1024 - 1}`]);
  const last = await piece(256 * 1024, bytes.length);
  const made = (await last.json()) as { id: string; size: string; sha256Checksum: string };
  assert.deepEqual(
    [made.size, made.sha256Checksum],
    [String(bytes.length), createHash('sha256').update(bytes).digest('hex')],
  );
});
